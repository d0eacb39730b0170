/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Means are exact where they can be: a sum is divided by the count, and not multiplied by 1 / n, which
 * is rounded. Variances are those of the numbers, whatever f32 takes from their mean or squares.
 */
#include <math.h>

#include "ops_cases.h"
#include "sherd/autograd.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"
#include "tensors.h"

static void the_mean_of_equals_is_one_of_them(sherd_world *world)
{
    static const sherd_dtype dtypes[] = {SHERD_F64, SHERD_F32, SHERD_BF16, SHERD_F16};

    for (int d = 0; d < LEN(dtypes); d++)
        for (int64_t n = 2; n < 130; n++) {
            sherd_scope_begin(world);
            sherd_tensor *a = sherd_constant(world, dtypes[d], &n, 1, n % 7 ? 1 : 3);
            CHECK_EQ(sherd_item(sherd_mean(a)), n % 7 ? 1 : 3);
            CHECK_EQ(sherd_item(sherd_mean_over(a, (int[]){0}, 1, true)), n % 7 ? 1 : 3);
            CHECK_EQ(sherd_item(sherd_var(a, NULL, 0, 0, false)), 0);
            CHECK_EQ(sherd_item(sherd_std(a, (int[]){0}, 1, 1, false)), 0);
            sherd_scope_end(world);
        }
    CHECK_EQ(sherd_item(sherd_mean(sherd_constant(world, SHERD_F32, (int64_t[]){0}, 1, 1))), NAN);
    CHECK_OK(sherd_world_check(world));
}

/* Under any layout the mean of whole numbers that the ranks' sums hold exactly is rounded once. */
static void a_mean_is_rounded_once(sherd_world *world)
{
    const sherd_mesh *line = line_of_ranks(world);
    const int64_t shape[] = {7, 7};

    for (int whole = 0; whole < 2; whole++) {
        const sherd_layout *layout = layout_of(line, 2, shape, whole ? "R" : "S(0)", NULL);
        sherd_tensor *a = sherd_constant_on(layout, SHERD_F64, 3);
        CHECK_NEAR(sherd_item(sherd_mean(a)), 3, whole ? 0 : 1e-15);
        CHECK_NEAR(sherd_item(sherd_std(a, NULL, 0, 1, false)), 0, whole ? 0 : 1e-15);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Numbers far from 0, too large or too small to be squared, on ranks that have rows or columns. */
static void spreads_are_those_of_the_numbers(sherd_world *world)
{
    enum { ROWS = 5, COLS = 17, ALL = ROWS * COLS };
    static const struct {
        double first, step; /* numbers: first + step (i % 3) */
    } kinds[] = {{1e7 + 1, 0}, {1e7, 1}, {1.5e38, 3e37}, {1e-30, 1e-30}, {-3e38, 0}, {3, 1}};
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    const int64_t shape[] = {ROWS, COLS};

    for (int i = 0; i < LEN(kinds) * LEN(placements); i++) {
        float x[ALL];
        double mean = 0, var = 0, std, step = kinds[i % LEN(kinds)].step;
        for (int j = 0; j < ALL; j++) {
            x[j] = (float)(kinds[i % LEN(kinds)].first + step * (j % 3));
            mean += (double)x[j] / ALL;
        }
        for (int j = 0; j < ALL; j++)
            var += ((double)x[j] - mean) * ((double)x[j] - mean) / ALL;
        var = step == 0 ? 0 : var;
        std = sqrt(var);
        sherd_scope_begin(world);
        sherd_tensor *a = sherd_require_grad(
            sherd_distribute(
                sherd_mark_equal(sherd_from_data(world, SHERD_F32, shape, 2, x)),
                layout_of(line_of_ranks(world), 2, shape, placements[i / LEN(kinds)], NULL), -1),
            true);
        sherd_tensor *y = sherd_std(a, NULL, 0, 0, false);
        CHECK_NEAR(sherd_item(y), std, 1e-7 * std);
        if (var < 1e30)
            CHECK_NEAR(sherd_item(sherd_var(a, NULL, 0, 0, false)), (double)(float)var, 1e-7 * var);
        sherd_backward(y);
        double slope[ALL];
        CHECK(sherd_full_read(slope, sizeof slope, sherd_grad(a), SHERD_F64, -1));
        for (int j = 0; j < ALL; j++)
            CHECK_NEAR(slope[j], std == 0 ? 0 : ((double)x[j] - mean) / std / ALL, 2e-9);
        sherd_scope_end(world);
    }
    CHECK_OK(sherd_world_check(world));
}

/* Their squares are too large, or too small, for f32; over dims with another one between them. */
static void deviations_are_in_range_where_squares_are_not(sherd_world *world)
{
    static const int64_t shape[] = {2, 3, 4}, scales[] = {100, -100};

    for (int i = 0; i < LEN(scales); i++) {
        float data[2][3][4];
        for (int a = 0; a < 2; a++)
            for (int b = 0; b < 3; b++)
                for (int c = 0; c < 4; c++)
                    data[a][b][c] = ldexpf(a ? 1 : 3, (int)scales[i]);
        sherd_tensor *x =
            sherd_require_grad(sherd_from_data(world, SHERD_F32, shape, 3, data), true);
        sherd_tensor *y = sherd_std(x, (const int[]){0, 2}, 2, 0, i > 0);
        CHECK_EQ(sherd_tensor_ndim(y), i > 0 ? 3 : 1);
        const float *std = sherd_tensor_read(y);
        for (int b = 0; std && b < 3; b++)
            CHECK_NEAR(ldexpf(std[b], (int)-scales[i]), 1, 1e-6);
        sherd_backward(sherd_sum(y));
        const float *dx = sherd_tensor_read(sherd_grad(x));
        for (int j = 0; dx && j < 24; j++)
            CHECK_NEAR(dx[j], j < 12 ? 1. / 8 : -1. / 8, 1e-6);
        CHECK(std && dx);
    }
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(the_mean_of_equals_is_one_of_them), {1}},
    {TEST(a_mean_is_rounded_once), {1, 2, 3}},
    {TEST(spreads_are_those_of_the_numbers), {1, 2, 3}},
    {TEST(deviations_are_in_range_where_squares_are_not), {1}},
};
CHECK_MAIN(tests)
