/* SPDX-License-Identifier: Apache-2.0 */
/* Moves that are only begun: asking whether the data is there, and waiting for it. */
#include "tensors.h"

#include <sched.h>

/* Each of up to 8 ranks holds some of it. */
static const int64_t shape[] = {8, 8};

static const sherd_mesh *line(sherd_world *world)
{
    char text[16];

    snprintf(text, sizeof text, "x=%d", sherd_world_ranks(world));
    return mesh_of(world, text);
}

static sherd_tensor *made(const sherd_mesh *mesh, const char *placements)
{
    return indices_on(layout_of(mesh, 2, shape, placements, NULL), SHERD_F64);
}

static sherd_tensor *begin_of(sherd_tensor *t, const sherd_mesh *mesh, const char *to)
{
    return sherd__move_planned(t, layout_of(mesh, 2, shape, to, NULL), NULL, NULL, true);
}

static sherd_tensor *begin(const sherd_mesh *mesh, const char *from, const char *to)
{
    return begin_of(made(mesh, from), mesh, to);
}

/* The marks of ranks that have come to a place. */
static void mark(void)
{
    atomic_fetch_add(&check_state->mark, 1);
}

static void await_marks(int count)
{
    while (atomic_load(&check_state->mark) < count)
        sched_yield();
}

/* The last rank begins when the others have seen that nothing is there yet. */
static void a_result_is_ready_when_all_have_begun(sherd_world *world)
{
    static const char *const moves[][2] = {{"S(0)", "R"}, {"S(0)", "S(1)"}, {"P(sum)", "R"}};
    const sherd_mesh *mesh = line(world);
    int ranks = sherd_world_ranks(world);
    bool last = sherd_world_rank(world) == ranks - 1;

    for (int i = 0; i < LEN(moves); i++) {
        CHECK_OK(sherd_world_check(world));
        atomic_store(&check_state->mark, 0);
        CHECK_OK(sherd_world_check(world));
        if (last)
            await_marks(ranks - 1);
        sherd_tensor *t = begin(mesh, moves[i][0], moves[i][1]);
        CHECK(last || !sherd_is_ready(t));
        mark();
        while (!sherd_is_ready(t))
            sched_yield();
        CHECK(sherd_is_ready(t) && sherd_wait(t) == t);
        CHECK_EQ(count_wrong(t, moves[i][0][0] == 'P' ? ranks : 1), 0);
    }
    CHECK_OK(sherd_world_check(world));
}

static void waiting_brings_the_data(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *a = begin(mesh, "S(0)", "R"), *b = begin(mesh, "S(1)", "S(0)");
    sherd_tensor *piece = sherd__local_view(b);

    CHECK(sherd_wait(piece) == piece);
    CHECK(sherd_is_ready(b) && sherd_wait(b) == b && sherd_wait(a) == a && sherd_is_ready(a));
    CHECK_EQ(count_wrong(a, 1) + count_wrong(b, 1), 0);
    CHECK_OK(sherd_world_check(world));
}

/* The last rank fails in the place of beginning: who asks again and again comes to an end, and what
 * was to be moved may be written. */
static void a_failure_ends_the_asking(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    bool last = sherd_world_rank(world) == sherd_world_ranks(world) - 1;
    sherd_tensor *t = NULL, *from = made(mesh, "S(0)");

    CHECK_OK(sherd_world_check(world));
    if (last)
        sherd_world_fail(world, SHERD_ENOTSUP, "no move today");
    else
        t = begin_of(from, mesh, "R");
    while (t && !sherd_is_ready(t))
        sched_yield();
    CHECK(last || sherd_tensor_failed(sherd_wait(t)));
    CHECK_EQ(sherd_world_check(world), SHERD_ENOTSUP);
    CHECK(last || (sherd_is_ready(t) && sherd_tensor_failed(sherd_wait(t))));
    sherd_world_check(world);
    CHECK(sherd_tensor_write(from) != NULL);
    CHECK_EQ(count_wrong(sherd_wait(begin(mesh, "S(0)", "R")), 1), 0);
    CHECK_OK(sherd_world_check(world));
}

/* Ranks that begin other moves are told so by asking alone. */
static void asking_finds_ranks_that_differ(sherd_world *world)
{
    const sherd_mesh *mesh = line(world);
    sherd_tensor *t = begin(mesh, "S(0)", sherd_world_rank(world) ? "R" : "S(1)");

    while (!sherd_is_ready(t))
        sched_yield();
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
}

static void what_waits_for_nobody_is_ready(sherd_world *world)
{
    sherd_generator g = sherd_generator_named("g");
    sherd_tensor *later = sherd_random_later(world, SHERD_F32, shape, 2, sherd_normal(0, 1), &g);
    int64_t live = sherd_world_memory(world).live_bytes;

    CHECK(sherd_is_ready(later) && sherd_wait(later) == later);
    CHECK_EQ(sherd_world_memory(world).live_bytes, live);
    CHECK(sherd_is_ready(begin(line(world), "R", "S(0)")));
    CHECK(sherd_is_ready(sherd_constant(world, SHERD_F32, (int64_t[]){0}, 1, 0)));
    CHECK_OK(sherd_world_check(world));
}

static const check_test tests[] = {
    {TEST(a_result_is_ready_when_all_have_begun), {1, 2, 3, 4, 8}},
    {TEST(waiting_brings_the_data), {1, 2, 3, 4, 8}},
    {TEST(a_failure_ends_the_asking), {2, 3, 4}},
    {TEST(asking_finds_ranks_that_differ), {2, 3, 4}},
    {TEST(what_waits_for_nobody_is_ready), {1, 2, 3, 4, 8}},
};
CHECK_MAIN(tests)
