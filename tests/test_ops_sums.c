/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a million equal numbers, which one running sum in f32 gets wrong in the fourth digit, and
 * what is made of sums: means, norms, losses, variances, products of vectors, gradients of what was
 * broadcast. Under SHERD_PROOF ten million.
 */
#include <math.h>

#include "ops_oracles.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_reductions.h"
#include "tensors.h"

#define DIMS(...) (int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int))

static const double number = (double)1.1f, exact = 1e-6;
static const double of_products = 4e-6; /* parts of a product of vectors are one sum */

/* A constant of `count` elements, the dim `longest` having most of them, sharded along dim s. */
static sherd_tensor *constant(sherd_world *world, int longest, int s, double value, int64_t *count)
{
    int64_t shape[] = {4, 4, 4};
    char placement[16];

    shape[longest] = (getenv("SHERD_PROOF") ? 10000000 : 1000000) / 16;
    *count = shape[0] * shape[1] * shape[2];
    snprintf(placement, sizeof placement, "S(%d)", s);
    return sherd_constant_on(layout_of(line_of_ranks(world), 3, shape, placement, NULL), SHERD_F32,
                             value);
}

/* All elements of t, which are alike. */
static void check_near_all(sherd_tensor *t, double wanted, double tolerance)
{
    sherd_tensor *wide = sherd_scale(sherd_cast(t, SHERD_F64), 1 / wanted);

    CHECK_NEAR(sherd_item(sherd_max(wide, NULL, 0, false)), 1, tolerance);
    CHECK_NEAR(sherd_item(sherd_min(wide, NULL, 0, false)), 1, tolerance);
}

static void check_all(sherd_tensor *t, double wanted)
{
    check_near_all(t, wanted, exact);
}

static void sums_over_any_dims_are_exact(sherd_world *world)
{
    static const struct {
        int dim[3], count;
    } sets[] = {{{0}, 1},    {{1}, 1},    {{2}, 1},      {{0, 1}, 2},
                {{1, 2}, 2}, {{0, 2}, 2}, {{0, 1, 2}, 3}};

    for (int longest = 0; longest < 3; longest++) {
        int64_t count;
        sherd_tensor *a = constant(world, longest, longest, number, &count);
        for (int i = 0; i < LEN(sets); i++) {
            sherd_tensor *sum = sherd_sum_over(a, sets[i].dim, sets[i].count, false);
            check_all(sum, number * (double)(count / sherd_tensor_count(sum)));
            check_all(sherd_mean_over(a, sets[i].dim, sets[i].count, true), number);
        }
    }
    CHECK_OK(sherd_world_check(world));
}

static void what_is_made_of_sums_is_exact(sherd_world *world)
{
    int64_t count;
    sherd_tensor *a = constant(world, 1, 1, number, &count);
    double n = (double)count;

    check_all(sherd_sum(a), number * n);
    check_all(sherd_mean(a), number);
    check_all(sherd_norm(a, 2, NULL, 0, false), number * sqrt(n));
    check_all(sherd_norm(a, 1, NULL, 0, false), number * n);
    check_all(sherd_mse_loss(a, sherd_scale(a, 0), SHERD_LOSS_MEAN), number * number);
    sherd_tensor *both = sherd_stack((sherd_tensor *[]){a, sherd_neg(a)}, 2, 0);
    check_all(sherd_var(both, NULL, 0, 0, false), number * number);
    sherd_tensor *flat = sherd_reshape(a, (int64_t[]){count}, 1);
    check_near_all(sherd_matmul(flat, flat), number * number * n, of_products);
    CHECK_OK(sherd_world_check(world));
}

static void gradients_of_what_was_broadcast_are_exact(sherd_world *world)
{
    int64_t count, one = 4;
    sherd_tensor *a = constant(world, 0, 0, number, &count);
    sherd_tensor *bias = sherd_require_grad(sherd_constant(world, SHERD_F32, &one, 1, 0), true);

    sherd_backward(sherd_sum(sherd_mul(a, bias)));
    check_all(sherd_grad(bias), number * (double)(count / 4));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(sums_over_any_dims_are_exact), {1, 3}},
    {TEST(what_is_made_of_sums_is_exact), {1, 3}},
    {TEST(gradients_of_what_was_broadcast_are_exact), {1, 3}},
};
CHECK_MAIN(tests)
