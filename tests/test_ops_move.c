/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of operands that a rule wants in another layout, as the world was told. */
#include "tensors.h"

#include <fcntl.h>

#include "sherd.h"

/* [5,4] of the numbers 0, 1, .. */
static sherd_tensor *spread(sherd_world *world, const char *placement)
{
    char text[16];

    snprintf(text, sizeof text, "%d", sherd_world_ranks(world));
    return indices_on(layout_of(mesh_of(world, text), 2, (int64_t[]){5, 4}, placement, NULL),
                      SHERD_F64);
}

/* On all ranks, before anything is sent; and what the program moves itself is its own affair. */
static void a_move_may_be_refused(sherd_world *world)
{
    sherd_tensor *rows = spread(world, "S(0)"), *columns = spread(world, "S(1)");

    CHECK_OK(sherd_op_move(world, SHERD_MOVES_NEVER));
    CHECK_OK(sherd_world_check(world));
    sherd_comm_reset(world);
    CHECK(sherd_tensor_failed(sherd_add(rows, columns)));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK(strstr(sherd_world_error(world), "sherd_add: f64[5") != NULL);
    CHECK(strstr(sherd_world_error(world), "sherd_op_move says never") != NULL);
    CHECK_EQ(sherd_comm_count(world), 0);
    sherd_tensor *moved = sherd_redistribute_to(columns, "S(0)", NULL);
    CHECK(!sherd_tensor_failed(sherd_add(rows, moved)));
    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_op_move(world, SHERD_MOVES_SILENTLY));
    CHECK(!sherd_tensor_failed(sherd_add(rows, columns)));
    CHECK_OK(sherd_world_check(world));
}

/* A replica beside a shard is cut: nobody receives anything. Nor does a pending sum settle. */
static void what_nobody_receives_is_no_move(sherd_world *world)
{
    sherd_tensor *rows = spread(world, "S(0)"), *whole = spread(world, "R");

    CHECK_OK(sherd_op_move(world, SHERD_MOVES_NEVER));
    sherd_tensor *y = sherd_add(rows, whole);
    sherd_tensor *sums = sherd_sum_over(y, (int[]){0}, 1, false);
    CHECK(!sherd_tensor_failed(sherd_scale_by(sums, 2)));
    CHECK(!sherd_tensor_failed(sherd_softmax(rows, 0))); /* two numbers a column are its own */
    CHECK_OK(sherd_world_check(world));
    sherd_exp(sums); /* of a pending sum it is none */
    CHECK_EQ(sherd_world_check(world), sherd_world_ranks(world) > 1 ? SHERD_EINVAL : SHERD_OK);
}

/* The gradient of a move is a move that the program has asked for. */
static void gradients_go_back_as_they_came(sherd_world *world)
{
    sherd_tensor *rows = sherd_require_grad(spread(world, "S(0)"), true);
    sherd_tensor *columns = sherd_require_grad(spread(world, "S(1)"), true);
    sherd_tensor *y = sherd_sum(sherd_mul(sherd_mul(rows, columns), columns));

    CHECK_OK(sherd_world_check(world));
    CHECK_OK(sherd_op_move(world, SHERD_MOVES_NEVER));
    sherd_backward(y);
    CHECK(sherd_grad(rows) && sherd_grad(columns));
    CHECK_OK(sherd_world_check(world));
}

/* One line for each operator, by rank 0. */
static void a_move_may_be_told(sherd_world *world)
{
    sherd_tensor *rows = spread(world, "S(0)"), *columns = spread(world, "S(1)");
    bool first = sherd_world_rank(world) == 0;
    char said[512] = "";
    int before = dup(2), ends[2];

    CHECK_OK(sherd_op_move(world, SHERD_MOVES_WARNING));
    CHECK_OK(sherd_world_check(world));
    if (first && pipe(ends) == 0)
        dup2(ends[1], 2);
    CHECK_OK(sherd_world_check(world));
    sherd_add(rows, columns);
    sherd_add(rows, columns);
    CHECK_OK(sherd_world_check(world));
    if (first) {
        dup2(before, 2);
        close(ends[1]);
        if (read(ends[0], said, sizeof said - 1) < 0)
            CHECK(false);
        close(ends[0]);
        CHECK_TEXT(said, "sherd: sherd_add: f64[5(a0),4] on (a0=2) is moved to [5,4(a0)] on "
                         "(a0=2): 80 bytes in all\n");
    }
    close(before);
}

static void only_these_three_are_known(sherd_world *world)
{
    CHECK_EQ(sherd_op_move(world, (sherd_moving)3), SHERD_EINVAL);
    CHECK_EQ(sherd_op_move(world, (sherd_moving)-1), SHERD_EINVAL);
}

static const check_test tests[] = {
    {TEST(a_move_may_be_refused), {2, 3, 4}},
    {TEST(what_nobody_receives_is_no_move), {1, 2, 3, 8}},
    {TEST(gradients_go_back_as_they_came), {2, 3}},
    {TEST(a_move_may_be_told), {2}},
    {TEST(only_these_three_are_known), {1}},
};
CHECK_MAIN(tests)
