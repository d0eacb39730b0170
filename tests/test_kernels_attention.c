/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast attention against the plain one, forward and backward, over shapes around every edge of its
 * tiles; and what must hold whatever the version: equal values come out as they went in, later keys
 * do not matter.
 */
#define CHECK_PURE
#include "check.h"
#include "kernels/fast.h"

enum { ROOM = 200000, LINE = 64 };

/* Inputs q, k, v, dout; results out, log_sum, dq, dk, dv. */
typedef struct side {
    sherd__kernels kernels;
    float *result[5];
    float *space;
} side;

static float *input[4];

static float *array(void)
{
    float *x = malloc(sizeof(float) * ROOM);
    if (!x)
        abort();
    return x;
}

static side open_side(void)
{
    side s = {.kernels = sherd__ref_f32, .space = array()};
    for (int i = 0; i < 5; i++)
        s.result[i] = array();
    return s;
}

static void close_side(side *s)
{
    for (int i = 0; i < 5; i++)
        free(s->result[i]);
    free(s->space);
}

static void open_inputs(void)
{
    for (uint64_t i = 0; i < 4; i++) {
        input[i] = array();
        sherd__ref_f32.uniform(ROOM, input[i], -2, 2, sherd__philox_key(5, i, 0), 0);
    }
}

static void close_inputs(void)
{
    for (int i = 0; i < 4; i++)
        free(input[i]);
}

/* Forward and backward; the workspace begins off a cache line, and its end is watched. */
static void run(side *s, const sherd__attention_shape *shape)
{
    int64_t need = s->kernels.attention_workspace(shape);

    CHECK(need + 2 < ROOM);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < ROOM; j++)
            s->result[i][j] = 77;
    s->space[1 + need] = 77;
    s->kernels.attention(shape, s->result[0], s->result[1], input[0], input[1], input[2],
                         s->space + 1);
    s->kernels.attention_grad(shape, s->result[2], s->result[3], s->result[4], input[3], input[0],
                              input[1], input[2], s->result[0], s->result[1], s->space + 1);
    CHECK_EQ(s->space[1 + need], 77);
}

/* Gradients are sums of up to 100 terms of size 4 that may cancel to 0: hence 5e-5 there. */
static void compare(const side *plain, const side *fast, const sherd__attention_shape *s)
{
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < ROOM; j++) {
            float x = plain->result[i][j], y = fast->result[i][j];
            if (x == y || fabsf(x - y) <= (i < 2 ? 1e-5f : 5e-5f) * (1 + fabsf(x)))
                continue;
            fprintf(stderr,
                    "%s: b%d h%d q%d k%d w%d causal %d: element %d of result %d: %.9g is %.9g\n",
                    fast->kernels.name, (int)s->batch, (int)s->heads, (int)s->queries, (int)s->keys,
                    (int)s->width, s->causal, j, i, (double)x, (double)y);
            CHECK(false);
            return;
        }
}

static int versions(sherd__kernels out[2])
{
    int n = 0;
#if defined(__x86_64__)
    if (sherd__has_avx2())
        sherd__install_avx2(&out[n++]);
    if (sherd__has_avx512())
        sherd__install_avx512(&out[n++]);
#else
    (void)out;
#endif
    return n;
}

static void try_shape(side *plain, side *fast, const sherd__attention_shape *shape)
{
    sherd__kernels list[2] = {sherd__ref_f32, sherd__ref_f32};
    int n = versions(list);

    run(plain, shape);
    for (int i = 0; i < n; i++) {
        fast->kernels = list[i];
        run(fast, shape);
        compare(plain, fast, shape);
    }
}

static void fast_is_plain_at_every_edge(void)
{
    static const int64_t lengths[] = {1,  2,  3,  5,  6,  11, 12, 13, 16,
                                      17, 31, 32, 33, 47, 48, 49, 65, 100};
    static const int64_t widths[] = {1, 3, 4, 8, 15, 16, 17, 32, 33, 48, 64};
    side plain = open_side(), fast = open_side();

    for (int l = 0; l < LEN(lengths); l++)
        for (int w = 0; w < LEN(widths); w++)
            for (int causal = 0; causal < 2; causal++) {
                sherd__attention_shape shape = {1,         1,   lengths[l], lengths[l], widths[w],
                                                widths[w], 0.4, causal,     0};
                try_shape(&plain, &fast, &shape);
                shape.keys = lengths[(l * 5 + w) % LEN(lengths)];
                try_shape(&plain, &fast, &shape);
            }
    close_side(&plain);
    close_side(&fast);
}

static void fast_is_plain_with_heads_and_batches(void)
{
    static const sherd__attention_shape shapes[] = {
        {2, 3, 50, 50, 8, 24, 0.35, true, 0},
        {3, 2, 20, 70, 32, 64, 0.2, false, 0},
        {2, 1, 256, 256, 32, 32, 0.18, true, 0},
        {1, 2, 7, 9, 5, 16, -0.5, false, 0}, /* a stride with a gap; negative scale */
        {0, 2, 5, 5, 4, 8, 0.5, true, 0},
        {2, 0, 5, 5, 4, 0, 0.5, true, 0},
        {2, 2, 0, 5, 4, 8, 0.5, false, 0},
        {2, 2, 5, 0, 4, 8, 0.5, false, 0},
        {2, 2, 5, 5, 0, 0, 0.5, true, 0},
        {1, 1, 5, 5, 4, 4, 40, true, 0}, /* nearly one-hot */
    };
    side plain = open_side(), fast = open_side();

    for (int i = 0; i < LEN(shapes); i++)
        try_shape(&plain, &fast, &shapes[i]);
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
                const sherd__attention_shape shape = {1,  2,   queries[i], keys[j], 5,
                                                      10, 0.4, true,       ahead};
                try_shape(&plain, &fast, &shape);
            }
    close_side(&plain);
    close_side(&fast);
}

/* What has no elements has no memory either. */
static void empty_tensors_may_be_null(void)
{
    const sherd__attention_shape no_keys = {2, 3, 4, 0, 5, 15, 0.5, false, 0};
    const sherd__attention_shape no_queries = {2, 3, 0, 4, 5, 15, 0.5, false, 0};
    sherd__kernels list[3] = {sherd__ref_f32, sherd__ref_f32, sherd__ref_f32};
    int n = 1 + versions(list + 1);
    side s = open_side();
    float *const *r = s.result;

    for (int i = 0; i < n; i++) {
        const sherd__kernels *k = &list[i];
        r[0][119] = r[1][23] = r[2][119] = 77;
        k->attention(&no_keys, r[0], r[1], input[0], NULL, NULL, s.space);
        k->attention_grad(&no_keys, r[2], NULL, NULL, input[3], input[0], NULL, NULL, r[0], r[1],
                          s.space);
        CHECK(r[0][119] == 0 && r[1][23] == -INFINITY && r[2][119] == 0);
        r[3][119] = r[4][119] = 77;
        k->attention(&no_queries, NULL, NULL, NULL, input[1], input[2], s.space);
        k->attention_grad(&no_queries, NULL, r[3], r[4], NULL, NULL, input[1], input[2], NULL, NULL,
                          s.space);
        CHECK(r[3][119] == 0 && r[4][119] == 0);
    }
    close_side(&s);
}

/* The weights of a query add up to one, so values that are all alike pass unchanged. */
static void equal_values_pass_unchanged(void)
{
    const sherd__attention_shape shape = {1, 2, 33, 33, 8, 16, 0.5, true, 0};
    sherd__kernel_set set;
    side s = open_side();

    sherd__kernels_choose(&set);
    for (int i = 0; i < 33 * 16; i++)
        input[2][i] = 3;
    s.kernels = set.f32;
    run(&s, &shape);
    for (int i = 0; i < 33 * 16; i++)
        CHECK_NEAR(s.result[0][i], 3, 2e-6);
    close_side(&s);
}

/* Outputs of the first queries have the same bits whatever later keys and values hold. */
static void later_keys_do_not_matter(void)
{
    const sherd__attention_shape shape = {1, 1, 60, 60, 8, 8, 0.5, true, 0};
    sherd__kernel_set set;
    side s = open_side();
    float before[20 * 8];

    sherd__kernels_choose(&set);
    s.kernels = set.f32;
    run(&s, &shape);
    memcpy(before, s.result[0], sizeof before);
    for (int i = 20 * 8; i < 60 * 8; i++)
        input[1][i] = input[2][i] = 50;
    run(&s, &shape);
    CHECK_EQ(memcmp(before, s.result[0], sizeof before), 0);
    close_side(&s);
}

static const check_test tests[] = {
    {TEST(fast_is_plain_at_every_edge)}, {TEST(fast_is_plain_with_heads_and_batches)},
    {TEST(fast_is_plain_of_pieces)},     {TEST(empty_tensors_may_be_null)},
    {TEST(equal_values_pass_unchanged)}, {TEST(later_keys_do_not_matter)},
};

int main(int argc, char **argv)
{
    open_inputs();
    int status = check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
    close_inputs();
    return status;
}
