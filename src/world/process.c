/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starting ranks as processes: forked from this program (sherd_spawn), or as programs (`sherd run`). They find the
 * arena as a mapping that they inherit, or through a memfd whose number is in the environment (join.c). A few
 * milliseconds for eight ranks.
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
static void be_child(pid_t parent, const sherd__signals *signals)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sherd__signals_give_back(signals);
}

static _Noreturn void run_child(const sherd__launch_plan *plan, int rank)
{
    sherd_status opened = SHERD_OK, closed = SHERD_OK;
    sherd__diag diag = {.rank = -1};
    sherd__core_locks parents = plan->cores;

    sherd__cores_give(&parents);
    int value = sherd__run_rank(plan, rank, &opened, &closed, &diag);

    fflush(NULL);
    if (opened)
        _exit(1);
    _exit(sherd__exit_code(value));
}

/* What all programs of a launch are started with. */
typedef struct launch {
    const sherd__launch_options *options;
    const sherd__control *control;
    const sherd__signals *signals;
    int64_t grace_ns;
    int fd; /* of the arena */
} launch;

static bool set_number(const char *name, int value)
{
    char text[16];

    snprintf(text, sizeof text, "%d", value);
    return setenv(name, text, 1) == 0;
}

/* The environment and the files of a launched program; join.c reads them. */
static bool set_environment(const launch *l, int rank)
{
    char launcher[64];

    snprintf(launcher, sizeof launcher, "%d %llu", l->control->launcher,
             (unsigned long long)l->control->launcher_start);
    return set_number("SHERD_ARENA_FD", l->fd) && set_number("SHERD_RANK", rank) &&
           set_number("SHERD_RANKS", l->options->ranks) &&
           setenv("SHERD_LAUNCHER", launcher, 1) == 0 && fcntl(l->fd, F_SETFD, 0) == 0 &&
           fcntl(l->control->line, F_SETFD, 0) == 0;
}

static _Noreturn void run_program(const launch *l, int rank, int report)
{
    char *const *argv = l->options->argv;

    if (set_environment(l, rank))
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
    sherd__signals signals;
    pid_t parent = getpid();
    int signal = 0;
    int64_t grace_ns;
    sherd_status status = sherd__grace_read(&grace_ns, diag);

    if (status)
        return status;
    fflush(NULL); /* or each child would write what is buffered again */
    sherd__signals_take(&signals);
    for (int r = 0; r < plan->ranks && !status; r++) {
        child[r].pid = fork();
        if (child[r].pid == 0) {
            be_child(parent, &signals);
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
        sherd__watch watch = {.arena = &arena,
                              .child = child,
                              .ranks = plan->ranks,
                              .signals = &signals,
                              .grace_ns = grace_ns};
        sherd__watch_all(&watch);
        signal = watch.signal;
        *exit_status = sherd__exit_status(&arena, child, plan->ranks);
        status = outcome(&arena, plan->ranks, diag);
    }
    sherd__signals_give_back(&signals);
    if (signal)
        raise(signal); /* it was for this process too */
    return status;
}

/* ---- sherd run -------------------------------------------------------------------------------- */

/* Forks all, and waits until they have become the program; if one can not, none is left. */
static sherd_status start_programs(sherd__child *child, const launch *l, sherd__diag *diag)
{
    pid_t parent = getpid();
    int report[2], reason = 0, ranks = l->options->ranks;

    if (pipe2(report, O_CLOEXEC))
        return sherd__fail(diag, SHERD_ENOMEM, "no pipe: %s", strerror(errno));
    for (int r = 0; r < ranks; r++) {
        child[r].pid = fork();
        if (child[r].pid == 0) {
            be_child(parent, l->signals);
            run_program(l, r, report[1]);
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
    return sherd__fail(diag, SHERD_EINVAL, "can not run %s: %s", l->options->argv[0],
                       strerror(reason));
}

/* The last line: why the exit status is not 0. */
static void say_cause(const sherd__watch *watch, int code)
{
    char text[2 * SHERD_ERROR_BYTES];

    if (watch->signal && !watch->lost_first)
        snprintf(text, sizeof text, "ended by signal %d (%s)", watch->signal,
                 sherd__signal_name(watch->signal));
    else if (code)
        sherd__cause_text(watch->arena, watch->child, text, sizeof text);
    else
        return;
    fprintf(stderr, "sherd: %s\n", text);
}

/* Start, watch, and say why if it did not go well: the exit status, or a failure to start. */
static int run(const launch *l, sherd__arena *arena, int *signal, sherd__diag *diag)
{
    sherd__child child[SHERD_MAX_RANKS] = {{0}};
    sherd__watch watch = {.arena = arena,
                          .child = child,
                          .ranks = l->options->ranks,
                          .signals = l->signals,
                          .grace_ns = l->grace_ns,
                          .launcher = true};

    sherd__core_locks cores;

    if (l->options->cores && sherd__cores_confine(l->options->cores, diag))
        return diag->status;
    sherd__cores_take(&cores, arena->control);
    sherd_status started = start_programs(child, l, diag);
    if (!started)
        sherd__watch_all(&watch);
    sherd__cores_give(&cores);
    if (started)
        return started;
    *signal = watch.signal;
    int code = sherd__exit_status(arena, child, watch.ranks);
    say_cause(&watch, code);
    return code;
}

/* The arena and the life-line. */
static sherd_status prepare(sherd__arena *arena, int *fd, int line[2], int ranks, sherd__diag *diag)
{
    sherd__process self;

    if (ranks < 1)
        return sherd__fail(diag, SHERD_EINVAL, "%d ranks: at least 1", ranks);
    if (ranks > SHERD_MAX_RANKS)
        return sherd__fail(diag, SHERD_ELIMIT, "%d ranks, but an arena takes %d", ranks,
                           SHERD_MAX_RANKS);
    if (sherd__arena_create(arena, ranks, 0, fd, diag))
        return diag->status;
    (void)sherd__process_look(0, &self);
    arena->control->launcher = (int)getpid();
    arena->control->launcher_start = self.start;
    arena->control->launcher_space = sherd__pid_space();
    return sherd__lifeline_create(arena->control, line, diag);
}

static void close_all(const int *fds, int count)
{
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

int sherd__launch(const sherd__launch_options *options, sherd__diag *diag)
{
    sherd__arena arena = {.base = NULL};
    sherd__signals signals;
    int fds[3] = {-1, -1, -1},
        signal = 0; /* the arena's, the life-line's two: open until the end */
    int64_t grace_ns;
    int code = sherd__grace_read(&grace_ns, diag);

    if (!code)
        code = prepare(&arena, &fds[0], &fds[1], options->ranks, diag);
    if (!code) {
        const launch l = {options, arena.control, &signals, grace_ns, fds[0]};
        sherd__signals_take(&signals);
        code = run(&l, &arena, &signal, diag);
        sherd__signals_give_back(&signals);
    }
    close_all(fds, 3);
    sherd__arena_unmap(&arena);
    if (signal)
        raise(signal);
    return signal ? 128 + signal : code;
}
