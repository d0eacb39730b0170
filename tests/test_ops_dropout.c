/* SPDX-License-Identifier: Apache-2.0 */
/* Dropout draws one mask, whatever the layout, and keeps generators in step. */
#include "ops_cases.h"

static const op_case ones = {.name = "ones", .operands = 1, .ndim = {3}, .shape = {{5, 3, 7}}};

/* The mask that a plain tensor gets from this call: what an element of 1 becomes. */
static void reference(sherd_world *world, uint64_t call, double p, double *out)
{
    sherd__key key =
        sherd__philox_key(sherd_world_seed(world), sherd_generator_named("m").name, call);
    const sherd__kernels *kernels = &sherd__world_kernels(world)->f64;
    double one[105];

    for (int i = 0; i < 105; i++)
        one[i] = 1;
    kernels->dropout(105, out, one, p, key, 0);
}

static void every_layout_draws_one_mask(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    double want[105];

    reference(world, 0, 0.3, want);
    for (int i = 0; i < layouts_of(mesh, &ones, 0); i++) {
        sherd_scope_begin(world);
        sherd_generator g = sherd_generator_named("m");
        sherd_tensor *t = sherd_constant_on(layout_number(mesh, &ones, 0, i), SHERD_F64, 1);
        CHECK(distance(sherd_full(sherd_dropout(t, 0.3, &g)), want, 105) == 0);
        CHECK_EQ(g.calls, 1);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

static void the_share_that_stays_is_scaled(sherd_world *world)
{
    static const double shares[] = {0.1, 0.5, 0.9};
    enum { N = 20000 };

    for (int i = 0; i < LEN(shares); i++) {
        sherd_generator g = sherd_generator_named("m");
        sherd_tensor *t = sherd_constant(world, SHERD_F64, (int64_t[]){N}, 1, 1);
        const double *y = sherd_tensor_read(sherd_dropout(t, shares[i], &g));
        int kept = 0;
        for (int e = 0; e < N; e++) {
            kept += y[e] != 0;
            if (y[e] != 0)
                CHECK_NEAR(y[e], 1 / (1 - shares[i]), 1e-12);
        }
        CHECK_NEAR(kept / (double)N, 1 - shares[i], 0.02);
    }
    CHECK_OK(sherd_world_check(world));
}

static void each_call_draws_anew_and_backward_again(sherd_world *world)
{
    const sherd_mesh *mesh = test_mesh(world);
    sherd_generator g = sherd_generator_named("m");
    double want[105];
    int n = layouts_of(mesh, &ones, 0);

    for (int call = 0; call < 3; call++) {
        sherd_tensor *t = sherd_require_grad(
            sherd_constant_on(layout_number(mesh, &ones, 0, (7 * call + 1) % n), SHERD_F64, 1),
            true);
        sherd_tensor *y = sherd_dropout(t, 0.5, &g);
        reference(world, (uint64_t)call, 0.5, want);
        CHECK(distance(sherd_full(y), want, 105) == 0);
        sherd_backward(sherd_sum(y));
        CHECK(distance(sherd_full(sherd_grad(t)), want, 105) == 0);
    }
    CHECK_EQ(g.calls, 3);
    CHECK_OK(sherd_world_check(world));
}

/* A rank whose operand failed has counted the call like all others. */
static void generators_stay_in_step(sherd_world *world)
{
    sherd_generator g = sherd_generator_named("m");
    sherd_tensor *t = sherd_constant(world, SHERD_F64, (int64_t[]){4}, 1, 1);
    sherd_tensor *failed = sherd_view(t, (int64_t[]){5}, 1);

    CHECK(sherd_dropout(t, 0, &g) == t);
    CHECK_EQ(g.calls, 1);
    CHECK(sherd_tensor_failed(sherd_dropout(failed, 0.5, &g)));
    CHECK(sherd_tensor_failed(sherd_dropout(t, -0.5, &g)));
    CHECK(sherd_tensor_failed(sherd_dropout(t, (double)NAN, &g)));
    CHECK_EQ(g.calls, 4);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
}

static const check_test tests[] = {
    {TEST(every_layout_draws_one_mask), {1, 2, 3, 4}},
    {TEST(the_share_that_stays_is_scaled), {1}},
    {TEST(each_call_draws_anew_and_backward_again), {1, 3, 4}},
    {TEST(generators_stay_in_step), {1, 2}},
};
CHECK_MAIN(tests)
