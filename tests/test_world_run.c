/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as ranks: `sherd run` starts this test again, with what it shall do as its argument. */
#include "world_scene.h"

#include <sys/stat.h>

/* ---- sherd run ------------------------------------------------------------------------------- */

static int joined(sherd_world *world, void *payload)
{
    (void)payload;
    return share(world, line_of_ranks(world)) && sherd_world_ranks(world) == RANKS ? 0 : 1;
}

/* Two worlds, one after the other; then sherd_spawn, which runs here. */
static int run_twice(void)
{
    int exit_status = -1, cores = sherd__cores();

    for (int turn = 0; turn < 2; turn++) {
        sherd_world *world = NULL, *second = NULL;
        char text[SHERD_ERROR_BYTES] = "";
        if (sherd_world_open(&world, &(sherd_world_options){.error = text}))
            return 2;
        if (sherd_world_open(&second, &(sherd_world_options){.error = text}) != SHERD_EINVAL)
            return 3;
        if (joined(world, NULL) || sherd_world_close(world))
            return 4;
        if (sherd__cores() != cores) /* it may have been pinned meanwhile */
            return 6;
    }
    if (spawn(1, SHERD_THREADS, joined, &exit_status) || exit_status)
        return 5;
    return 0;
}

/* Uses much memory, and looks at what of it is there when the world is closed. */
static int leave_nothing(void)
{
    enum { BYTES = 32 << 20 };
    int fd = atoi(getenv("SHERD_ARENA_FD"));
    sherd_world *world = NULL;
    struct stat there;

    if (sherd_world_open(&world, NULL))
        return 21;
    sherd__block *block = sherd__block_take(world, BYTES, false);
    if (!block)
        return 22;
    memset(sherd__block_data(block), 1, BYTES);
    if (sherd_world_check(world) || fstat(fd, &there) || there.st_blocks * 512 < BYTES)
        return 23;
    if (sherd_world_close(world))
        return 24;
    /* Until the slowest rank has closed it too. */
    for (int turn = 0; turn < 1000 && there.st_blocks * 512 >= BYTES / 2; turn++) {
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, NULL);
        if (fstat(fd, &there))
            return 25;
    }
    return there.st_blocks * 512 < BYTES / 2 ? 0 : 26;
}

/* Ranks that differ open nothing; who tries again is told the same again. */
static int try_again(int rank)
{
    char first[SHERD_ERROR_BYTES] = "", text[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = {.error = first, .seed = (uint64_t)rank};
    sherd_world *world = NULL;

    if (sherd_world_open(&world, &options) != SHERD_EDIFFER || world)
        return 41;
    options = (sherd_world_options){.error = text};
    for (int turn = 0; turn < 2; turn++)
        if (sherd_world_open(&world, &options) != SHERD_EDIFFER || strcmp(text, first) != 0)
            return 42;
    return 0;
}

/* Rank 1 has no room for its world, and goes: the others learn the former first. */
static int bring_no_room(int rank)
{
    char text[SHERD_ERROR_BYTES] = "";
    sherd_world_options options = {.error = text};
    sherd_world *world = NULL;

    if (sherd_world_open(rank == 1 ? NULL : &world, &options) != SHERD_EINVAL || world)
        return 51;
    return strcmp(text, "rank 1: sherd_world_open: out is NULL") ? 52 : 0;
}

/* What this program does as a rank of `sherd run`. */
static int play_rank(const char *mode)
{
    int rank = atoi(getenv("SHERD_RANK"));
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES] = "";

    if (strcmp(mode, "twice") == 0)
        return run_twice();
    if (strcmp(mode, "again") == 0)
        return try_again(rank);
    if (strcmp(mode, "roomless") == 0)
        return bring_no_room(rank);
    if (strcmp(mode, "leaves") == 0)
        return leave_nothing();
    if (strcmp(mode, "never") == 0)
        return 0;
    if (strcmp(mode, "usage") == 0)
        return 2;
    if (strcmp(mode, "one-stays-away") == 0 && rank == 1)
        return 0;
    if (strcmp(mode, "seeds") == 0) {
        sherd_world_options options = {.seed = (uint64_t)rank, .error = text};
        return sherd_world_open(&world, &options) == SHERD_EDIFFER ? 0 : 1;
    }
    if (sherd_world_open(&world, &(sherd_world_options){.error = text}))
        return 21;
    if (strcmp(mode, "dies") == 0 && rank == 1)
        kill(getpid(), SIGKILL);
    share(world, line_of_ranks(world));
    return sherd_world_close(world) ? 1 : 0;
}

static void programs_are_run_as_ranks(void)
{
    ending e = play(RANKS, NULL, "twice");
    CHECK_EQ(e.status, 0);
    CHECK_TEXT(e.err, "");
    e = play(RANKS, NULL, "never");
    CHECK_EQ(e.status, 0);
    CHECK_TEXT(e.err, "");
    e = play(RANKS, NULL, "leaves");
    CHECK_EQ(e.status, 0);
    e = play(RANKS, NULL, "again");
    CHECK_EQ(e.status, 0);
    e = play(RANKS, NULL, "roomless");
    CHECK_EQ(e.status, 0);
    e = play(RANKS, NULL, "usage");
    CHECK_EQ(e.status, 2);
    CHECK_TEXT(e.err, "sherd: rank 0 exited with status 2\n");
    e = play(RANKS, NULL, "seeds");
    CHECK_EQ(e.status, 0);
    e = play(RANKS, NULL, "one-stays-away");
    CHECK_EQ(e.status, 1);
    CHECK(e.seconds < soon && !e.left);
    CHECK_TEXT(last_line(e.err), "sherd: rank 1 exited with status 0 before closing its world\n");
    e = play(RANKS, NULL, "dies");
    CHECK_EQ(e.status, 137);
    CHECK(e.seconds < soon && !e.left);
    CHECK_TEXT(last_line(e.err), "sherd: rank 1 was killed by signal 9 (SIGKILL)\n");
    e = play(RANKS, NULL, "missing");
    CHECK_EQ(e.status, 99);
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EINVAL);
    CHECK(strstr(shown->spawn_text, "/no/such/program") != NULL);
    CHECK(!e.left);
    e = play(SHERD_MAX_RANKS + 1, NULL, "never");
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_ELIMIT);
}

static void a_broken_environment_is_refused(void)
{
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES];
    sherd_world_options options = {.error = text};

    setenv("SHERD_ARENA_FD", "1", 1);
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    setenv("SHERD_RANKS", "2", 1);
    setenv("SHERD_RANK", "2", 1);
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    setenv("SHERD_RANK", "1", 1);
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    setenv("SHERD_ARENA_FD", "987", 1);
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    CHECK(strstr(text, "987") != NULL);
    setenv("SHERD_TRANSPORT", "pigeon", 1);
    CHECK_EQ(sherd_world_open(&world, &options), SHERD_EINVAL);
    CHECK(strstr(text, "SHERD_TRANSPORT=pigeon: expected arena, threads or mpi") != NULL);
    unsetenv("SHERD_TRANSPORT");
    CHECK(world == NULL);
    unsetenv("SHERD_ARENA_FD");
    unsetenv("SHERD_RANK");
    unsetenv("SHERD_RANKS");
    CHECK_OK(sherd_world_open(&world, &options));
    CHECK_EQ(sherd_world_ranks(world), 1);
    CHECK_TEXT(sherd_world_transport(world), "arena");
    CHECK_OK(sherd_world_close(world));
}

static const check_test tests[] = {
    {TEST(programs_are_run_as_ranks)},
    {TEST(a_broken_environment_is_refused)},
};

int main(int argc, char **argv)
{
    set_scene(argv[0]);
    if (getenv("SHERD_ARENA_FD") && argc > 1)
        return play_rank(argv[1]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
