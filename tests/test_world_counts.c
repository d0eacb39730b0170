/* SPDX-License-Identifier: Apache-2.0 */
/* Calls counted by place and direction: none is lost, and what counting takes has bounds. */
#include "check.h"
#include "world/inside.h"

#include <limits.h>
#include <string.h>
#include <time.h>

static void ever_new_paths_take_no_more_memory(sherd_world *world)
{
    int64_t live = 0;
    char name[16];

    for (int i = 0; i < SHERD__PLACES + 40; i++) {
        snprintf(name, sizeof name, "%d", i);
        int place = sherd__place_find(world, name);
        CHECK_EQ(place, i < SHERD__PLACES ? i + 1 : 0);
        if (i == SHERD__PLACES)
            live = world->heap.live;
    }
    CHECK_EQ(world->heap.live, live);
    CHECK_EQ(sherd__place_find(world, "17"), 18);
    CHECK_TEXT(sherd__place_path(world, sherd__where_at(18, true)), "17");
    CHECK(!sherd__place_path(world, sherd__where_at(0, true)));
    /* Whoever has no number any more calls as no module. */
    sherd__where_set(world, sherd__where_at(sherd__place_find(world, "new"), false));
    sherd__counts_add(world, 0, 1);
    CHECK_EQ(sherd_comm_calls(world, NULL), 1);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = ""}), 0);
    sherd__where_set(world, 0);
}

/* Each of so many modules makes calls of all kinds on all axes: more than there is room for. */
static void no_call_is_lost_where_rows_are_short(sherd_world *world)
{
    enum { MODULES = 100, AXES = 8 };
    const sherd_mesh *mesh;
    int64_t total = 0;
    char name[16];

    for (int i = 0; i < AXES; i++) {
        snprintf(name, sizeof name, "x%d=%d", i, world->ranks);
        CHECK_OK(sherd_mesh_parse(&mesh, world, name));
    }
    CHECK(world->tallies > AXES * SHERD__OPS);
    for (int i = 0; i < MODULES; i++) {
        snprintf(name, sizeof name, "m%d", i);
        sherd__where_set(world, sherd__where_at(sherd__place_find(world, name), i % 2));
        for (int row = 0; row < world->tallies; row++, total++)
            sherd__counts_add(world, row, 3);
    }
    sherd__where_set(world, 0);
    CHECK_EQ(sherd_comm_calls(world, NULL), total);
    CHECK_EQ(sherd_comm_bytes(world, NULL), 3 * total);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.direction = SHERD_COMM_BACKWARD}),
             total / 2);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.op = "share", .axes = "x3"}), MODULES);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = "m0"}), world->tallies);
    CHECK(sherd_comm_calls(world, &(sherd_comm_filter){.module = "m*"}) < total);
    CHECK(world->counts.used <= world->counts.room - world->counts.room / 8);
    sherd_comm_reset(world);
    CHECK_EQ(sherd_comm_calls(world, NULL), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Modules have taken what they may when there were few axes: those of meshes that come later have
 * rows too, of no module. */
static void axes_that_come_late_have_rows(sherd_world *world)
{
    enum { FEW = 4, MODULES = 55, LATE = 27 };
    const sherd_mesh *mesh;
    char name[16];
    int64_t total = 0;

    for (int i = 0; i < FEW + LATE; i++) {
        snprintf(name, sizeof name, "y%d=%d", i, world->ranks);
        CHECK_OK(sherd_mesh_parse(&mesh, world, name));
        for (int m = 0; i == FEW - 1 && m < 2 * MODULES; m++) {
            snprintf(name, sizeof name, "m%d", m % MODULES);
            sherd__where_set(world, sherd__where_at(sherd__place_find(world, name), m / MODULES));
            for (int row = 0; row < world->tallies; row++, total++)
                sherd__counts_add(world, row, 1);
        }
    }
    for (int row = 0; row < 2 * world->tallies; row++, total++) {
        if (!CHECK(world->counts.used + 1 < world->counts.room))
            break; /* nothing would end the look for a free row */
        sherd__where_set(world, sherd__where_at(0, row % 2));
        sherd__counts_add(world, row / 2, 1);
    }
    sherd__where_set(world, 0);
    CHECK_EQ(sherd_comm_calls(world, NULL), total);
    CHECK(world->counts.used <= world->counts.room - world->counts.room / 8);
    CHECK_OK(sherd_world_check(world));
}

/* A table that grows keeps what it has counted, also where there is no memory for it to grow. */
static void a_table_that_grows_keeps_its_counts(sherd_world *world)
{
    char name[16];
    int refused = 0;

    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "part%d", i);
        sherd_world_fail_allocation(world, 1 + i % 3);
        int place = sherd__place_find(world, name);
        sherd_world_fail_allocation(world, 0);
        refused += place < 0;
        if (place < 0)
            place = sherd__place_find(world, name);
        CHECK_EQ(place, i + 1);
        sherd__where_set(world, sherd__where_at(place, true));
        sherd__counts_add(world, i % SHERD__OPS, i);
    }
    sherd__where_set(world, 0);
    CHECK(refused > 100);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "part%d", i);
        const sherd_comm_filter filter = {NULL, "world", name, SHERD_COMM_BACKWARD};
        CHECK_EQ(sherd_comm_calls(world, &filter), 1);
        CHECK_EQ(sherd_comm_bytes(world, &filter), i);
    }
}

/* A pattern fits names of any length. */
static void a_long_name_is_counted_too(sherd_world *world)
{
    char path[600] = "blocks.";

    memset(path + strlen(path), 'm', 500);
    strcat(path, ".mlp");
    sherd__where_set(world, sherd__where_at(sherd__place_find(world, path), false));
    sherd__counts_add(world, 0, 1);
    sherd__where_set(world, 0);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = "blocks.*.mlp"}), 1);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = "*.m*m.*"}), 1);
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.module = "*.n*"}), -1);
}

/* However long the names of axes are, each set of them has rows of its own. */
static void axes_with_long_names_are_counted_apart(sherd_world *world)
{
    enum { AXES = 3, LONGEST = 31 };
    int64_t extent[AXES], mine = 1;
    char letters[AXES][LONGEST + 1], all[AXES * (LONGEST + 1)];
    const char *name[AXES];
    int64_t shared[SHERD_MAX_RANKS];
    const sherd_mesh *mesh, *part;

    for (int i = 0; i < AXES; i++) {
        memset(letters[i], 'a' + i, LONGEST);
        letters[i][LONGEST] = '\0';
        name[i] = letters[i];
        extent[i] = 2;
    }
    snprintf(all, sizeof all, "%s,%s,%s", name[0], name[1], name[2]);
    CHECK_OK(sherd_mesh_create(&mesh, world, AXES, extent, name, NULL));
    CHECK_OK(sherd_mesh_slice(&part, mesh, AXES - 1, name));
    CHECK(sherd__share(world, mesh, "numbers", &mine, 1, shared));
    CHECK(sherd__share(world, mesh, "numbers", &mine, 1, shared));
    CHECK(sherd__share(world, part, "numbers", &mine, 1, shared));
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.axes = all}), 2);
    CHECK_EQ(sherd_comm_count(world), 2);
    CHECK_TEXT(sherd_comm_get(world, 1).axes, all);
    CHECK(!sherd_comm_get(world, INT_MIN).op);
    all[(AXES - 1) * (LONGEST + 1) - 1] = '\0';
    CHECK_EQ(sherd_comm_calls(world, &(sherd_comm_filter){.axes = all}), 1);
    CHECK_TEXT(sherd_comm_get(world, 0).axes, all);
    CHECK_OK(sherd_world_check(world));
}

/* Nanoseconds of all that was shared. */
static int64_t sharing_time(const sherd_world *world)
{
    int64_t time = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        if (strcmp(sherd_comm_get(world, i).op, "share") == 0)
            time += sherd_comm_get(world, i).nanoseconds;
    return time;
}

/* Of 16 little calls one is timed, here the first of a turn; who is kept waiting in another one
 * sees that too. */
static void long_waits_are_in_the_log(sherd_world *world)
{
    const struct timespec long_time = {0, 20 * 1000 * 1000};
    int64_t mine = 1, all[SHERD_MAX_RANKS], waited = 0;
    const sherd_mesh *mesh;

    CHECK_OK(sherd_mesh_create(&mesh, world, 1, (int64_t[]){world->ranks}, NULL, NULL));
    for (int turn = 0; turn < 20 && waited < 10 * 1000 * 1000; turn++) {
        for (int i = 0; i < 14; i++)
            CHECK(sherd__share(world, mesh, "numbers", &mine, 1, all));
        int64_t before = sharing_time(world);
        if (world->rank == 1)
            nanosleep(&long_time, NULL);
        CHECK(sherd__share(world, mesh, "numbers", &mine, 1, all));
        waited = sharing_time(world) - before;
        /* All make as many turns, and each is of 16 calls. */
        CHECK(sherd__share(world, mesh, "waited", &waited, 1, all));
        waited = all[0];
    }
    CHECK(waited >= 10 * 1000 * 1000);
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(ever_new_paths_take_no_more_memory), {1, 2}},
    {TEST(long_waits_are_in_the_log), {2}},
    {TEST(no_call_is_lost_where_rows_are_short), {2, 3}},
    {TEST(axes_that_come_late_have_rows), {2}},
    {TEST(a_table_that_grows_keeps_its_counts), {1}},
    {TEST(a_long_name_is_counted_too), {1}},
    {TEST(axes_with_long_names_are_counted_apart), {8}},
};
CHECK_MAIN(tests)
