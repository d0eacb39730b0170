/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How `sherd run` ends: its exit status is 0 only if all ranks were good to each other, and else
 * its last line names the cause. This test is started again as the ranks, with what they shall do
 * as its argument.
 */
#include "world_scene.h"

/* ---- what the ranks do ----------------------------------------------------------------------- */

static int check_fails(sherd_world *world)
{
    if (sherd_world_rank(world) == 1)
        sherd_world_fail(world, SHERD_ENOTSUP, "there is no soap");
    return sherd_world_check(world) == SHERD_ENOTSUP ? 1 : 50;
}

/* Closes while the others go on; nobody looks at any status. */
static int leave_early(sherd_world *world)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    if (sherd_world_rank(world) != 1) {
        share(world, mesh);
        tell(world, sherd_world_check(world));
    }
    return 0;
}

static int open_again(int rank)
{
    sherd_world *world = NULL;

    if (rank == 1)
        return 0;
    return sherd_world_open(&world, NULL) == SHERD_EPEER ? 0 : 50;
}

static int play_rank(const char *mode)
{
    int rank = atoi(getenv("SHERD_RANK")), value = 0;
    sherd_world *world = NULL;

    if (sherd_world_open(&world, NULL))
        return 21;
    if (strcmp(mode, "three") == 0)
        value = rank == 1 ? 3 : 0;
    else if (strcmp(mode, "early") == 0)
        value = leave_early(world);
    else if (strcmp(mode, "told") == 0)
        value = check_fails(world);
    else if (strcmp(mode, "told, not closed") == 0)
        _exit(check_fails(world)); /* what it leaves behind is no leak to be told of */
    else if (strcmp(mode, "dealt with") == 0)
        value = check_fails(world) == 1 && sherd_world_check(world) == SHERD_OK ? 3 : 50;
    sherd_status closed = sherd_world_close(world);
    (void)closed;
    return strcmp(mode, "again") == 0 ? open_again(rank) : value;
}

/* ---- what comes of it ------------------------------------------------------------------------ */

typedef struct end {
    const char *mode;
    int status;
    const char *line; /* the last of standard error */
} end;

static void an_end_is_told_in_one_line(void)
{
    static const end ends[] = {
        {"nothing", 0, ""},
        {"three", 3, "sherd: rank 1 exited with status 3\n"},
        {"early", 1, "sherd: rank 1 closed its world while others went on\n"},
        {"told", 1, "sherd: rank 0 exited with status 1: rank 1: there is no soap\n"},
        {"dealt with", 3, "sherd: rank 0 exited with status 3\n"},
        {"again", 1, "sherd: rank 1 exited with status 0 when the others opened another world\n"},
    };

    for (int i = 0; i < LEN(ends); i++) {
        ending e = play(RANKS, NULL, ends[i].mode);
        bool good = CHECK_EQ(e.status, ends[i].status);
        good &= CHECK_TEXT(last_line(e.err), ends[i].line);
        good &= CHECK(!e.left && e.seconds < soon);
        if (!good)
            fprintf(stderr, "%s: %s\n", ends[i].mode, e.err);
    }
}

static void ignore_children(void)
{
    signal(SIGCHLD, SIG_IGN);
}

/* As after `trap '' CHLD` in a shell. */
static void who_ignores_its_children_knows_how_they_end(void)
{
    before = ignore_children;
    ending e = play(RANKS, NULL, "three");
    before = NULL;
    CHECK_EQ(e.status, 3);
    CHECK_TEXT(e.err, "sherd: rank 1 exited with status 3\n");
}

/* Which rank is seen first is open. All know why: there is no record of who waits for whom. */
static void a_rank_that_leaves_says_what_it_was_told(void)
{
    ending e = play(RANKS, NULL, "told, not closed");

    CHECK_EQ(e.status, 1);
    CHECK(strncmp(e.err, "sherd: rank ", 12) == 0);
    CHECK(
        strstr(e.err, " exited with status 1 before closing its world: rank 1: there is no soap"));
}

/* The ranks of a program that looks at sherd_spawn's exit status only. */
static int leaves_early(sherd_world *world, void *payload)
{
    (void)payload;
    return leave_early(world);
}

static void a_rank_that_leaves_early_is_no_success(void)
{
    for (int as = 0; as < 2; as++) {
        int exit_status = 0;
        CHECK_EQ(spawn(RANKS, (sherd_ranks_as)as, leaves_early, &exit_status), SHERD_EPEER);
        CHECK_EQ(exit_status, 1);
    }
}

static const check_test tests[] = {
    {TEST(an_end_is_told_in_one_line)},
    {TEST(who_ignores_its_children_knows_how_they_end)},
    {TEST(a_rank_that_leaves_says_what_it_was_told)},
    {TEST(a_rank_that_leaves_early_is_no_success)},
};

int main(int argc, char **argv)
{
    set_scene(argv[0]);
    if (getenv("SHERD_ARENA_FD") && argc > 1)
        return play_rank(argv[1]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
