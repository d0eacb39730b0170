/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worlds and programs inside of ranks. A rank may start programs, fork, and open worlds of its own:
 * none of those takes part in its world. This test is what it starts, too.
 */
#define CHECK_PURE
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "check.h"
#include "program.h"
#include "sherd/carrier.h"
#include "world/world.h"

enum { RANKS = 2, OPENINGS = 40, FEW_KB = 1024 };

static const char *self; /* this program */

/* Exit statuses, so that a failure says where. */
enum { NO_WORLD = 21, NO_CALL, WRONG_RANKS, IN_ENVIRONMENT, CHILD_FAILED, INNER_FAILED, FORKED };

static bool works(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;
    int64_t mine = 1, all[SHERD_MAX_RANKS], extent = sherd_world_ranks(world);

    if (sherd_mesh_create(&mesh, world, 1, &extent, NULL, NULL) ||
        (extent > 1 && !sherd__share(world, mesh, "share", &mine, 1, all)))
        return false;
    return sherd_world_check(world) == SHERD_OK;
}

/* ---- what is done inside of a rank ----------------------------------------------------------- */

/* A program that a rank has started: it is alone. */
static int be_alone(void)
{
    sherd_world *world;

    if (sherd_world_open(&world, NULL))
        return NO_WORLD;
    int ranks = sherd_world_ranks(world);
    bool good = works(world) && sherd_world_close(world) == SHERD_OK;
    return good && ranks == 1 ? 0 : WRONG_RANKS;
}

static int start_program(sherd_world *world)
{
    char line[512];

    (void)world;
    if (getenv("SHERD_ARENA_FD") || getenv("SHERD_RANK") || getenv("SHERD_RANKS") ||
        getenv("SHERD_LAUNCHER"))
        return IN_ENVIRONMENT;
    snprintf(line, sizeof line, "%s alone", self);
    return system(line) == 0 ? 0 : CHILD_FAILED;
}

static int inner(sherd_world *world, void *payload)
{
    (void)payload;
    return works(world) && sherd_world_ranks(world) == 3 ? 0 : 1;
}

static int spawn_inside(sherd_world *world)
{
    (void)world;
    for (int as = 0; as < 2; as++) {
        sherd_world_options options = {.ranks = 3, .as = (sherd_ranks_as)as};
        int exit_status = -1;
        if (sherd_spawn(&exit_status, &options, inner, NULL) || exit_status)
            return INNER_FAILED;
    }
    return 0;
}

/* A forked process has a copy of the rank's world, and may do nothing with it. */
static int fork_inside(sherd_world *world)
{
    int status = -1;
    pid_t pid = fork();

    if (pid == 0) {
        bool refused = sherd_world_check(world) == SHERD_EINVAL &&
                       strstr(sherd_world_error(world), "forked") &&
                       sherd_world_close(world) == SHERD_EINVAL;
        _exit(refused ? 0 : FORKED);
    }
    waitpid(pid, &status, 0);
    return status == 0 ? 0 : FORKED;
}

static bool gather_alone(void *own, const void *mine, size_t bytes, void *all)
{
    (void)own;
    memcpy(all, mine, bytes);
    return true;
}

static void leave_alone(void *own, bool well)
{
    (void)own, (void)well;
}

/* One rank whose world another library brings, as MPI does: what it starts is alone all the same,
 * and it may still join what it was launched in. */
static int be_carried(void)
{
    const sherd_carrier carrier = {.version = SHERD_CARRIER_VERSION,
                                   .name = "a test",
                                   .ranks = 1,
                                   .gather = gather_alone,
                                   .close = leave_alone};
    sherd_world *world, *launched;

    if (sherd_world_open_with(&world, &carrier, NULL))
        return NO_WORLD;
    int value = start_program(world);
    if (value || !works(world) || sherd_world_close(world))
        return value ? value : NO_CALL;
    if (sherd_world_open(&launched, NULL) || strcmp(sherd_world_transport(launched), "arena") != 0)
        return NO_WORLD;
    value = start_program(launched);
    return sherd_world_close(launched) ? NO_CALL : value;
}

static int open_files(void)
{
    int count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* KB of a file that are in memory. */
static long size_of(int fd)
{
    struct stat file;

    return fstat(fd, &file) ? 0 : (long)file.st_blocks / 2;
}

/* Later worlds take no more files, nor more of the arena, than the first one. */
static int open_often(void)
{
    const char *given = getenv("SHERD_ARENA_FD"); /* not of a program that has joined before */
    int files = 0, arena = given ? atoi(given) : -1;
    long size = 0;
    sherd_world *world;

    for (int i = 0; i < OPENINGS; i++) {
        if (sherd_world_open(&world, NULL))
            return NO_WORLD;
        if (!works(world) || sherd_world_ranks(world) != RANKS || sherd_world_close(world))
            return NO_CALL;
        files = i == 0 ? open_files() : files;
        size = i == 0 ? size_of(arena) : size;
    }
    return open_files() == files && size_of(arena) < size + FEW_KB ? 0 : CHILD_FAILED;
}

/* The launcher is there, but nothing can be opened that says so. */
static int open_without_files(void)
{
    const struct rlimit none = {3, 3};
    char error[SHERD_ERROR_BYTES] = "";
    sherd_world *world;

    if (setrlimit(RLIMIT_NOFILE, &none) ||
        sherd_world_open(&world, &(sherd_world_options){.error = error}) != SHERD_ENOMEM)
        return CHILD_FAILED;
    return strstr(error, "ulimit -n") ? 0 : CHILD_FAILED;
}

/* As in sandboxes whose kernel can not make holes in memory that processes share. */
static bool keeps_pages;

int madvise(void *at, size_t bytes, int advice)
{
    if (keeps_pages && advice == MADV_REMOVE) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_madvise, at, bytes, advice);
}

/* What former worlds have left in the arena is there for later ones. */
static int fill_often(void)
{
    enum { BYTES = 5 << 20 };
    sherd_world *world;

    keeps_pages = true;
    for (int i = 0; i < 4; i++) {
        if (sherd_world_open(&world, NULL))
            return NO_WORLD;
        sherd__block *block = sherd__block_take(world, BYTES, true);
        bool good = sherd_world_check(world) == SHERD_OK;
        sherd__block_give(world, block);
        if (sherd_world_close(world) || !good)
            return NO_CALL;
    }
    return 0;
}

/* Another program in the same process is the same rank. */
static int become(const char *mode)
{
    sherd_world *world;

    if (sherd_world_open(&world, NULL) || !works(world) || sherd_world_close(world))
        return NO_WORLD;
    execl(self, self, mode, (char *)NULL);
    return CHILD_FAILED;
}

typedef struct deed {
    const char *name;
    int (*inside)(sherd_world *world);
} deed;

static const deed deeds[] = {
    {"starts", start_program},
    {"spawns", spawn_inside},
    {"forks", fork_inside},
};

static int do_inside(sherd_world *world, void *payload)
{
    const deed *d = payload;

    if (!works(world))
        return NO_CALL;
    int value = d->inside(world);
    return value ? value : works(world) ? 0 : NO_CALL;
}

/* The child goes on with what the body returns to, and is told what it is. */
static int fork_body(sherd_world *world, void *payload)
{
    int status = -1;
    pid_t pid = fork();

    (void)world, (void)payload;
    if (pid == 0)
        return 0;
    waitpid(pid, &status, 0);
    return status == 0 ? 0 : FORKED;
}

static int spawn_forking(void)
{
    char error[SHERD_ERROR_BYTES] = "";
    int exit_status = 0;
    pid_t own = getpid();
    const sherd_world_options options = {.error = error};

    sherd_status status = sherd_spawn(&exit_status, &options, fork_body, NULL);
    if (own == getpid())
        return status ? NO_WORLD : exit_status;
    _exit(status == SHERD_EINVAL && strstr(error, "forked") ? 0 : 1); /* the copy ends with it */
}

static int play(const char *mode)
{
    sherd_world *world;

    if (strcmp(mode, "alone") == 0)
        return be_alone();
    if (strcmp(mode, "opens") == 0)
        return open_often();
    if (strcmp(mode, "carried") == 0)
        return be_carried();
    if (strcmp(mode, "becomes") == 0)
        return become("opens");
    if (strcmp(mode, "fills") == 0)
        return fill_often();
    if (strcmp(mode, "without") == 0)
        return open_without_files();
    if (strcmp(mode, "returns") == 0)
        return spawn_forking();
    for (int i = 0; i < LEN(deeds); i++) {
        if (strcmp(mode, deeds[i].name) != 0)
            continue;
        if (sherd_world_open(&world, NULL))
            return NO_WORLD;
        int value = do_inside(world, (void *)(uintptr_t)&deeds[i]);
        return sherd_world_close(world) ? NO_CALL : value;
    }
    return 99;
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void check_launched(int ranks, const char *mode)
{
    char line[512];

    snprintf(line, sizeof line, "%s run -n %d -- %s %s", SHERD, ranks, self, mode);
    const program_end *end = program_run(line);
    bool good = CHECK_EQ(end->status, 0);
    good &= CHECK_TEXT(end->err, "");
    good &= CHECK_EQ(end->left, 0);
    if (!good)
        fprintf(stderr, "%s\n", mode);
}

static void a_launched_rank_may_do_as_it_likes(void)
{
    for (int i = 0; i < LEN(deeds); i++)
        check_launched(RANKS, deeds[i].name);
}

static void a_spawned_rank_may_do_as_it_likes(void)
{
    for (int i = 0; i < LEN(deeds); i++) {
        sherd_world_options options = {.ranks = RANKS};
        int exit_status = -1;
        CHECK_OK(sherd_spawn(&exit_status, &options, do_inside, (void *)(uintptr_t)&deeds[i]));
        CHECK_EQ(exit_status, 0);
    }
}

static void a_process_opens_many_worlds(void)
{
    check_launched(RANKS, "opens");
    check_launched(RANKS, "becomes");
    setenv("SHERD_ARENA_BYTES", "16M", 1);
    check_launched(RANKS, "fills");
    unsetenv("SHERD_ARENA_BYTES");
}

static void a_rank_without_files_says_so(void)
{
    check_launched(RANKS, "without");
}

static void a_body_that_forks_says_in_the_child_what_it_is(void)
{
    check_launched(RANKS, "returns");
}

static void what_a_carried_rank_starts_is_alone(void)
{
    check_launched(1, "carried");
}

static const check_test tests[] = {
    {TEST(a_launched_rank_may_do_as_it_likes)},
    {TEST(a_spawned_rank_may_do_as_it_likes)},
    {TEST(a_process_opens_many_worlds)},
    {TEST(a_rank_without_files_says_so)},
    {TEST(a_body_that_forks_says_in_the_child_what_it_is)},
    {TEST(what_a_carried_rank_starts_is_alone)},
};

int main(int argc, char **argv)
{
    self = argv[0];
    if (argc > 1 && (getenv("SHERD_RANK") || getenv("SHERD_JOINED") || !strcmp(argv[1], "alone")))
        return play(argv[1]);
    return check_main(tests, LEN(tests), argc > 1 ? argv[1] : NULL);
}
