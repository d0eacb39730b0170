/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks as processes that are forked from this program (sherd_spawn). They inherit the mapping of
 * the arena. A few milliseconds for eight ranks.
 */
#include "launch.h"
#include "watch.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- children -------------------------------------------------------------------------------- */

/* What every child does first: die with its parent, and take signals again. */
void sherd__be_child(int parent, const sherd__signals *signals)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    sherd__signals_give_back(signals);
}

static _Noreturn void run_child(const sherd__launch_plan *plan, int rank)
{
    sherd_status opened = SHERD_OK;
    sherd__diag diag = {.rank = -1};
    sherd__core_locks parents = plan->cores;
    sherd__arena arena = plan->arena;

    sherd__cores_give(&parents);
    int value = sherd__run_rank(plan, rank, &opened, &diag);

    fflush(NULL);
    /* Tools that look at all memory at a process's end (valgrind) would touch each of its pages. */
    sherd__arena_unmap(&arena);
    if (opened)
        _exit(1);
    _exit(sherd__exit_code(value));
}

void sherd__end_children(const sherd__child *child, int count)
{
    for (int r = 0; r < count; r++)
        kill(child[r].pid, SIGKILL);
    for (int r = 0; r < count; r++)
        while (waitpid(child[r].pid, NULL, 0) < 0 && errno == EINTR)
            ;
}

/* ---- sherd_spawn ----------------------------------------------------------------------------- */

/* `child`: one a rank; `fds`: see sherd__rank_watch. */
static sherd_status spawn_and_watch(int *exit_status, const sherd__launch_plan *plan,
                                    sherd__child *child, struct pollfd *fds, sherd__diag *diag)
{
    sherd__arena arena = plan->arena;
    sherd__signals signals;
    pid_t parent = getpid();
    int signal = 0;
    int64_t grace_ns;
    sherd_status status = sherd__grace_read(&grace_ns, diag);

    if (status)
        return status;
    fflush(NULL); /* or each child would write what is buffered again */
    sherd__signals_take(&signals, false);
    for (int r = 0; r < plan->ranks && !status; r++) {
        child[r].pid = fork();
        if (child[r].pid == 0) {
            sherd__be_child(parent, &signals);
            run_child(plan, r);
        }
        if (child[r].pid < 0) {
            status =
                sherd__fail(diag, SHERD_ENOMEM, "sherd_spawn: process %d of %d does not start: %s",
                            r, plan->ranks, strerror(errno));
            sherd__end_children(child, r);
        }
    }
    if (!status) {
        sherd__rank_watch watch = {.arena = &arena,
                                   .child = child,
                                   .fds = fds,
                                   .ranks = plan->ranks,
                                   .signals = &signals,
                                   .grace_ns = grace_ns};
        sherd__watch_all(&watch);
        signal = watch.signal;
        *exit_status = sherd__exit_status(&arena, child, plan->ranks);
        status = sherd__outcome(&arena, plan->ranks, diag);
    }
    sherd__signals_give_back(&signals);
    if (signal)
        raise(signal); /* it was for this process too */
    return status;
}

/* Who spawns may be a thread with a small stack. */
sherd_status sherd__spawn_processes(int *exit_status, const sherd__launch_plan *plan,
                                    sherd__diag *diag)
{
    sherd__heap heap = {0};
    size_t ranks = (size_t)plan->ranks;
    sherd__child *child = sherd__alloc(&heap, ranks, sizeof *child);
    struct pollfd *fds = sherd__alloc(&heap, 2 * ranks + 1, sizeof *fds);
    sherd_status status;

    if (child && fds)
        status = spawn_and_watch(exit_status, plan, child, fds, diag);
    else
        status = sherd__no_memory(diag, "sherd_spawn");
    sherd__free(&heap, fds);
    sherd__free(&heap, child);
    return status;
}
