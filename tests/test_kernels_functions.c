/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every row of kernels/functions.inc against itself: slopes against central differences in f64, f32
 * against f64, also at negative numbers and where functions bend; and what integers, comparisons
 * and the search for an extreme must give.
 */
#define CHECK_PURE
#include <math.h>

#include "check.h"
#include "kernels/ref.h"

enum { POINTS = 240 };

static const double parameters[] = {1.75, 2.5}; /* exact in f32 */

static double at(int i)
{
    return -6 + 12.0 * (i + 0.37) / POINTS;
}

/* What functions of one operand read beside dy. */
static const char reads[] = {
#define UNARY0(name, NAME, text, numbers, at_, ...)       [SHERD__##NAME] = #at_[0],
#define UNARY1(name, NAME, p, text, numbers, at_, ...)    [SHERD__##NAME] = #at_[0],
#define UNARY2(name, NAME, p, q, text, numbers, at_, ...) [SHERD__##NAME] = #at_[0],
#define HIDDEN1(name, NAME, p, text, numbers, at_, ...)   [SHERD__##NAME] = #at_[0],
#include "kernels/functions.inc"
};

static double value_of(int kind, double x)
{
    double y;

    sherd__unary_f64((sherd__unary_kind)kind, 1, &y, &x, parameters);
    return y;
}

static void slopes_are_those_of_the_values(void)
{
    const double dy = 1.3, h = 1e-6;

    for (int kind = SHERD__NEG; kind < SHERD__UNARY_KINDS; kind++)
        for (int i = 0; i < POINTS; i++) {
            double x = at(i), y = value_of(kind, x), slope;
            double left = (y - value_of(kind, x - h)) / h, right = (value_of(kind, x + h) - y) / h;
            if (isnan(y) ||
                !(fabs(left - right) <= 1e-3 * (1 + fabs(left)))) /* a bend, or outside */
                continue;
            sherd__unary_grad_f64((sherd__unary_kind)kind, 1, &slope, reads[kind] == 'Y' ? &y : &x,
                                  &dy, parameters);
            if (!CHECK(fabs(slope - dy * (left + right) / 2) <= 1e-6 * (1 + fabs(slope))))
                fprintf(stderr, "  function %d at %g: %g\n", kind, x, slope);
        }
}

static void f32_is_f64_rounded(void)
{
    for (int kind = 0; kind < SHERD__UNARY_KINDS; kind++)
        for (int i = 0; i < POINTS; i++) {
            float x = (float)at(i), y;
            double exact = value_of(kind, (double)x);
            sherd__unary_f32((sherd__unary_kind)kind, 1, &y, &x, parameters);
            if (!CHECK((isnan(exact) && isnan(y)) ||
                       fabs((double)y - exact) <= 1e-6 * (0.1 + fabs(exact))))
                fprintf(stderr, "  function %d at %g: %.9g is %.9g\n", kind, (double)x, exact,
                        (double)y);
        }
}

static void slopes_of_two_are_those_of_the_values(void)
{
    const int64_t one = 1;
    const double dy = 1.3, h = 1e-6;

    for (int kind = SHERD__MUL + 1; kind < SHERD__BINARY_KINDS; kind++)
        for (int i = 0; i < POINTS; i++)
            for (int which = 0; which < 2; which++) {
                double x[2] = {0.4 + fabs(at(i)), at(i * 7 % POINTS)}, y[3], slope;
                for (int side = 0; side < 3; side++) {
                    double moved[2] = {x[0], x[1]};
                    moved[which] += (side - 1) * h;
                    sherd__binary_f64((sherd__binary_kind)kind, 1, &one, &y[side], &moved[0], &one,
                                      &moved[1], &one);
                }
                sherd__binary_grad_f64((sherd__binary_kind)kind, which, 1, &one, &slope, &dy, &x[0],
                                       &one, &x[1], &one);
                double left = (y[1] - y[0]) / h, right = (y[2] - y[1]) / h;
                double want = dy * (left + right) / 2;
                if (isnan(y[1]) || !(fabs(left - right) <= 1e-3 * (1 + fabs(left))))
                    continue; /* a jump, or outside */
                if (!CHECK(fabs(slope - want) <= 1e-4 * (1 + fabs(want))))
                    fprintf(stderr, "  function %d at %g, %g: %g\n", kind, x[0], x[1], slope);
            }
}

/* Half of the gradient each, where both are the largest; a NaN is not hidden. */
static void ties_share(void)
{
    static const double a[] = {1, 2, NAN, 1}, b[] = {1, 1, 1, NAN}, dy[] = {4, 4, 4, 4};
    static const double da[] = {2, 4, 4, 4}, db[] = {2, 0, 4, 4};
    const int64_t n = 4, one = 1;
    double got[4];

    sherd__binary_grad_f64(SHERD__MAXIMUM, 0, 1, &n, got, dy, a, &one, b, &one);
    CHECK(memcmp(got, da, sizeof got) == 0);
    sherd__binary_grad_f64(SHERD__MAXIMUM, 1, 1, &n, got, dy, a, &one, b, &one);
    CHECK(memcmp(got, db, sizeof got) == 0);
    sherd__binary_f64(SHERD__MAXIMUM, 1, &n, got, a, &one, b, &one);
    CHECK(got[0] == 1 && got[1] == 2 && isnan(got[2]) && isnan(got[3]));
}

/* At a NaN and at 0, as PyTorch has it. */
static void slopes_at_ends_are_pytorchs(void)
{
    static const double x[] = {NAN, 0, -0.0}, dy[] = {1.5, 1.5, 1.5};
    double got[3];

    sherd__unary_grad_f64(SHERD__RELU, 3, got, x, dy, NULL);
    CHECK(got[0] == 1.5 && got[1] == 0 && got[2] == 0);
    sherd__unary_grad_f64(SHERD__ABS, 3, got, x, dy, NULL);
    CHECK(got[0] == 0 && got[1] == 0 && got[2] == 0);
    sherd__unary_grad_f64(SHERD__CLAMP, 3, got, x, dy, (const double[]){0, 1});
    CHECK(got[0] == 0 && got[1] == 1.5 && got[2] == 1.5);
}

/* Between bounds that are not numbers nothing is. */
static void a_clamp_hides_no_bound_that_is_nan(void)
{
    static const double x[] = {-2, 0.5, 2, NAN}, bounds[][2] = {{NAN, 1}, {0, NAN}, {NAN, NAN}};
    double got[4];

    for (int b = 0; b < LEN(bounds); b++) {
        sherd__unary_f64(SHERD__CLAMP, 4, got, x, bounds[b]);
        for (int i = 0; i < 4; i++)
            CHECK(isnan(got[i]));
        sherd__unary_grad_f64(SHERD__CLAMP, 4, got, x, x, bounds[b]);
        for (int i = 0; i < 4; i++)
            CHECK_EQ(got[i], 0);
    }
}

/* [2,3,2], folded over the outer dims: the first of equals, and a NaN before all. */
static void an_extreme_is_the_first_of_equals(void)
{
    static const float x[] = {1, 5, 7, 5, 7, 2, 7, NAN, 0, 9, 1, NAN};
    static const int64_t size[] = {2, 3, 2}, kept[] = {0, 0, 1}, index[] = {3, 1, 0};
    float best[2];
    int64_t where[2] = {-1, -1};

    sherd__extreme_f32(false, 3, size, best, kept, where, index, 10, x);
    CHECK(best[0] == 7 && where[0] == 11);
    CHECK(isnan(best[1]) && where[1] == 13);
    where[0] = where[1] = -1;
    sherd__extreme_f32(true, 3, size, best, kept, where, index, 0, x);
    CHECK(best[0] == 0 && where[0] == 4);
}

static void parts_join_to_the_first_of_equals(void)
{
    static const int32_t best[] = {4, 7, 0, 7, 7, 9}; /* [3,2] */
    static const int64_t index[] = {5, 6, -1, 2, 3, -1};
    int32_t got[2];

    sherd__extreme_join_i32(false, 3, 2, got, best, index);
    CHECK_EQ(got[0], 3);
    CHECK_EQ(got[1], 2);
}

static void integers_wrap_and_clamp(void)
{
    static const int32_t x[] = {INT32_MIN, -3, 0, 9};
    static const double bounds[] = {-2.5, 4.5}, crossed[] = {5, 1};
    int32_t y[4];

    sherd__whole_i32.unary(SHERD__ABS, 4, y, x, NULL);
    CHECK(y[0] == INT32_MIN && y[1] == 3 && y[2] == 0 && y[3] == 9);
    sherd__whole_i32.unary(SHERD__CLAMP, 4, y, x, bounds);
    CHECK(y[0] == -2 && y[1] == -2 && y[2] == 0 && y[3] == 4);
    sherd__whole_i32.unary(SHERD__CLAMP, 4, y, x, crossed);
    CHECK(y[0] == 1 && y[1] == 1 && y[2] == 1 && y[3] == 1);
    sherd__whole_i32.unary(SHERD__SIGN, 4, y, x, NULL);
    CHECK(y[0] == -1 && y[1] == -1 && y[2] == 0 && y[3] == 1);
    sherd__whole_i32.unary(SHERD__RELU, 4, y, x, NULL);
    CHECK(y[0] == 0 && y[1] == 0 && y[2] == 0 && y[3] == 9);
}

static bool same(double a, double b)
{
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

/* As PyTorch has it, at zeroes, infinities and NaN. */
static void quotients_and_remainders_are_pytorchs(void)
{
    static const double a[] = {0, 1, -5, 5, -5, 5, INFINITY, 1, -1, NAN, -0.0, 6, 0.3};
    static const double b[] = {0, 0, 3, -3, -3, 3, 1, INFINITY, INFINITY, 1, 2, 3, 0.1};
    static const double floors[] = {NAN, INFINITY, -2, -2, 1, 1, NAN, 0, -1, NAN, -0.0, 2, 2};
    static const double rests[] = {NAN,      NAN, 1,    -1, -2,           2, NAN, 1,
                                   INFINITY, NAN, -0.0, 0,  0.3 - 2 * 0.1};
    static const double left[] = {NAN, NAN, -2, 2, -2, 2, NAN, 1, -1, NAN, -0.0, 0, 0.3 - 2 * 0.1};
    const int64_t n = LEN(a), one = 1;
    double got[LEN(a)];

    sherd__binary_f64(SHERD__FLOOR_DIVIDE, 1, &n, got, a, &one, b, &one);
    for (int i = 0; i < n; i++)
        CHECK(same(got[i], floors[i]));
    sherd__binary_f64(SHERD__REMAINDER, 1, &n, got, a, &one, b, &one);
    for (int i = 0; i < n; i++)
        CHECK(i == n - 1 ? fabs(got[i] - rests[i]) < 1e-16 : same(got[i], rests[i]));
    sherd__binary_f64(SHERD__FMOD, 1, &n, got, a, &one, b, &one);
    for (int i = 0; i < n; i++)
        CHECK(i == n - 1 ? fabs(got[i] - left[i]) < 1e-16 : same(got[i], left[i]));
}

static void integers_are_divided_downwards(void)
{
    static const int32_t x[] = {INT32_MIN, -7, -6, 0, 7};
    static const uint8_t u[] = {0, 7, 255};
    static const int8_t s[] = {INT8_MIN, -7, 7};
    static const double three[] = {3}, minus[] = {-1};
    int32_t y[5];
    uint8_t v[3];
    int8_t w[3];

    sherd__whole_i32.unary(SHERD__FLOOR_DIVIDE_SCALAR, 5, y, x, three);
    CHECK(y[0] == -715827883 && y[1] == -3 && y[2] == -2 && y[3] == 0 && y[4] == 2);
    sherd__whole_i32.unary(SHERD__REMAINDER_SCALAR, 5, y, x, three);
    CHECK(y[0] == 1 && y[1] == 2 && y[2] == 0 && y[3] == 0 && y[4] == 1);
    sherd__whole_i32.unary(SHERD__FLOOR_DIVIDE_SCALAR, 5, y, x, minus);
    CHECK(y[0] == INT32_MIN && y[1] == 7 && y[4] == -7);
    sherd__whole_i32.unary(SHERD__REMAINDER_SCALAR, 5, y, x, minus);
    CHECK(y[0] == 0 && y[1] == 0 && y[4] == 0);
    sherd__whole_u8.unary(SHERD__FLOOR_DIVIDE_SCALAR, 3, v, u, three);
    CHECK(v[0] == 0 && v[1] == 2 && v[2] == 85);
    sherd__whole_u8.unary(SHERD__REMAINDER_SCALAR, 3, v, u, three);
    CHECK(v[0] == 0 && v[1] == 1 && v[2] == 0);
    sherd__whole_i8.unary(SHERD__FLOOR_DIVIDE_SCALAR, 3, w, s, three);
    CHECK(w[0] == -43 && w[1] == -3 && w[2] == 2);
    sherd__whole_i8.unary(SHERD__REMAINDER_SCALAR, 3, w, s, three);
    CHECK(w[0] == 1 && w[1] == 2 && w[2] == 1);
    sherd__whole_i8.unary(SHERD__FLOOR_DIVIDE_SCALAR, 3, w, s, minus);
    CHECK(w[0] == INT8_MIN && w[1] == 7 && w[2] == -7);
    sherd__whole_i8.unary(SHERD__ABS, 3, w, s, NULL);
    CHECK(w[0] == INT8_MIN && w[1] == 7 && w[2] == 7);
}

/* Where terms would overflow, or are infinite. */
static void sums_of_powers_do_not_overflow(void)
{
    static const double a[] = {1000, -INFINITY, INFINITY, INFINITY, 3e200},
                        b[] = {1000, -INFINITY, INFINITY, 0, 4e200};
    const int64_t n = LEN(a), one = 1;
    double got[LEN(a)];

    sherd__binary_f64(SHERD__LOGADDEXP, 1, &n, got, a, &one, b, &one);
    CHECK(fabs(got[0] - 1000.6931471805599) < 1e-12 && got[1] == -INFINITY && got[2] == INFINITY &&
          got[3] == INFINITY);
    sherd__binary_f64(SHERD__HYPOT, 1, &n, got, a, &one, b, &one);
    CHECK(fabs(got[4] / 5e200 - 1) < 1e-15);
}

/* Rows with infinite numbers, and one of nothing. */
static void softmax_ends_as_it_should(void)
{
    static const float x[] = {-INFINITY, -INFINITY, 0, 0, -INFINITY, 1000};
    float most[3], total[3], y[6];

    sherd__soft_stats_f32(3, 2, 1, most, total, x);
    CHECK(most[0] == -INFINITY && total[0] == 0);
    CHECK(most[1] == 0 && total[1] == 2 && most[2] == 1000 && total[2] == 1);
    sherd__soft_f32(SHERD__SOFTMAX, 3, 2, 1, y, x, most, total);
    CHECK(isnan(y[0]) && y[2] == 0.5f && y[3] == 0.5f && y[4] == 0 && y[5] == 1);
    sherd__soft_stats_f32(1, 0, 1, most, total, x);
    CHECK(most[0] == -INFINITY && total[0] == 0);
}

static const check_test tests[] = {
    {TEST(slopes_are_those_of_the_values)},
    {TEST(f32_is_f64_rounded)},
    {TEST(slopes_of_two_are_those_of_the_values)},
    {TEST(ties_share)},
    {TEST(slopes_at_ends_are_pytorchs)},
    {TEST(a_clamp_hides_no_bound_that_is_nan)},
    {TEST(an_extreme_is_the_first_of_equals)},
    {TEST(parts_join_to_the_first_of_equals)},
    {TEST(integers_wrap_and_clamp)},
    {TEST(quotients_and_remainders_are_pytorchs)},
    {TEST(integers_are_divided_downwards)},
    {TEST(sums_of_powers_do_not_overflow)},
    {TEST(softmax_ends_as_it_should)},
};
CHECK_MAIN(tests)
