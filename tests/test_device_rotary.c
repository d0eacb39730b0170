/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding on the GPU beside the CPU's: every dtype, part of a width, both orders of pairs,
 * positions given for all, for each, or counted; there and back. */
#define CHECK_PURE
#include "device_arrays.h"
#include "kernels/layers.h"

static void check_rotation(sherd_dtype dtype, const sherd__rotation *given, bool positions,
                           bool each, bool inverse, bool given_turns)
{
    sherd__rotation r = *given;
    int64_t rows = r.positions * (each ? r.batch : 1),
            n = r.batch * r.positions * r.heads * r.width;
    array x = drawn(dtype, n, 1, -2, 2, 1), y = room_for(dtype, n, 0);
    array ids = drawn_ids(rows ? rows : 1, 900, 2);
    array frequency = drawn(SHERD_F64, r.rotated / 2 + 1, 1, 0, 1, 3);
    double *turn = malloc((size_t)(rows * r.rotated + 1) * sizeof *turn);
    const sherd__turning t = {.position = positions ? ids.data : NULL,
                              .frequency = given_turns ? frequency.data : NULL,
                              .each = positions && each,
                              .inverse = inverse,
                              .first = 5,
                              .base = 500};

    if (!turn)
        abort();
    sherd__turns(turn, rows, r.rotated, positions ? ids.host : NULL, 5, t.base,
                 given_turns ? frequency.host : NULL, inverse);
    r.turn = turn;
    r.turn_step = positions && each ? r.positions * r.rotated : 0;
    sherd__layer_kernels_of(dtype)->rotate(&r, y.host, x.host);
    sherd__device_rotate(device, dtype, given, &t, y.data, x.data);
    /* An ulp of a power is 900 of an angle of 900. */
    same(&y, dtype == SHERD_F64 ? 1e-4 : 2e-6, "a rotation");
    free(turn);
    drop(&x);
    drop(&y);
    drop(&ids);
    drop(&frequency);
}

static void rotations_are_those_of_the_cpu(void)
{
    static const sherd__rotation shapes[] = {
        {.batch = 2, .positions = 5, .heads = 3, .width = 8, .rotated = 8},
        {.batch = 3, .positions = 2, .heads = 1, .width = 7, .rotated = 4},
        {.batch = 1, .positions = 70, .heads = 2, .width = 64, .rotated = 64},
        {.batch = 2, .positions = 3, .heads = 2, .width = 5, .rotated = 0},
        {.batch = 2, .positions = 0, .heads = 2, .width = 4, .rotated = 4},
    };

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int s = 0; s < LEN(shapes); s++)
            for (int way = 0; way < 32; way++) {
                sherd__rotation r = shapes[s];
                r.interleaved = way & 1;
                check_rotation(dtypes[d], &r, way & 2, way & 4, way & 8, way & 16);
            }
    close_device();
}

static const check_test tests[] = {
    {TEST(rotations_are_those_of_the_cpu)},
};

CHECK_MAIN(tests)
