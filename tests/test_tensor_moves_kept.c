/* SPDX-License-Identifier: Apache-2.0 */
/* The list of the last redistributions: what moved from where to where, by which steps, and how
 * much of it. */
#include "tensors.h"
#include "search/plans.h"

#include "sherd/comm.h"

static const int64_t shape[] = {8, 4};

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static void move(const sherd_mesh *mesh, const char *from, const char *to)
{
    sherd_scope_begin(sherd__space_world(mesh->space));
    sherd_tensor *t = indices_on(layout_of(mesh, 2, shape, from, NULL), SHERD_F32);
    sherd__move_to(t, layout_of(mesh, 2, shape, to, NULL), false);
    sherd_scope_end(sherd__space_world(mesh->space));
}

static void check_entry(sherd_world *world, int i, const char *from, const char *to)
{
    sherd_move_entry e = sherd_moves_get(world, i);
    const sherd_layout *a = layout_of(line(world), 2, shape, from, NULL);
    const sherd_layout *b = layout_of(line(world), 2, shape, to, NULL);
    const sherd_plan *plan = NULL;

    CHECK_OK(sherd_plan_create(&plan, a, b, SHERD_F32, NULL));
    CHECK_TEXT(e.from, sherd_layout_text(a));
    CHECK_TEXT(e.to, sherd_layout_text(b));
    CHECK_TEXT(e.trace, sherd_plan_trace(plan));
    CHECK_EQ(e.dtype, SHERD_F32);
    CHECK_EQ(e.bytes_total, sherd_plan_price_of(plan)->recv_total_bytes);
}

static int64_t received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

static const char *const moves[][2] = {
    {"S(0)", "R"}, {"R", "S(1)"}, {"P(sum)", "S(0)"}, {"S(0)", "S(1)"}, {"P(sum)", "R"}};

static void moves_are_told_as_a_plan_tells_them(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    int64_t bytes = 0;

    CHECK_OK(sherd_moves_keep(world, 16));
    sherd_comm_reset(world);
    for (int i = 0; i < LEN(moves); i++)
        move(mesh, moves[i][0], moves[i][1]);
    CHECK_EQ(sherd_moves_count(world), LEN(moves));
    for (int i = 0; i < LEN(moves); i++) {
        check_entry(world, i, moves[i][0], moves[i][1]);
        bytes += sherd_moves_get(world, i).bytes_received;
    }
    CHECK_EQ(bytes, received(world));
    if (sherd_world_ranks(world) > 1)
        CHECK_TEXT(sherd_moves_get(world, 0).trace, "S(0)->R");
    CHECK_OK(sherd_world_check(world));
}

static void only_the_last_ones_are_kept(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    move(mesh, "S(0)", "R");
    CHECK_EQ(sherd_moves_count(world), 0);
    CHECK_OK(sherd_moves_keep(world, 3));
    for (int i = 0; i < 4 * LEN(moves); i++)
        move(mesh, moves[i % LEN(moves)][0], moves[i % LEN(moves)][1]);
    CHECK_EQ(sherd_moves_count(world), 3);
    for (int i = 0; i < 3; i++)
        check_entry(world, i, moves[i + 2][0], moves[i + 2][1]);
    CHECK_OK(sherd_moves_keep(world, 3));
    CHECK_EQ(sherd_moves_count(world), 0);
    move(mesh, "S(1)", "R");
    check_entry(world, 0, "S(1)", "R");
    CHECK_OK(sherd_moves_keep(world, 0));
    move(mesh, "S(1)", "R");
    CHECK_EQ(sherd_moves_count(world), 0);
    CHECK_OK(sherd_world_check(world));
}

/* No step is needed where nothing is elsewhere; equal layouts are no move. */
static void what_does_not_move_is_not_told(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);

    CHECK_OK(sherd_moves_keep(world, 8));
    move(mesh, "S(0)", "S(0)");
    CHECK_EQ(sherd_moves_count(world), 0);
    sherd_world_fail(world, SHERD_EINVAL, "no more");
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(sherd_moves_count(world), 0);
    CHECK_OK(sherd_world_check(world));
}

/* The cache of plans may drop a plan, its layouts may have no other holder: the list has its
 * texts. */
static void a_listed_move_outlives_its_plan(sherd_world *world)
{
    char text[64];
    const sherd_mesh *mesh = line(world);

    CHECK_OK(sherd_moves_keep(world, 2));
    move(mesh, "S(0)", "S(1)");
    snprintf(text, sizeof text, "%s", sherd_moves_get(world, 0).from);
    CHECK_OK(sherd_moves_keep(world, 2));
    move(mesh, "S(0)", "R");
    sherd__plans_clear(sherd__world_space(world));
    for (int64_t n = 1; n < 300; n++) {
        const sherd_layout *layout = NULL;
        sherd_scope_begin(world);
        CHECK_OK(sherd_layout_parse_placements(&layout, mesh, 1, &n, "S(0)", NULL));
        sherd_scope_end(world);
    }
    CHECK_TEXT(sherd_moves_get(world, 0).from, text);
    CHECK_OK(sherd_world_check(world));
}

static void a_list_without_memory_stays_as_it_was(sherd_world *world)
{
    CHECK_OK(sherd_moves_keep(world, 2));
    move(line(world), "S(0)", "R");
    sherd_world_fail_allocation(world, 1);
    CHECK_EQ(sherd_moves_keep(world, 5), SHERD_ENOMEM);
    sherd_world_fail_allocation(world, 0);
    CHECK_EQ(sherd_moves_count(world), 1);
    check_entry(world, 0, "S(0)", "R");
    CHECK_OK(sherd_world_check(world));
}

static void a_rank_outside_received_nothing(sherd_world *world)
{
    const sherd_mesh *mesh = mesh_of(world, "x=2@1,0");

    CHECK_OK(sherd_moves_keep(world, 2));
    move(mesh, "S(0)", "R");
    CHECK_EQ(sherd_moves_get(world, 0).bytes_received, sherd_world_rank(world) < 2 ? 64 : 0);
    CHECK_EQ(sherd_moves_get(world, 0).bytes_total, 128);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(moves_are_told_as_a_plan_tells_them), {1, 2, 3, 4, 8}},
    {TEST(only_the_last_ones_are_kept), {2, 3, 4}},
    {TEST(what_does_not_move_is_not_told), {1, 2, 3}},
    {TEST(a_listed_move_outlives_its_plan), {1, 2}},
    {TEST(a_list_without_memory_stays_as_it_was), {1, 2}},
    {TEST(a_rank_outside_received_nothing), {3, 4}},
};
CHECK_MAIN(tests)
