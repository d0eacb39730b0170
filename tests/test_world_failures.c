/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong ends the same way on all ranks, soon, and the world works again: allocations that
 * fail (the n-th, for every n), collective functions called with different arguments or by some
 * ranks only, alarms of the caller's own.
 */
#include <limits.h>

#include "check.h"
#include "world/world.h"

/* ---- helpers --------------------------------------------------------------------------------- */

static const sherd_mesh *line_of_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL));
    return mesh;
}

/* All ranks say the same number. */
static void all_say(sherd_world *world, const sherd_mesh *mesh, int64_t mine)
{
    int64_t all[SHERD_MAX_RANKS];

    if (CHECK(sherd__share(world, mesh, "all_say", &mine, 1, all)))
        for (int q = 0; q < sherd_world_ranks(world); q++)
            CHECK_EQ(all[q], mine);
}

/* A share and a check that go well. */
static void works(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    all_say(world, mesh, 5);
    CHECK_OK(sherd_world_check(world));
}

/* ---- allocations ----------------------------------------------------------------------------- */

enum { TENSORS = 20 };

/* Everything of this room that allocates. Stops at the first failure, as the rooms above do. */
static sherd_status use_everything(sherd_world *world, int turn)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *from = NULL, *to = NULL;
    const sherd_plan *plan = NULL;
    sherd__block *source[TENSORS] = {NULL}, *result[TENSORS] = {NULL};
    sherd__move move[TENSORS];
    int64_t shape[1] = {64}, stride[1] = {1}, mine = turn, all[SHERD_MAX_RANKS];
    int64_t extents[2] = {sherd_world_ranks(world), 1};
    sherd_placement rows[2] = {sherd_shard(0)}, whole[2] = {sherd_replicate()};
    char name[16];
    const char *names[2] = {name, "one"};
    bool good = true;

    snprintf(name, sizeof name, "m%d", turn);
    sherd_status status = sherd_mesh_create(&mesh, world, 2, extents, names, NULL);
    if (status)
        return status;
    good = sherd__share(world, mesh, "use_everything", &mine, 1, all);
    if (good && (sherd_layout_create(&from, mesh, 1, shape, rows, NULL) ||
                 sherd_layout_create(&to, mesh, 1, shape, whole, NULL) ||
                 sherd_plan_create(&plan, from, to, SHERD_F64, NULL))) {
        sherd__raise_diag(world);
        good = false;
    }
    for (int i = 0; good && i < TENSORS; i++) {
        source[i] = sherd__block_take(world, 64 * 8, true);
        result[i] = source[i] ? sherd__block_take(world, 64 * 8, true) : NULL;
        good = result[i] != NULL;
        move[i] = (sherd__move){.plan = plan,
                                .dtype = SHERD_F64,
                                .source = source[i],
                                .source_stride = stride,
                                .result = result[i]};
    }
    good = good && sherd__call(world, "use_everything", move, 1, true);
    good = good && sherd__call(world, "use_everything", move + 1, TENSORS - 1, false);
    for (int i = 0; i < TENSORS; i++) {
        sherd__block_give(world, source[i]);
        sherd__block_give(world, result[i]);
    }
    return sherd_world_check(world);
}

static void the_nth_allocation_fails_for_every_n(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), me = sherd_world_rank(world), turn = 0;

    for (int victim = 0; victim < ranks; victim++) {
        sherd_status status = SHERD_ENOMEM;
        int n = 0;
        for (; status == SHERD_ENOMEM && n < 500; n++) {
            double start = seconds();
            sherd_world_fail_allocation(world, me == victim ? n + 1 : 0);
            status = use_everything(world, turn++);
            sherd_world_fail_allocation(world, 0);
            CHECK(status == SHERD_OK || status == SHERD_ENOMEM);
            if (status)
                CHECK(strstr(sherd_world_error(world), "memory") != NULL);
            CHECK(seconds() - start < 20); /* by the alarm, not by the time-out */
            all_say(world, line_of_ranks(world), status);
            CHECK_OK(sherd_world_check(world));
            CHECK_EQ(sherd_world_memory(world).live_bytes, 0);
        }
        CHECK_OK(status);
        CHECK(n > 3);
    }
}

/* ---- collective functions that return a status ----------------------------------------------- */

static void a_mesh_of_different_shapes_is_refused(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    bool odd = sherd_world_rank(world) == sherd_world_ranks(world) - 1;

    CHECK_EQ(sherd_mesh_parse(&mesh, world, odd ? "a=1" : "b=1"), SHERD_EDIFFER);
    CHECK(mesh == NULL);
    CHECK(strstr(sherd_world_error(world), "sherd_mesh_parse: rank 0 passed (b=1), rank ") != NULL);
    CHECK(strstr(sherd_world_error(world), " (a=1)") != NULL);
    CHECK_EQ(sherd_mesh_parse(&mesh, world, odd ? "a=1,b" : "b=1"), SHERD_EINVAL);
    CHECK(mesh == NULL);
    CHECK_EQ(sherd_mesh_parse(&mesh, world, "a=100"), SHERD_EINVAL);
    CHECK(strncmp(sherd_world_error(world), "rank 0: ", 8) == 0);
    /* No alarm: the status was the answer. */
    CHECK_OK(sherd_world_check(world));
    works(world);
}

static void a_layout_from_text_makes_its_mesh(sherd_world *world)
{
    const sherd_layout *layout = NULL;
    char text[64];
    sherd_dtype dtype = SHERD_DTYPE_NONE;
    int ranks = sherd_world_ranks(world);
    int64_t mine = sherd_world_rank(world), all[SHERD_MAX_RANKS];

    snprintf(text, sizeof text, "f64[8(q),4] on (q=%d)", ranks);
    CHECK_OK(sherd_layout_parse(&layout, world, text, &dtype));
    CHECK_EQ(dtype, SHERD_F64);
    CHECK(sherd__share(world, sherd_layout_mesh(layout), "test", &mine, 1, all));
    for (int q = 0; q < ranks; q++)
        CHECK_EQ(all[q], q);
    CHECK_EQ(sherd_layout_parse(&layout, world, "f64[8(q),4] on", NULL), SHERD_EINVAL);
    CHECK(layout == NULL);
    works(world);
}

static void ranks_that_do_different_things_are_told(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t mine = 1, all[SHERD_MAX_RANKS];
    bool odd = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    const sherd_mesh *line = line_of_ranks(world);
    double start = seconds();

    /* A check against a mesh: who checks stays there until all do. */
    if (!odd)
        CHECK_EQ(sherd_mesh_parse(&mesh, world, "z=1"), SHERD_EDIFFER);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_mesh_parse") != NULL);
    works(world);
    /* Two functions. */
    if (odd)
        CHECK_EQ(sherd_mesh_create(&mesh, world, 1, (int64_t[]){1}, NULL, NULL), SHERD_EDIFFER);
    else
        CHECK_EQ(sherd_mesh_parse(&mesh, world, "a0=1"), SHERD_EDIFFER);
    works(world);
    /* A call against a mesh: the caller raises the alarm, which whoever makes the mesh gets too. */
    if (!odd)
        CHECK(!sherd__share(world, line, "test", &mine, 1, all));
    else
        CHECK_EQ(sherd_mesh_parse(&mesh, world, "y=1"), SHERD_EDIFFER);
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK(strstr(sherd_world_error(world), "sherd_mesh_parse") != NULL);
    works(world);
    CHECK(seconds() - start < 20); /* by the alarm, not by the time-out */
}

static void the_alarm_is_up_until_a_check(sherd_world *world)
{
    const sherd_mesh *mesh = NULL, *line = line_of_ranks(world);
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    for (int turn = 0; turn < 20; turn++) {
        if (sherd_world_rank(world) == turn % sherd_world_ranks(world))
            sherd_world_fail(world, SHERD_ELIMIT, "too much of it");
        CHECK_EQ(sherd_mesh_parse(&mesh, world, "w=1"), SHERD_ELIMIT); /* agreeing lowers nothing */
        CHECK(sherd__alarmed(world));
        CHECK(!sherd__share(world, line, "test", &mine, 1, all));
        CHECK_EQ(sherd_world_check(world), SHERD_ELIMIT);
        char text[64];
        snprintf(text, sizeof text, "rank %d: too much of it", turn % sherd_world_ranks(world));
        CHECK_TEXT(sherd_world_error(world), text);
        works(world);
    }
}

static void a_local_failure_is_reported_by_the_next_check(sherd_world *world)
{
    int last = sherd_world_ranks(world) - 1;
    char text[64];

    if (sherd_world_rank(world) == last)
        sherd__fail_locally(world, SHERD_EINVAL, "f: %d is odd", 3);
    CHECK(!sherd__alarmed(world) || sherd_world_rank(world) != last); /* nobody minds yet */
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    snprintf(text, sizeof text, "rank %d: f: 3 is odd", last);
    CHECK_TEXT(sherd_world_error(world), text);
    works(world);
}

/* Whatever number is passed, all ranks get one status of the list, and go on. */
static void any_number_may_be_passed_as_status(sherd_world *world)
{
    static const int numbers[] = {0,    1,    5,     -1,   -2,   -3,      -4,     -5,
                                  -6,   -7,   -8,    -200, -255, -256,    -257,   -512,
                                  -513, 1000, -4096, 256,  -261, INT_MIN, INT_MAX};

    for (int i = 0; i < LEN(numbers); i++) {
        bool known = numbers[i] <= SHERD_EINVAL && numbers[i] >= SHERD_ELIMIT;
        if (sherd_world_rank(world) == sherd_world_ranks(world) - 1)
            sherd_world_fail(world, (sherd_status)numbers[i], "my own");
        CHECK_EQ(sherd_world_check(world), known ? numbers[i] : SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), "my own") != NULL);
        works(world);
    }
}

static void all_ranks_may_fail_at_once(sherd_world *world)
{
    for (int turn = 0; turn < 200; turn++) {
        sherd_world_fail(world, SHERD_EINVAL, "all of them");
        CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
        CHECK(strstr(sherd_world_error(world), ": all of them") != NULL);
    }
    works(world);
}

static void messages_name_ranks_group_and_calls(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);
    int64_t mine[2] = {0}, all[2 * SHERD_MAX_RANKS];
    int me = sherd_world_rank(world);
    const char *name = me == 0 ? "sherd_one" : "sherd_other";

    all_say(world, mesh, 1);
    CHECK_OK(sherd_world_check(world));
    CHECK(!sherd__share(world, mesh, name, mine, 2, all));
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    const char *text = sherd_world_error(world);
    if (!CHECK(strstr(text, "call 2 of group a0 (ranks 0,1") &&
               strstr(text, "sherd_one on rank 0") && strstr(text, "sherd_other on rank ")))
        fprintf(stderr, "%s\n", text);
    works(world);
}

static void too_many_meshes_are_a_limit(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    sherd_status status = SHERD_OK;
    int i = 0;
    char text[32];

    for (; !status && i < 2000; i++) {
        snprintf(text, sizeof text, "m%d=%d", i, sherd_world_ranks(world));
        status = sherd_mesh_parse(&mesh, world, text);
    }
    CHECK_EQ(status, SHERD_ELIMIT);
    CHECK(i > 1000);
    CHECK_OK(sherd_mesh_parse(&mesh, world, "m7=2")); /* what there is stays */
    CHECK_OK(sherd_world_check(world));
}

/* ---- moves that can not be ------------------------------------------------------------------- */

static void a_mesh_made_by_one_rank_alone_has_no_calls(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    CHECK_OK(sherd__mesh_make(&mesh, sherd__world_space(world), 1,
                              (int64_t[]){sherd_world_ranks(world)}, (const char *[]){"own"},
                              NULL));
    CHECK(!sherd__share(world, mesh, "test", &mine, 1, all));
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_OK(sherd_mesh_parse(&mesh, world, sherd_mesh_text(mesh)));
    all_say(world, mesh, 4);
    CHECK_OK(sherd_world_check(world));
}

static void ranks_outside_of_a_mesh_take_part_in_making_it(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t mine = sherd_world_rank(world), all[4];

    CHECK_OK(sherd_mesh_parse(&mesh, world, "x=2@2,0"));
    CHECK_EQ(sherd__in_mesh(world, mesh), mine != 1);
    for (int i = 0; mine != 1 && i < 100; i++) {
        CHECK(sherd__share(world, mesh, "test", &mine, 1, all));
        CHECK_EQ(all[0], 2);
        CHECK_EQ(all[1], 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void sub_meshes_share_in_their_order(sherd_world *world)
{
    const sherd_mesh *mesh = NULL, *sub = NULL;
    int64_t mine = sherd_world_rank(world), all[8];

    CHECK_OK(sherd_mesh_parse(&mesh, world, "a=2,b=2,c=2"));
    CHECK_OK(sherd_mesh_slice(&sub, mesh, 2, (const char *[]){"c", "a"}));
    CHECK(sherd__share(world, sub, "test", &mine, 1, all));
    for (int c = 0; c < 2; c++)
        for (int a = 0; a < 2; a++)
            CHECK_EQ(all[2 * c + a], 4 * a + (mine & 2) + c);
    CHECK_OK(sherd_world_check(world));
}

/* ---- leaving a step early -------------------------------------------------------------------- */

enum { FUNCTIONS = 4, STAYS_IN, FAILS_AND_LEAVES, LEAVES };

/* A step of functions that all call; one rank leaves it at some place. */
static void step_with_leaver(sherd_world *world, bool leaver, int place, int how)
{
    const sherd_mesh *mesh = NULL;
    int64_t most;

    for (int i = 0; i < FUNCTIONS; i++) {
        if (leaver && i == place && how != STAYS_IN) {
            if (how == FAILS_AND_LEAVES)
                sherd_world_fail(world, SHERD_EINVAL, "my solver diverged");
            return;
        }
        sherd_status status =
            i % 2 ? sherd_world_most(&most, world, i) : sherd_mesh_parse(&mesh, world, "x=2");
        CHECK(status == SHERD_OK || how != STAYS_IN);
    }
}

/*
 * The others fail in what they call without it, and all meet at the check that follows: the same
 * status and text, and the next step is a new one for all.
 */
static void who_leaves_a_step_early_is_no_check_ahead(sherd_world *world)
{
    static const sherd_status wanted[] = {
        [STAYS_IN] = SHERD_OK, [FAILS_AND_LEAVES] = SHERD_EINVAL, [LEAVES] = SHERD_EDIFFER};
    uint64_t dice = 9;

    for (int step = 0; step < 60; step++) {
        int who = roll(&dice, sherd_world_ranks(world)), place = roll(&dice, FUNCTIONS);
        int how = STAYS_IN + roll(&dice, 3);
        step_with_leaver(world, who == sherd_world_rank(world), place, how);
        CHECK_EQ(sherd_world_check(world), wanted[how]);
        if (how != STAYS_IN &&
            !strstr(sherd_world_error(world), how == LEAVES ? "different things" : "my solver"))
            CHECK_TEXT(sherd_world_error(world), "");
        uint64_t text = how == STAYS_IN ? 0 : sherd__hash_text(1, sherd_world_error(world));
        int64_t most = 0, mine = (int64_t)(text >> 1);
        CHECK_OK(sherd_world_most(&most, world, mine));
        CHECK_EQ(most, mine);
        CHECK_OK(sherd_world_check(world));
    }
}

static const check_test tests[] = {
    {TEST(who_leaves_a_step_early_is_no_check_ahead), {2, 3, 4, 8}},
    {TEST(the_nth_allocation_fails_for_every_n), {1, 2, 3}},
    {TEST(a_mesh_of_different_shapes_is_refused), {2, 4}},
    {TEST(a_layout_from_text_makes_its_mesh), {1, 2, 4}},
    {TEST(ranks_that_do_different_things_are_told), {2, 3, 8}},
    {TEST(the_alarm_is_up_until_a_check), {1, 2, 3, 8}},
    {TEST(a_local_failure_is_reported_by_the_next_check), {1, 2, 4}},
    {TEST(any_number_may_be_passed_as_status), {1, 2, 3}},
    {TEST(all_ranks_may_fail_at_once), {1, 2, 3, 4, 8}},
    {TEST(messages_name_ranks_group_and_calls), {2, 3, 8}},
    {TEST(too_many_meshes_are_a_limit), {2}},
    {TEST(a_mesh_made_by_one_rank_alone_has_no_calls), {2, 3}},
    {TEST(ranks_outside_of_a_mesh_take_part_in_making_it), {3}},
    {TEST(sub_meshes_share_in_their_order), {8}},
};
CHECK_MAIN(tests)
