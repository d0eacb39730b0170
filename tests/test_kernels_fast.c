/* SPDX-License-Identifier: Apache-2.0 */
/* The fast kernels of f32 against the plain ones; and the tails of its curves. */
#define CHECK_PURE
#include <tgmath.h>

#include "check.h"
#include "kernel_versions.h"

typedef float real;
#define PLAIN    sherd__ref_f32
#define VERSIONS versions
static const double scale = 1; /* of tolerances */

#include "kernels_fast.inc"

/* Of both forms of GELU far out, where powers leave the range, and of their slopes: as the plain one
 * in 1e-23, and NaN stays NaN. */
static void gelu_is_right_far_out(void)
{
    static const sherd__unary_kind kinds[] = {SHERD__GELU, SHERD__GELU_ERF};
    static const float far[] = {-INFINITY, -3e38f, -1e13f, -1e10f, -1000, -61,      -20,
                                -3,        -0.0f,  0,      1e-30f, 7,     20,       61,
                                1e3,       1e6,    1e10f,  1e14f,  3e38f, INFINITY, NAN};
    const int64_t n = LEN(far);

    EACH_VERSION(k)
    for (int kind = 0; kind < LEN(kinds); kind++) {
        start(1);
        memcpy(a->in[0], far, sizeof far);
        sherd__ref_f32.unary(kinds[kind], n, a->plain[0], a->in[0], NULL);
        k->unary(kinds[kind], n, a->fast[0], a->in[0], NULL);
        for (int64_t i = 0; i < n; i++)
            a->in[1][i] = 1;
        sherd__ref_f32.unary_grad(kinds[kind], n, a->plain[1], a->in[0], a->in[1], NULL);
        k->unary_grad(kinds[kind], n, a->fast[1], a->in[0], a->in[1], NULL);
        for (int64_t i = 0; i < 2 * n; i++) {
            float x = a->plain[i / n][i % n], y = a->fast[i / n][i % n];
            CHECK(isnan(x) ? isnan(y) : x == y || fabsf(x - y) <= 1e-23f + 1e-6f * fabsf(x));
        }
    }
}

static bool are_alike(const float *x, const float *y, int64_t n)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < n; i++)
        wrong += isnan(x[i]) ? !isnan(y[i]) : memcmp(x + i, y + i, sizeof *x) != 0;
    return wrong == 0;
}

/* Bounds that change places or are NaN, and the larger and the smaller of any two. */
static void bounds_and_ends_are_the_plain_ones(void)
{
    static const float ends[] = {-INFINITY, -3, -1, -0.0f, 0, 1, 2.5f, 3, INFINITY, NAN};
    static const double bounds[][2] = {{-1, 1}, {2, -2}, {NAN, 1}, {-1, NAN}, {-0.0, 0}};
    enum { N = LEN(ends) * LEN(ends) };
    const int64_t n = N;

    EACH_VERSION(k)
    {
        start(1);
        for (int i = 0; i < N; i++) {
            a->in[0][i] = ends[i % LEN(ends)];
            a->in[1][i] = ends[i / LEN(ends)];
        }
        for (int b = 0; b < LEN(bounds); b++) {
            sherd__ref_f32.unary(SHERD__CLAMP, n, a->plain[0], a->in[0], bounds[b]);
            k->unary(SHERD__CLAMP, n, a->fast[0], a->in[0], bounds[b]);
            CHECK(are_alike(a->plain[0], a->fast[0], n));
        }
        for (int i = 0; i < 2; i++) {
            sherd__binary_kind kind = i ? SHERD__MAXIMUM : SHERD__MINIMUM;
            const int64_t step = 1;
            sherd__ref_f32.binary(kind, 1, &n, a->plain[0], a->in[0], &step, a->in[1], &step);
            k->binary(kind, 1, &n, a->fast[0], a->in[0], &step, a->in[1], &step);
            CHECK(are_alike(a->plain[0], a->fast[0], n));
        }
    }
}

/* The lower tail of GELU by erf, and softplus where it is as small, to a few ulp of what they
 * are. */
static void tails_keep_their_digits(void)
{
    const double parameter[] = {1, 20};
    const int64_t n = 1200;

    EACH_VERSION(k)
    {
        start(1);
        for (int64_t i = 0; i < n; i++)
            a->in[0][i] = -(float)i / 100;
        k->unary(SHERD__GELU_ERF, n, a->fast[0], a->in[0], NULL);
        k->unary(SHERD__SOFTPLUS, n, a->fast[1], a->in[0], parameter);
        for (int64_t i = 1; i < n; i++) {
            double x = (double)a->in[0][i], gelu = x / 2 * erfc(-x / sqrt(2)), soft = log1p(exp(x));
            CHECK_NEAR((double)a->fast[0][i] / gelu, 1, 1e-6);
            CHECK_NEAR((double)a->fast[1][i] / soft, 1, 1e-6);
        }
    }
}

static const check_test tests[] = {
    SHARED_TESTS,
    {TEST(bounds_and_ends_are_the_plain_ones)},
    {TEST(gelu_is_right_far_out)},
    {TEST(tails_keep_their_digits)},
};

int main(int argc, char **argv)
{
    return run(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
