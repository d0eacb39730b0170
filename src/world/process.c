/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes: forked from this program (sherd_spawn), or started as programs by `sherd run` and
 * joined here. They find the arena as a mapping that they inherit, or through a memfd whose number is in the
 * environment. A few milliseconds for eight ranks.
 */
#include "inside.h"
#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- children --------------------------------------------------------------------------------- */

/* What every child does first: die with its parent, and take signals again. */
static void be_child(pid_t parent, const sigset_t *mask)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

static _Noreturn void run_child(const sherd__launch_plan *plan, int rank)
{
    sherd_status opened = SHERD_OK, closed = SHERD_OK;
    sherd__diag diag = {.rank = -1};
    int value = sherd__run_rank(plan, rank, &opened, &closed, &diag);

    fflush(NULL);
    if (opened)
        _exit(1);
    _exit(value && (value & 0xFF) == 0 ? 1 : value & 0xFF);
}

/* The environment of a launched program. */
static bool set_environment(int fd, int rank, int ranks)
{
    char text[3][16];

    snprintf(text[0], sizeof text[0], "%d", fd);
    snprintf(text[1], sizeof text[1], "%d", rank);
    snprintf(text[2], sizeof text[2], "%d", ranks);
    return setenv("SHERD_ARENA_FD", text[0], 1) == 0 && setenv("SHERD_RANK", text[1], 1) == 0 &&
           setenv("SHERD_RANKS", text[2], 1) == 0 && fcntl(fd, F_SETFD, 0) == 0;
}

static _Noreturn void run_program(char *const argv[], int fd, int rank, int ranks, int report)
{
    if (set_environment(fd, rank, ranks))
        execvp(argv[0], argv);
    int reason = errno;
    if (write(report, &reason, sizeof reason) < 0)
        _exit(126);
    _exit(127);
}

static void end_children(sherd__child *child, int count)
{
    for (int r = 0; r < count; r++)
        kill(child[r].pid, SIGKILL);
    for (int r = 0; r < count; r++)
        waitpid(child[r].pid, NULL, 0);
}

/* ---- sherd_spawn ------------------------------------------------------------------------------ */

/* What the world came to: the end, or what the last check said. */
static sherd_status outcome(const sherd__arena *arena, int ranks, sherd__diag *diag)
{
    uint64_t word = sherd__look(&arena->control->death);

    if (word) {
        diag->status = sherd__status_in(word);
        sherd__end_text(arena->control, word, diag->text, sizeof diag->text);
        return diag->status;
    }
    for (int r = 0; r < ranks; r++)
        if (arena->control->post[r].last_status) {
            diag->status = arena->control->post[r].last_status;
            memcpy(diag->text, arena->control->post[r].last_text, sizeof diag->text);
            return diag->status;
        }
    return SHERD_OK;
}

sherd_status sherd__spawn_processes(int *exit_status, const sherd__launch_plan *plan,
                                    sherd__diag *diag)
{
    sherd__child child[SHERD_MAX_RANKS] = {{0}};
    sherd__arena arena = plan->arena;
    sigset_t set, mask;
    pid_t parent = getpid();
    int signal = 0;
    sherd_status status = SHERD_OK;

    fflush(NULL); /* or each child would write what is buffered again */
    sherd__ending_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &mask);
    for (int r = 0; r < plan->ranks && !status; r++) {
        child[r].pid = fork();
        if (child[r].pid == 0) {
            be_child(parent, &mask);
            run_child(plan, r);
        }
        if (child[r].pid < 0) {
            status =
                sherd__fail(diag, SHERD_ENOMEM, "sherd_spawn: process %d of %d does not start: %s",
                            r, plan->ranks, strerror(errno));
            end_children(child, r);
        }
    }
    if (!status) {
        signal = sherd__watch(&arena, child, plan->ranks);
        *exit_status = sherd__exit_status(&arena, child, plan->ranks);
        status = outcome(&arena, plan->ranks, diag);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (signal)
        raise(signal); /* it was for this process too */
    return status;
}

/* ---- sherd run -------------------------------------------------------------------------------- */

/* Forks all, and waits until they have become the program; if one can not, none is left. */
static sherd_status start_programs(sherd__child *child, int ranks, char *const argv[], int fd,
                                   const sigset_t *mask, sherd__diag *diag)
{
    pid_t parent = getpid();
    int report[2], reason = 0;

    if (pipe2(report, O_CLOEXEC))
        return sherd__fail(diag, SHERD_ENOMEM, "no pipe: %s", strerror(errno));
    for (int r = 0; r < ranks; r++) {
        child[r].pid = fork();
        if (child[r].pid == 0) {
            be_child(parent, mask);
            run_program(argv, fd, r, ranks, report[1]);
        }
        if (child[r].pid < 0) {
            sherd__fail(diag, SHERD_ENOMEM, "process %d of %d does not start: %s", r, ranks,
                        strerror(errno));
            end_children(child, r);
            close(report[0]);
            close(report[1]);
            return SHERD_ENOMEM;
        }
    }
    close(report[1]);
    /* The end of file comes when all have become the program. */
    bool failed = read(report[0], &reason, sizeof reason) == (ssize_t)sizeof reason;
    close(report[0]);
    if (!failed)
        return SHERD_OK;
    end_children(child, ranks);
    return sherd__fail(diag, SHERD_EINVAL, "can not run %s: %s", argv[0], strerror(reason));
}

int sherd__launch(int ranks, char *const argv[], sherd__diag *diag)
{
    sherd__child child[SHERD_MAX_RANKS] = {{0}};
    sherd__arena arena;
    sigset_t set, mask;
    int fd, signal = 0, code = 0;

    if (ranks < 1)
        return sherd__fail(diag, SHERD_EINVAL, "%d ranks: at least 1", ranks);
    if (ranks > SHERD_MAX_RANKS)
        return sherd__fail(diag, SHERD_ELIMIT, "%d ranks, but an arena takes %d", ranks,
                           SHERD_MAX_RANKS);
    if (sherd__arena_create(&arena, ranks, 0, &fd, diag))
        return diag->status;
    sherd__ending_signals(&set);
    sigprocmask(SIG_BLOCK, &set, &mask);
    code = start_programs(child, ranks, argv, fd, &mask, diag);
    close(fd);
    if (!code) {
        signal = sherd__watch(&arena, child, ranks);
        code = sherd__exit_status(&arena, child, ranks);
    }
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sherd__arena_unmap(&arena);
    if (signal)
        raise(signal);
    return signal ? 128 + signal : code;
}

/* ---- in a launched program -------------------------------------------------------------------- */

bool sherd__is_launched(void)
{
    return getenv("SHERD_ARENA_FD") != NULL;
}

static bool read_number(const char *name, int low, int high, int *out)
{
    const char *text = getenv(name);
    char *end = NULL;
    long value = text ? strtol(text, &end, 10) : 0;

    if (!text || end == text || *end || value < low || value > high)
        return false;
    *out = (int)value;
    return true;
}

/* Map the arena that this process was started with, and find its rank. */
static sherd_status find_arena(sherd__arena *arena, int *rank, sherd__diag *diag)
{
    int fd, ranks;

    if (!read_number("SHERD_RANKS", 1, SHERD_MAX_RANKS, &ranks) ||
        !read_number("SHERD_RANK", 0, ranks - 1, rank) ||
        !read_number("SHERD_ARENA_FD", 0, 1 << 30, &fd))
        return sherd__fail(
            diag, SHERD_EINVAL,
            "SHERD_ARENA_FD, SHERD_RANK and SHERD_RANKS are set, but not as `sherd run` "
            "sets them: start the program with it, or unset them");
    if (sherd__arena_map(arena, fd, diag))
        return diag->status;
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* what this program starts is no rank */
    arena->cores = sherd__cores();
    if (arena->control->ranks == ranks)
        return SHERD_OK;
    sherd__fail(diag, SHERD_EINVAL, "SHERD_RANKS is %d, but the arena is of %d ranks", ranks,
                arena->control->ranks);
    sherd__arena_unmap(arena);
    return SHERD_EINVAL;
}

static sherd_status join_launched(sherd_world **out, const sherd__arena *arena, bool owns, int rank,
                                  const sherd_world_options *options, sherd__diag *diag)
{
    sherd__pinning before = {.pinned = false};

    if (atomic_load(&arena->control->post[rank].presence) == SHERD__PRESENT)
        return sherd__fail(diag, SHERD_EINVAL, "this process has joined its world already");
    if (!options->no_pin && arena->control->ranks > 1 && arena->control->ranks <= arena->cores)
        before = sherd__pin(rank);
    sherd_status status = sherd__world_join(out, arena, owns, rank, options, diag);
    if (status)
        sherd__unpin(&before);
    else
        (*out)->pinning = before;
    return status;
}

sherd_status sherd_world_open(sherd_world **out, const sherd_world_options *options)
{
    static const sherd_world_options none;
    sherd__diag diag = {.rank = -1};
    sherd__arena arena;
    int rank;

    if (!out || !sherd__is_launched())
        return sherd_world_alone(out, options);
    *out = NULL;
    sherd_status status = find_arena(&arena, &rank, &diag);
    if (!status) {
        status = join_launched(out, &arena, true, rank, options ? options : &none, &diag);
        if (status)
            sherd__arena_unmap(&arena);
    }
    if (status && options && options->error)
        snprintf(options->error, SHERD_ERROR_BYTES, "%s", diag.text);
    return status;
}

sherd_status sherd__spawn_here(int *exit_status, const sherd__launch_plan *plan, sherd__diag *diag)
{
    sherd__arena arena;
    sherd_world *world;
    int rank;

    sherd_status status = find_arena(&arena, &rank, diag);
    if (status)
        return status;
    status = join_launched(&world, &arena, false, rank, plan->options, diag);
    if (!status) {
        world->lent = true;
        *exit_status = plan->body(world, plan->payload);
        status = sherd__world_close(world);
        diag->status = status;
        memcpy(diag->text, arena.control->post[rank].last_text, sizeof diag->text);
    }
    sherd__arena_unmap(&arena);
    return status;
}
