/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of few queries to a cache, of all dtypes and instruction sets: results and logarithms
 * of sums as written out in f64; a row has the same bits whatever queries, heads and keys there are
 * beside what it sees; what nobody sees is not looked at.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"

enum { ROOM = 60000, BEHIND = 64, SPACE = 1 << 20 };

static double wide_q[ROOM], wide_k[ROOM], wide_v[ROOM];
static uint64_t q[ROOM], k[ROOM], v[ROOM]; /* of any dtype */
static double out[ROOM], sums[ROOM], again[ROOM], more[ROOM];
static char space[SPACE];

typedef struct version {
    const char *name;
    sherd_dtype dtype;
    sherd__kernels k;
} version;

enum { VERSIONS = 4 + 3 * FAST_SETS };

static int versions(version to[VERSIONS])
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_BF16, SHERD_F16};
    sherd__kernels table[3] = {sherd__ref_f32};
    fast_set sets[FAST_SETS];
    int n = 0;

    sherd__install_half_ref(&table[1], &table[2]);
    for (int t = 0; t < 3; t++)
        to[n++] = (version){"reference", dtypes[t], table[t]};
    to[n++] = (version){"reference", SHERD_F64, sherd__ref_f64};
    for (int i = 0, count = fast_sets(sets); i < count; i++) {
        table[0] = sherd__ref_f32;
        sets[i].f32(&table[0]);
        sets[i].half(&table[1], &table[2]);
        for (int t = 0; t < 3; t++)
            to[n++] = (version){sets[i].name, dtypes[t], table[t]};
    }
    return n;
}

static void draw(sherd_dtype dtype, void *to, double *wide, int64_t n, uint64_t stream)
{
    static float drawn[ROOM];

    CHECK(n <= ROOM);
    sherd__ref_f32.uniform(n, drawn, -1.5, 1.5, sherd__philox_key(9, 2, stream), 0);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)drawn[i];
    sherd__cast(dtype, SHERD_F64, n, to, wide);
    sherd__cast(SHERD_F64, dtype, n, wide, to);
}

/* What is not a key of the s->groups groups, or is behind the last one, becomes NaN. */
static void hide(sherd_dtype dtype, const sherd__cached *s, void *to, double *wide)
{
    for (int64_t i = 0; i < s->keys * s->key_row + BEHIND; i++)
        if (i >= s->keys * s->key_row || i % s->key_row >= s->groups * s->width)
            wide[i] = NAN;
    sherd__cast(dtype, SHERD_F64, s->keys * s->key_row + BEHIND, to, wide);
}

static sherd_dtype result_of(const version *x)
{
    return x->dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32;
}

/* Results as f64; the ends of workspace and results are watched. */
static void run(const version *x, const sherd__cached *s, double *y, double *log_sum)
{
    static uint64_t to[ROOM], to_sums[ROOM];
    const size_t size = sherd_dtype_bytes(result_of(x));
    int64_t rows = s->queries * s->groups * s->repeat, n = rows * s->width;
    int64_t bytes = x->k.attention_cached_workspace(s);
    char *end = (char *)to + (size_t)n * size, *sums_end = (char *)to_sums + (size_t)rows * size;

    CHECK(bytes + 4 < SPACE);
    memset(space, 0xFF, (size_t)bytes + 4);
    space[bytes + 4] = *end = *sums_end = 77;
    x->k.attention_cached(s, to, to_sums, q, k, v, space + 4);
    CHECK_EQ(space[bytes + 4], 77);
    CHECK_EQ(*end, 77);
    CHECK_EQ(*sums_end, 77);
    sherd__cast(SHERD_F64, result_of(x), n, y, to);
    sherd__cast(SHERD_F64, result_of(x), rows, log_sum, to_sums);
}

/* Row h of query i, written out. Returns the logarithm of the sum. */
static double attend(const sherd__cached *s, int64_t i, int64_t h, double *y)
{
    const double *a = wide_q + (i * s->groups * s->repeat + h) * s->width;
    int64_t at = h / s->repeat * s->width;
    double total = 0, cap = s->softcap;

    for (int64_t d = 0; d < s->width; d++)
        y[d] = 0;
    for (int64_t j = s->before ? s->before[i] : 0; j < s->seen[i]; j++) {
        double score = 0;
        for (int64_t d = 0; d < s->width; d++)
            score += a[d] * wide_k[j * s->key_row + at + d];
        score = exp(cap != 0 ? cap * tanh(s->scale * score / cap) : s->scale * score);
        total += score;
        for (int64_t d = 0; d < s->width; d++)
            y[d] += score * wide_v[j * s->key_row + at + d];
    }
    for (int64_t d = 0; d < s->width && total > 0; d++)
        y[d] /= total;
    return log(total);
}

static void compare(const version *x, const sherd__cached *s)
{
    double tolerance = x->dtype == SHERD_F64 ? 1e-13 : 4e-6, y[512];
    int64_t heads = s->groups * s->repeat, wrong = 0;

    for (int64_t i = 0; i < s->queries; i++)
        for (int64_t h = 0; h < heads; h++) {
            double sum = attend(s, i, h, y), is = sums[h * s->queries + i];
            wrong += !(sum == is || fabs(sum - is) <= tolerance * (1 + fabs(sum)));
            for (int64_t d = 0; d < s->width; d++) {
                double e = out[(i * heads + h) * s->width + d];
                wrong += sum == -INFINITY ? e != 0 : !(fabs(e - y[d]) <= tolerance);
            }
        }
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s %s: q%d g%d r%d w%d k%d\n", x->name, sherd_dtype_name(x->dtype),
                (int)s->queries, (int)s->groups, (int)s->repeat, (int)s->width, (int)s->keys);
}

/* A case: queries see different numbers of keys, the last one all; some see none. */
static void prepare(const version *x, sherd__cached *s, int64_t *seen)
{
    int64_t heads = s->groups * s->repeat;

    for (int64_t i = 0; i < s->queries; i++)
        seen[i] = i + 1 == s->queries ? s->keys
                  : i % 3 == 1        ? -i
                                      : (s->keys * (i + 1) / s->queries + 1) % (s->keys + 1);
    s->seen = seen;
    draw(x->dtype, q, wide_q, s->queries * heads * s->width, 1);
    draw(x->dtype, k, wide_k, s->keys * s->key_row + BEHIND, 2);
    draw(x->dtype, v, wide_v, s->keys * s->key_row + BEHIND, 3);
    hide(x->dtype, s, k, wide_k);
    hide(x->dtype, s, v, wide_v);
}

static void results_are_as_written_out(void)
{
    static const int64_t widths[] = {1, 5, 8, 16, 24, 33, 64, 80, 128};
    static const int64_t keys[] = {0, 1, 3, 31, 32, 33, 70};
    version all[VERSIONS];
    int count = versions(all), number = 0;

    for (int i = 0; i < count; i++)
        for (int w = 0; w < LEN(widths); w++)
            for (int n = 0; n < LEN(keys); n++)
                for (int64_t queries = 1; queries <= 5; queries += 2, number++) {
                    int64_t seen[8], groups = 1 + number % 3, gap = number % 2 ? 7 : 0;
                    sherd__cached s = {.queries = queries,
                                       .groups = groups,
                                       .repeat = 1 + number % 5,
                                       .width = widths[w],
                                       .keys = keys[n],
                                       .key_row = groups * widths[w] + gap,
                                       .scale = 0.3};
                    prepare(&all[i], &s, seen);
                    run(&all[i], &s, out, sums);
                    compare(&all[i], &s);
                }
}

/* Keys or values, into blocks that lie in disorder among NaN. */
static void scatter(const sherd__cached *s, size_t size, int64_t blocks, uint64_t *x)
{
    static uint64_t whole[ROOM];
    size_t row = (size_t)s->key_row * size;

    memcpy(whole, x, sizeof whole);
    memset(x, 0xFF, sizeof whole);
    CHECK(blocks * s->together * s->key_row <= ROOM);
    for (int64_t j = 0; j < s->keys; j++)
        memcpy((char *)x + (size_t)sherd__cached_row(s, j) * row, (char *)whole + (size_t)j * row,
               row);
}

/* Windows, and caps: what is before a window, or in a block that nobody needs, is not read. */
static void windows_and_caps_are_as_written_out(void)
{
    static const int64_t sizes[] = {1, 2, 16, 31, 33, 70}, together[] = {0, 1, 5, 32};
    version all[VERSIONS];
    int count = versions(all), number = 0;

    for (int i = 0; i < count; i++)
        for (int n = 0; n < LEN(sizes); n++)
            for (int t = 0; t < LEN(together); t++, number++) {
                int64_t seen[8], before[8], block[128], queries = 1 + number % 4, first = 100;
                sherd__cached s = {.queries = queries,
                                   .groups = 2,
                                   .repeat = 1 + number % 3,
                                   .width = 24 + number % 9,
                                   .keys = 100,
                                   .softcap = number % 2 ? 0.9 : 0,
                                   .scale = 0.3};
                s.key_row = 2 * s.width;
                prepare(&all[i], &s, seen);
                s.before = before;
                for (int64_t j = 0; j < queries; j++) {
                    seen[j] = seen[j] < 0 ? seen[j] : 100 - (queries - 1 - j) * (1 + number % 20);
                    before[j] = sherd__max(0, seen[j] - sizes[n]);
                    first = seen[j] > 0 ? sherd__min(first, before[j]) : first;
                }
                for (int64_t j = 0; j < first * s.key_row; j++)
                    wide_k[j] = wide_v[j] = NAN;
                sherd__cast(all[i].dtype, SHERD_F64, first * s.key_row, k, wide_k);
                sherd__cast(all[i].dtype, SHERD_F64, first * s.key_row, v, wide_v);
                run(&all[i], &s, out, sums);
                compare(&all[i], &s);
                if (!together[t])
                    continue;
                s.together = together[t];
                s.block = block;
                int64_t blocks = sherd__ceil_div(s.keys, s.together);
                for (int64_t j = 0; j < blocks; j++)
                    block[j] = (blocks - 1 - j) * s.together;
                scatter(&s, sherd_dtype_bytes(all[i].dtype), blocks, k);
                scatter(&s, sherd_dtype_bytes(all[i].dtype), blocks, v);
                for (int64_t j = 0; j < first / s.together; j++)
                    block[j] = INT64_MAX / 1000;
                run(&all[i], &s, again, more);
                int64_t rows = s.queries * s.groups * s.repeat;
                CHECK(memcmp(again, out, sizeof *out * (size_t)(rows * s.width)) == 0);
                CHECK(memcmp(more, sums, sizeof *sums * (size_t)rows) == 0);
            }
}

/* The rows of query i and of group g, and the query's alone, have the bits that they have among
 * all. */
static void rows_keep_their_bits(void)
{
    enum { QUERIES = 5, GROUPS = 3, REPEAT = 3, WIDTH = 72, KEYS = 101 };
    version all[VERSIONS];
    int count = versions(all);

    for (int x = 0; x < count; x++) {
        const size_t size = sherd_dtype_bytes(all[x].dtype);
        int64_t seen[QUERIES], heads = GROUPS * REPEAT;
        sherd__cached s = {.queries = QUERIES,
                           .groups = GROUPS,
                           .repeat = REPEAT,
                           .width = WIDTH,
                           .keys = KEYS,
                           .key_row = GROUPS * WIDTH,
                           .scale = 0.2};
        static uint64_t whole_q[ROOM], whole_k[ROOM], whole_v[ROOM];
        prepare(&all[x], &s, seen);
        run(&all[x], &s, out, sums);
        memcpy(whole_q, q, sizeof q);
        memcpy(whole_k, k, sizeof k);
        memcpy(whole_v, v, sizeof v);
        for (int64_t i = 0; i < QUERIES; i++)
            for (int64_t g = 0; g < GROUPS; g++) {
                sherd__cached one = s;
                int64_t at = (i * heads + g * REPEAT) * WIDTH;
                one.queries = one.groups = 1;
                one.seen = seen + i;
                one.keys = seen[i] < 0 ? 0 : seen[i];
                memcpy(q, (char *)whole_q + (size_t)at * size, REPEAT * WIDTH * size);
                memcpy(k, (char *)whole_k + (size_t)(g * WIDTH) * size, sizeof k / 2);
                memcpy(v, (char *)whole_v + (size_t)(g * WIDTH) * size, sizeof v / 2);
                run(&all[x], &one, again, more);
                CHECK(memcmp(again, out + at, sizeof(double) * REPEAT * WIDTH) == 0);
                for (int64_t r = 0; r < REPEAT; r++)
                    CHECK(more[r] == sums[(g * REPEAT + r) * QUERIES + i]);
            }
    }
}

/* Also where keys of all queries end within a block. */
static void blocks_may_lie_anywhere(void)
{
    static const int64_t widths[] = {5, 24, 64, 80}, sizes[] = {1, 3, 16, 32, 40, 64};
    version all[VERSIONS];
    int count = versions(all), number = 0;

    for (int i = 0; i < count; i++)
        for (int w = 0; w < LEN(widths); w++)
            for (int n = 0; n < LEN(sizes); n++, number++) {
                int64_t seen[8], block[128], groups = 1 + number % 2;
                sherd__cached s = {.queries = 1 + number % 4,
                                   .groups = groups,
                                   .repeat = 1 + number % 5,
                                   .width = widths[w],
                                   .keys = 33 + 17 * (number % 4),
                                   .key_row = groups * widths[w],
                                   .scale = 0.3};
                prepare(&all[i], &s, seen);
                run(&all[i], &s, out, sums);
                s.together = sizes[n];
                int64_t blocks = sherd__ceil_div(s.keys, s.together);
                for (int64_t j = 0; j < blocks; j++)
                    block[j] = (j % 2 ? j / 2 : blocks - 1 - j / 2) * s.together;
                s.block = block;
                scatter(&s, sherd_dtype_bytes(all[i].dtype), blocks, k);
                scatter(&s, sherd_dtype_bytes(all[i].dtype), blocks, v);
                run(&all[i], &s, again, more);
                int64_t rows = s.queries * s.groups * s.repeat;
                CHECK(memcmp(again, out, sizeof *out * (size_t)(rows * s.width)) == 0);
                CHECK(memcmp(more, sums, sizeof *sums * (size_t)rows) == 0);
            }
}

/* A score of +-infinity, or NaN, in the middle; all that a row sees hidden by -infinity. */
static void what_is_no_number_spreads_as_it_must(void)
{
    enum { WIDTH = 40, KEYS = 50 };
    version all[VERSIONS];
    int count = versions(all);

    for (int x = 0; x < count; x++) {
        int64_t seen[2];
        sherd__cached s = {.queries = 2,
                           .groups = 1,
                           .repeat = 2,
                           .width = WIDTH,
                           .keys = KEYS,
                           .key_row = WIDTH,
                           .scale = 1};
        prepare(&all[x], &s, seen);
        seen[0] = 33;
        wide_k[40 * WIDTH] = NAN;
        sherd__cast(all[x].dtype, SHERD_F64, KEYS * WIDTH, k, wide_k);
        run(&all[x], &s, out, sums);
        for (int64_t i = 0; i < 4 * WIDTH; i++)
            CHECK(isnan(out[i]) == (i >= 2 * WIDTH));
        for (int64_t i = 0; i < 4; i++)
            CHECK(isnan(sums[i]) == (i % 2 == 1));
        for (int64_t i = 0; i < KEYS * WIDTH; i++)
            wide_k[i] = i % WIDTH ? 0 : -INFINITY;
        for (int64_t i = 0; i < 4 * WIDTH; i++)
            wide_q[i] = 1;
        sherd__cast(all[x].dtype, SHERD_F64, KEYS * WIDTH, k, wide_k);
        sherd__cast(all[x].dtype, SHERD_F64, 4 * WIDTH, q, wide_q);
        run(&all[x], &s, out, sums);
        for (int64_t i = 0; i < 4 * WIDTH; i++)
            CHECK(out[i] == 0 && sums[i / WIDTH] == -INFINITY);
        wide_k[0] = NAN; /* and behind it only what is hidden */
        sherd__cast(all[x].dtype, SHERD_F64, KEYS * WIDTH, k, wide_k);
        run(&all[x], &s, out, sums);
        for (int64_t i = 0; i < 4 * WIDTH; i++)
            CHECK(isnan(out[i]) && isnan(sums[i / WIDTH]));
    }
}

static const check_test tests[] = {
    {TEST(results_are_as_written_out)},
    {TEST(windows_and_caps_are_as_written_out)},
    {TEST(rows_keep_their_bits)},
    {TEST(blocks_may_lie_anywhere)},
    {TEST(what_is_no_number_spreads_as_it_must)},
};
CHECK_MAIN(tests)
