/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Order: indices of sorted lists, short and long ones, against counting what comes before; the
 * largest and smallest of rows, bit for bit against one element after the other, with NaNs, zeros
 * of both signs and equal elements; comparisons of rows; planes that are turned.
 */
#define CHECK_PURE
#include "check.h"
#include "kernels/cast.h"
#include "kernels/kernels.h"
#include "kernels/pick.h"
#include "kernels/ref.h"
#include "vector/bodies.h"
#include "vector/choose.h"
#include "vector/fast.h"

enum { MOST = 700 };

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_I32,
                                     SHERD_I64, SHERD_U8,  SHERD_I8};

static uint64_t state = 1;

static double draw(void)
{
    static const double special[] = {(double)NAN, (double)INFINITY, -(double)INFINITY, 0.0, -0.0};

    state = state * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = state >> 33;
    return x % 16 < 5 ? special[x % 16] : (double)(int64_t)(x / 16 % 4001) - 2000;
}

/* As this dtype holds it, as a double. */
static double number(sherd_dtype dtype, const void *data, int64_t i)
{
    double x = 0;

    sherd__cast(SHERD_F64, dtype, 1, &x, (const char *)data + (size_t)i * sherd_dtype_bytes(dtype));
    return x;
}

static bool comes_before(double a, double b, bool descending)
{
    if (isnan(a) || isnan(b))
        return descending ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
    return descending ? a > b : a < b;
}

static void fill(sherd_dtype dtype, int64_t n, void *data)
{
    for (int64_t i = 0; i < n; i++) {
        double x = draw();
        sherd__cast(dtype, SHERD_F64, 1, (char *)data + (size_t)i * sherd_dtype_bytes(dtype), &x);
    }
}

/* Element j of a column goes where so many others come before it. */
static int misplaced(sherd_dtype dtype, const int64_t size[3], int64_t k, bool descending,
                     const int32_t *index, const void *src)
{
    int wrong = 0;

    for (int64_t o = 0; o < size[0]; o++)
        for (int64_t i = 0; i < size[2]; i++)
            for (int64_t j = 0; j < size[1]; j++) {
                double x = number(dtype, src, (o * size[1] + j) * size[2] + i);
                int64_t place = 0;
                for (int64_t m = 0; m < size[1]; m++) {
                    double y = number(dtype, src, (o * size[1] + m) * size[2] + i);
                    place += comes_before(y, x, descending) ||
                             (m < j && !comes_before(x, y, descending));
                }
                wrong += place < k && index[(o * k + place) * size[2] + i] != (int32_t)j;
            }
    return wrong;
}

/* Places that are found alone have what a sorted list has there. */
static int displaced(sherd_dtype dtype, const int64_t size[3], bool descending, const void *src,
                     void *scratch)
{
    static int32_t all[MOST], found[MOST];
    int64_t n = size[1], inner = size[2];
    const int64_t place[] = {n - 1, 0, n / 2};
    int wrong = 0;

    sherd__order(dtype, size, n, descending, all, src, scratch);
    for (int count = 1; count <= LEN(place) && count <= n; count++) {
        sherd__order_places(dtype, size, count, place, descending, found, src, scratch);
        for (int64_t j = 0; j < size[0] * count * inner; j++) {
            int64_t o = j / (count * inner), at = place[j / inner % count];
            wrong += found[j] != all[(o * n + at) * inner + j % inner];
        }
    }
    return wrong;
}

static void lists_are_sorted_and_equal_ones_stay_in_order(void)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {2, 7, 3},   {9, 32, 1},
                                       {1, 33, 2},  {1, 127, 1}, {1, 128, 1},
                                       {2, 129, 2}, {1, 300, 1}, {1, MOST, 1}};
    static double src[MOST];
    static int32_t index[MOST];

    for (int d = 0; d < LEN(dtypes); d++)
        for (int s = 0; s < LEN(sizes); s++)
            for (int descending = 0; descending < 2; descending++) {
                int64_t n = sizes[s][1], all = sizes[s][0] * n * sizes[s][2];
                const int64_t ks[] = {n, n > 140 ? 140 : n, n > 2 ? 2 : n};
                void *scratch = malloc((size_t)sherd__order_scratch(n));
                fill(dtypes[d], all, src);
                for (int k = 0; scratch && k < LEN(ks); k++) {
                    sherd__order(dtypes[d], sizes[s], ks[k], descending, index, src, scratch);
                    CHECK_EQ(misplaced(dtypes[d], sizes[s], ks[k], descending, index, src), 0);
                }
                if (scratch)
                    CHECK_EQ(displaced(dtypes[d], sizes[s], descending, src, scratch), 0);
                free(scratch);
            }
}

static void the_most_of_rows_has_the_bits_of_one_after_the_other(void)
{
    static float x[MOST], alone[MOST], row[MOST];
    const int64_t zero = 0, one = 1;

    for (int turn = 0; turn < 400; turn++)
        for (int op = SHERD_MIN; op <= SHERD_MAX; op++) {
            int64_t n = 1 + turn % 67;
            fill(SHERD_F32, n, x);
            for (int64_t j = 0; j < n && turn % 3; j++) /* zeros, or no NaN */
                x[j] = turn % 3 == 1 ? copysignf(0, j % 5 ? -x[j] : x[j]) : isnan(x[j]) ? 7 : x[j];
            float expect = x[0], best = x[0];
            for (int64_t j = 0; j < n; j++) {
                bool better = op == SHERD_MIN ? x[j] < expect : x[j] > expect;
                expect = better || (isnan(x[j]) && !isnan(expect)) ? x[j] : expect;
            }
            sherd__fold_f32((sherd_reduce_op)op, 1, &n, &best, &zero, x);
            CHECK(memcmp(&best, &expect, sizeof best) == 0);
            fill(SHERD_F32, n, row);
            memcpy(alone, row, sizeof row);
            sherd__fold_f32((sherd_reduce_op)op, 1, &n, row, &one, x);
            for (int64_t j = 0; j < n; j++)
                sherd__fold_f32((sherd_reduce_op)op, 1, &one, &alone[j], &zero, &x[j]);
            CHECK(memcmp(row, alone, (size_t)n * sizeof *row) == 0);
        }
}

/* Narrow rows are folded onto each other several at a time; integers wrap the same in any order. */
static void narrow_rows_are_folded_as_one_after_the_other(void)
{
    enum { ROWS = 600, WIDEST = 150 };
    static int32_t x[ROWS * WIDEST], together[WIDEST], alone[WIDEST];
    static uint8_t some[ROWS * WIDEST], any[WIDEST], each[WIDEST];
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_PRODUCT, SHERD_MIN, SHERD_MAX};
    static const int64_t widths[] = {1, 2, 3, 10, 64, 127, 128, 129, WIDEST},
                         rows[] = {0, 1, 2, 5, 171, ROWS};

    fill(SHERD_I32, ROWS * WIDEST, x);
    for (int i = 0; i < ROWS * WIDEST; i++)
        some[i] = x[i] % 97 == 0;
    for (int w = 0; w < LEN(widths); w++)
        for (int r = 0; r < LEN(rows); r++)
            for (int op = 0; op < LEN(ops); op++) {
                const int64_t n = widths[w], size[] = {rows[r], n}, down[] = {0, 1}, one = 1;
                memcpy(together, x + 7, sizeof together);
                memcpy(alone, together, sizeof alone);
                memcpy(any, some + 7, sizeof any);
                memcpy(each, any, sizeof each);
                sherd__fold_i32(ops[op], 2, size, together, down, x);
                sherd__fold_bool(ops[op], 2, size, any, down, some);
                for (int64_t i = 0; i < rows[r]; i++) {
                    sherd__fold_i32(ops[op], 1, &n, alone, &one, x + i * n);
                    sherd__fold_bool(ops[op], 1, &n, each, &one, some + i * n);
                }
                CHECK(memcmp(together, alone, sizeof alone) == 0);
                CHECK(memcmp(any, each, sizeof each) == 0);
            }
}

/* Rows of few are taken side by side, from wherever results lie. */
static void the_most_of_short_rows_has_the_bits_of_each_alone(void)
{
    enum { ROWS = 70, LONGEST = 67 };
    static float x[ROWS * LONGEST], together[2 * ROWS], alone[2 * ROWS];
    const int64_t zero = 0;

    for (int64_t n = 1; n <= LONGEST; n++)
        for (int way = 0; way < 4; way++) {
            sherd_reduce_op op = way & 1 ? SHERD_MIN : SHERD_MAX;
            const int64_t size[] = {ROWS, n}, stride[] = {1 + way / 2, 0};
            fill(SHERD_F32, ROWS * n, x);
            for (int64_t i = 0; i < ROWS * n && n % 2; i += 2) /* zeros of both signs */
                x[i] = copysignf(0, x[i]);
            fill(SHERD_F32, 2 * ROWS, together);
            memcpy(alone, together, sizeof alone);
            sherd__fold_f32(op, 2, size, together, stride, x);
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t j = 0; j < n; j++)
                    sherd__fold_f32(op, 0, NULL, alone + i * stride[0], &zero, x + i * n + j);
            CHECK(memcmp(together, alone, sizeof alone) == 0);
        }
}

/* The same bits; of sums and products NaNs may have any. */
static int apart(sherd_dtype dtype, int op, int64_t n, const void *a, const void *b)
{
    bool any = op != SHERD_MAX && op != SHERD_MIN;
    size_t bytes = sherd_dtype_bytes(dtype);
    int wrong = 0;

    for (int64_t i = 0; i < n; i++)
        if (memcmp((const char *)a + (size_t)i * bytes, (const char *)b + (size_t)i * bytes, bytes))
            wrong += !(any && isnan(number(dtype, a, i)) && isnan(number(dtype, b, i)));
    return wrong;
}

/* A table that this machine has beside the plain one: folds of rows and columns, comparisons. */
static int differing(sherd_dtype dtype, const sherd__kernels *fast, const sherd__kernels *plain,
                     int64_t rows, int64_t cols)
{
    static double x[MOST], y[MOST], made[2][MOST];
    static int64_t index[2][MOST];
    const int64_t size[] = {rows, cols}, lies[] = {cols, 1}, none[] = {0, 0};
    size_t bytes = sherd_dtype_bytes(dtype);
    int wrong = 0;

    fill(dtype, rows * cols, x);
    fill(dtype, MOST, y);
    for (int along = 0; along < 2; along++) {
        const int64_t stride[] = {along ? 1 : 0, along ? 0 : 1};
        int64_t n = along ? rows : cols;
        for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++) {
            for (int t = 0; t < 2; t++)
                memcpy(made[t], y, sizeof y);
            fast->fold((sherd_reduce_op)op, 2, size, made[0], stride, x);
            plain->fold((sherd_reduce_op)op, 2, size, made[1], stride, x);
            wrong += apart(dtype, op, n, made[0], made[1]);
        }
        for (int least = 0; least < 2; least++) {
            for (int t = 0; t < 2; t++) {
                memcpy(made[t], y, sizeof y);
                memset(index[t], 0xFF, sizeof index[t]);
                (t ? plain : fast)->extreme(least, 2, size, made[t], stride, index[t], lies, 3, x);
            }
            wrong += memcmp(made[0], made[1], (size_t)n * bytes) != 0;
            wrong += memcmp(index[0], index[1], sizeof index[0]) != 0;
        }
    }
    for (int kind = 0; kind < SHERD__COMPARE_KINDS; kind++)
        for (int one = 0; one < 2; one++) {
            for (int t = 0; t < 2; t++)
                (t ? plain : fast)
                    ->compare((sherd__compare_kind)kind, 2, size, (uint8_t *)made[t], x, lies, y,
                              one ? none : lies);
            wrong += memcmp(made[0], made[1], (size_t)(rows * cols)) != 0;
        }
    return wrong;
}

/* The chosen tables, and those whose loops are by AVX2, and by AVX-512; how many there are. */
static int table_sets(sherd__kernel_set set[3])
{
    int n = 1;

    sherd__kernels_choose(&set[0]);
#if defined(__x86_64__)
    if (sherd__has_avx2()) {
        set[n] = set[0];
        sherd__install_bodies_avx2(&set[n++]);
    }
    if (sherd__has_avx512()) {
        set[n] = set[0];
        sherd__install_bodies_avx512(&set[n++]);
    }
#endif
    return n;
}

static void fast_tables_have_the_bits_of_plain_ones(void)
{
    static const int64_t sizes[][2] = {{1, 1},   {3, 200}, {200, 3}, {33, 16}, {70, 10}, {2, 350},
                                       {5, 129}, {64, 1},  {33, 21}, {65, 8},  {40, 17}};
    sherd__kernel_set set[3];
    sherd__kernels bf16, f16;
    int count = table_sets(set);

    sherd__install_half_ref(&bf16, &f16);
    for (int i = 0; i < count; i++)
        for (int s = 0; s < LEN(sizes); s++) {
            int64_t rows = sizes[s][0], cols = sizes[s][1];
            CHECK_EQ(differing(SHERD_F32, &set[i].f32, &sherd__ref_f32, rows, cols), 0);
            CHECK_EQ(differing(SHERD_F64, &set[i].f64, &sherd__ref_f64, rows, cols), 0);
            CHECK_EQ(differing(SHERD_BF16, &set[i].bf16, &bf16, rows, cols), 0);
            CHECK_EQ(differing(SHERD_F16, &set[i].f16, &f16, rows, cols), 0);
        }
}

static void single_elements_are_added_where_they_belong(void)
{
    enum { OUTER = 3, N = 70, ENTRIES = 9 };
    static int32_t index[OUTER * N];
    static double src[OUTER * N], dst[OUTER * ENTRIES], expect[OUTER * ENTRIES];
    static double scratch[OUTER * N];

    for (int way = 0; way < 4; way++) /* all of a row to one place, of more than 64 */
        for (int d = 0; d < LEN(dtypes); d++) {
            const bool flat = way % 2, crowded = way / 2;
            for (int i = 0; i < OUTER * N; i++)
                index[i] = crowded ? 3 + i / N : i * 11 % 13;
            const sherd__pick p = {OUTER, N, 1, ENTRIES, 2, index, flat};
            size_t bytes = sherd_dtype_bytes(dtypes[d]);
            memset(dst, 0, sizeof dst);
            memset(expect, 0, sizeof expect);
            for (int i = 0; i < OUTER * N; i++) {
                double x = i % 7;
                sherd__cast(dtypes[d], SHERD_F64, 1, (char *)src + (size_t)i * bytes, &x);
                int64_t at = index[flat ? i % N : i] - p.first;
                if (at >= 0 && at < ENTRIES)
                    expect[i / N * ENTRIES + at] += x;
            }
            sherd__scatter_reduce(dtypes[d], SHERD_SUM, &p, dst, src, scratch);
            for (int i = 0; i < OUTER * ENTRIES; i++) {
                double sum = dtypes[d] == SHERD_I8 ? (int8_t)(int)expect[i] : expect[i];
                CHECK(number(dtypes[d], dst, i) == sum);
            }
        }
}

static void indices_of_single_elements_may_be_of_others(void)
{
    static const int32_t index[] = {3, 9, 2, 5, 4, 1, 6};
    const float src[] = {20, 30, 40, 50};
    const sherd__pick p = {1, 7, 1, 4, 2, index, false};
    static const float expect[] = {30, 0, 20, 50, 40, 0, 0};
    float dst[7];

    sherd__gather(sizeof *dst, &p, dst, src);
    for (int i = 0; i < 7; i++)
        CHECK_EQ((int)dst[i], (int)expect[i]);

    const float given[] = {0, 1, 2, 3, 4, 5, 6};
    float to[] = {-1, -1, -1, -1};
    sherd__scatter(sizeof *to, &p, to, given, NULL);
    CHECK(to[0] == 2 && to[1] == 0 && to[2] == 4 && to[3] == 3);
}

/* Lines with the same indices: all are of entries that are here, or one is not. */
static void lines_are_gathered_by_the_same_indices(void)
{
    enum { OUTER = 3, N = 5, ENTRIES = 4, FIRST = 2 };
    static const int32_t indices[][N] = {{5, 2, 2, 4, 3}, {5, 2, 6, 4, 3}, {1, 5, 2, 4, 3}};

    for (int i = 0; i < LEN(indices); i++)
        for (int bytes = 1; bytes <= 8; bytes *= 2) {
            const sherd__pick p = {OUTER, N, 1, ENTRIES, FIRST, indices[i], true};
            uint8_t src[OUTER * ENTRIES * 8], dst[OUTER * N * 8];
            for (int k = 0; k < LEN(src); k++)
                src[k] = (uint8_t)(k + 1);
            sherd__gather((size_t)bytes, &p, dst, src);
            for (int k = 0; k < OUTER * N * bytes; k++) {
                int o = k / (N * bytes), at = indices[i][k / bytes % N] - FIRST;
                bool here = at >= 0 && at < ENTRIES;
                CHECK_EQ(dst[k], here ? (o * ENTRIES + at) * bytes + k % bytes + 1 : 0);
            }
        }
}

static void sums_run_both_ways_in_single_columns(void)
{
    static const int64_t size[] = {2, 3, 1};
    const int32_t src[] = {1, 2, 4, 8, 16, 32};
    int32_t dst[6];

    sherd__running_sum(SHERD_I32, size, false, dst, src);
    CHECK(dst[0] == 1 && dst[1] == 3 && dst[2] == 7 && dst[3] == 8 && dst[5] == 56);
    sherd__running_sum(SHERD_I32, size, true, dst, src);
    CHECK(dst[0] == 7 && dst[1] == 6 && dst[2] == 4 && dst[3] == 56 && dst[5] == 32);
}

static void planes_are_turned_whatever_their_sizes(void)
{
    enum { SIDE = 140 };
    static unsigned char src[SIDE * SIDE * 8], dst[SIDE * SIDE * 8];
    static const size_t bytes[] = {1, 2, 3, 4, 8};
    static const int64_t sides[][2] = {{64, 64}, {65, 63}, {140, 137},
                                       {100, 3}, {3, 139}, {1, 140}};

    for (size_t i = 0; i < sizeof src; i++)
        src[i] = (unsigned char)(i * 7 + i / 251);
    for (int b = 0; b < LEN(bytes); b++)
        for (int s = 0; s < LEN(sides); s++) {
            int64_t n = sides[s][0], m = sides[s][1], size[] = {n, m};
            int wrong = 0;
            sherd__copy_box(bytes[b], 2, size, dst, (const int64_t[]){m, 1}, src,
                            (const int64_t[]){1, n});
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = 0; j < m; j++)
                    wrong += memcmp(dst + (size_t)(i * m + j) * bytes[b],
                                    src + (size_t)(i + j * n) * bytes[b], bytes[b]) != 0;
            CHECK_EQ(wrong, 0);
        }
}

static const check_test tests[] = {
    {TEST(lists_are_sorted_and_equal_ones_stay_in_order)},
    {TEST(the_most_of_rows_has_the_bits_of_one_after_the_other)},
    {TEST(narrow_rows_are_folded_as_one_after_the_other)},
    {TEST(the_most_of_short_rows_has_the_bits_of_each_alone)},
    {TEST(fast_tables_have_the_bits_of_plain_ones)},
    {TEST(single_elements_are_added_where_they_belong)},
    {TEST(indices_of_single_elements_may_be_of_others)},
    {TEST(lines_are_gathered_by_the_same_indices)},
    {TEST(sums_run_both_ways_in_single_columns)},
    {TEST(planes_are_turned_whatever_their_sizes)},
};
CHECK_MAIN(tests)
