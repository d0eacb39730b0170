/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Means are exact where they can be: a sum is divided by the count, and not multiplied by 1 / n, which
 * is rounded.
 */
#include <math.h>

#include "ops_cases.h"
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

static const check_test tests[] = {
    {TEST(the_mean_of_equals_is_one_of_them), {1}},
    {TEST(a_mean_is_rounded_once), {1, 2, 3}},
};
CHECK_MAIN(tests)
