/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ledgers at checks: what is told, what is compared, and what is left after a failure; and that a
 * check looks only at what has been used since the last good one.
 */
#include "check.h"
#include "world/inside.h"

#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static const sherd_mesh *a_mesh(sherd_world *world, int number)
{
    const sherd_mesh *mesh = NULL;
    char text[32];

    snprintf(text, sizeof text, "x%d=%d", number, sherd_world_ranks(world));
    CHECK_OK(sherd_mesh_parse(&mesh, world, text));
    return mesh;
}

static void do_deed(const sherd_mesh *mesh, const char *name)
{
    uint64_t identity;

    sherd__deed_add(mesh, name, 1, &identity);
}

/* ---- what is not used is not looked at ------------------------------------------------------- */

/* The whole pages in this rank's lanes of the last `meshes` meshes. */
static void protect(const sherd_world *world, int meshes, int how)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = (uintptr_t)sherd__own_lane(world, world->lanes - meshes);
    uintptr_t end = (uintptr_t)sherd__own_lane(world, world->lanes) / page * page;

    first = (first + page - 1) / page * page;
    CHECK(end - first > (uintptr_t)(meshes - 1) * sizeof(sherd__lane) - 2 * page);
    CHECK_EQ(mprotect((void *)first, end - first, how), 0);
}

/* A look at a lane of another mesh would be a fault. */
static void a_check_looks_only_at_meshes_that_were_used(sherd_world *world)
{
    enum { MESHES = 30 };
    const sherd_mesh *used = a_mesh(world, 0);
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    for (int i = 1; i <= MESHES; i++)
        do_deed(a_mesh(world, i), "once");
    for (int i = 0; i < 2; i++)
        CHECK_OK(sherd_world_check(world));
    protect(world, MESHES, PROT_NONE);
    for (int i = 0; i < 3; i++) {
        do_deed(used, "often");
        CHECK(sherd__share(world, used, "share", &mine, 1, all));
        CHECK_OK(sherd_world_check(world));
    }
    CHECK_OK(sherd_world_check(world));
    protect(world, MESHES, PROT_READ | PROT_WRITE);
    CHECK(a_mesh(world, MESHES + 1) != NULL);
    CHECK_OK(sherd_world_check(world));
}

/* What was not used for some checks, or never, is compared once it is, also after a failure. */
static void a_mesh_that_was_long_unused_is_compared_again(sherd_world *world)
{
    const sherd_mesh *mesh[2] = {a_mesh(world, 0), a_mesh(world, 1)};
    bool last = world->rank == world->ranks - 1;
    int64_t mine = 1, all[SHERD_MAX_RANKS];

    for (int turn = 0; turn < 3; turn++) {
        do_deed(mesh[0], "first");
        for (int i = 0; i < 3; i++)
            CHECK_OK(sherd_world_check(world));
        if (last)
            do_deed(mesh[turn % 2], "more");
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        CHECK(strstr(sherd_world_error(world), "operation 1 since the last check is more on rank"));
        CHECK_OK(sherd_world_check(world));
        CHECK_OK(sherd_world_check(world));
        do_deed(mesh[turn % 2], last ? "this" : "that");
        if (turn == 1)
            sherd__share(world, mesh[1], "share", &mine, 1, all);
        CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
        CHECK_OK(sherd_world_check(world));
    }
}

/* ---- what is left ---------------------------------------------------------------------------- */

/* What each has found after a failure: rank, deeds, writes. */
typedef struct found {
    const sherd_mesh *mesh;
    sherd__loss kept, gone;
    int wrote;
} found;
static _Thread_local found here;

enum { WRITTEN = 1000 };

static void look(sherd_world *world)
{
    here.kept = sherd__deed_loss(world, here.mesh, 3);
    here.gone = sherd__deed_loss(world, here.mesh, 4);
    here.wrote = 0;
    for (int q = 0; q < world->ranks; q++)
        here.wrote += sherd__deed_wrote(here.mesh, WRITTEN + (uint64_t)q);
}

/* Each has written something else; some by a deed, and some have not come so far. */
static void all_ranks_lose_what_any_has_written(sherd_world *world)
{
    int me = world->rank, ranks = world->ranks;

    here.mesh = a_mesh(world, 0);
    sherd__world_watch(world, &(sherd__watcher){.after_failure = look});
    for (int i = 0; i < 3; i++)
        do_deed(here.mesh, "alike");
    sherd__deed_writes(here.mesh, WRITTEN + (uint64_t)me);
    if (me < ranks / 2)
        do_deed(here.mesh, "more");
    CHECK_EQ(sherd_world_check(world), SHERD_EDIFFER);
    CHECK_EQ(here.kept, SHERD__KEPT);
    CHECK_EQ(here.gone, SHERD__NOT_ALL);
    CHECK_EQ(here.wrote, ranks);
    CHECK_EQ(sherd__deed_count(here.mesh), 4);
    do_deed(here.mesh, "alike");
    CHECK_OK(sherd_world_check(world));
    /* What was written before a good check is lost to no later one. */
    if (me == 0)
        sherd_world_fail(world, SHERD_EINVAL, "on purpose");
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    CHECK_EQ(here.wrote, 0);
    sherd__world_watch(world, &(sherd__watcher){.before_check = NULL});
}

/* ---- what a comparison costs ----------------------------------------------------------------- */

enum { CLAIMS = 8, MOST = 256 };

/* As many ranks as it says, that have done the same on one mesh, and claim the same. */
static void fill_in(sherd_world *world, sherd__member *member, sherd__arena *arena, int ranks)
{
    sherd__claim *claim = (sherd__claim *)(void *)(arena->base + arena->control->regions);

    for (int i = 0; i < CLAIMS; i++)
        claim[i] = (sherd__claim){
            .made = (uint64_t)(CLAIMS - i), .identity = 7 + (uint64_t)i, .content = 9};
    world->arena = *arena;
    world->ranks = ranks;
    world->mesh = member;
    world->meshes = 1;
    world->lanes = 2;
    sherd__lane_set_add(&world->touched, 1);
    *member = (sherd__member){.lanes = 1, .first = 1};
    for (int r = 0; r < ranks; r++) {
        sherd__lane *lane = sherd__lane_of(world, r, 1);
        atomic_store(&lane->leader, 1);
        lane->work.count = 5;
        lane->claims = arena->control->regions;
        lane->claimed = CLAIMS;
    }
}

/* Seconds of this thread to find that they do not differ: the least of several times. */
static double time_to_compare(sherd_world *world, int ranks)
{
    double least = 1;
    sherd__finding finding = {.text = ""};

    world->ranks = ranks;
    for (int i = 0; i < 3; i++) {
        struct timespec from, to;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        CHECK(!sherd__ledgers_differ(world, i % 2, &finding));
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double time =
            (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        least = time < least ? time : least;
    }
    return least;
}

/* Eight times the ranks: all pairs would take 64 times as long, and all pairs for each rank 512
 * times. Also where one rank has kept a tensor that others have not. */
static void ranks_are_compared_one_by_one(sherd_world *world)
{
    sherd__arena arena;
    sherd__diag diag = {0};
    sherd__member member;
    sherd_world *paper = calloc(1, sizeof *paper);

    (void)world;
    CHECK_OK(sherd__arena_create(&arena, MOST, 4 << 20, NULL, &diag));
    fill_in(paper, &member, &arena, MOST);
    for (int odd = 0; odd < 2; odd++) {
        sherd__lane_of(paper, 0, 1)->claimed = CLAIMS - odd;
        double few = time_to_compare(paper, MOST / 8), many = time_to_compare(paper, MOST);
        if (!CHECK(many < 30 * few + 5e-4))
            fprintf(stderr, "%.1f us of %d ranks, %.1f us of %d\n", 1e6 * few, MOST / 8, 1e6 * many,
                    MOST);
    }
    sherd__arena_unmap(&arena);
    free(paper);
}

/* Two that differ are found, also where the leader claims nothing about it. */
static void claims_that_differ_are_found_among_others(sherd_world *world)
{
    sherd__arena arena;
    sherd__diag diag = {0};
    sherd__member member;
    sherd_world *paper = calloc(1, sizeof *paper);
    sherd__finding finding = {.text = ""};

    (void)world;
    CHECK_OK(sherd__arena_create(&arena, 8, 4 << 20, NULL, &diag));
    fill_in(paper, &member, &arena, 8);
    sherd__claim *claim = (sherd__claim *)(void *)(arena.base + arena.control->regions);
    memcpy(claim + CLAIMS, claim, CLAIMS * sizeof *claim);
    claim[2 * CLAIMS - 1].content = 10;
    snprintf(claim[CLAIMS - 1].text, sizeof claim->text, "f32[4]");
    for (int r = 0; r < 3; r++)
        sherd__lane_of(paper, r, 1)->claimed = CLAIMS - 1;
    sherd__lane_of(paper, 5, 1)->claims += CLAIMS * sizeof *claim;
    CHECK(sherd__ledgers_differ(paper, false, &finding));
    CHECK_TEXT(finding.text,
               "rank 3: SHERD_VERIFY: f32[4], which should be equal there, differs between "
               "ranks 3 and 5");
    sherd__arena_unmap(&arena);
    free(paper);
}

/* What a rank wrote last counts: not what a copy holds from before, which others may not need. */
static void copies_are_no_difference(sherd_world *world)
{
    static const sherd__claim one[][2] = {{{.made = 5, .identity = 7, .content = 9}},
                                          {{.made = 8, .identity = 7, .content = 9}},
                                          {{.made = 8, .identity = 7, .content = 9}},
                                          {{.made = 5, .identity = 7, .content = 9}}},
                              two[][2] = {{{.made = 5, .identity = 7, .content = 9},
                                           {.made = 5, .identity = 7, .content = 12}},
                                          {{.made = 8, .identity = 7, .content = 9},
                                           {.made = 5, .identity = 7, .content = 4}},
                                          {{.made = 8, .identity = 7, .content = 4},
                                           {.made = 5, .identity = 7, .content = 9}},
                                          {{.made = 8, .identity = 7, .content = 4},
                                           {.made = 5, .identity = 7, .content = 9}}};
    static const int differ[] = {false, false, true, true};
    sherd__arena arena;
    sherd__diag diag = {0};
    sherd__member member;
    sherd_world *paper = calloc(1, sizeof *paper);
    sherd__finding finding = {.text = ""};

    (void)world;
    CHECK_OK(sherd__arena_create(&arena, 8, 4 << 20, NULL, &diag));
    fill_in(paper, &member, &arena, 2);
    sherd__claim *claim = (sherd__claim *)(void *)(arena.base + arena.control->regions);
    for (int i = 0; i < LEN(differ); i++)
        for (int more = 0; more < 2; more++) { /* the rank that has more */
            memcpy(claim, one[i], sizeof *claim);
            memcpy(claim + CLAIMS, two[i], 2 * sizeof *claim);
            for (int r = 0; r < 2; r++) {
                sherd__lane *lane = sherd__lane_of(paper, r, 1);
                lane->claims = arena.control->regions + (r == more ? CLAIMS * sizeof *claim : 0);
                lane->claimed = r == more ? 2 : 1;
            }
            CHECK_EQ(sherd__ledgers_differ(paper, false, &finding), differ[i]);
        }
    sherd__arena_unmap(&arena);
    free(paper);
}

static const check_test tests[] = {
    {TEST(copies_are_no_difference), {1}},
    {TEST(a_check_looks_only_at_meshes_that_were_used), {2, 3, 8}},
    {TEST(a_mesh_that_was_long_unused_is_compared_again), {2, 3, 8}},
    {TEST(all_ranks_lose_what_any_has_written), {2, 3, 4, 8}},
    {TEST(ranks_are_compared_one_by_one), {1}},
    {TEST(claims_that_differ_are_found_among_others), {1}},
};
CHECK_MAIN(tests)
