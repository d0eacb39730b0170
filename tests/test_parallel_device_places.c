/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two places of a storage when something is odd: a copy that was left out is not taken for one
 * that was made, moves by way of the CPU of what the GPU has too, views and pointers over writes in
 * the other place.
 */
#include <sherd.h>

#include "device.h"
#include "modules.h"
#include "tensor/tensor.h"

/* What did not get to the GPU for lack of memory is brought there again. */
static void a_copy_that_was_left_out_is_made_later(sherd_world *world)
{
    const int64_t shape[] = {3, 4};
    double have[MOST];

    sherd_scope_begin(world);
    sherd_tensor *x = wave(world, SHERD_F32, 2, shape, 1, 1, 0);
    sherd_tensor *warm = wave(world, SHERD_F32, 2, shape, 1, 1, 3), *sum = sherd_add(warm, warm);
    CHECK_EQ(whole(sum, have), 12);
    if (is_emulated())
        lack_call(0);
    sum = sherd_add(x, x);
    fail_call(-1);
    CHECK_EQ(sherd_world_check(world), is_emulated() ? SHERD_ENOMEM : SHERD_OK);
    sum = sherd_add(x, x);
    CHECK_EQ(whole(sum, have), 12);
    const float *at = sherd_tensor_read(x);
    for (int i = 0; i < 12; i++)
        CHECK_EQ(have[i], 2 * (double)at[i]);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
}

/* The GPU has no sums of bytes: they go by way of the CPU, also of a view of what both have. */
static void a_turned_sum_of_bytes(sherd_world *world)
{
    enum { ROWS = 256, COLS = 512 };
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t shape[] = {ROWS, COLS}, ranks = sherd_world_ranks(world);
    const sherd_placement pending = sherd_partial(SHERD_SUM);
    unsigned char *bytes = malloc(ROWS * COLS);

    for (int i = 0; i < ROWS * COLS; i++)
        bytes[i] = (unsigned char)(i % 31);
    sherd_scope_begin(world);
    sherd_tensor *x =
        spread(sherd_mark_equal(sherd_from_data(world, SHERD_U8, shape, 2, bytes)), mesh, "S(0)");
    const sherd_layout *all = NULL;
    CHECK_OK(sherd_layout_parse_placements(&all, mesh, 2, shape, "R", NULL));
    x = sherd_redistribute(x, all, NULL);
    CHECK(ranks == 1 || sherd__is_only_there(x));
    sherd_tensor *t =
        sherd_from_local(sherd_transpose(sherd_to_local(x), 0, 1), mesh, &pending, NULL);
    t = sherd_full(t);
    const unsigned char *have = sherd_tensor_read(t);
    int wrong = 0;
    for (int i = 0; CHECK(have) && i < ROWS * COLS; i++)
        wrong += have[i] != ranks * ((i % ROWS * COLS + i / ROWS) % 31);
    CHECK_EQ(wrong, 0);
    sherd_scope_end(world);
    CHECK_OK(sherd_world_check(world));
    free(bytes);
}

/* As on the CPU, all ranks are told. */
static void integers_have_no_average(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    const int64_t shape[] = {4, 4};
    const sherd_placement pending = sherd_partial(SHERD_AVG);
    const int32_t numbers[16] = {0};

    sherd_scope_begin(world);
    sherd_tensor *t = sherd_from_data(world, SHERD_I32, shape, 2, numbers);
    t = sherd_full(sherd_from_local(t, mesh, &pending, NULL));
    CHECK(sherd_tensor_failed(t));
    sherd_scope_end(world);
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(strstr(sherd_world_error(world), "i32 has no average: cast it"));
}

static const check_test tests[] = {
    {TEST(a_copy_that_was_left_out_is_made_later), {1}},
    {TEST(a_turned_sum_of_bytes), {1, 2, 3, 4}},
    {TEST(integers_have_no_average), {2, 3, 4}},
};
CHECK_MAIN(tests)
