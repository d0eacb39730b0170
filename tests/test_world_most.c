/* SPDX-License-Identifier: Apache-2.0 */
/* The largest number of all ranks: one answer, whoever has it; and one failure. */
#include "check.h"
#include "sherd/dry.h"
#include "sherd/mesh.h"
#include "sherd/world.h"

static void all_ranks_get_the_largest(sherd_world *world)
{
    int rank = sherd_world_rank(world), last = sherd_world_ranks(world) - 1;
    int64_t most = 7;

    for (int r = 0; r <= last; r++) {
        CHECK_OK(sherd_world_most(&most, world, rank == r));
        CHECK_EQ(most, 1);
        CHECK_OK(sherd_world_most(&most, world, rank == r ? -3 : INT64_MIN));
        CHECK_EQ(most, -3);
    }
    CHECK_OK(sherd_world_most(&most, world, 0));
    CHECK_EQ(most, 0);
    CHECK_OK(sherd_world_most(&most, world, INT64_MAX - rank));
    CHECK_EQ(most, INT64_MAX);
    CHECK_OK(sherd_world_check(world));
}

/* What has failed before is told here, and the world works after a check. */
static void an_alarm_is_a_failure_on_all(sherd_world *world)
{
    int64_t most = 7;

    if (sherd_world_rank(world) == sherd_world_ranks(world) - 1)
        (void)sherd_world_fail(world, SHERD_EINVAL, "a bad day");
    CHECK(sherd_world_most(&most, world, 1) != SHERD_OK);
    CHECK_EQ(most, 7);
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_world_most(&most, world, 1));
    CHECK_EQ(most, 1);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_that_are_not_there_have_none(sherd_world *world)
{
    sherd_world *dry = NULL, *paper = NULL;
    int64_t most = 7;

    (void)world;
    CHECK_OK(sherd_world_paper(&paper, 4));
    CHECK_EQ(sherd_world_most(&most, paper, 1), SHERD_ENOTSUP);
    CHECK_EQ(most, 7);
    (void)sherd_world_close(paper);
    for (int ranks = 512; ranks <= 2048; ranks *= 4) {
        CHECK_OK(sherd_world_dry(&dry, ranks, 3, NULL, NULL));
        CHECK_OK(sherd_world_most(&most, dry, 5));
        CHECK_EQ(most, 5);
        CHECK_OK(sherd_world_close(dry));
    }
}

/* Whoever has as many meshes as there can be has the largest number too. */
static void no_group_is_taken(sherd_world *world)
{
    int ranks = sherd_world_ranks(world);
    const int64_t extents[] = {ranks};
    const sherd_mesh *mesh = NULL;
    sherd_status status = SHERD_OK;
    int64_t most = 7;

    for (int i = 0; i < 2000 && !status; i++) {
        char name[16], *const names[] = {name};
        snprintf(name, sizeof name, "a%d", i);
        status = sherd_mesh_create(&mesh, world, 1, extents, (const char *const *)names, NULL);
    }
    CHECK_EQ(status, SHERD_ELIMIT);
    CHECK(strstr(sherd_world_error(world), " needs 1 groups, but a world has 1023 for meshes, and "
                                           "1023 are taken, ") != NULL);
    CHECK_EQ(sherd_world_check(world), SHERD_OK);
    CHECK_OK(sherd_world_most(&most, world, sherd_world_rank(world)));
    CHECK_EQ(most, ranks - 1);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(all_ranks_get_the_largest), {1, 2, 3, 4, 8}},
    {TEST(an_alarm_is_a_failure_on_all), {1, 2, 3, 4}},
    {TEST(no_group_is_taken), {2, 3}},
    {TEST(ranks_that_are_not_there_have_none), {1}},
};
CHECK_MAIN(tests)
