/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of a million equal numbers that operators make in ways of their own: averages over large
 * windows, gradients of what is interpolated, of a norm's weights, products of 16 bits, products
 * over dims. One running sum in f32 is wrong in the third digit.
 */
#include <math.h>

#include <sherd.h>

#include "tensors.h"

enum { N = 1 << 20 };

static const double number = (double)1.1f;

static sherd_tensor *filled(sherd_world *world, int ndim, const int64_t *shape, double value)
{
    return sherd_constant(world, SHERD_F32, shape, ndim, value);
}

static sherd_tensor *leaf(sherd_world *world, int ndim, const int64_t *shape, double value)
{
    return sherd_require_grad(filled(world, ndim, shape, value), true);
}

/* All elements of t, which are alike. */
static void check_all(sherd_tensor *t, double wanted, double tolerance)
{
    sherd_tensor *wide = sherd_scale(sherd_cast(t, SHERD_F64), 1 / wanted);

    CHECK_NEAR(sherd_item(sherd_max(wide, NULL, 0, false)), 1, tolerance);
    CHECK_NEAR(sherd_item(sherd_min(wide, NULL, 0, false)), 1, tolerance);
}

/* The gradient of y, all of whose elements have this one. */
static void go_back(sherd_tensor *y, double each)
{
    sherd_tensor *dy =
        sherd_cast(filled(sherd_tensor_world(y), sherd_tensor_ndim(y), sherd_tensor_shape(y), each),
                   sherd_tensor_dtype(y));

    sherd_backward_with(&y, &dy, 1, NULL);
}

static void averages_over_large_windows(sherd_world *world)
{
    const int64_t one = 1, line[] = {1, 1, N}, plane[] = {1, 1, N / 4, 4};
    const sherd_pool_options quarter = {.kernel = {N / 4}, .stride = {N / 4}};
    const sherd_pool_options rows = {.kernel = {N / 8, 1}, .stride = {N / 8, 1}};

    check_all(sherd_adaptive_avg_pool(filled(world, 3, line, number), &one), number, 1e-6);
    check_all(sherd_avg_pool(filled(world, 3, line, number), &quarter), number, 1e-6);
    check_all(sherd_avg_pool(filled(world, 4, plane, number), &rows), number, 1e-6);
    CHECK_OK(sherd_world_check(world));
}

static void gradients_of_what_is_interpolated(sherd_world *world)
{
    static const sherd_interpolation kinds[] = {SHERD_INTERPOLATE_NEAREST, SHERD_INTERPOLATE_LINEAR,
                                                SHERD_INTERPOLATE_AREA};
    const int64_t small[] = {1, 1, 1};

    for (int i = 0; i < LEN(kinds); i++) {
        sherd_interpolate_options to = {.kind = kinds[i], .size = {N}};
        sherd_tensor *x = leaf(world, 3, small, 1);
        go_back(sherd_interpolate(x, &to), number);
        check_all(sherd_grad(x), number * N, 1e-6);
    }
    CHECK_OK(sherd_world_check(world));
}

/* As above, and from both sides of a boundary: all that is given comes back. */
static void gradients_of_few_that_give_to_many(sherd_world *world)
{
    const int64_t small[] = {1, 2, 5, 3};
    sherd_interpolate_options to = {.kind = SHERD_INTERPOLATE_LINEAR, .size = {1000, 700}};
    sherd_tensor *x = leaf(world, 4, small, 1);

    go_back(sherd_interpolate(x, &to), number);
    CHECK_NEAR(sherd_item(sherd_sum(sherd_cast(sherd_grad(x), SHERD_F64))) / (2e3 * 700 * number),
               1, 1e-6);
    CHECK_OK(sherd_world_check(world));
}

static void gradients_of_the_weights_of_norms(sherd_world *world)
{
    const int64_t shape[] = {N / 8, 8}, of_16[] = {N / 8 + 5, 3}, width = 8, narrow = 3;

    sherd_tensor *x = filled(world, 2, shape, number), *bias = leaf(world, 1, &width, 0);
    sherd_tensor *weight = leaf(world, 1, &width, 1);
    go_back(sherd_layer_norm(x, weight, bias, 1e-5), number);
    check_all(sherd_grad(bias), number * N / 8, 1e-6);

    weight = leaf(world, 1, &width, 1);
    go_back(sherd_rms_norm(x, weight, 1e-12), number);
    check_all(sherd_grad(weight), number * N / 8, 1e-6);

    bias = leaf(world, 1, &width, 0);
    sherd_tensor *norm;
    sherd_add_layer_norm(&norm, NULL, x, x, &(sherd_add_norm_options){.bias = bias, .eps = 1e-5});
    go_back(norm, number);
    check_all(sherd_grad(bias), number * N / 8, 1e-6);

    /* the sum has an end beyond 64 rows; it is rounded to 16 bits */
    sherd_tensor *low = sherd_cast(filled(world, 2, of_16, 1), SHERD_F16);
    bias = sherd_require_grad(sherd_cast(filled(world, 1, &narrow, 0), SHERD_F16), true);
    go_back(sherd_layer_norm(low, NULL, bias, 1e-5), 0.1);
    check_all(sherd_grad(bias), 0.0999755859375 * (N / 8 + 5), 4e-4);
    CHECK_OK(sherd_world_check(world));
}

static void products_over_dims(sherd_world *world)
{
    const int64_t n = N, columns[] = {N / 4, 4};
    double each = (double)(1 + 1e-6f);

    check_all(sherd_prod(filled(world, 1, &n, each), NULL, 0, false), pow(each, N), 1e-6);
    check_all(sherd_prod(filled(world, 2, columns, each), (int[]){0}, 1, false), pow(each, N / 4),
              1e-6);
    CHECK_OK(sherd_world_check(world));
}

/* Of 16 bits; of f32 also where there are too many sums for those of a few. */
static void products_of_matrices(sherd_world *world)
{
    const int64_t two[] = {N, 2}, nine[] = {N, 9}, one = N;
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16, SHERD_F32};

    for (int d = 0; d < LEN(dtypes); d++) {
        double x = dtypes[d] == SHERD_F16 ? 0.06 : number;
        double held = sherd_item(sherd_cast(
            sherd_cast(sherd_constant(world, SHERD_F64, NULL, 0, x), dtypes[d]), SHERD_F64));
        double tolerance = dtypes[d] == SHERD_BF16 ? 4e-3 : dtypes[d] == SHERD_F16 ? 6e-4 : 3e-5;
        sherd_tensor *a = sherd_cast(filled(world, 2, two, x), dtypes[d]);
        sherd_tensor *b = sherd_cast(filled(world, 1, &one, x), dtypes[d]);
        sherd_tensor *wide = sherd_cast(filled(world, 2, nine, x), dtypes[d]);
        check_all(sherd_einsum("ij,i->j", (sherd_tensor *[]){a, b}, 2), held * held * N, tolerance);
        check_all(sherd_einsum("ij,ik->jk", (sherd_tensor *[]){wide, wide}, 2), held * held * N,
                  tolerance);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(averages_over_large_windows), {1, 2}},
    {TEST(gradients_of_what_is_interpolated), {1}},
    {TEST(gradients_of_few_that_give_to_many), {1, 3}},
    {TEST(gradients_of_the_weights_of_norms), {1}},
    {TEST(products_over_dims), {1}},
    {TEST(products_of_matrices), {1}},
};
CHECK_MAIN(tests)
