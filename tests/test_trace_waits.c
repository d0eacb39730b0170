/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the trace says of a wait: whom it was for, and what. Ranks also wait for each other, and
 * long where the machine is busy; so a rank is late here until all others say that they wait for it
 * alone, and then longer than they may have waited for each other.
 */
#define CHECK_PURE
#include <sherd.h>

#include "check.h"
#include "program.h"
#include "trace_events.h"
#include "world/inside.h"

enum { STEPS = 5, RANKS = 3, LATE = 1 };

/* While all others waited for the one that is late; microseconds. */
typedef struct scene {
    double from, to;
} scene;

/* ---- the ranks ------------------------------------------------------------------------------- */

/* Whether a rank says on its post that it waits for this one alone. */
static bool waits_for_me(const sherd_world *world, int rank)
{
    uint32_t waits = 0, needs = 0;
    uint64_t version = sherd__post_counts(world, rank, &waits, &needs);
    sherd__said said = sherd__post_read(world, rank, 0);
    sherd__ranks me = {0};

    sherd__ranks_add(&me, sherd_world_rank(world));
    return waits && sherd__ranks_equal(&said.ranks, &me) &&
           sherd__look(&world->arena.control->post[rank].version) == version;
}

static bool all_wait_for_me(const sherd_world *world)
{
    for (int q = 0; q < sherd_world_ranks(world); q++)
        if (q != sherd_world_rank(world) && !waits_for_me(world, q))
            return false;
    return true;
}

/* `before`: before any of the others can have begun to wait; seconds. */
static void be_late(const sherd_world *world, scene *s, double before)
{
    while (!all_wait_for_me(world))
        program_pause(0.001);
    s->from = 1e6 * program_clock();
    program_pause(0.05 + 2 * (program_clock() - before));
    s->to = 1e6 * program_clock();
}

/* Pending sums become whole, again and again. */
static int work(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = NULL;
    const sherd_layout *pending = NULL, *whole = NULL;
    const sherd_placement sum = sherd_partial(SHERD_SUM), all = sherd_replicate();
    const int64_t shape[] = {60, 50};
    double before = 0;

    if (sherd_mesh_parse(&mesh, world, "x=3") ||
        sherd_layout_create(&pending, mesh, 2, shape, &sum, NULL) ||
        sherd_layout_create(&whole, mesh, 2, shape, &all, NULL))
        return 1;
    for (int i = 0; i < STEPS; i++) {
        sherd_tensor *t = sherd_constant_on(pending, SHERD_F32, 1);
        if (sherd_world_rank(world) == LATE && i == 2)
            be_late(world, payload, before);
        before = program_clock();
        sherd_tensor_read(sherd_redistribute(t, whole, NULL));
        if (sherd_world_check(world))
            return 2;
    }
    return 0;
}

/* A wait of rank 0 that is for rank 1 when it goes to sleep, and for rank 2 before. */
typedef struct moment {
    atomic_bool asleep, over, seen;
    double begin;
} moment;

static bool is_over(sherd_world *world, void *what)
{
    moment *m = what;

    (void)world;
    return atomic_load(&m->over);
}

static void say_needs(sherd_world *world, void *what, sherd__needs *needs)
{
    moment *m = what;
    bool sleeps = sherd__look(&world->arena.control->sleepers.word[0]) & 1;
    sherd__ranks whom = {0};

    sherd__ranks_add(&whom, sleeps ? 1 : 2);
    sherd__need_add(world, needs, world->whole.lane, SHERD__RECORD, UINT64_C(1) << 40, &whom);
    if (sleeps)
        atomic_store(&m->asleep, true);
}

/* Rank 1 ends the wait when most of it was sleep. */
static void end_wait(sherd_world *world, moment *m)
{
    sherd__ranks first = {0};

    while (!atomic_load(&m->asleep))
        program_pause(0.001);
    program_pause(0.05 + 2 * (program_clock() - m->begin));
    atomic_store(&m->over, true);
    sherd__ranks_add(&first, 0);
    sherd__ring(&world->arena, &first);
}

static int sleep_once(sherd_world *world, void *payload)
{
    moment *m = payload;
    const sherd__wait wait = {.what = m, .done = is_over, .needs = say_needs};

    if (sherd_world_rank(world) == 0) {
        world->patience.sleep_ns = INT64_C(100) * 1000 * 1000 * 1000;
        CHECK(sherd__wait_for(world, &wait));
        atomic_store(&m->seen, true);
    } else if (sherd_world_rank(world) == 1) {
        end_wait(world, m);
    }
    while (!atomic_load(&m->seen)) /* who is at a meeting is waited for in vain */
        program_pause(0.001);
    return sherd_world_check(world) ? 2 : 0;
}

/* ---- the tests ------------------------------------------------------------------------------- */

/* Of each of the other ranks one wait lasted while all waited. */
static void a_wait_names_whom_it_was_for(void)
{
    scene *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const sherd_world_options options = {.ranks = RANKS, .as = SHERD_PROCESSES};
    int exit_status = -1, found = 0;

    CHECK(s != MAP_FAILED);
    begin_trace();
    CHECK_OK(sherd_spawn(&exit_status, &options, work, s));
    CHECK_EQ(exit_status, 0);
    json_t *events = read_trace();
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        double begin = number_of(e, "ts"), end = begin + number_of(e, "dur");
        if (strcmp(text_of(e, "cat"), "wait") != 0 || begin > s->from || end < s->to)
            continue;
        CHECK((int)number_of(e, "pid") != LATE);
        CHECK_TEXT(text_of(json_object_get(e, "args"), "for ranks"), "1");
        CHECK_TEXT(text_of(e, "name"),
                   "wait for sherd_redistribute [60,50] P(sum:x) -> [60,50] on (x=3)");
        found++;
    }
    CHECK_EQ(found, RANKS - 1);
    json_decref(events);
    end_trace();
    munmap(s, sizeof *s);
}

/* Time asleep is for whom the look before it has found, which may not be those of the last round. */
static void sleep_is_for_whom_it_was_begun(void)
{
    moment m = {.begin = program_clock()};
    const sherd_world_options options = {.ranks = RANKS, .as = SHERD_THREADS};
    int exit_status = -1, found = 0;

    begin_trace();
    CHECK_OK(sherd_spawn(&exit_status, &options, sleep_once, &m));
    CHECK_EQ(exit_status, 0);
    json_t *events = read_trace();
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *e = json_array_get(events, i);
        if (strcmp(text_of(e, "cat"), "wait") != 0 || strstr(text_of(e, "name"), "wait in "))
            continue;
        CHECK_TEXT(text_of(json_object_get(e, "args"), "for ranks"), "1");
        found++;
    }
    CHECK_EQ(found, 1);
    json_decref(events);
    end_trace();
}

static const check_test tests[] = {
    {TEST(a_wait_names_whom_it_was_for)},
    {TEST(sleep_is_for_whom_it_was_begun)},
};
CHECK_MAIN(tests)
