/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extremes of long rows, which are looked for by blocks: the first of equals, and of the first NaN,
 * wherever blocks and shards begin.
 */
#include <math.h>

#include "check.h"
#include "sherd/ops.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "tensors.h"

enum { ROWS = 7, N = 5000 };

/* Numbers of which each row has many equal largest and least ones, zeros of both signs, and NaN. */
static float number(int row, int j)
{
    const int x = (int)((uint32_t)(row * N + j) * 2654435761U >> 20) % 41 - 20;

    if (row == 5 && (j == 3071 || j == 4000))
        return NAN;
    if (row == 4)
        return j % 3 ? 0 : -0.0F;
    if (row == 3)
        return j < 2048 ? -INFINITY : (float)(x / 5);
    return row == 6 ? (float)j : (float)x;
}

static int32_t place(bool least, int row)
{
    int best = 0;

    for (int j = 1; j < N && !isnan(number(row, best)); j++) {
        float x = number(row, j), b = number(row, best);
        if (isnan(x) || (least ? x < b : x > b))
            best = j;
    }
    return best;
}

static void the_first_extreme_of_a_long_row_is_found(sherd_world *world)
{
    static const char *const placements[] = {"R", "S(0)", "S(1)"};
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    float *x = malloc(sizeof *x * ROWS * N);
    const int last = -1;

    for (int i = 0; i < ROWS * N; i++)
        x[i] = number(i / N, i % N);
    sherd_tensor *all =
        sherd_mark_equal(sherd_from_data(world, SHERD_F32, (int64_t[]){ROWS, N}, 2, x));
    for (int k = 0; k < LEN(dtypes); k++)
        for (int i = 0; i < LEN(placements); i++) {
            sherd_tensor *t = sherd_narrow(sherd_cast(all, dtypes[k]), 0, 0, ROWS - (k > 1));
            t = sherd_distribute_as(t, line_of_ranks(world), placements[i], -1);
            const int32_t *most = sherd_tensor_read(sherd_full(sherd_argmax(t, &last, 1, false)));
            const int32_t *least = sherd_tensor_read(sherd_full(sherd_argmin(t, &last, 1, true)));
            for (int r = 0; r < ROWS - (k > 1) && most && least; r++) {
                CHECK_EQ(most[r], place(false, r));
                CHECK_EQ(least[r], place(true, r));
            }
        }
    free(x);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(the_first_extreme_of_a_long_row_is_found), {1, 2, 3, 8}},
};
CHECK_MAIN(tests)
