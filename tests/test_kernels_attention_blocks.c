/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 attention by the CPU's own products of it against the plain f32 kernel on the same numbers,
 * forward and backward: shapes around blocks of queries and keys, causal or not, heads and batches,
 * small and large scores; what lies around results and workspace stays as it was. Products with
 * gaps between rows, added to what is there.
 */
#define CHECK_PURE
#include "check.h"
#include "base/num.h"
#include "kernels/engine.h"
#include "kernels/half.h"
#include "kernels/ref.h"
#include "vector/choose.h"

enum { ROOM = 120000, TENSORS = 5, RESULTS = 4, WATCHED = 0x4242 };
enum { Q, K, V, DOUT, OUT };

static sherd__kernel_set set;
static float *wide[TENSORS], *want[RESULTS], *log_sum, *log_want;
static uint16_t *half[TENSORS], *got[RESULTS];
static char *space;

static void *room(size_t bytes)
{
    void *x = calloc(ROOM, bytes);
    if (!x)
        abort();
    return x;
}

static void open_all(void)
{
    sherd__kernels_choose(&set);
    for (int i = 0; i < TENSORS; i++) {
        wide[i] = room(4);
        half[i] = room(2);
        sherd__ref_f32.uniform(ROOM, wide[i], -1, 1, sherd__philox_key(5, 1, (uint64_t)i), 0);
        set.bf16.narrow(ROOM, half[i], wide[i]);
        set.bf16.widen(ROOM, wide[i], half[i]);
    }
    for (int i = 0; i < RESULTS; i++) {
        want[i] = room(4);
        got[i] = room(2);
    }
    log_sum = room(4);
    log_want = room(4);
    space = room(64);
}

static void close_all(void)
{
    for (int i = 0; i < TENSORS; i++) {
        free(wide[i]);
        free(half[i]);
    }
    for (int i = 0; i < RESULTS; i++) {
        free(want[i]);
        free(got[i]);
    }
    free(log_sum);
    free(log_want);
    free(space);
}

/* A rounding of each of the numbers that are multiplied, and of the result: relative to the
 * largest. Gradients of who sees one key are 0, which are differences of rounded sums. */
static void compare(const char *what, const sherd__attending *s, const uint16_t *is,
                    const float *exact, int64_t n)
{
    double largest = 0, worst = 0;

    for (int64_t i = 0; i < n; i++) {
        double off = fabs((double)sherd__from_bf16(is[i]) - (double)exact[i]);
        largest = fmax(largest, fabs((double)exact[i]));
        worst = off > worst || isnan(off) ? off : worst;
    }
    if (!CHECK(worst <= 4.0 / 256 * largest + 1e-6))
        fprintf(stderr, "%s of %d queries, %d keys, width %d%s: off by %g of %g\n", what,
                (int)s->queries, (int)s->keys, (int)s->width, s->causal ? ", causal" : "", worst,
                largest);
    CHECK_EQ(is[n], WATCHED);
}

static sherd__done forward(const sherd__attending *s)
{
    return set.tiles->attention(s, got[0], log_sum, half[Q], half[K], half[V], space);
}

static sherd__done backward(const sherd__attending *s)
{
    return set.tiles->attention_grad(s, got[1], got[2], got[3], half[DOUT], half[Q], half[K],
                                     half[V], got[0], log_sum, space);
}

static void try_attention(const sherd__attending *s)
{
    int64_t queries = s->batch * s->queries * sherd__query_stride(s);
    int64_t keys = s->batch * s->keys * sherd__key_stride(s);
    int64_t rows = s->batch * s->groups * s->repeat * s->queries;
    int64_t bytes = set.tiles->bytes(s);
    const int64_t count[RESULTS] = {queries, queries, keys, keys};
    static const char *const name[RESULTS] = {"out", "dq", "dk", "dv"};

    CHECK(queries < ROOM && keys < ROOM && bytes + 1 < ROOM * 64);
    for (int i = 0; i < RESULTS; i++)
        got[i][count[i]] = WATCHED;
    sherd__ref_f32.attention(s, want[0], log_want, wide[Q], wide[K], wide[V], space);
    sherd__ref_f32.attention_grad(s, want[1], want[2], want[3], NULL, wide[DOUT], NULL, wide[Q],
                                  wide[K], wide[V], want[0], log_want, space);
    space[bytes] = 77;
    log_sum[rows] = 77;
    CHECK_EQ(forward(s), SHERD__DONE);
    for (int64_t i = 0; i < rows; i++)
        if (log_sum[i] != log_want[i]) /* both may be -inf */
            CHECK_NEAR(log_sum[i], log_want[i], 1e-4 + 1e-6 * fabs((double)log_want[i]));
    CHECK_EQ(log_sum[rows], 77);
    CHECK_EQ(backward(s), SHERD__DONE);
    for (int i = 0; i < RESULTS; i++)
        compare(name[i], s, got[i], want[i], count[i]);
    CHECK_EQ(space[bytes], 77);
}

static void attention_in_tiles_is_attention(void)
{
    static const int64_t shapes[][3] = {/* queries, keys, width */
                                        {1, 1, 1},      {5, 3, 7},     {31, 33, 31},
                                        {32, 32, 32},   {33, 31, 33},  {64, 64, 32},
                                        {129, 127, 40}, {300, 130, 8}, {130, 300, 64},
                                        {257, 513, 16}, {600, 600, 5}, {100, 100, 128}};
    int tried = 0;

    open_all();
    for (int i = 0; i < LEN(shapes) && set.tiles; i++)
        for (int causal = 0; causal < 2; causal++)
            for (int heads = 1; heads <= 2; heads++) {
                const int64_t *n = shapes[i];
                sherd__attending s = {.batch = heads,
                                      .groups = 3 - heads,
                                      .repeat = heads,
                                      .queries = n[0],
                                      .keys = n[1],
                                      .width = n[2],
                                      .scale = tried++ % 3 ? 0.3 : -0.6,
                                      .causal = causal};
                try_attention(&s);
            }
    close_all();
}

/* Windows from one key on, smaller and larger than blocks. */
static void windows_in_tiles_are_windows(void)
{
    static const int64_t lengths[] = {31, 33, 64, 300, 600};
    static const int64_t windows[] = {1, 2, 31, 32, 33, 64, 100, 290};

    open_all();
    for (int i = 0; i < LEN(lengths) && set.tiles; i++)
        for (int w = 0; w < LEN(windows); w++) {
            sherd__attending s = {.batch = 1,
                                  .groups = 1 + w % 2,
                                  .repeat = 1,
                                  .queries = lengths[i] + w % 2 * 70, /* these see nothing */
                                  .keys = lengths[i],
                                  .width = w % 3 ? 40 : 16,
                                  .scale = w % 4 ? 0.4 : -0.6,
                                  .causal = true,
                                  .window = windows[w]};
            try_attention(&s);
        }
    close_all();
}

/* Documents, causal or not; some queries of the last one see nothing. */
static void documents_in_tiles_are_documents(void)
{
    enum { LENGTH = 330 };
    static const int64_t each[] = {1, 20, 32, 100, 300};
    static int32_t span[2 * LENGTH];

    open_all();
    for (int e = 0; e < LEN(each) && set.tiles; e++)
        for (int causal = 0; causal < 2; causal++) {
            sherd__attending s = {.batch = 1,
                                  .groups = 2,
                                  .repeat = 1,
                                  .queries = LENGTH,
                                  .keys = LENGTH,
                                  .width = e % 2 ? 40 : 16,
                                  .scale = 0.4,
                                  .causal = causal,
                                  .span = span};
            for (int64_t i = 0; i < LENGTH; i++) {
                span[2 * i] = (int32_t)(i / each[e] * each[e]);
                span[2 * i + 1] = (int32_t)sherd__min(span[2 * i] + each[e], LENGTH - 20);
            }
            try_attention(&s);
        }
    close_all();
}

/* Scores of many hundreds: most probabilities are 0, and maxima grow from block to block. */
static void large_scores_leave_one_key(void)
{
    static const double scales[] = {-40, 12, 90};

    open_all();
    for (int i = 0; i < LEN(scales) && set.tiles; i++)
        for (int causal = 0; causal < 2; causal++) {
            sherd__attending s = {.batch = 1,
                                  .groups = 2,
                                  .repeat = 1,
                                  .queries = 300,
                                  .keys = 300,
                                  .width = 33,
                                  .scale = scales[i],
                                  .causal = causal};
            try_attention(&s);
        }
    close_all();
}

/* With one head of 3 queries and keys. */
static sherd__attending small_one(void)
{
    return (sherd__attending){.batch = 1,
                              .groups = 1,
                              .repeat = 1,
                              .queries = 3,
                              .keys = 3,
                              .width = 2,
                              .scale = 1,
                              .causal = true};
}

/* Who sees nothing but -inf gets zeroes; NaN is not lost. */
static void tiles_keep_what_is_no_number(void)
{
    sherd__attending s = small_one();
    const uint16_t one = 0x3F80, minus_infinity = 0xFF80, nan = 0x7FC0;

    open_all();
    for (int i = 0; i < 6; i++)
        half[Q][i] = half[K][i] = one;
    half[K][0] = half[K][1] = minus_infinity;
    half[V][4] = nan;
    if (set.tiles) {
        CHECK_EQ(forward(&s), SHERD__DONE);
        CHECK(isinf(log_sum[0]) && log_sum[0] < 0);
        CHECK_NEAR(log_sum[1], 2, 1e-4);
        CHECK_NEAR(log_sum[2], 2 + log(2), 1e-4);
        CHECK(isnan(sherd__from_bf16(got[0][4])));
        half[V][4] = half[Q][2] = half[Q][3] = one;
        half[Q][4] = nan;
        CHECK_EQ(forward(&s), SHERD__DONE);
        CHECK_EQ(got[0][0], 0);
        CHECK_EQ(got[0][2], half[V][2]);
        CHECK(isnan(sherd__from_bf16(got[0][4])) && isnan(log_sum[2]));
    }
    close_all();
}

static void tiles_say_what_they_can_not(void)
{
    sherd__attending s[6];

    open_all();
    for (int i = 0; i < LEN(s); i++)
        s[i] = small_one();
    s[0].first_query = 3;
    s[1].p = 0.5;
    s[2].keys = 0;
    s[3].mask = half[V];
    s[4].scale = 0;
    s[5].softcap = 2;
    for (int i = 0; i < LEN(s) && set.tiles; i++) {
        CHECK_EQ(forward(&s[i]), SHERD__CANNOT);
        CHECK_EQ(backward(&s[i]), SHERD__CANNOT);
    }
    close_all();
}

/* ---- products ------------------------------------------------------------------------------- */

static bool multiplies_bf16(sherd__engine *engine)
{
    const sherd__product one = {.dtype = SHERD_BF16, .result = SHERD_BF16, .m = 1, .n = 1, .k = 1};

    return set.product && set.product(engine, &one, got[0], half[0], half[1], NULL) == SHERD__DONE;
}

/* c[2,3] += a[2,4] b[4,3] in arrays whose rows are longer. */
static void rows_with_gaps_are_added_to(void)
{
    sherd__heap heap = {0};
    sherd__engine *engine = sherd__engine_create(&heap);
    const sherd__product p = {.dtype = SHERD_BF16,
                              .result = SHERD_F32,
                              .adds = true,
                              .m = 2,
                              .n = 3,
                              .k = 4,
                              .a_row = 7,
                              .b_row = 5,
                              .c_row = 4};
    float c[8];

    open_all();
    for (int i = 0; i < 8; i++)
        c[i] = (float)i;
    if (multiplies_bf16(engine)) {
        CHECK_EQ(set.product(engine, &p, c, half[0], half[1], NULL), SHERD__DONE);
        for (int i = 0; i < 2; i++)
            for (int j = 0; j < 3; j++) {
                double sum = i * 4 + j;
                for (int x = 0; x < 4; x++)
                    sum += (double)wide[0][i * 7 + x] * (double)wide[1][x * 5 + j];
                CHECK_NEAR(c[i * 4 + j], sum, 1e-5);
            }
        CHECK(c[3] == 3 && c[7] == 7);
    }
    close_all();
    sherd__engine_destroy(engine);
}

static const check_test tests[] = {
    {TEST(attention_in_tiles_is_attention)},  {TEST(windows_in_tiles_are_windows)},
    {TEST(large_scores_leave_one_key)},       {TEST(tiles_keep_what_is_no_number)},
    {TEST(tiles_say_what_they_can_not)},      {TEST(rows_with_gaps_are_added_to)},
    {TEST(documents_in_tiles_are_documents)},
};
CHECK_MAIN(tests)
