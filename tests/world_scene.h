/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scenes with ranks as processes: each forks a parent that starts ranks, as a program would; the
 * test looks on: what is printed, which status comes out, how long it takes, and whether a process
 * is left.
 */
#ifndef SHERD_WORLD_SCENE_H
#define SHERD_WORLD_SCENE_H

#define CHECK_PURE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "check.h"
#include "launch/launch.h"
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
static const char *self;     /* this program */
static void (*before)(void); /* what the parent does before it starts ranks; NULL = nothing */

/* How a scene ended. */
typedef struct ending {
    int status; /* of the parent: exit status, or 128 + signal */
    double seconds;
    bool left; /* a process outlived it */
    char err[TEXT];
} ending;

typedef int (*part)(sherd_world *world, void *payload);

/* Seconds: less than ranks have to end when one has died (SHERD_GRACE, 10), and than any time-out,
 * which are waited out where an end is not noticed; and long on a full machine. */
static const double soon = 8;

/* ---- helpers --------------------------------------------------------------------------------- */

static inline void sleep_for(double s)
{
    nanosleep(&(struct timespec){(time_t)s, (long)(1e9 * (s - (double)(time_t)s))}, NULL);
}

static inline bool wait_ready(int count, double limit)
{
    double end = seconds() + limit;

    while (atomic_load(&shown->ready) < count && seconds() < end)
        sleep_for(0.002);
    return atomic_load(&shown->ready) >= count;
}

/* What does not look at its world for so long; asleep, as others need the cores. */
static inline void compute(double s)
{
    double end = seconds() + s;
    while (seconds() < end)
        sleep_for(0.001);
}

static inline int open_files(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

static inline int spawn(int ranks, sherd_ranks_as as, part body, int *exit_status)
{
    sherd_world_options options = {
        .ranks = ranks, .as = as, .no_pin = true, .seed = 3, .error = shown->spawn_text};
    return sherd_spawn(exit_status, &options, body, NULL);
}

/* The process that starts the ranks; its standard error goes to `err`. */
static inline pid_t start_scene(int err, int ranks, part body, const char *mode)
{
    memset(shown, 0, sizeof *shown);
    for (int r = 0; r < CHECK_RANKS; r++)
        atomic_store(&shown->status[r], 1);
    fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    dup2(err, 2);
    if (before)
        before();
    if (mode) {
        sherd__diag diag = {.rank = -1};
        char *argv[] = {(char *)(uintptr_t)self, (char *)(uintptr_t)mode, NULL};
        if (strcmp(mode, "missing") == 0)
            argv[0] = (char *)(uintptr_t) "/no/such/program";
        int code = sherd__launch(&(sherd__launch_options){.ranks = ranks, .argv = argv}, &diag);
        snprintf(shown->spawn_text, sizeof shown->spawn_text, "%s", diag.text);
        atomic_store(&shown->spawn_status, diag.status);
        _exit(code < 0 ? 99 : code);
    }
    int exit_status = -1, files = open_files();
    atomic_store(&shown->spawn_status, spawn(ranks, SHERD_PROCESSES, body, &exit_status));
    atomic_store(&shown->exit_status, exit_status);
    _exit(open_files() == files ? 0 : 98);
}

static inline bool anybody_left(double limit)
{
    double end = seconds() + limit;
    bool late = false;

    for (pid_t pid; (pid = waitpid(-1, NULL, WNOHANG)) >= 0;) {
        if (pid > 0)
            continue;
        if (late)
            return true;
        late = seconds() >= end; /* then they are looked for once more */
        sleep_for(0.005);
    }
    return false;
}

static inline ending end_scene(pid_t pid, int err, double begin, double patience)
{
    ending e = {.status = -1};
    int status = 0;

    waitpid(pid, &status, 0);
    e.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    e.left = anybody_left(patience);
    e.seconds = seconds() - begin;
    if (pread(err, e.err, TEXT - 1, 0) < 0)
        e.err[0] = '\0';
    close(err);
    return e;
}

static inline int memory_file(void)
{
    int fd = memfd_create("err", MFD_CLOEXEC);

    fcntl(fd, F_SETFL, O_APPEND); /* or ranks that write at once overwrite each other's lines */
    return fd;
}

static inline ending play(int ranks, part body, const char *mode)
{
    int err = memory_file();
    double begin = seconds();
    return end_scene(start_scene(err, ranks, body, mode), err, begin, 0.5);
}

static inline void tell(sherd_world *world, sherd_status status)
{
    int me = sherd_world_rank(world);

    atomic_store(&shown->status[me], status);
    snprintf(shown->text[me], SHERD_ERROR_BYTES, "%s", sherd_world_error(world));
}

static inline const sherd_mesh *line_of_ranks(sherd_world *world)
{
    const sherd_mesh *mesh = NULL;

    if (sherd_mesh_create(&mesh, world, 1, (int64_t[]){sherd_world_ranks(world)}, NULL, NULL))
        return NULL;
    atomic_store(&shown->pid[sherd_world_rank(world)], getpid());
    atomic_fetch_add(&shown->ready, 1);
    return mesh;
}

static inline bool share(sherd_world *world, const sherd_mesh *mesh)
{
    int64_t mine = 1, all[SHERD_MAX_RANKS];
    return mesh && sherd__share(world, mesh, "share", &mine, 1, all);
}

static inline void set_scene(const char *program)
{
    shown = mmap(NULL, sizeof *shown, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    self = program;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
}

#endif
