/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Expressions that docs/from_pytorch_operators.md gives for what has no operator of its own: in
 * f32, PyTorch's results for ordinary, tiny, huge, infinite and NaN operands.
 */
#include "ops_cases.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

#define INF  ((double)INFINITY)
#define NONE ((double)NAN)

static sherd_tensor *numbers(sherd_world *world, const double *x, int64_t n)
{
    return sherd_cast(sherd_from_data(world, SHERD_F64, &n, 1, x), SHERD_F32);
}

/* To some roundings of f32. */
static void check_close(sherd_tensor *t, const double *want, const char *name)
{
    const float *y = sherd_tensor_read(t);

    for (int64_t i = 0; i < sherd_tensor_count(t); i++) {
        double w = want[i], d = y ? fabs((double)y[i] - w) : NONE;
        bool same = y && ((isnan(w) && isnan(y[i])) || (double)y[i] == w);
        if (!CHECK(same || d <= 5e-7 * fabs(w) + 1e-44))
            fprintf(stderr, "  %s [%lld]: %g, not %g\n", name, (long long)i,
                    y ? (double)y[i] : NONE, w);
    }
}

static sherd_tensor *celu(sherd_tensor *a, double alpha)
{
    sherd_tensor *below = sherd_clamp(a, -INF, 0);

    return sherd_where(sherd_gt_scalar(a, 0), a,
                       sherd_scale(sherd_expm1(sherd_scale(below, 1 / alpha)), alpha));
}

static void celu_is_pytorchs(sherd_world *world)
{
    const double x[] = {0.1, 1e30, 3e38, INF, -1, -1e30, -INF, 1e-40, NONE, -3e-11};
    const double narrow[] = {0.1f,   1e30f,  3e38f, INF,  -1e-10,
                             -1e-10, -1e-10, 1e-40, NONE, -2.59181783e-11};
    const double one[] = {0.1f, 1e30f, 3e38f, INF, -0.63212055, -1, -1, 1e-40, NONE, -3e-11};

    check_close(celu(numbers(world, x, LEN(x)), 1e-10), narrow, "celu, narrow");
    check_close(celu(numbers(world, x, LEN(x)), 1), one, "celu");
    CHECK_OK(sherd_world_check(world));
}

static void logit_is_pytorchs(sherd_world *world)
{
    const double x[] = {0, 1, 1e-45, 1e-38, 1e-10, 0.25, 0.75, 1 - 0x1p-24, -1, 2, NONE};
    const double want[] = {-INF,      INF,       -103.27893, -87.498238, -23.025851, -1.0986123,
                           1.0986123, 16.635532, NONE,       NONE,       NONE};
    sherd_tensor *a = numbers(world, x, LEN(x));

    check_close(sherd_sub(sherd_log(a), sherd_log1p(sherd_neg(a))), want, "logit");
    CHECK_OK(sherd_world_check(world));
}

static void entr_and_sinc_are_pytorchs(sherd_world *world)
{
    const double x[] = {0, 1, 0.5, -1e-45, -2, INF, NONE};
    const double entr[] = {0, 0, 0.34657359, -INF, -INF, -INF, NONE};
    const double sinc[] = {1, -2.7827534e-8, 0.63661977, 1, 2.7827534e-8, NONE, NONE};
    sherd_tensor *a = numbers(world, x, LEN(x)), *t = sherd_scale(a, 3.141592653589793);
    sherd_tensor *y = sherd_masked_fill(sherd_neg(sherd_xlogy(a, a)), sherd_lt_scalar(a, 0), -INF);

    check_close(y, entr, "entr");
    y = sherd_masked_fill(sherd_div(sherd_sin(t), t), sherd_eq_scalar(a, 0), 1);
    check_close(y, sinc, "sinc");
    CHECK_OK(sherd_world_check(world));
}

/* Bins as torch.histc counts them, of elements on their edges and beside them. */
static sherd_tensor *histc(sherd_tensor *a, int64_t n, double min, double max)
{
    sherd_tensor *width = sherd_constant(a->world, SHERD_F32, NULL, 0, max - min);
    sherd_tensor *t = sherd_div(sherd_scale(sherd_add_scalar(a, -min), (double)n), width);
    sherd_tensor *i = sherd_cast(sherd_clamp(t, 0, (double)n - 1), SHERD_I32);
    sherd_tensor *in = sherd_logical_and(sherd_ge_scalar(a, min), sherd_le_scalar(a, max));

    return sherd_bincount(sherd_masked_fill(i, sherd_logical_not(in), -1), n);
}

static void histc_is_pytorchs(sherd_world *world)
{
    const double x[] = {0, 0.1, 0.2, 0.25, 0.5, 0.75, 0.99999994, 1, 1.0000001, -1e-45, NONE, INF};
    static const int32_t fours[] = {3, 1, 1, 3}, tens[] = {1, 1, 2, 0, 0, 1, 0, 1, 0, 2};
    sherd_tensor *a = numbers(world, x, LEN(x));
    const int32_t *four = sherd_tensor_read(histc(a, 4, 0, 1));
    const int32_t *ten = sherd_tensor_read(histc(a, 10, 0, 1));

    CHECK(four && memcmp(four, fours, sizeof fours) == 0);
    CHECK(ten && memcmp(ten, tens, sizeof tens) == 0);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(celu_is_pytorchs), {1}},
    {TEST(logit_is_pytorchs), {1}},
    {TEST(entr_and_sinc_are_pytorchs), {1}},
    {TEST(histc_is_pytorchs), {1}},
};
CHECK_MAIN(tests)
