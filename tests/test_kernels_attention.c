/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast attention against the plain one, forward and backward, over shapes around every edge of its
 * tiles; and what must hold whatever the version: equal values come out as they went in, later keys
 * do not matter.
 */
#define CHECK_PURE
#include "check.h"
#include "attention_sides.h"
#include "kernels/half.h"
#include "paper.h"
#include "vector/choose.h"

static void fast_is_plain_at_every_edge(void)
{
    static const int64_t lengths[] = {1,  2,  3,  5,  6,  11, 12, 13, 16,
                                      17, 31, 32, 33, 47, 48, 49, 65, 100};
    static const int64_t widths[] = {1, 3, 4, 8, 15, 16, 17, 32, 33, 48, 64};
    side plain = open_side(), fast = open_side();

    for (int l = 0; l < LEN(lengths); l++)
        for (int w = 0; w < LEN(widths); w++)
            for (int causal = 0; causal < 2; causal++) {
                sherd__attending shape = problem(1, 1, 1, lengths[l], lengths[l], widths[w], 0.4);
                shape.causal = causal;
                try_shape(&plain, &fast, &shape);
                shape.all_keys = shape.keys = lengths[(l * 5 + w) % LEN(lengths)];
                try_shape(&plain, &fast, &shape);
            }
    close_side(&plain);
    close_side(&fast);
}

static void fast_is_plain_with_heads_and_batches(void)
{
    static const struct {
        int64_t batch, groups, repeat, queries, keys, width;
        double scale;
        bool causal;
    } shapes[] = {
        {2, 3, 1, 50, 50, 8, 0.35, true},    {3, 2, 1, 20, 70, 32, 0.2, false},
        {2, 1, 1, 256, 256, 32, 0.18, true}, {1, 2, 1, 7, 9, 5, -0.5, false}, /* negative scale */
        {0, 2, 1, 5, 5, 4, 0.5, true},       {2, 0, 1, 5, 5, 4, 0.5, true},
        {2, 2, 0, 5, 5, 4, 0.5, true},       {2, 2, 1, 0, 5, 4, 0.5, false},
        {2, 2, 1, 5, 0, 4, 0.5, false},      {2, 2, 1, 5, 5, 0, 0.5, true},
        {1, 1, 1, 5, 5, 4, 40, true},        {2, 2, 3, 17, 31, 9, 0.3, false}, /* one-hot; shared */
        {1, 1, 4, 100, 100, 16, 0.3, true},  {1, 1, 1, 300, 300, 8, 0.4, true}, /* two blocks */
        {1, 2, 1, 97, 577, 8, 0.4, false},   {1, 1, 1, 601, 601, 4, 0.4, true},
        {1, 1, 2, 200, 900, 4, 0.4, false},
    };
    side plain = open_side(), fast = open_side();

    for (int i = 0; i < LEN(shapes); i++) {
        sherd__attending shape =
            problem(shapes[i].batch, shapes[i].groups, shapes[i].repeat, shapes[i].queries,
                    shapes[i].keys, shapes[i].width, shapes[i].scale);
        shape.causal = shapes[i].causal;
        try_shape(&plain, &fast, &shape);
    }
    close_side(&plain);
    close_side(&fast);
}

/* Queries behind the keys, before them, and anything between. */
static void fast_is_plain_of_pieces(void)
{
    static const int64_t queries[] = {1, 7, 12, 30, 61}, keys[] = {1, 6, 13, 24, 50};
    side plain = open_side(), fast = open_side();

    for (int i = 0; i < LEN(queries); i++)
        for (int j = 0; j < LEN(keys); j++)
            for (int64_t ahead = -64; ahead <= 52; ahead += 1 + (ahead + 64) % 5) {
                sherd__attending shape = problem(1, 2, 1, queries[i], keys[j], 5, 0.4);
                shape.causal = true;
                shape.first_query = 64 + ahead;
                shape.first_key = 64;
                try_shape(&plain, &fast, &shape);
            }
    close_side(&plain);
    close_side(&fast);
}

/* A mask that is stretched along random dims, with elements of one of its dtypes. */
static void give_mask(sherd__attending *s, unsigned char *mask, uint64_t *random)
{
    static const sherd_dtype dtypes[] = {SHERD_BOOL, SHERD_F32, SHERD_BF16, SHERD_F16};
    const int64_t size[] = {s->batch, s->groups, s->repeat, s->queries, s->all_keys};
    int64_t stride = 1;

    for (int d = 4; d >= 0; d--) {
        bool stretched = paper_random(random) % 3 == 0;
        s->mask_stride[d] = stretched ? 0 : stride;
        stride *= stretched ? 1 : size[d];
    }
    s->mask = mask;
    s->mask_dtype = dtypes[paper_random(random) % LEN(dtypes)];
    for (int64_t i = 0; i < stride; i++) {
        float x = (float)(paper_random(random) % 64) / 16 - 2;
        bool hidden = paper_random(random) % 4 == 0;
        if (s->mask_dtype == SHERD_BOOL)
            mask[i] = !hidden;
        else if (s->mask_dtype == SHERD_F32)
            ((float *)(void *)mask)[i] = hidden ? -INFINITY : x;
        else
            ((uint16_t *)(void *)mask)[i] = s->mask_dtype == SHERD_BF16
                                                ? sherd__to_bf16(hidden ? -INFINITY : x)
                                                : sherd__to_f16(hidden ? -INFINITY : x);
    }
}

/* Spans of keys that never fall, some of them empty, as documents or at random. */
static void give_span(sherd__attending *s, int32_t *span, uint64_t *random)
{
    bool documents = paper_random(random) % 2;
    int64_t first = s->first_key - 5, end = first;

    for (int64_t i = 0; i < s->queries; i++) {
        if (!documents) {
            first += (int64_t)(paper_random(random) % 3);
            end = sherd__max(end, first + (int64_t)(paper_random(random) % 30) - 3);
        } else if (i == 0 || paper_random(random) % 20 == 0) {
            first = end;
            end += 1 + (int64_t)(paper_random(random) % 30);
        }
        span[2 * i] = (int32_t)first;
        span[2 * i + 1] = (int32_t)end;
    }
    s->span = span;
}

/* Masks, dropout, shared heads, pieces, and gradients of the logarithms of sums, all at once. */
static void fast_is_plain_in_general(void)
{
    side plain = open_side(), fast = open_side();
    unsigned char *mask = (unsigned char *)array();
    int32_t span[2 * 70];
    uint64_t r = 11;

    for (int i = 0; i < 300; i++) {
        sherd__attending s =
            problem(1 + (int64_t)(paper_random(&r) % 2), 1 + (int64_t)(paper_random(&r) % 2),
                    1 + (int64_t)(paper_random(&r) % 3), 1 + (int64_t)(paper_random(&r) % 70),
                    1 + (int64_t)(paper_random(&r) % (i % 10 ? 70 : 400)),
                    1 + (int64_t)(paper_random(&r) % 20), 0.4);
        s.causal = paper_random(&r) % 2;
        s.first_query = (int64_t)(paper_random(&r) % 50);
        s.first_key = (int64_t)(paper_random(&r) % 50);
        s.all_queries += s.first_query + 3;
        s.all_keys += s.first_key + 3;
        s.first[0] = (int64_t)(paper_random(&r) % 3);
        s.first[2] = (int64_t)(paper_random(&r) % 2);
        s.all_repeat += s.first[2];
        s.all_heads = (s.groups + 1) * s.all_repeat;
        if (paper_random(&r) % 2)
            give_mask(&s, mask, &r);
        if (paper_random(&r) % 2) {
            s.p = 0.3;
            s.key = sherd__philox_key(3, (uint64_t)i, 0);
        }
        if (s.causal && paper_random(&r) % 2)
            s.window = 1 + (int64_t)(paper_random(&r) % 80);
        if (paper_random(&r) % 3 == 0)
            s.softcap = 0.7;
        if (paper_random(&r) % 3 == 0)
            give_span(&s, span, &r);
        try_with(&plain, &fast, &s, paper_random(&r) % 2 ? input[2] : NULL);
    }
    free(mask);
    close_side(&plain);
    close_side(&fast);
}

/* What has no elements has no memory either. */
static void empty_tensors_may_be_null(void)
{
    const sherd__attending no_keys = problem(2, 3, 1, 4, 0, 5, 0.5);
    const sherd__attending no_queries = problem(2, 3, 1, 0, 4, 5, 0.5);
    sherd__kernels list[1 + FAST_SETS] = {sherd__ref_f32};
    int n = 1 + versions(list + 1);
    side s = open_side();
    float *const *r = s.result;

    for (int i = 0; i < n; i++) {
        const sherd__kernels *k = &list[i];
        r[0][119] = r[1][23] = r[2][119] = 77;
        k->attention(&no_keys, r[0], r[1], input[0], NULL, NULL, s.space);
        k->attention_grad(&no_keys, r[2], NULL, NULL, NULL, input[3], NULL, input[0], NULL, NULL,
                          r[0], r[1], s.space);
        CHECK(r[0][119] == 0 && r[1][23] == -INFINITY && r[2][119] == 0);
        r[3][119] = r[4][119] = 77;
        k->attention(&no_queries, NULL, NULL, NULL, input[1], input[2], s.space);
        k->attention_grad(&no_queries, NULL, r[3], r[4], NULL, input[3], NULL, NULL, input[1],
                          input[2], NULL, NULL, s.space);
        CHECK(r[3][119] == 0 && r[4][119] == 0);
    }
    close_side(&s);
}

/* The weights of a query add up to one, so values that are all alike pass unchanged. */
static void equal_values_pass_unchanged(void)
{
    sherd__attending shape = problem(1, 2, 1, 33, 33, 8, 0.5);
    sherd__kernel_set set;
    side s = open_side();

    shape.causal = true;
    sherd__kernels_choose(&set);
    for (int i = 0; i < 33 * 16; i++)
        input[2][i] = 3;
    s.kernels = set.f32;
    run(&s, &shape, NULL);
    for (int i = 0; i < 33 * 16; i++)
        CHECK_NEAR(s.result[0][i], 3, 2e-6);
    close_side(&s);
}

/* Outputs of the first queries have the same bits whatever later keys and values hold. */
static void later_keys_do_not_matter(void)
{
    sherd__attending shape = problem(1, 1, 1, 60, 60, 8, 0.5);
    sherd__kernel_set set;
    side s = open_side();
    float before[20 * 8];

    shape.causal = true;
    sherd__kernels_choose(&set);
    s.kernels = set.f32;
    run(&s, &shape, NULL);
    memcpy(before, s.result[0], sizeof before);
    for (int i = 20 * 8; i < 60 * 8; i++)
        input[1][i] = input[2][i] = 50;
    run(&s, &shape, NULL);
    CHECK_EQ(memcmp(before, s.result[0], sizeof before), 0);
    close_side(&s);
}

/* Who sees nothing gets zeroes and gives none, whatever the hidden keys and values hold. */
static void nothing_seen_is_nothing(void)
{
    static const unsigned char none[100];
    float hides[100];
    sherd__attending shape = problem(1, 1, 2, 20, 5, 7, 0.4);
    side plain = open_side(), fast = open_side();

    shape.mask_stride[3] = 5;
    shape.mask_stride[4] = 1;
    for (int j = 0; j < 100; j++)
        hides[j] = -INFINITY;
    for (int j = 0; j < 5 * 7; j++) {
        input[1][j] = j % 2 ? NAN : -INFINITY;
        input[2][j] = j % 3 ? NAN : INFINITY;
    }
    for (int added = 0; added < 2; added++) {
        shape.mask = added ? (const void *)hides : none;
        shape.mask_dtype = added ? SHERD_F32 : SHERD_BOOL;
        try_shape(&plain, &fast, &shape);
        for (int i = 0; i < 5; i++)
            for (int j = 0; j < (i > 2 ? 5 * 7 : 2 * 20 * (i == 1 ? 1 : 7)); j++)
                CHECK_EQ(plain.result[i][j], i == 1 ? -INFINITY : 0);
    }
    close_side(&plain);
    close_side(&fast);
    close_inputs();
    open_inputs();
}

/* A query that is no number has no result, though it is hidden from later keys; others have one. */
static void a_nan_is_not_hidden_by_hidden_keys(void)
{
    sherd__attending shape = problem(1, 1, 1, 40, 40, 8, 0.4);
    sherd__kernels all[1 + FAST_SETS] = {sherd__ref_f32};
    int n = 1 + versions(all + 1);

    shape.causal = true;
    input[0][17 * 8 + 3] = NAN;
    for (int v = 0; v < n; v++) {
        side s = open_side();
        s.kernels = all[v];
        run(&s, &shape, NULL);
        for (int i = 0; i < 40; i++) {
            CHECK_EQ((bool)isnan(s.result[1][i]), i == 17);
            for (int j = 0; j < 8; j++)
                CHECK_EQ((bool)isnan(s.result[0][i * 8 + j]), i == 17);
        }
        close_side(&s);
    }
    close_inputs();
    open_inputs();
}

/* The values of the first query, and all gradients of values, with this number added to all scores.
 */
static void all_alike(side *s, sherd__attending *shape, float added)
{
    float mask[20];

    for (int j = 0; j < 20; j++)
        mask[j] = added;
    shape->mask = mask;
    shape->mask_dtype = SHERD_F32;
    shape->mask_stride[4] = 1;
    run(s, shape, NULL);
    for (int j = 0; j < 4; j++) {
        float sum = 0, most = 0;
        for (int key = 0; key < 20; key++)
            sum += input[2][key * 4 + j];
        for (int query = 0; query < 3; query++)
            most += fabsf(input[3][query * 4 + j]);
        /* equal shares, where a score is nothing beside the mask */
        CHECK(added > -1e30f || fabsf(s->result[0][j] - sum / 20) <= 1e-5f);
        for (int key = 0; key < 20; key++)
            CHECK(fabsf(s->result[4][key * 4 + j]) <= most);
    }
    for (int j = 0; j < 20 * 4; j++)
        CHECK(isfinite(s->result[3][j]) && (j >= 3 * 4 || isfinite(s->result[2][j])));
}

/* Only -inf hides: who has the least numbers added everywhere sees all keys. A share is at most 1,
 * also where the last bits of scores are worth more than all of them. */
static void large_masks_hide_nothing(void)
{
    static const float added[] = {-1e9f, -3e9f, -1e20f, -3e38f, -3.4028235e38f};
    sherd__attending shape = problem(1, 1, 1, 3, 20, 4, 40);
    sherd__kernels fast[1 + FAST_SETS] = {sherd__ref_f32};
    int n = 1 + versions(fast + 1);

    for (int v = 0; v < n; v++)
        for (int m = 0; m < LEN(added); m++) {
            side s = open_side();
            s.kernels = fast[v];
            all_alike(&s, &shape, added[m]);
            close_side(&s);
        }
}

/* Each query sees its own key alone, by scores that f32 rounds: it counts for all, to the last bit. */
static void what_counts_alone_counts_for_all(void)
{
    enum { N = 40 };
    sherd__attending shape = problem(1, 1, 1, N, N, N, 0.37);
    sherd__kernels fast[FAST_SETS];

    for (int i = 0; i < N * N; i++)
        input[0][i] = input[1][i] = i % (N + 1) ? 0 : 97.3f + 1.7f * (float)(i / N);
    for (int v = 0, n = versions(fast); v < n; v++) {
        side s = open_side();
        s.kernels = fast[v];
        run(&s, &shape, NULL);
        CHECK(memcmp(s.result[0], input[2], N * N * sizeof(float)) == 0);
        CHECK(memcmp(s.result[4], input[3], N * N * sizeof(float)) == 0);
        close_side(&s);
    }
    close_inputs();
    open_inputs();
}

static const check_test tests[] = {
    {TEST(fast_is_plain_at_every_edge)},
    {TEST(fast_is_plain_with_heads_and_batches)},
    {TEST(fast_is_plain_of_pieces)},
    {TEST(fast_is_plain_in_general)},
    {TEST(empty_tensors_may_be_null)},
    {TEST(equal_values_pass_unchanged)},
    {TEST(later_keys_do_not_matter)},
    {TEST(nothing_seen_is_nothing)},
    {TEST(what_counts_alone_counts_for_all)},
    {TEST(large_masks_hide_nothing)},
    {TEST(a_nan_is_not_hidden_by_hidden_keys)},
};

int main(int argc, char **argv)
{
    open_inputs();
    int status = check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
    close_inputs();
    return status;
}
