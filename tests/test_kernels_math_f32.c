/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of f32 by vectors: how far they are from the C library's in double, over the ranges
 * where they are used; that they are the plain ones' at zeroes, subnormal, huge and infinite
 * numbers and NaN; that what is rounded to whole numbers has their bits, of f64 too; and that an
 * element's bits depend on it alone, not on where it lies.
 */
#define CHECK_PURE
#include <float.h>
#include <math.h>

#include "check.h"
#include "kernel_versions.h"

enum { N = 4000 };

static float in[N], more[N], out[N], other[N];

/* Half of them between low and high, half spread over all powers of two there. */
static void draw(float *x, uint64_t stream, double low, double high)
{
    sherd__ref_f32.uniform(N, x, 0, 1, sherd__philox_key(12, stream, 0), 0);
    for (int i = 0; i < N; i++) {
        double part = (double)x[i], near = low + (high - low) * part;
        double far = (low < 0 && i % 4 == 1 ? low : high) * exp2(-60 * part);
        x[i] = (float)(i % 2 && far >= low ? far : near);
    }
}

/* Distance in units of the last place of y in f32. */
static double ulps(float x, double y)
{
    int power;

    if (x == (float)y)
        return 0;
    frexp(y, &power);
    return fabs((double)x - y) / ldexp(1, (power < -125 ? -125 : power) - FLT_MANT_DIG);
}

static double logsigmoid(double x)
{
    return (x < 0 ? x : 0) - log1p(exp(-fabs(x)));
}

static double mish(double x)
{
    return x * tanh(-logsigmoid(-x));
}

static double elu(double x)
{
    return x > 0 ? x : expm1(x);
}

static double x_log_x(double x)
{
    return x == 0 ? 0 : x * log(x);
}

static double gelu_erf(double x)
{
    return x / 2 * erfc(-x * 0.70710678118654752);
}

/* A function, where it is tried, and what it may be off by. */
static const struct {
    sherd__unary_kind kind;
    double (*f)(double);
    double low, high, bound;
} rows[] = {
    {SHERD__EXP, exp, -87, 88.7, 1.4},
    {SHERD__EXP, exp, -103, -87, 1.4},
    {SHERD__EXP2, exp2, -149, 127.9, 1.1},
    {SHERD__EXPM1, expm1, -20, 88.7, 1.8},
    {SHERD__EXPM1, expm1, -1, 1, 1.8},
    {SHERD__LOG, log, 0, 3, 0.9},
    {SHERD__LOG, log, 0, (double)FLT_MAX, 0.9},
    {SHERD__LOG1P, log1p, -0.999, 3, 0.9},
    {SHERD__LOG1P, log1p, 0, 1e38, 0.9},
    {SHERD__LOG2, log2, 0, 3, 2},
    {SHERD__LOG10, log10, 0, 3, 2.1},
    {SHERD__LOG10, log10, 0, (double)FLT_MAX, 2.1},
    {SHERD__SIN, sin, -7, 7, 1.7},
    {SHERD__SIN, sin, -1e6, 1e6, 1.7},
    {SHERD__COS, cos, -7, 7, 1.7},
    {SHERD__COS, cos, -1e6, 1e6, 1.7},
    {SHERD__TAN, tan, -7, 7, 3.2},
    {SHERD__TAN, tan, -1e6, 1e6, 3.2},
    {SHERD__ASIN, asin, -1, 1, 2.5},
    {SHERD__ACOS, acos, -1, 1, 1.3},
    {SHERD__ATAN, atan, -3, 3, 2},
    {SHERD__ATAN, atan, -1e38, 1e38, 2},
    {SHERD__SINH, sinh, -89, 89, 2.3},
    {SHERD__SINH, sinh, -2, 2, 2.3},
    {SHERD__COSH, cosh, -89, 89, 1.6},
    {SHERD__ASINH, asinh, -3, 3, 1.9},
    {SHERD__ASINH, asinh, -1e38, 1e38, 1.9},
    {SHERD__ACOSH, acosh, 1, 3, 2.2},
    {SHERD__ATANH, atanh, -0.9999, 0.9999, 2.1},
    {SHERD__ERF, erf, -4, 4, 1.6},
    {SHERD__ERFC, erfc, -4, 9, 5.4},
    {SHERD__GELU_ERF, gelu_erf, -12.9, 8, 7.4}, /* below, results are subnormal */
    {SHERD__LOGSIGMOID, logsigmoid, -40, 80, 3},
    {SHERD__MISH, mish, -80, 40, 4.4},
    {SHERD__ELU, elu, -40, 2, 1.9},
    {SHERD__CELU, elu, -40, 2, 1.9},
    {SHERD__X_LOG_X, x_log_x, 0, 5, 1.8},
};

static void functions_are_accurate(void)
{
    const double parameter[] = {1, 20};
    sherd__kernels list[FAST_SETS];

    for (int v = versions(list) - 1; v >= 0; v--)
        for (int r = 0; r < LEN(rows); r++) {
            double worst = 0, at = 0;
            draw(in, (uint64_t)r, rows[r].low, rows[r].high);
            list[v].unary(rows[r].kind, N, out, in, parameter);
            for (int i = 0; i < N; i++) {
                double apart = ulps(out[i], rows[r].f((double)in[i]));
                if (!(apart <= worst)) {
                    worst = apart;
                    at = (double)in[i];
                }
            }
            if (!CHECK(worst <= rows[r].bound))
                fprintf(stderr, "  %s: function %d is off by %.2f ulp at %.9g\n", list[v].name,
                        (int)rows[r].kind, worst, at);
        }
}

/* Powers by a constant that need no logarithm have other bits than those by an operand. */
static bool is_easy(double exponent)
{
    return fabs(exponent) <= 4 && 2 * exponent == rint(2 * exponent);
}

/* Also of negative numbers to whole powers, and where the power is next to no number. */
static void powers_are_accurate(void)
{
    static const float exponents[] = {0.5f, 1.75f, -2.3f, 3,  -1, -7, 17.5f, 1e-3f, 100,  1234.5f,
                                      1,    2,     4,     -2, -3, -4, -0.5f, 1.5f,  -1.5f};
    sherd__kernels list[FAST_SETS];
    const int64_t n = N, one = 1, none = 0;

    for (int v = versions(list) - 1; v >= 0; v--)
        for (int e = 0; e < LEN(exponents); e++) {
            double b = (double)exponents[e], reach = fmin(87, 86 / fabs(b));
            draw(in, (uint64_t)e, -reach, reach);
            for (int i = 0; i < N; i++)
                in[i] = (b == rint(b) && i % 3 == 0 ? -1 : 1) * expf(in[i]);
            list[v].binary(SHERD__POWER, 1, &n, out, in, &one, &exponents[e], &none);
            for (int i = 0; i < N; i++)
                if (!CHECK(ulps(out[i], pow((double)in[i], b)) <= 1.3))
                    fprintf(stderr, "  %s: %.9g ^ %g is not %.9g\n", list[v].name, (double)in[i], b,
                            (double)out[i]);
            list[v].unary(SHERD__POW, N, other, in, &b);
            for (int i = 0; i < N; i++)
                CHECK(ulps(other[i], pow((double)in[i], b)) <= 3);
            CHECK(is_easy(b) || memcmp(other, out, sizeof out) == 0);
        }
}

/* Of what is 0, infinite, or has no root, as the C library has it. */
static void easy_powers_of_the_ends(void)
{
    static const float ends[] = {0,         -0.0f, 1, -1, 2, -2, (float)INFINITY, -(float)INFINITY,
                                 (float)NAN};
    sherd__kernels list[FAST_SETS];

    for (int v = versions(list) - 1; v >= 0; v--)
        for (double b = -4; b <= 4; b += 0.5) {
            list[v].unary(SHERD__POW, LEN(ends), out, ends, &b);
            for (int i = 0; i < LEN(ends); i++) {
                double want = pow((double)ends[i], b), got = (double)out[i];
                CHECK(isnan(want) ? isnan(got)
                                  : fabs(got - want) <= 1e-6 * fabs(want) || got == want);
                CHECK(isnan(want) || !signbit(got) == !signbit(want));
            }
        }
}

static double logaddexp(double a, double b)
{
    return fmax(a, b) + log1p(exp(-fabs(a - b)));
}

static double xlogy(double a, double b)
{
    return a == 0 ? 0 : a * log(b);
}

static void functions_of_two_are_accurate(void)
{
    static const struct {
        sherd__binary_kind kind;
        double (*f)(double, double);
        double low, bound;
    } pairs[] = {{SHERD__ATAN2, atan2, -3, 2},
                 {SHERD__HYPOT, hypot, -3, 1.3},
                 {SHERD__LOGADDEXP, logaddexp, 0, 2},
                 {SHERD__XLOGY, xlogy, 0, 2.1}};
    sherd__kernels list[FAST_SETS];
    const int64_t n = N, one = 1;

    draw(more, 100, 0, 1);
    for (int v = versions(list) - 1; v >= 0; v--)
        for (int p = 0; p < LEN(pairs); p++) {
            draw(in, 101, pairs[p].low, 3);
            list[v].binary(pairs[p].kind, 1, &n, out, in, &one, more, &one);
            for (int i = 0; i < N; i++)
                if (!CHECK(ulps(out[i], pairs[p].f((double)in[i], (double)more[i])) <=
                           pairs[p].bound))
                    fprintf(stderr, "  %s: function %d of %.9g, %.9g is not %.9g\n", list[v].name,
                            (int)pairs[p].kind, (double)in[i], (double)more[i], (double)out[i]);
        }
}

static const float odd[] = {0.0f,
                            -0.0f,
                            1,
                            -1,
                            2,
                            -2,
                            0.5f,
                            -0.5f,
                            1.5f,
                            2.5f,
                            3,
                            -3,
                            INFINITY,
                            -INFINITY,
                            NAN,
                            FLT_MIN,
                            -FLT_MIN,
                            FLT_MAX,
                            -FLT_MAX,
                            0x1p-149f,
                            -0x1p-149f,
                            0x1p-130f,
                            1e-30f,
                            -1e-30f,
                            1e-8f,
                            -1e-8f,
                            1e20f,
                            -1e20f,
                            1e10f,
                            -1e10f,
                            0x1p17f,
                            -0x1p17f,
                            0x1p18f,
                            1e6f,
                            89,
                            -89,
                            88.7f,
                            -88.7f,
                            103.5f,
                            -103.5f,
                            105,
                            -105,
                            127.5f,
                            128,
                            -149,
                            -150,
                            -151,
                            0.75f,
                            -0.75f,
                            9.5f,
                            10.5f,
                            -10.5f,
                            0x1p23f,
                            -0x1p23f,
                            0x1p22f + 0.5f,
                            -0x1p22f - 0.5f,
                            1.5707964f,
                            -1.5707964f,
                            3.1415927f,
                            22,
                            -22,
                            0.99999994f,
                            8388607,
                            0.33333334f};

/* Within a few ulp, or so near as the plain one is where it cancels. */
static bool is_as_plain(float x, float plain, bool cancels)
{
    if (isnan(plain) || isnan(x))
        return isnan(plain) && isnan(x);
    if (x == plain)
        return x != 0 || cancels || signbit(x) == signbit(plain);
    if (cancels && isinf(x) && fabsf(plain) > FLT_MAX / 8) /* of a slope, times dy = 1/2 */
        return true;
    return fabs((double)x - (double)plain) <=
           (cancels ? 1e-6 : 0x1p-146) + 1e-6 * fabs((double)plain);
}

static bool cancels(int kind)
{
    return kind == SHERD__GELU || kind == SHERD__GELU_ERF || kind == SHERD__MISH ||
           kind == SHERD__SIGMOID || kind == SHERD__SILU || kind == SHERD__LOGSIGMOID ||
           kind == SHERD__ELU || kind == SHERD__CELU || kind == SHERD__SELU ||
           kind == SHERD__SOFTPLUS || kind == SHERD__TANH;
}

/* Infinite numbers have no slope of a logistic curve in the plain ones, and no product with 0. */
static bool is_tried(int kind, float x)
{
    return !isinf(x) || (kind != SHERD__MISH && kind != SHERD__GELU && kind != SHERD__GELU_ERF &&
                         kind != SHERD__SILU);
}

static void odd_numbers_are_as_plain(void)
{
    static const double parameters[][2] = {{1.75, 20}, {3, 20}, {-2, 5}, {2, 1}, {0, 1}, {0.5, 9}};
    sherd__kernels list[FAST_SETS];
    float plain[LEN(odd)], fast[LEN(odd)], dy[LEN(odd)];

    for (int i = 0; i < LEN(odd); i++)
        dy[i] = 0.5f;
    for (int v = versions(list) - 1; v >= 0; v--)
        for (int kind = SHERD__NEG; kind < SHERD__UNARY_KINDS; kind++)
            for (int p = 0; p < 2 * LEN(parameters); p++) {
                sherd__unary_kind k = (sherd__unary_kind)kind;
                bool slope = p % 2;
                if (slope) {
                    sherd__ref_f32.unary_grad(k, LEN(odd), plain, odd, dy, parameters[p / 2]);
                    list[v].unary_grad(k, LEN(odd), fast, odd, dy, parameters[p / 2]);
                } else {
                    sherd__ref_f32.unary(k, LEN(odd), plain, odd, parameters[p / 2]);
                    list[v].unary(k, LEN(odd), fast, odd, parameters[p / 2]);
                }
                for (int i = 0; i < LEN(odd); i++)
                    if (is_tried(kind, odd[i]) &&
                        !CHECK(is_as_plain(fast[i], plain[i], slope || cancels(kind))))
                        fprintf(stderr, "  %s: %s of function %d (%g) at %.9g: %.9g is %.9g\n",
                                list[v].name, slope ? "slope" : "value", kind, parameters[p / 2][0],
                                (double)odd[i], (double)plain[i], (double)fast[i]);
            }
}

static void odd_pairs_are_as_plain(void)
{
    sherd__kernels list[FAST_SETS];
    const int64_t n = LEN(odd), one = 1, none = 0;
    float plain[LEN(odd)], fast[LEN(odd)];

    for (int v = versions(list) - 1; v >= 0; v--)
        for (int kind = 0; kind < SHERD__BINARY_KINDS; kind++)
            for (int j = 0; j < LEN(odd); j++) {
                sherd__binary_kind k = (sherd__binary_kind)kind;
                sherd__ref_f32.binary(k, 1, &n, plain, odd, &one, &odd[j], &none);
                list[v].binary(k, 1, &n, fast, odd, &one, &odd[j], &none);
                for (int i = 0; i < LEN(odd); i++)
                    if (!CHECK(is_as_plain(fast[i], plain[i], kind == SHERD__LOGADDEXP)))
                        fprintf(stderr, "  %s: function %d of %.9g, %.9g: %.9g is %.9g\n",
                                list[v].name, kind, (double)odd[i], (double)odd[j],
                                (double)plain[i], (double)fast[i]);
            }
}

static const sherd__unary_kind whole[] = {SHERD__FLOOR, SHERD__CEIL, SHERD__TRUNC, SHERD__ROUND,
                                          SHERD__FRAC};
static const sherd__binary_kind quotients[] = {SHERD__FLOOR_DIVIDE, SHERD__REMAINDER, SHERD__FMOD,
                                               SHERD__COPYSIGN};

/* Whole numbers, fractions of few bits, and any. */
static void draw_quotient(float *x, uint64_t stream, int which)
{
    draw(x, stream, which == 2 ? -1e7 : -4000, which == 2 ? 1e7 : 4000);
    for (int i = 0; i < N && which < 2; i++)
        x[i] = which ? rintf(x[i]) / 16 : rintf(x[i] / 100);
}

static void whole_numbers_are_exact(void)
{
    sherd__kernels list[FAST_SETS];
    const int64_t n = N, one = 1;

    for (int v = versions(list) - 1; v >= 0; v--)
        for (int which = 0; which < 9; which++) {
            draw_quotient(in, 300, which % 3);
            draw_quotient(more, 301, which / 3);
            for (int f = 0; f < LEN(whole); f++) {
                sherd__ref_f32.unary(whole[f], N, other, in, NULL);
                list[v].unary(whole[f], N, out, in, NULL);
                CHECK(memcmp(other, out, sizeof out) == 0);
            }
            for (int f = 0; f < LEN(quotients); f++) {
                sherd__ref_f32.binary(quotients[f], 1, &n, other, in, &one, more, &one);
                list[v].binary(quotients[f], 1, &n, out, in, &one, more, &one);
                for (int i = 0; i < N; i++)
                    if (!CHECK(memcmp(&other[i], &out[i], sizeof *out) == 0 ||
                               (isnan(other[i]) && isnan(out[i]))))
                        fprintf(stderr, "  %s: quotient %d of %.9g, %.9g: %.9g is %.9g\n",
                                list[v].name, f, (double)in[i], (double)more[i], (double)other[i],
                                (double)out[i]);
            }
        }
}

static void whole_numbers_are_exact_in_f64(void)
{
    static double a[N], b[N], plain[N], fast[N];
    sherd__kernels list[FAST_SETS];
    const int64_t n = N, one = 1;

    for (int v = versions_f64(list) - 1; v >= 0; v--)
        for (int which = 0; which < 9; which++) {
            draw_quotient(in, 302, which % 3);
            draw_quotient(more, 303, which / 3);
            for (int i = 0; i < N; i++) {
                a[i] = (double)in[i] * (i % 2 ? 1.1 : 1);
                b[i] = (double)more[i] * (i % 3 ? 1.1 : 1);
            }
            for (int f = 0; f < LEN(whole); f++) {
                sherd__ref_f64.unary(whole[f], N, plain, a, NULL);
                list[v].unary(whole[f], N, fast, a, NULL);
                CHECK(memcmp(plain, fast, sizeof fast) == 0);
            }
            for (int f = 0; f < LEN(quotients); f++) {
                sherd__ref_f64.binary(quotients[f], 1, &n, plain, a, &one, b, &one);
                list[v].binary(quotients[f], 1, &n, fast, a, &one, b, &one);
                for (int i = 0; i < N; i++)
                    if (!CHECK(memcmp(&plain[i], &fast[i], sizeof *fast) == 0 ||
                               (isnan(plain[i]) && isnan(fast[i]))))
                        fprintf(stderr, "  %s: quotient %d of %.17g, %.17g: %.17g is %.17g\n",
                                list[v].name, f, a[i], b[i], plain[i], fast[i]);
            }
        }
}

/* So that the same tensor in other shards is the same bits. */
static void bits_do_not_depend_on_the_place(void)
{
    enum { SOME = 37 };
    static const double parameter[] = {1.75, 5};
    sherd__kernels list[FAST_SETS];
    float all[SOME], part[SOME];

    draw(in, 200, -30, 30);
    draw(more, 201, -3, 3);
    for (int i = 0; i < SOME; i += 5)
        in[i] = odd[i];
    for (int v = versions(list) - 1; v >= 0; v--)
        for (int kind = SHERD__NEG; kind < SHERD__UNARY_KINDS; kind++)
            for (int from = 0; from < SOME; from += 3)
                for (int n = 1; from + n <= SOME; n += 2)
                    for (int slope = 0; slope < 2; slope++) {
                        sherd__unary_kind k = (sherd__unary_kind)kind;
                        if (slope) {
                            list[v].unary_grad(k, SOME, all, in, more, parameter);
                            list[v].unary_grad(k, n, part, in + from, more + from, parameter);
                        } else {
                            list[v].unary(k, SOME, all, in, parameter);
                            list[v].unary(k, n, part, in + from, parameter);
                        }
                        for (int i = 0; i < n; i++)
                            CHECK(memcmp(&all[from + i], &part[i], sizeof *part) == 0 ||
                                  (isnan(all[from + i]) && isnan(part[i])));
                    }
}

static const check_test tests[] = {
    {TEST(functions_are_accurate)},          {TEST(powers_are_accurate)},
    {TEST(easy_powers_of_the_ends)},         {TEST(functions_of_two_are_accurate)},
    {TEST(odd_numbers_are_as_plain)},        {TEST(odd_pairs_are_as_plain)},
    {TEST(whole_numbers_are_exact)},         {TEST(whole_numbers_are_exact_in_f64)},
    {TEST(bits_do_not_depend_on_the_place)},
};
CHECK_MAIN(tests)
