/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of bf16 and f16, element by element: one rounding for each number that is stored, also
 * where many are added up. And the reductions of integers, which moves use. Conversions have a test
 * of their own.
 */
#define CHECK_PURE
#include "halves.h"
#include "vector/choose.h"

/* ---- element by element ---- */

static void pointwise(const sherd__kernels *k, int type)
{
    static const int64_t one[1] = {1};
    static const double parameters[] = {1.7, 2.5};

    for (int i = 0; i < LEN(lengths); i++) {
        int64_t n = lengths[i];
        start(k, 0.5, 3);
        for (int kind = 0; kind < SHERD__UNARY_KINDS; kind++) {
            k->unary((sherd__unary_kind)kind, n, a->out[0], a->in[0], parameters);
            f32->unary((sherd__unary_kind)kind, n, a->wide_out[0], a->wide_in[0], parameters);
            compare(k, type, 0, n, 1e-6, "unary");
            if (kind <= SHERD__SHIFT) /* gradients made of operators */
                continue;
            k->unary_grad((sherd__unary_kind)kind, n, a->out[1], a->in[0], a->in[1], parameters);
            f32->unary_grad((sherd__unary_kind)kind, n, a->wide_out[1], a->wide_in[0],
                            a->wide_in[1], parameters);
            compare(k, type, 1, n, 1e-6, "unary gradient");
        }
        start(k, -3, 3);
        for (int kind = SHERD__ADD; kind <= SHERD__MINIMUM; kind++) {
            k->binary((sherd__binary_kind)kind, 1, &n, a->out[1], a->in[0], one, a->in[1], one);
            f32->binary((sherd__binary_kind)kind, 1, &n, a->wide_out[1], a->wide_in[0], one,
                        a->wide_in[1], one);
            compare(k, type, 1, n, 1e-6, "binary");
        }
        k->fill(a->out[2], n, 1.2345);
        f32->fill(a->wide_out[2], n, 1.2345);
        compare(k, type, 2, n, 0, "fill");
    }
}

static void elements_are_those_of_f32_rounded_once(void)
{
    for_all(pointwise);
}

/* The distance of numbers of bf16 around y, subnormal ones included. */
static double step_of(double y)
{
    int exponent = 0;

    frexp(y, &exponent);
    return ldexp(1, (exponent < -125 ? -125 : exponent) - 8);
}

/* Of each number of bf16: a little more than half a step off. The slope is a difference, and so is
 * the tail of the plain version. */
static void every_gelu(const sherd__kernels *k, int type)
{
    enum { PART = 4096, ALL = 1 << 16 };

    for (int first = 0; first < ALL && type == 0; first += PART) {
        for (int i = 0; i < PART; i++) {
            a->in[0][i] = (uint16_t)(first + i);
            a->in[1][i] = 0x3F80; /* 1 */
        }
        k->unary(SHERD__GELU, PART, a->out[0], a->in[0], NULL);
        k->unary_grad(SHERD__GELU, PART, a->out[1], a->in[0], a->in[1], NULL);
        k->widen(PART, a->wide_in[0], a->in[0]);
        for (int j = 0; j < 2; j++)
            k->widen(PART, a->wide_out[j], a->out[j]);
        for (int i = 0; i < PART; i++) {
            double x = (double)a->wide_in[0][i], y = (double)a->wide_out[0][i];
            double u = 2 * sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x), s = 1 / (1 + exp(-u));
            double slope =
                s + x * s * (1 - s) * 2 * sqrt(2 / acos(-1)) * (1 + 3 * 0.044715 * x * x);
            if (isnan(x) || fabs(x) > 1e3) {
                CHECK(isnan(x) ? isnan(y) : x > 0 ? y == x : y == 0 || isinf(x));
                continue;
            }
            CHECK_NEAR(y, x * s, 0.52 * step_of(x * s) + 1e-15 * (x < -3));
            CHECK_NEAR((double)a->wide_out[1][i], slope, 0.52 * step_of(slope) + 4e-5);
        }
    }
}

static void gelu_is_right_of_every_number(void)
{
    for_all(every_gelu);
}

/* Broadcast, transposed, of one element, and with an empty dim; long enough for several blocks. */
static void strided(const sherd__kernels *k, int type)
{
    static const struct {
        int ndim;
        int64_t size[3], a[3], b[3];
    } cases[] = {
        {0, {0}, {0}, {0}},
        {2, {30, 40}, {40, 1}, {0, 1}},
        {2, {30, 40}, {1, 30}, {40, 1}},
        {3, {7, 11, 13}, {143, 13, 1}, {11, 1, 0}},
        {3, {7, 11, 13}, {0, 0, 0}, {143, 13, 1}},
        {3, {7, 1, 13}, {13, 999, 1}, {13, 5, 1}},
        {2, {3, 0}, {0, 1}, {0, 1}},
    };

    for (int c = 0; c < LEN(cases); c++) {
        int64_t n = 1;
        for (int d = 0; d < cases[c].ndim; d++)
            n *= cases[c].size[d];
        start(k, -2, 2);
        k->binary(SHERD__SUB, cases[c].ndim, cases[c].size, a->out[0], a->in[0], cases[c].a,
                  a->in[1], cases[c].b);
        f32->binary(SHERD__SUB, cases[c].ndim, cases[c].size, a->wide_out[0], a->wide_in[0],
                    cases[c].a, a->wide_in[1], cases[c].b);
        compare(k, type, 0, n, 0, "strided");
    }
}

static void strides_are_followed(void)
{
    for_all(strided);
}

/* ---- reductions ---- */

/* In order, in f32, one rounding at the end: the very bits. */
static void reductions(const sherd__kernels *k, int type)
{
    static const int counts[] = {1, 2, 3, 4, 7, 64};
    const void *src[64];
    const float *wide[64];

    for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++)
        for (int c = 0; c < LEN(counts); c++)
            for (int64_t n = 0; n < 80; n += n < 70 ? 1 : 5) {
                start(k, -2, 2);
                for (int s = 0; s < counts[c]; s++) {
                    src[s] = a->in[s % INS] + s;
                    wide[s] = a->wide_in[s % INS] + s;
                }
                f32->reduce((sherd_reduce_op)op, a->wide_out[0], (const void *const *)wide,
                            counts[c], n, 3);
                k->narrow(n, a->out[1], a->wide_out[0]);
                k->reduce((sherd_reduce_op)op, a->out[0], src, counts[c], n, 3);
                CHECK_EQ(memcmp(a->out[0], a->out[1], sizeof a->out[0]), 0);
                /* onto one of the sources */
                k->reduce((sherd_reduce_op)op, a->in[0], src, counts[c], n, 3);
                CHECK_EQ(memcmp(a->in[0], a->out[1], (size_t)n * 2), 0);
            }
    (void)type;
}

static void reductions_round_once(void)
{
    for_all(reductions);
}

/* Rounded after each addition the sum would never leave 1. */
static void small_addends(const sherd__kernels *k, int type)
{
    const void *src[64];
    float sum = 0;

    k->fill(a->in[0], 100, 1);
    k->fill(a->in[1], 100, rounding[type] / 2);
    for (int s = 0; s < 64; s++)
        src[s] = a->in[s > 0];
    k->reduce(SHERD_SUM, a->out[0], src, 64, 100, 1);
    k->widen(1, &sum, a->out[0] + 99);
    CHECK_NEAR((double)sum, 1 + 63 * rounding[type] / 2, rounding[type] * 1.3);
    k->fill(a->in[1], 4096, rounding[type] / 2);
    k->fill(a->in[1], 1, 1);
    k->sum(a->out[1], a->in[1], 1, 4096, 1, false);
    k->widen(1, &sum, a->out[1]);
    CHECK_NEAR((double)sum, 1 + 4095 * rounding[type] / 2, rounding[type] * 9);
}

static void small_addends_are_not_lost(void)
{
    for_all(small_addends);
}

static void broken_numbers(const sherd__kernels *k, int type)
{
    uint16_t nan[40], two[40];
    const void *src[2] = {two, nan};
    float got[40];

    (void)type;
    k->fill(nan, 40, (double)NAN);
    k->fill(two, 40, 2);
    for (int order = 0; order < 2; order++) {
        for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++) {
            k->reduce((sherd_reduce_op)op, a->out[0], src, 2, 40, 2);
            k->widen(40, got, a->out[0]);
            CHECK(isnan(got[0]) && isnan(got[39]));
        }
        src[0] = nan;
        src[1] = two;
    }
}

static void a_broken_number_is_never_hidden(void)
{
    for_all(broken_numbers);
}

static void sums(const sherd__kernels *k, int type)
{
    static const int64_t shapes[][3] = {{1, 3000, 1}, {3, 5, 7}, {2, 9, 600}, {4, 0, 5}, {1, 2, 0}};

    for (int s = 0; s < LEN(shapes); s++)
        for (int add = 0; add < 2; add++) {
            const int64_t *n = shapes[s];
            int64_t results = n[0] * n[2];
            start(k, -2, 2);
            memcpy(a->out[0], a->in[1], (size_t)results * 2);
            memcpy(a->wide_out[0], a->wide_in[1], (size_t)results * 4);
            k->sum(a->out[0], a->in[0], n[0], n[1], n[2], add);
            f32->sum(a->wide_out[0], a->wide_in[0], n[0], n[1], n[2], add);
            compare(k, type, 0, results, 1e-3, "sum");
        }
    double squares = f32->sum_squares(a->wide_in[0], 3333);
    CHECK_NEAR(k->sum_squares(a->in[0], 3333), squares, 1e-5 * squares);
}

static void sums_are_those_of_f32(void)
{
    for_all(sums);
}

/* ---- integers ---- */

static void integers_wrap_around(void)
{
    sherd__kernel_set set;
    const int32_t i32[2][2] = {{INT32_MAX, -7}, {1, 3}};
    const int64_t i64[2][2] = {{INT64_MAX, -7}, {1, 3}};
    const uint8_t u8[2][2] = {{255, 7}, {1, 3}};
    const void *a32[] = {i32[0], i32[1]}, *a64[] = {i64[0], i64[1]}, *a8[] = {u8[0], u8[1]};
    const int64_t wanted[][2] = {{INT64_MIN, -4}, {1, -7}, {INT64_MAX, 3}, {INT64_MAX, -21}};
    const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_MIN, SHERD_MAX, SHERD_PRODUCT};
    const uint8_t wanted8[][2] = {{0, 10}, {1, 3}, {255, 7}, {255, 21}};

    sherd__kernels_choose(&set);
    for (int i = 0; i < LEN(ops); i++) {
        int32_t got32[2];
        int64_t got64[2];
        uint8_t got8[2];
        sherd__kernels_to_reduce(&set, SHERD_I32, ops[i])->reduce(ops[i], got32, a32, 2, 2, 1);
        sherd__kernels_to_reduce(&set, SHERD_I64, ops[i])->reduce(ops[i], got64, a64, 2, 2, 1);
        sherd__kernels_to_reduce(&set, SHERD_U8, ops[i])->reduce(ops[i], got8, a8, 2, 2, 1);
        for (int e = 0; e < 2; e++) {
            CHECK_EQ(got64[e], wanted[i][e]);
            CHECK_EQ(got8[e], wanted8[i][e]);
        }
        CHECK_EQ(got32[0], i == 0 ? INT32_MIN : i == 1 ? 1 : INT32_MAX);
        CHECK_EQ(got32[1], wanted[i][1]);
    }
    int64_t filled[3];
    sherd__kernels_to_reduce(&set, SHERD_I64, SHERD_SUM)->fill(filled, 3, -5);
    CHECK_EQ(filled[2], -5);
}

/* A sum is whether any is set, a product whether all are. */
static void bools_stay_bools(void)
{
    static const uint8_t x[] = {0, 0, 1, 1}, y[] = {0, 1, 0, 1}, any[] = {0, 1, 1, 1},
                         all[] = {0, 0, 0, 1};
    const void *src[] = {x, y};
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++) {
        const sherd__kernels *k = sherd__kernels_to_reduce(&set, SHERD_BOOL, (sherd_reduce_op)op);
        uint8_t got[4];
        if (op == SHERD_AVG)
            continue;
        k->reduce((sherd_reduce_op)op, got, src, 2, 4, 1);
        CHECK_EQ(memcmp(got, op == SHERD_SUM || op == SHERD_MAX ? any : all, 4), 0);
    }
}

/* Who computes, and who can be reduced. */
static void every_dtype_has_its_table_or_none(void)
{
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int i = 0; i < SHERD_DTYPES; i++) {
        sherd_dtype dtype = (sherd_dtype)i;
        bool fractions = sherd__has_fractions(dtype);
        bool is = dtype != SHERD_DTYPE_NONE;
        CHECK_EQ(sherd__kernels_of(&set, dtype) != NULL, fractions);
        CHECK_EQ(sherd__kernels_to_reduce(&set, dtype, SHERD_SUM) != NULL, is);
        CHECK_EQ(sherd__kernels_to_reduce(&set, dtype, SHERD_AVG) != NULL, fractions);
    }
}

static const check_test tests[] = {
    {TEST(elements_are_those_of_f32_rounded_once)},
    {TEST(gelu_is_right_of_every_number)},
    {TEST(strides_are_followed)},
    {TEST(reductions_round_once)},
    {TEST(small_addends_are_not_lost)},
    {TEST(a_broken_number_is_never_hidden)},
    {TEST(sums_are_those_of_f32)},
    {TEST(integers_wrap_around)},
    {TEST(bools_stay_bools)},
    {TEST(every_dtype_has_its_table_or_none)},
};
CHECK_MAIN(tests)
