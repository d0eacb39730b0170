/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of f32 from parts of bf16, where the machine has AMX, against sums in f64 and against
 * multiply-adds: a and b as they lie and turned, rows with gaps, sizes around the edges of blocks,
 * passes and what is packed at once. How exact they are; and numbers that parts can not hold, which
 * must give what multiply-adds give. Elsewhere there is nothing to test.
 */
#define CHECK_PURE
#include "check.h"

#include "fast_sets.h"
#include "kernels/ref.h"
#include "vector/choose.h"
#include "vector/fast.h"

enum { ROOM = 1 << 20, BEHIND = 64, GAP = 5 };

static float a[ROOM], b[ROOM], bias[ROOM], before[ROOM], c[ROOM], other[ROOM];
static double sums[ROOM], sizes[ROOM];

/* The chosen table of f32 with AMX, and that of AVX-512; false where there is none. */
static bool tables(sherd__kernels *parts, sherd__kernels *chain)
{
    sherd__kernel_set set;

    if (!sherd__has_amx())
        return false;
    setenv("SHERD_KERNELS", "amx", 1);
    sherd__kernels_choose(&set);
    *parts = set.f32;
    setenv("SHERD_KERNELS", "avx512", 1);
    sherd__kernels_choose(&set);
    *chain = set.f32;
    unsetenv("SHERD_KERNELS");
    return set.tiles == NULL && parts->product != chain->product;
}

static void draw(float *x, int64_t n, uint64_t stream)
{
    CHECK(n + BEHIND <= ROOM);
    sherd__ref_f32.normal(n, x, 0, 1, sherd__philox_key(7, 1, stream), 0);
    for (int64_t i = n; i < n + BEHIND; i++)
        x[i] = NAN;
}

static int64_t row_of(int64_t row, int64_t otherwise)
{
    return row ? row : otherwise;
}

/* sums, and the sums of the absolute values. */
static void add_up(const sherd__product *p)
{
    int64_t a_row = row_of(p->a_row, p->ta ? p->m : p->k);
    int64_t b_row = row_of(p->b_row, p->tb ? p->k : p->n);

    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double total = 0, size = 0;
            for (int64_t x = 0; x < p->k; x++) {
                double one = (double)a[p->ta ? x * a_row + i : i * a_row + x] *
                             (double)b[p->tb ? j * b_row + x : x * b_row + j];
                total += one;
                size += fabs(one);
            }
            sums[i * p->n + j] = total;
            sizes[i * p->n + j] = size;
        }
}

static void multiply(const sherd__kernels *k, const sherd__product *p, float *to)
{
    int64_t bytes = k->product_workspace(p);
    char *space = malloc((size_t)bytes + 1);

    CHECK(k->product_fits(p));
    if (!CHECK(space))
        return;
    memset(space, 0xFF, (size_t)bytes);
    space[bytes] = 77;
    k->product(p, to, a, b, p->bias ? bias : NULL, space);
    CHECK_EQ(space[bytes], 77);
    free(space);
}

/* By parts; an error of a few roundings of the largest sum on the way, and what is between rows and
 * behind the last one is left alone. */
static void try_product(const sherd__kernels *k, const sherd__product *p)
{
    int64_t c_row = row_of(p->c_row, p->n), count = (p->m - 1) * c_row + p->n, wrong = 0;

    for (int64_t i = 0; i < count + BEHIND; i++)
        c[i] = i < count && i % c_row < p->n ? p->adds ? before[i] : NAN : 42;
    multiply(k, p, c);
    for (int64_t i = 0; i < count + BEHIND; i++) {
        int64_t r = i / c_row, j = i % c_row;
        if (i >= count || j >= p->n) {
            wrong += c[i] != 42;
            continue;
        }
        double start = p->adds ? (double)before[i] : 0, more = p->bias ? (double)bias[j] : 0;
        double size = sizes[r * p->n + j] + fabs(start) + fabs(more);
        wrong += !(fabs((double)c[i] - sums[r * p->n + j] - start - more) <= 1e-6 * size);
    }
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%c%c %d x %d x %d%s%s\n", p->ta ? 'T' : 'N', p->tb ? 'T' : 'N', (int)p->m,
                (int)p->n, (int)p->k, p->bias ? " + bias" : "", p->adds ? " + c" : "");
}

static void products_are_sums_of_products(void)
{
    static const int64_t shapes[][3] = {
        {200, 200, 64}, {225, 193, 65}, {120, 1100, 64}, {160, 288, 513}};
    sherd__kernels parts, chain;

    for (int i = 0; i < LEN(shapes) && tables(&parts, &chain); i++)
        for (int turned = 0; turned < 4; turned++) {
            sherd__product p = {.dtype = SHERD_F32,
                                .result = SHERD_F32,
                                .ta = turned & 1,
                                .tb = turned & 2,
                                .m = shapes[i][0],
                                .n = shapes[i][1],
                                .k = shapes[i][2]};
            bool gaps = i % 2;
            p.a_row = gaps ? (p.ta ? p.m : p.k) + GAP : 0;
            p.b_row = gaps ? (p.tb ? p.k : p.n) + GAP : 0;
            p.c_row = gaps ? p.n + GAP : 0;
            draw(a, (p.m + GAP) * (p.k + GAP), 1);
            draw(b, (p.n + GAP) * (p.k + GAP), 2);
            draw(bias, p.n, 3);
            draw(before, p.m * (p.n + GAP), 4);
            add_up(&p);
            for (int way = 0; way < 4; way++) {
                p.bias = way & 1;
                p.adds = way & 2;
                try_product(&parts, &p);
            }
        }
}

static double error_of(const float *x, const sherd__product *p)
{
    double total = 0;

    for (int64_t i = 0; i < p->m * p->n; i++)
        total += ((double)x[i] - sums[i]) * ((double)x[i] - sums[i]);
    return sqrt(total / (double)(p->m * p->n));
}

/* Of random numbers, and of positive ones, whose sums grow; one pass has 512 terms, or, of a wide
 * result from an a that lies across, half as many. */
static void parts_are_more_exact_than_multiply_adds(void)
{
    sherd__kernels parts, chain;

    for (int way = 0; way < 4 && tables(&parts, &chain); way++) {
        bool positive = way & 1, across = way & 2;
        sherd__product p = {.dtype = SHERD_F32,
                            .result = SHERD_F32,
                            .ta = across,
                            .tb = !across,
                            .m = 200,
                            .n = across ? 260 : 200,
                            .k = 1024};
        draw(a, p.m * p.k, 5);
        draw(b, p.n * p.k, 6);
        for (int64_t i = 0; i < p.n * p.k && positive; i++) {
            a[i] = fabsf(a[i]);
            b[i] = fabsf(b[i]);
        }
        add_up(&p);
        multiply(&parts, &p, c);
        chain.gemm(p.ta, p.tb, p.m, p.n, p.k, 1, a, p.ta ? p.m : p.k, b, p.tb ? p.k : p.n, 0, other,
                   p.n);
        CHECK(2 * error_of(c, &p) <= error_of(other, &p));
    }
}

/* Rows are multiplied in blocks or in half blocks, as is faster at the time: rows that are equal give
 * equal results, to the last bit. */
static void equal_rows_give_equal_bits(void)
{
    static const int64_t extents[][3] = {{300, 200, 1024}, {333, 210, 100}, {1000, 130, 70}};
    sherd__kernels parts, chain;

    for (int i = 0; i < LEN(extents) && tables(&parts, &chain); i++) {
        sherd__product p = {.dtype = SHERD_F32,
                            .result = SHERD_F32,
                            .m = extents[i][0],
                            .n = extents[i][1],
                            .k = extents[i][2]};
        draw(a, p.m * p.k, 15);
        draw(b, p.n * p.k, 16);
        for (int64_t r = 1; r < p.m; r++)
            memcpy(a + r * p.k, a, sizeof *a * (size_t)p.k);
        multiply(&parts, &p, c);
        for (int64_t r = 1; r < p.m; r++)
            if (!CHECK(memcmp(c + r * p.n, c, sizeof *c * (size_t)p.n) == 0))
                break;
    }
}

/* All that f32 can hold. */
static void whole_numbers_are_exact(void)
{
    sherd__product p = {
        .dtype = SHERD_F32, .result = SHERD_F32, .ta = true, .m = 200, .n = 210, .k = 128};
    sherd__kernels parts, chain;
    int64_t wrong = 0;

    if (!tables(&parts, &chain))
        return;
    draw(a, p.m * p.k, 8);
    draw(b, p.n * p.k, 9);
    for (int64_t i = 0; i < p.m * p.k; i++)
        a[i] = i % 97 ? truncf(100 * a[i]) : 0;
    for (int64_t i = 0; i < p.n * p.k; i++)
        b[i] = truncf(100 * b[i]);
    a[0] = 16777215; /* of 24 bits, in row 0, beside zeroes */
    for (int64_t x = 1; x < p.k; x++)
        a[x * p.m] = 0;
    b[0] = 1;
    add_up(&p);
    multiply(&parts, &p, c);
    for (int64_t i = 0; i < p.m * p.n; i++)
        wrong += (double)c[i] != (double)(float)sums[i];
    CHECK_EQ(wrong, 0);
}

/* Equal in every bit, or both NaN. */
static int64_t unequal(const float *x, const float *y, int64_t n)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < n; i++)
        wrong += !(isnan(x[i]) ? isnan(y[i]) : memcmp(&x[i], &y[i], sizeof *x) == 0);
    return wrong;
}

/* Row 40 of a times `x`, or column 30 of b: the rows beside it in its block by multiply-adds, too,
 * and all others as if nothing had been there. */
static void try_numbers(const sherd__kernels *parts, const sherd__kernels *chain, float x,
                        bool in_b, bool turned)
{
    enum { ROW = 40, COLUMN = 30 };
    sherd__product p = {.dtype = SHERD_F32,
                        .result = SHERD_F32,
                        .ta = turned,
                        .tb = !turned,
                        .bias = true,
                        .m = 250,
                        .n = 190,
                        .k = 90};
    int64_t a_row = turned ? p.m : p.k, b_row = turned ? p.n : p.k;

    draw(a, p.m * p.k, 10);
    draw(b, p.n * p.k, 11);
    draw(bias, p.n, 12);
    for (int64_t d = 0; d < p.k; d++)
        if (in_b)
            b[turned ? d * b_row + COLUMN : COLUMN * b_row + d] *= x;
        else
            a[turned ? d * a_row + ROW : ROW * a_row + d] *= x;
    multiply(parts, &p, c);
    for (int64_t i = 0; i < p.m * p.n; i++)
        other[i] = bias[i % p.n];
    chain->gemm(p.ta, p.tb, p.m, p.n, p.k, 1, a, a_row, b, b_row, 1, other, p.n);
    if (in_b) { /* all columns that are packed with it */
        CHECK_EQ(unequal(c, other, p.m * p.n), 0);
        return;
    }
    CHECK_EQ(unequal(c + ROW * p.n, other + ROW * p.n, p.n), 0);
    for (int64_t i = 0; i < p.m * p.n; i++)
        if (i / p.n != ROW && !CHECK(fabsf(c[i] - other[i]) <= 1e-4f))
            return;
}

/* Numbers whose last part is subnormal, or that are so themselves, among those of their row, of a
 * and b, in any order of these: they leave the others alone. */
static void tiny_numbers_beside_others_are_nothing(void)
{
    static const float tiny[] = {1e-33f, 1e-35f, 1.7e-38f, 1e-38f, 1e-40f, 1e-44f};
    sherd__kernels parts, chain;

    for (int way = 0; way < 4 * LEN(tiny) && tables(&parts, &chain); way++) {
        sherd__product p = {.dtype = SHERD_F32,
                            .result = SHERD_F32,
                            .ta = way & 1,
                            .tb = way & 2,
                            .m = 233,
                            .n = 211,
                            .k = 150};
        draw(a, p.m * p.k, 17);
        draw(b, p.n * p.k, 18);
        for (int64_t i = 0; i < p.m * p.k; i++)
            a[i] *= i % 7 < 3 ? tiny[way / 4] : 1;
        for (int64_t i = 0; i < p.n * p.k; i++)
            b[i] *= i % 5 < 2 ? tiny[way / 4] : 1;
        add_up(&p);
        try_product(&parts, &p);
    }
}

/* The second pass has fewer terms than a block, or two: what the first one left behind them, of the
 * last rows, is not multiplied, not even by the zeroes beside it. */
static void terms_of_another_pass_are_not_multiplied(void)
{
    enum { ROW = 195 };
    static const int64_t cases[][2] = {
        {532, 470}, {552, 500}, {513, 511}}; /* terms; which is NaN */
    sherd__kernels parts, chain;

    for (int i = 0; i < 4 * LEN(cases) && tables(&parts, &chain); i++) {
        sherd__product p = {.dtype = SHERD_F32,
                            .result = SHERD_F32,
                            .ta = i & 1,
                            .tb = i & 2,
                            .m = 200,
                            .n = 200,
                            .k = cases[i / 4][0]};
        int64_t term = cases[i / 4][1], wrong = 0;
        draw(a, p.m * p.k, 19);
        draw(b, p.n * p.k, 20);
        a[p.ta ? term * p.m + ROW : ROW * p.k + term] = NAN;
        add_up(&p);
        multiply(&parts, &p, c);
        for (int64_t j = 0; j < p.m * p.n; j++)
            wrong +=
                j / p.n == ROW ? !isnan(c[j]) : !(fabs((double)c[j] - sums[j]) <= 1e-6 * sizes[j]);
        CHECK_EQ(wrong, 0);
    }
}

static void numbers_without_parts_go_to_multiply_adds(void)
{
    static const float factors[] = {NAN, INFINITY, 1e38f, 1e-31f, 1e-38f, 1e-42f};
    sherd__kernels parts, chain;

    for (int i = 0; i < 4 * LEN(factors) && tables(&parts, &chain); i++)
        try_numbers(&parts, &chain, factors[i / 4], i & 1, i & 2);
}

/* Both small, so that only their products are too small; both large, so that only sums are too
 * large; zeroes times what is not finite. */
static void products_out_of_range_go_to_multiply_adds(void)
{
    static const float factors[][2] = {{1e-16f, 1e-16f}, {1e18f, 1e19f}, {0, INFINITY}, {NAN, 0}};
    sherd__product p = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 230, .n = 200, .k = 1000};
    sherd__kernels parts, chain;

    for (int i = 0; i < LEN(factors) && tables(&parts, &chain); i++) {
        draw(a, p.m * p.k, 13);
        draw(b, p.n * p.k, 14);
        for (int64_t j = 0; j < p.m * p.k; j++)
            a[j] *= factors[i][0];
        for (int64_t j = 0; j < p.n * p.k; j++)
            b[j] *= factors[i][1];
        multiply(&parts, &p, c);
        chain.gemm(false, false, p.m, p.n, p.k, 1, a, p.k, b, p.n, 0, other, p.n);
        for (int64_t j = 0; j < p.m * p.n; j++)
            if (!CHECK(isfinite(other[j]) ? fabsf(c[j] - other[j]) <= 1e-5f * 1e-30f
                                          : !isfinite(c[j])))
                return;
    }
}

/* What does not fit is made all the same, where somebody asks for it. */
static void other_products_go_to_multiply_adds(void)
{
    static const int64_t shapes[][3] = {{200, 200, 0}, {200, 200, 63}, {150, 200, 100}, {1, 1, 1}};
    sherd__kernels parts, chain;

    draw(a, 200 * 100, 15);
    draw(b, 200 * 100, 16);
    for (int i = 0; i < LEN(shapes) && tables(&parts, &chain); i++) {
        const sherd__product p = {.dtype = SHERD_F32,
                                  .result = SHERD_F32,
                                  .tb = true,
                                  .m = shapes[i][0],
                                  .n = shapes[i][1],
                                  .k = shapes[i][2]};
        int64_t bytes = chain.product_workspace(&p);
        CHECK_EQ(parts.product_workspace(&p), bytes);
        CHECK_EQ(parts.product_fits(&p), chain.product_fits(&p));
        char *space = malloc((size_t)bytes + 1);
        if (!CHECK(space))
            return;
        parts.product(&p, c, a, b, NULL, space);
        chain.product(&p, other, a, b, NULL, space);
        CHECK_EQ(unequal(c, other, p.m * p.n), 0);
        free(space);
    }
}

static const check_test tests[] = {
    {TEST(products_are_sums_of_products)},
    {TEST(parts_are_more_exact_than_multiply_adds)},
    {TEST(whole_numbers_are_exact)},
    {TEST(equal_rows_give_equal_bits)},
    {TEST(tiny_numbers_beside_others_are_nothing)},
    {TEST(terms_of_another_pass_are_not_multiplied)},
    {TEST(numbers_without_parts_go_to_multiply_adds)},
    {TEST(products_out_of_range_go_to_multiply_adds)},
    {TEST(other_products_go_to_multiply_adds)},
};
CHECK_MAIN(tests)
