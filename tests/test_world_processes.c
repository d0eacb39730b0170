/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes: how they end. Each scene forks a parent that starts ranks, as a program would; this process looks on:
 * what is printed, which status comes out, how long it takes, and whether a process is left.
 */
#define CHECK_PURE
#include <dirent.h>
#include <errno.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "world/launch.h"
#include "world/world.h"

enum { RANKS = 4, TEXT = 4096 };

/* What the ranks tell the test. */
typedef struct board {
    _Atomic int pid[CHECK_RANKS];
    _Atomic int ready;               /* ranks that have come to their place */
    _Atomic int status[CHECK_RANKS]; /* 1 = nothing told */
    char text[CHECK_RANKS][SHERD_ERROR_BYTES];
    _Atomic int spawn_status, exit_status;
    char spawn_text[SHERD_ERROR_BYTES];
} board;

static board *shown;
static const char *self; /* this program */

/* How a scene ended. */
typedef struct ending {
    int status; /* of the parent: exit status, or 128 + signal */
    double seconds;
    bool left; /* a process outlived it */
    char err[TEXT];
} ending;

typedef int (*part)(sherd_world *world, void *payload);

/* ---- helpers ----------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_for(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(1e9 * (s - (double)(time_t)s))}, NULL);
}

static bool wait_ready(int count, double limit)
{
    double end = now() + limit;

    while (atomic_load(&shown->ready) < count && now() < end)
        sleep_for(0.002);
    return atomic_load(&shown->ready) >= count;
}

static void compute(double s)
{
    double end = now() + s;
    while (now() < end)
        ;
}

static int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static int spawn(int ranks, sherd_ranks_as as, part body, int *exit_status)
{
    sherd_world_options options = {
        .ranks = ranks, .as = as, .no_pin = true, .seed = 3, .error = shown->spawn_text};
    return sherd_spawn(exit_status, &options, body, NULL);
}

/* The process that starts the ranks; its standard error goes to `err`. */
static pid_t start_scene(int err, int ranks, part body, const char *mode)
{
    memset(shown, 0, sizeof *shown);
    for (int r = 0; r < CHECK_RANKS; r++)
        atomic_store(&shown->status[r], 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    dup2(err, 2);
    if (mode) {
        sherd__diag diag = {.rank = -1};
        char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)mode, NULL};
        if (strcmp(mode, "missing") == 0)
            argv[0] = (char *)(uintptr_t) "/no/such/program";
        int code = sherd__launch(ranks, argv, &diag);
        snprintf(shown->spawn_text, sizeof shown->spawn_text, "%s", diag.text);
        atomic_store(&shown->spawn_status, diag.status);
        _exit(code < 0 ? 99 : code);
    }
    int exit_status = -1, files = open_files();
    atomic_store(&shown->spawn_status, spawn(ranks, SHERD_PROCESSES, body, &exit_status));
    atomic_store(&shown->exit_status, exit_status);
    _exit(open_files() == files ? 0 : 98);
}

static bool anybody_left(double limit)
{
    double end = now() + limit;
    pid_t pid;

    while ((pid = waitpid(-1, NULL, WNOHANG)) >= 0 && now() < end)
        if (pid == 0)
            sleep_for(0.005);
    return pid >= 0;
}

static ending end_scene(pid_t pid, int err, double begin, double patience)
{
    ending e = {.status = -1};
    int status = 0;

    waitpid(pid, &status, 0);
    e.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    e.left = anybody_left(patience);
    e.seconds = now() - begin;
    if (pread(err, e.err, TEXT - 1, 0) < 0)
        e.err[0] = '\0';
    close(err);
    return e;
}

static int memory_file(void)
{
    return (int)memfd_create("err", MFD_CLOEXEC);
}

static ending play(int ranks, part body, const char *mode)
{
    int err = memory_file();
    double begin = now();
    return end_scene(start_scene(err, ranks, body, mode), err, begin, 0.5);
}

static void tell(sherd_world *world, sherd_status status)
{
    int me = sherd_world_rank(world);

    atomic_store(&shown->status[me], status);
    snprintf(shown->text[me], SHERD_ERROR_BYTES, "%s", sherd_world_error(world));
}

static const sherd_mesh *line_of_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;

    if (sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL))
        return NULL;
    atomic_store(&shown->pid[sherd_world_rank(world)], getpid());
    atomic_fetch_add(&shown->ready, 1);
    return mesh;
}

static bool share(sherd_world *world, const sherd_mesh *mesh)
{
    int64_t mine = 1, all[SHERD_MAX_RANKS];
    return mesh && sherd__share(world, mesh, "share", &mine, 1, all);
}

/* ---- a rank is killed -------------------------------------------------------------------------- */

/* All but the victim wait for its call; it computes. */
static int victim_computes(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 2)
        compute(30);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    sherd_status again = sherd_world_check(world); /* it stays closed */
    return again == SHERD_EPEER && !share(world, mesh) ? 7 : 8;
}

/* All wait for rank 0, which computes; a rank that waits is killed. */
static int victim_waits(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 0)
        compute(0.6);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 7;
}

static int victim_is_at_the_check(sherd_world *world, void *payload)
{
    (void)payload;
    line_of_ranks(world);
    if (sherd_world_rank(world) == 0)
        compute(0.6);
    tell(world, sherd_world_check(world));
    return 7;
}

static void kill_one(part body, int signal, const char *line)
{
    int err = memory_file();
    pid_t parent = start_scene(err, RANKS, body, NULL);

    CHECK(wait_ready(RANKS, 10));
    sleep_for(0.1);
    double begin = now();
    kill(atomic_load(&shown->pid[2]), signal);
    ending e = end_scene(parent, err, begin, 0.2);
    CHECK_EQ(e.status, 0);
    CHECK(!e.left);
    CHECK(e.seconds < 2);
    CHECK_TEXT(e.err, line);
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EPEER);
    CHECK_EQ(atomic_load(&shown->exit_status), 128 + signal);
    for (int r = 0; r < RANKS; r++) {
        CHECK_EQ(atomic_load(&shown->status[r]), r == 2 ? 1 : SHERD_EPEER);
        if (r != 2)
            CHECK(strncmp(shown->text[r], "rank 2 was ", 11) == 0);
    }
    CHECK(strncmp(shown->spawn_text, "rank 2 was ", 11) == 0);
}

static void a_killed_rank_is_named_and_ends_all(void)
{
    const char *line = "sherd: rank 2 was killed by signal 9 (SIGKILL)\n";

    kill_one(victim_computes, SIGKILL, line);
    kill_one(victim_waits, SIGKILL, line);
    kill_one(victim_is_at_the_check, SIGKILL, line);
    kill_one(victim_computes, SIGXCPU, "sherd: rank 2 was killed by signal 24 (SIGXCPU)\n");
}

/* A stopped rank counts as dead after half a second. */
static void a_stopped_rank_is_named_and_ends_all(void)
{
    kill_one(victim_computes, SIGSTOP, "sherd: rank 2 was stopped by signal 19 (SIGSTOP)\n");
}

/* Ranks that never look at their world again are killed. */
static int deaf(sherd_world *world, void *payload)
{
    (void)payload;
    line_of_ranks(world);
    compute(30);
    return 0;
}

static void survivors_that_do_not_end_are_killed(void)
{
    int err = memory_file();
    pid_t parent = start_scene(err, RANKS, deaf, NULL);

    CHECK(wait_ready(RANKS, 10));
    double begin = now();
    kill(atomic_load(&shown->pid[1]), SIGKILL);
    ending e = end_scene(parent, err, begin, 0.2);
    CHECK(e.seconds < 2.5 && !e.left);
    CHECK_TEXT(e.err, "sherd: rank 1 was killed by signal 9 (SIGKILL)\n");
    CHECK_EQ(atomic_load(&shown->exit_status), 137);
}

/* ---- the parent is killed ---------------------------------------------------------------------- */

static void ranks_vanish_with_their_parent(void)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGINT, SIGHUP};

    for (int i = 0; i < LEN(signals); i++) {
        int err = memory_file();
        pid_t parent = start_scene(err, RANKS, i % 2 ? deaf : victim_waits, NULL);
        CHECK(wait_ready(RANKS, 10));
        double begin = now();
        kill(parent, signals[i]);
        ending e = end_scene(parent, err, begin, 2);
        CHECK_EQ(e.status, 128 + signals[i]);
        CHECK(!e.left);
        CHECK(e.seconds < 2);
        CHECK_TEXT(e.err, "");
    }
}

/* ---- exits ------------------------------------------------------------------------------------- */

static int leaves(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        _exit(3);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 1;
}

static int aborts(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        abort();
    share(world, mesh);
    return sherd_world_check(world) == SHERD_EPEER;
}

static void a_rank_that_leaves_is_named(void)
{
    ending e = play(RANKS, leaves, NULL);

    CHECK(e.seconds < 2 && !e.left);
    CHECK_TEXT(e.err, "sherd: rank 1 exited with status 3 before closing its world\n");
    CHECK_EQ(atomic_load(&shown->exit_status), 3);
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EPEER);
    CHECK_EQ(atomic_load(&shown->status[0]), SHERD_EPEER);
    e = play(RANKS, aborts, NULL);
    CHECK_TEXT(e.err, "sherd: rank 1 was killed by signal 6 (SIGABRT)\n");
    CHECK_EQ(atomic_load(&shown->exit_status), 134);
}

static int all_return_a_value(sherd_world *world, void *payload)
{
    (void)payload;
    return sherd_world_rank(world) >= 2 ? 4 + sherd_world_rank(world) : 0;
}

static int fails_unread(sherd_world *world, void *payload)
{
    (void)payload;
    if (sherd_world_rank(world) == 1)
        sherd_world_fail(world, SHERD_ENOTSUP, "nobody looks");
    return 0;
}

/* Returns while the others wait for its call. */
static int returns_early(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        return 5;
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return sherd_world_check(world) == SHERD_EPEER ? 0 : 9;
}

static void what_bodies_return_comes_out(void)
{
    for (int as = 0; as < 2; as++) {
        int exit_status = -1, files = open_files();
        CHECK_OK(spawn(RANKS, (sherd_ranks_as)as, all_return_a_value, &exit_status));
        CHECK_EQ(exit_status, 6);
        CHECK_EQ(spawn(RANKS, (sherd_ranks_as)as, fails_unread, &exit_status), SHERD_ENOTSUP);
        CHECK_EQ(exit_status, 0);
        CHECK_TEXT(shown->spawn_text, "rank 1: nobody looks");
        double begin = now();
        CHECK_EQ(spawn(RANKS, (sherd_ranks_as)as, returns_early, &exit_status), SHERD_EPEER);
        CHECK_EQ(exit_status, 5);
        CHECK(now() - begin < 1);
        for (int r = 0; r < RANKS; r++)
            if (r != 1)
                CHECK_EQ(atomic_load(&shown->status[r]), SHERD_EDIFFER);
        CHECK_EQ(open_files(), files);
        CHECK_EQ(waitpid(-1, NULL, WNOHANG), -1);
    }
}

/* ---- limits ------------------------------------------------------------------------------------ */

static int nothing(sherd_world *world, void *payload)
{
    (void)payload;
    return share(world, line_of_ranks(world)) ? 0 : 1;
}

static void rank_counts_are_limited(void)
{
    int exit_status = -1;

    for (int as = 0; as < 2; as++) {
        CHECK_OK(spawn(64, (sherd_ranks_as)as, nothing, &exit_status));
        CHECK_EQ(exit_status, 0);
        CHECK_EQ(spawn(65, (sherd_ranks_as)as, nothing, &exit_status), SHERD_ELIMIT);
        CHECK(strstr(shown->spawn_text, "64") != NULL);
        CHECK_EQ(spawn(-1, (sherd_ranks_as)as, nothing, &exit_status), SHERD_EINVAL);
        CHECK_OK(spawn(0, (sherd_ranks_as)as, nothing, &exit_status));
    }
    setenv("SHERD_TRANSPORT", "pigeon", 1);
    CHECK_EQ(spawn(2, SHERD_THREADS, nothing, &exit_status), SHERD_EINVAL);
    unsetenv("SHERD_TRANSPORT");
}

static int too_late(sherd_world *world, void *payload)
{
    const sherd_mesh *mesh = line_of_ranks(world);

    (void)payload;
    if (sherd_world_rank(world) == 1)
        sleep_for(2);
    share(world, mesh);
    tell(world, sherd_world_check(world));
    return 0;
}

static void a_rank_that_never_comes_ends_all_at_last(void)
{
    int exit_status = -1;

    setenv("SHERD_TIMEOUT", "1", 1);
    CHECK_EQ(spawn(3, SHERD_THREADS, too_late, &exit_status), SHERD_ETIMEDOUT);
    for (int r = 0; r < 3; r++) {
        CHECK_EQ(atomic_load(&shown->status[r]), SHERD_ETIMEDOUT);
        CHECK(strstr(shown->text[r], "for rank 1") != NULL);
    }
    setenv("SHERD_TIMEOUT", "soon", 1);
    CHECK_EQ(spawn(2, SHERD_THREADS, nothing, &exit_status), SHERD_EINVAL);
    unsetenv("SHERD_TIMEOUT");
}

/* ---- sherd run --------------------------------------------------------------------------------- */

static int joined(sherd_world *world, void *payload)
{
    (void)payload;
    return share(world, line_of_ranks(world)) && sherd_world_ranks(world) == RANKS ? 0 : 1;
}

/* Two worlds, one after the other; then sherd_spawn, which runs here. */
static int run_twice(void)
{
    int exit_status = -1;

    for (int turn = 0; turn < 2; turn++) {
        sherd_world *world = NULL, *second = NULL;
        char text[SHERD_ERROR_BYTES] = "";
        if (sherd_world_open(&world, &(sherd_world_options){.error = text}))
            return 2;
        if (sherd_world_open(&second, &(sherd_world_options){.error = text}) != SHERD_EINVAL)
            return 3;
        if (joined(world, NULL) || sherd_world_close(world))
            return 4;
    }
    if (spawn(1, SHERD_THREADS, joined, &exit_status) || exit_status)
        return 5;
    return 0;
}

/* What this program does as a rank of `sherd run`. */
static int play_rank(const char *mode)
{
    int rank = atoi(getenv("SHERD_RANK"));
    sherd_world *world = NULL;
    char text[SHERD_ERROR_BYTES] = "";

    if (strcmp(mode, "twice") == 0)
        return run_twice();
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
    e = play(RANKS, NULL, "usage");
    CHECK_EQ(e.status, 2);
    CHECK_TEXT(e.err, "");
    e = play(RANKS, NULL, "seeds");
    CHECK_EQ(e.status, 0);
    e = play(RANKS, NULL, "one-stays-away");
    CHECK_EQ(e.status, 1);
    CHECK(e.seconds < 2 && !e.left);
    CHECK_TEXT(e.err, "sherd: rank 1 exited with status 0 before closing its world\n");
    e = play(RANKS, NULL, "dies");
    CHECK_EQ(e.status, 137);
    CHECK(e.seconds < 2 && !e.left);
    CHECK_TEXT(e.err, "sherd: rank 1 was killed by signal 9 (SIGKILL)\n");
    e = play(RANKS, NULL, "missing");
    CHECK_EQ(e.status, 99);
    CHECK_EQ(atomic_load(&shown->spawn_status), SHERD_EINVAL);
    CHECK(strstr(shown->spawn_text, "/no/such/program") != NULL);
    CHECK(!e.left);
    e = play(65, NULL, "never");
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
    {TEST(a_killed_rank_is_named_and_ends_all)},
    {TEST(a_stopped_rank_is_named_and_ends_all)},
    {TEST(survivors_that_do_not_end_are_killed)},
    {TEST(ranks_vanish_with_their_parent)},
    {TEST(a_rank_that_leaves_is_named)},
    {TEST(what_bodies_return_comes_out)},
    {TEST(rank_counts_are_limited)},
    {TEST(a_rank_that_never_comes_ends_all_at_last)},
    {TEST(programs_are_run_as_ranks)},
    {TEST(a_broken_environment_is_refused)},
};

int main(int argc, char **argv)
{
    shown = mmap(NULL, sizeof *shown, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    self = argv[0];
    if (getenv("SHERD_ARENA_FD") && argc > 1)
        return play_rank(argv[1]);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
