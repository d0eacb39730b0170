/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds beyond 64 ranks, where a set of ranks is more than a word: moves are exact, and who errs
 * is named on all ranks. */
#include "tensors.h"

/* A mesh of two axes of all ranks. */
static const sherd_mesh *rectangle(sherd_world *world)
{
    int ranks = sherd_world_ranks(world), wide = 5;
    char text[32];

    while (ranks % wide)
        wide++;
    snprintf(text, sizeof text, "a=%d,b=%d", wide, ranks / wide);
    return mesh_of(world, text);
}

static void check_move(const sherd_layout *from, const sherd_layout *to, bool begin)
{
    sherd_world *world = sherd__space_world(from->space);

    sherd_scope_begin(world);
    sherd_tensor *moved = sherd__move_to(indices_on(from, SHERD_F64), to, begin);
    CHECK_EQ(count_wrong(moved, addends_of(from, (int64_t[SHERD_MAX_AXES]){0}, NULL)), 0);
    sherd_scope_end(world);
}

static void elements_land_at_their_indices(sherd_world *world)
{
    const sherd_mesh *mesh = rectangle(world), *line = line_of_ranks(world);
    const int64_t shape[] = {sherd_world_ranks(world) + 3, 7};
    uint64_t dice = 3;

    for (int i = 0; i < lists_of(line, 2); i++)
        for (int j = 0; j < lists_of(line, 2) - 1; j++)
            if (i != j)
                check_move(numbered(line, 2, shape, i), numbered(line, 2, shape, j), i % 2);
    for (int turn = 0; turn < 12;) {
        const sherd_layout *from = numbered(mesh, 2, shape, roll(&dice, lists_of(mesh, 2)));
        const sherd_layout *to = numbered(mesh, 2, shape, roll(&dice, lists_of(mesh, 2)));
        if (to->pending_axes || from == to)
            continue;
        check_move(from, to, turn++ % 2);
    }
    CHECK_OK(sherd_world_check(world));
}

/* An all-reduce that is cut into a slice for each rank, and one whose groups have ranks of several
 * words. */
static void large_sums_come_to_all(sherd_world *world)
{
    const int64_t shape[] = {1 << 14};

    check_move(layout_of(line_of_ranks(world), 1, shape, "P(sum)", NULL),
               layout_of(line_of_ranks(world), 1, shape, "R", NULL), false);
    check_move(layout_of(rectangle(world), 1, shape, "P(sum)S(0)", NULL),
               layout_of(rectangle(world), 1, shape, "RS(0)", NULL), false);
    CHECK_OK(sherd_world_check(world));
}

/* Moves of calls that are not waited for, so that slots, tickets and records come round. */
static void some_calls_follow_each_other(sherd_world *world, int calls)
{
    const int64_t shape[] = {2 * sherd_world_ranks(world) + 1};
    const sherd_layout *parts = layout_of(line_of_ranks(world), 1, shape, "S(0)", NULL);
    const sherd_layout *whole = layout_of(line_of_ranks(world), 1, shape, "R", NULL);

    for (int i = 0; i < calls; i++)
        check_move(parts, whole, true);
    CHECK_OK(sherd_world_check(world));
}

static void many_calls_follow_each_other(sherd_world *world)
{
    some_calls_follow_each_other(world, 16);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void expect(sherd_world *world, sherd_status status, const char *names)
{
    CHECK_EQ(sherd_world_check(world), status);
    if (!CHECK(strstr(sherd_world_error(world), names) != NULL))
        fprintf(stderr, "\"%s\"\n", sherd_world_error(world));
    check_same(world, status);
    some_calls_follow_each_other(world, 4); /* it works again */
}

static void who_fails_is_named(sherd_world *world)
{
    int last = sherd_world_ranks(world) - 1;

    line_of_ranks(world);
    if (sherd_world_rank(world) == last)
        sherd_world_fail(world, SHERD_EINVAL, "rank far up fails");
    expect(world, SHERD_EINVAL, "far up");
}

static void who_is_at_a_meeting_is_named(sherd_world *world)
{
    const int64_t shape[] = {sherd_world_ranks(world)};
    const sherd_mesh *line = line_of_ranks(world);
    const sherd_layout *from = layout_of(line, 1, shape, "S(0)", NULL);
    const sherd_layout *to = layout_of(line, 1, shape, "R", NULL);

    sherd_scope_begin(world);
    sherd_tensor *t = indices_on(from, SHERD_F32);
    if (sherd_world_rank(world) != 64)
        (void)sherd_tensor_read(sherd__move_to(t, to, false));
    sherd_scope_end(world);
    expect(world, SHERD_EDIFFER, "rank 64");
}

/* Two ranks of different words, each waiting in a group of two for the other. */
static void a_ring_over_words_is_found(sherd_world *world)
{
    const int64_t shape[] = {8};
    const sherd_mesh *mesh[2];
    int rank = sherd_world_rank(world);

    for (int m = 0; m < 2; m++) {
        int64_t two = 2;
        CHECK_OK(sherd_mesh_create(&mesh[m], world, 1, &two, (const char *const[]){m ? "n" : "m"},
                                   (const int[]){3, 64}));
    }
    sherd_scope_begin(world);
    for (int i = 0; i < 2 && (rank == 3 || rank == 64); i++) {
        const sherd_mesh *on = mesh[(rank == 64) ^ i];
        sherd_tensor *t = indices_on(layout_of(on, 1, shape, "S(0)", NULL), SHERD_F32);
        (void)sherd_tensor_read(sherd__move_to(t, layout_of(on, 1, shape, "R", NULL), false));
    }
    sherd_scope_end(world);
    expect(world, SHERD_EDIFFER, "rank 64");
}

/* What the thread sanitizer keeps of threads that meet grows with the cube of their number: there
 * are no more then. */
#if defined(__SANITIZE_THREAD__)
enum { MORE = 0, MOST = 0 };
#else
enum { MORE = 72, MOST = 130 };
#endif

static const check_test tests[] = {
    {TEST(elements_land_at_their_indices), {65, MORE}},
    {TEST(large_sums_come_to_all), {65, MOST}},
    {TEST(many_calls_follow_each_other), {65, MOST}},
    {TEST(who_fails_is_named), {65, MORE, MOST}},
    {TEST(who_is_at_a_meeting_is_named), {65, MOST}},
    {TEST(a_ring_over_words_is_found), {65, MOST}},
};
CHECK_MAIN(tests)
