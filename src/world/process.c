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
    int value = sherd__run_rank(plan, rank, &opened, &closed, &diag);

    fflush(NULL);
    if (opened)
        _exit(1);
    _exit(sherd__exit_code(value));
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
    sherd__signals signals;
    pid_t parent = getpid();
    int signal = 0;
    sherd_status status = SHERD_OK;

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
        sherd__watch watch = {
            .arena = &arena, .child = child, .ranks = plan->ranks, .signals = &signals};
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
static sherd_status start_programs(sherd__child *child, int ranks, char *const argv[], int fd,
                                   const sherd__signals *signals, sherd__diag *diag)
{
    pid_t parent = getpid();
    int report[2], reason = 0;

    if (pipe2(report, O_CLOEXEC))
        return sherd__fail(diag, SHERD_ENOMEM, "no pipe: %s", strerror(errno));
    for (int r = 0; r < ranks; r++) {
        child[r].pid = fork();
        if (child[r].pid == 0) {
            be_child(parent, signals);
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

int sherd__launch(const sherd__launch_options *options, sherd__diag *diag)
{
    sherd__child child[SHERD_MAX_RANKS] = {{0}};
    sherd__arena arena;
    sherd__signals signals;
    int fd, code = 0, ranks = options->ranks;
    sherd__watch watch = {
        .arena = &arena, .child = child, .ranks = ranks, .signals = &signals, .launcher = true};

    if (ranks < 1)
        return sherd__fail(diag, SHERD_EINVAL, "%d ranks: at least 1", ranks);
    if (ranks > SHERD_MAX_RANKS)
        return sherd__fail(diag, SHERD_ELIMIT, "%d ranks, but an arena takes %d", ranks,
                           SHERD_MAX_RANKS);
    if (sherd__arena_create(&arena, ranks, 0, &fd, diag))
        return diag->status;
    sherd__signals_take(&signals);
    code = start_programs(child, ranks, options->argv, fd, &signals, diag);
    close(fd);
    if (!code) {
        sherd__watch_all(&watch);
        code = sherd__exit_status(&arena, child, ranks);
        say_cause(&watch, code);
    }
    sherd__signals_give_back(&signals);
    sherd__arena_unmap(&arena);
    if (watch.signal)
        raise(watch.signal);
    return watch.signal ? 128 + watch.signal : code;
}
