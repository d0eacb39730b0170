/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of f64 by vectors: how far they are from the C library's in long double, over the
 * ranges where they are used; that they are the plain ones' at zeroes, subnormal, huge and infinite
 * numbers and NaN; and that an element's bits depend on it alone, not on where it lies.
 */
#define CHECK_PURE
#include <float.h>
#include <math.h>

#include "check.h"
#include "kernel_versions.h"

enum { N = 4000 };

/* Where long double is no longer than double nothing can be said of fractions of an ulp. */
static const bool exact = LDBL_MANT_DIG >= 64;

static double in[N], more[N], out[N];

/* Half of them between low and high, half spread over all powers of two there. */
static void draw(double *x, uint64_t stream, double low, double high)
{
    sherd__ref_f64.uniform(N, x, 0, 1, sherd__philox_key(11, stream, 0), 0);
    for (int i = 0; i < N; i++) {
        double near = low + (high - low) * x[i];
        double far = (low < 0 && i % 4 == 1 ? low : high) * exp2(-60 * x[i]);
        x[i] = i % 2 && far >= low ? far : near;
    }
}

/* Distance in units of the last place of y. */
static double ulps(double x, long double y)
{
    int power;

    frexp((double)y, &power);
    long double unit = ldexpl(1, (power < -1021 ? -1021 : power) - DBL_MANT_DIG);
    return x == (double)y ? 0 : (double)(fabsl((long double)x - y) / unit);
}

static long double logistic(long double x)
{
    return 1 / (1 + expl(-x));
}

static long double gelu(long double x)
{
    return x * logistic(2 * 0.79788456080286535588L * (x + 0.044715L * x * x * x));
}

static long double gelu_erf(long double x)
{
    return x / 2 * erfcl(-x * 0.70710678118654752440L);
}

static long double silu(long double x)
{
    return x * logistic(x);
}

static long double softplus(long double x)
{
    return (x > 0 ? x : 0) + log1pl(expl(-fabsl(x)));
}

static long double logsigmoid(long double x)
{
    return -softplus(-x);
}

static long double mish(long double x)
{
    return x * tanhl(softplus(x));
}

static long double x_log_x(long double x)
{
    return x == 0 ? 0 : x * logl(x);
}

static long double elu(long double x)
{
    return x > 0 ? x : expm1l(x);
}

/* A function, where it is tried, and what it may be off by. */
typedef struct row {
    sherd__unary_kind kind;
    long double (*f)(long double);
    double low, high, bound;
} row;

static const row rows[] = {
    {SHERD__EXP, expl, -708, 709.7, 1.1},
    {SHERD__EXP, expl, -745, -708, 1.1},
    {SHERD__EXP2, exp2l, -1022, 1023.9, 1.1},
    {SHERD__EXPM1, expm1l, -40, 709.7, 1.9},
    {SHERD__EXPM1, expm1l, -1, 1, 1.9},
    {SHERD__LOG, logl, 0, 3, 1},
    {SHERD__LOG, logl, DBL_MIN, DBL_MAX, 1},
    {SHERD__LOG1P, log1pl, -0.999, 3, 1},
    {SHERD__LOG1P, log1pl, 0, 1e300, 1},
    {SHERD__LOG2, log2l, 0, 3, 1.8},
    {SHERD__LOG10, log10l, 0, 3, 1.9},
    {SHERD__LOG10, log10l, DBL_MIN, DBL_MAX, 1.9},
    {SHERD__SIN, sinl, -7, 7, 0.9},
    {SHERD__SIN, sinl, -0x1p20, 0x1p20, 0.9},
    {SHERD__COS, cosl, -7, 7, 0.9},
    {SHERD__COS, cosl, -0x1p20, 0x1p20, 0.9},
    {SHERD__COS, cosl, -1e15, 1e15, 1},
    {SHERD__TAN, tanl, -7, 7, 2.1},
    {SHERD__ASIN, asinl, -1, 1, 2.2},
    {SHERD__ACOS, acosl, -1, 1, 1.3},
    {SHERD__ATAN, atanl, -3, 3, 1.6},
    {SHERD__ATAN, atanl, -1e300, 1e300, 1.6},
    {SHERD__SINH, sinhl, -710, 710, 2.4},
    {SHERD__SINH, sinhl, -2, 2, 2.4},
    {SHERD__COSH, coshl, -710, 710, 1.4},
    {SHERD__TANH, tanhl, -21, 21, 2.6},
    {SHERD__TANH, tanhl, -1, 1, 2.6},
    {SHERD__ASINH, asinhl, -3, 3, 1.7},
    {SHERD__ASINH, asinhl, -1e300, 1e300, 1.7},
    {SHERD__ACOSH, acoshl, 1, 3, 2.1},
    {SHERD__ATANH, atanhl, -0.9999, 0.9999, 2},
    {SHERD__ERF, erfl, -6, 6, 2},
    {SHERD__ERFC, erfcl, -6, 26, 5.8},
    {SHERD__SIGMOID, logistic, -700, 40, 2.5},
    {SHERD__SILU, silu, -700, 40, 2.7},
    {SHERD__GELU, gelu, -1, 8, 2.7},
    {SHERD__GELU, gelu, -8, 0, 100}, /* rounding of the power counts as often as it is large */
    {SHERD__GELU_ERF, gelu_erf, -30, 8, 5.8},
    {SHERD__LOGSIGMOID, logsigmoid, -40, 700, 1.7},
    {SHERD__SOFTPLUS, softplus, -700, 19, 1.7},
    {SHERD__MISH, mish, -700, 40, 4.4},
    {SHERD__ELU, elu, -40, 2, 1.9},
    {SHERD__CELU, elu, -40, 2, 1.9},
    {SHERD__X_LOG_X, x_log_x, 0, 5, 1.8},
};

static void functions_are_accurate(void)
{
    const double parameter[] = {1, 20};
    sherd__kernels list[FAST_SETS];

    for (int v = versions_f64(list) - 1; v >= 0 && exact; v--)
        for (int r = 0; r < LEN(rows); r++) {
            double worst = 0, at = 0;
            draw(in, (uint64_t)r, rows[r].low, rows[r].high);
            list[v].unary(rows[r].kind, N, out, in, parameter);
            for (int i = 0; i < N; i++) {
                double apart = ulps(out[i], rows[r].f((long double)in[i]));
                if (!(apart <= worst)) {
                    worst = apart;
                    at = in[i];
                }
            }
            if (!CHECK(worst <= rows[r].bound))
                fprintf(stderr, "  %s: function %d is off by %.2f ulp at %.17g\n", list[v].name,
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
    static const double exponents[] = {0.5, 1.75, -2.3, 3,  -1, -7, 17.5, 1e-3, 100, 1234.5,
                                       1,   2,    4,    -2, -3, -4, -0.5, 1.5,  -1.5};
    sherd__kernels list[FAST_SETS];
    const int64_t n = N, one = 1, none = 0;

    for (int v = versions_f64(list) - 1; v >= 0 && exact; v--)
        for (int e = 0; e < LEN(exponents); e++) {
            double b = exponents[e], reach = fmin(700, 690 / fabs(b));
            draw(in, (uint64_t)e, -reach, reach);
            for (int i = 0; i < N; i++)
                in[i] = (b == rint(b) && i % 3 == 0 ? -1 : 1) * exp(in[i]);
            list[v].binary(SHERD__POWER, 1, &n, out, in, &one, &b, &none);
            for (int i = 0; i < N; i++)
                if (!CHECK(ulps(out[i], powl((long double)in[i], (long double)b)) <= 1.3))
                    fprintf(stderr, "  %s: %.17g ^ %g is not %.17g\n", list[v].name, in[i], b,
                            out[i]);
            list[v].unary(SHERD__POW, N, more, in, &b);
            for (int i = 0; i < N; i++)
                CHECK(ulps(more[i], powl((long double)in[i], (long double)b)) <= 3);
            CHECK(is_easy(b) || memcmp(more, out, sizeof out) == 0);
        }
}

/* Of what is 0, infinite, or has no root, as the C library has it. */
static void easy_powers_of_the_ends(void)
{
    static const double ends[] = {
        0, -0.0, 1, -1, 2, -2, (double)INFINITY, -(double)INFINITY, (double)NAN};
    sherd__kernels list[FAST_SETS];

    for (int v = versions_f64(list) - 1; v >= 0 && exact; v--)
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

static long double logaddexp(long double a, long double b)
{
    return (a > b ? a : b) + log1pl(expl(-fabsl(a - b)));
}

static long double xlogy(long double a, long double b)
{
    return a == 0 ? 0 : a * logl(b);
}

static void functions_of_two_are_accurate(void)
{
    static const struct {
        sherd__binary_kind kind;
        long double (*f)(long double, long double);
        double low, bound;
    } pairs[] = {{SHERD__ATAN2, atan2l, -3, 2},
                 {SHERD__HYPOT, hypotl, -3, 1.3},
                 {SHERD__LOGADDEXP, logaddexp, 0, 1.8},
                 {SHERD__XLOGY, xlogy, 0, 1.9}};
    sherd__kernels list[FAST_SETS];
    const int64_t n = N, one = 1;

    draw(more, 100, 0, 1);
    for (int v = versions_f64(list) - 1; v >= 0 && exact; v--)
        for (int p = 0; p < LEN(pairs); p++) {
            draw(in, 101, pairs[p].low, 3);
            list[v].binary(pairs[p].kind, 1, &n, out, in, &one, more, &one);
            for (int i = 0; i < N; i++)
                if (!CHECK(ulps(out[i], pairs[p].f((long double)in[i], (long double)more[i])) <=
                           pairs[p].bound))
                    fprintf(stderr, "  %s: function %d of %.17g, %.17g is not %.17g\n",
                            list[v].name, (int)pairs[p].kind, in[i], more[i], out[i]);
        }
}

static const double odd[] = {0.0,
                             -0.0,
                             1,
                             -1,
                             2,
                             -2,
                             0.5,
                             -0.5,
                             1.5,
                             3,
                             -3,
                             INFINITY,
                             -INFINITY,
                             NAN,
                             DBL_MIN,
                             -DBL_MIN,
                             DBL_MAX,
                             -DBL_MAX,
                             0x1p-1074,
                             -0x1p-1074,
                             0x1p-1040,
                             1e-300,
                             -1e-300,
                             1e-20,
                             -1e-20,
                             1e20,
                             -1e20,
                             1e200,
                             -1e200,
                             0x1p20,
                             -0x1p20,
                             0x1p21,
                             1e6,
                             710,
                             -710,
                             745.1,
                             -745.1,
                             746,
                             -746,
                             709.7,
                             -709.7,
                             1023.5,
                             1024,
                             -1074,
                             -1075,
                             -1076,
                             0.75,
                             -0.75,
                             26.5,
                             27.5,
                             -27.5,
                             38,
                             -38,
                             0x1p53,
                             -0x1p53,
                             0x1p52 + 1,
                             -0x1p52 - 1,
                             6.1232339957367660e-17,
                             1.5707963267948966,
                             -1.5707963267948966,
                             3.1415926535897931,
                             22,
                             -22,
                             40,
                             -40,
                             1e-8,
                             -1e-8,
                             0.9999999999999999};

/* Within a few ulp, or so near as the plain one, where halves of 1 + tanh(u) cancel, can be. */
static bool is_as_plain(double x, double plain, bool cancels)
{
    if (isnan(plain) || isnan(x))
        return isnan(plain) && isnan(x);
    if (x == plain)
        return x != 0 || cancels || signbit(x) == signbit(plain);
    if (cancels && isinf(x) && fabs(plain) > DBL_MAX / 8) /* of a slope, times dy = 1/2 */
        return true;
    return fabs(x - plain) <= (cancels ? 1e-14 : 0x1p-1070) + 2e-15 * fabs(plain);
}

static bool cancels(int kind)
{
    return kind == SHERD__GELU || kind == SHERD__GELU_ERF || kind == SHERD__MISH ||
           kind == SHERD__SIGMOID || kind == SHERD__SILU || kind == SHERD__LOGSIGMOID ||
           kind == SHERD__ELU || kind == SHERD__CELU || kind == SHERD__SELU;
}

static void odd_numbers_are_as_plain(void)
{
    static const double parameters[][2] = {{1.75, 20}, {3, 20}, {-2, 5}, {2, 1}, {0, 1}, {0.5, 9}};
    sherd__kernels list[FAST_SETS];
    double plain[LEN(odd)], fast[LEN(odd)], dy[LEN(odd)];

    for (int i = 0; i < LEN(odd); i++)
        dy[i] = 0.5;
    for (int v = versions_f64(list) - 1; v >= 0; v--)
        for (int kind = 0; kind < SHERD__UNARY_KINDS; kind++)
            for (int p = 0; p < LEN(parameters); p++)
                for (int slope = 0; slope < 2; slope++) {
                    if (slope && kind < SHERD__NEG)
                        continue;
                    if (slope) {
                        sherd__ref_f64.unary_grad((sherd__unary_kind)kind, LEN(odd), plain, odd, dy,
                                                  parameters[p]);
                        list[v].unary_grad((sherd__unary_kind)kind, LEN(odd), fast, odd, dy,
                                           parameters[p]);
                    } else {
                        sherd__ref_f64.unary((sherd__unary_kind)kind, LEN(odd), plain, odd,
                                             parameters[p]);
                        list[v].unary((sherd__unary_kind)kind, LEN(odd), fast, odd, parameters[p]);
                    }
                    for (int i = 0; i < LEN(odd); i++)
                        if (!(isinf(odd[i]) &&
                              kind == SHERD__MISH) && /* which the plain one has not */
                            !CHECK(is_as_plain(fast[i], plain[i], slope || cancels(kind))))
                            fprintf(stderr,
                                    "  %s: %s of function %d (%g, %g) at %.17g: %.17g is %.17g\n",
                                    list[v].name, slope ? "slope" : "value", kind, parameters[p][0],
                                    parameters[p][1], odd[i], plain[i], fast[i]);
                }
}

static void odd_pairs_are_as_plain(void)
{
    sherd__kernels list[FAST_SETS];
    const int64_t n = LEN(odd), one = 1, none = 0;
    double plain[LEN(odd)], fast[LEN(odd)];

    for (int v = versions_f64(list) - 1; v >= 0; v--)
        for (int kind = 0; kind < SHERD__BINARY_KINDS; kind++)
            for (int j = 0; j < LEN(odd); j++) {
                sherd__ref_f64.binary((sherd__binary_kind)kind, 1, &n, plain, odd, &one, &odd[j],
                                      &none);
                list[v].binary((sherd__binary_kind)kind, 1, &n, fast, odd, &one, &odd[j], &none);
                for (int i = 0; i < LEN(odd); i++)
                    if (!CHECK(is_as_plain(fast[i], plain[i], kind == SHERD__LOGADDEXP)))
                        fprintf(stderr, "  %s: function %d of %.17g, %.17g: %.17g is %.17g\n",
                                list[v].name, kind, odd[i], odd[j], plain[i], fast[i]);
            }
}

/* So that the same tensor in other shards is the same bits. */
static void bits_do_not_depend_on_the_place(void)
{
    enum { SOME = 37 };
    static const double parameter[] = {1.75, 5};
    sherd__kernels list[FAST_SETS];
    double whole[SOME], part[SOME];

    draw(in, 200, -30, 30);
    draw(more, 201, -3, 3);
    for (int i = 0; i < SOME; i += 5)
        in[i] = odd[i];
    for (int v = versions_f64(list) - 1; v >= 0; v--)
        for (int kind = 0; kind < SHERD__UNARY_KINDS; kind++)
            for (int slope = 0; slope < 2; slope++)
                for (int from = 0; from < SOME; from += 3)
                    for (int n = 1; from + n <= SOME; n += 2) {
                        sherd__unary_kind k = (sherd__unary_kind)kind;
                        if (slope && kind < SHERD__NEG)
                            continue;
                        if (slope) {
                            list[v].unary_grad(k, SOME, whole, in, more, parameter);
                            list[v].unary_grad(k, n, part, in + from, more + from, parameter);
                        } else {
                            list[v].unary(k, SOME, whole, in, parameter);
                            list[v].unary(k, n, part, in + from, parameter);
                        }
                        for (int i = 0; i < n; i++)
                            CHECK(memcmp(&whole[from + i], &part[i], sizeof *part) == 0 ||
                                  (isnan(whole[from + i]) && isnan(part[i])));
                    }
}

static const check_test tests[] = {
    {TEST(functions_are_accurate)},          {TEST(powers_are_accurate)},
    {TEST(easy_powers_of_the_ends)},         {TEST(functions_of_two_are_accurate)},
    {TEST(odd_numbers_are_as_plain)},        {TEST(odd_pairs_are_as_plain)},
    {TEST(bits_do_not_depend_on_the_place)},
};
CHECK_MAIN(tests)
