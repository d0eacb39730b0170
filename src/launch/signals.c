/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signals of a process that watches over ranks. For as long as it does so it reads those that
 * end it, and those that it passes on, from a descriptor, and must be told of its children's ends,
 * whatever the program (or whoever started it) does with SIGCHLD. Afterwards, and in each child,
 * all is as it was. Signals that were ignored stay ignored, as `nohup` wants it.
 */
#include "watch.h"
#include "world/inside.h"

#include "base/variable.h"

#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { GRACE_SECONDS = 10 };

static const int ending[] = {SIGINT, SIGTERM, SIGHUP}, passed[] = {SIGUSR1, SIGUSR2};

/* ---- taking them ----------------------------------------------------------------------------- */

static bool does(int signal, void (*what)(int))
{
    struct sigaction action;

    return sigaction(signal, NULL, &action) == 0 && !(action.sa_flags & SA_SIGINFO) &&
           action.sa_handler == what;
}

void sherd__signals_take(sherd__signals *out, bool launcher)
{
    struct sigaction usual = {.sa_handler = SIG_DFL}, ignore = {.sa_handler = SIG_IGN};

    sigprocmask(SIG_BLOCK, NULL, &out->mask);
    sigemptyset(&out->taken);
    for (size_t i = 0; i < sizeof ending / sizeof ending[0]; i++)
        if (!does(ending[i], SIG_IGN))
            sigaddset(&out->taken, ending[i]);
    /* A program that uses these for itself keeps them. */
    for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
        if (does(passed[i], SIG_DFL) && sigismember(&out->mask, passed[i]) == 0)
            sigaddset(&out->taken, passed[i]);
    sigprocmask(SIG_BLOCK, &out->taken, NULL);
    /* Where it is ignored the kernel throws the exit status of each child away. */
    sigemptyset(&usual.sa_mask);
    sigaction(SIGCHLD, &usual, &out->child);
    /* A reader that is gone is the ranks' business; this process has to see them end. */
    sigemptyset(&ignore.sa_mask);
    sigaction(SIGPIPE, launcher ? &ignore : NULL, &out->pipe);
}

void sherd__signals_give_back(const sherd__signals *signals)
{
    sigaction(SIGCHLD, &signals->child, NULL);
    sigaction(SIGPIPE, &signals->pipe, NULL);
    sigprocmask(SIG_SETMASK, &signals->mask, NULL);
}

/* ---- passing them on ------------------------------------------------------------------------- */

void sherd__kill_rank(const sherd__child *child, int signal)
{
    /* The rank before its wrapper, which may end at once and leave it alone. */
    sherd__wrapped_kill(child, signal);
    if (!child->ended)
        kill(child->pid, signal);
}

void sherd__kill_all(const sherd__rank_watch *w, int signal)
{
    for (int r = 0; r < w->ranks; r++)
        sherd__kill_rank(&w->child[r], signal);
}

/* Whether a process has had a signal already, which a terminal has sent to its whole foreground
 * group. */
static bool has_had(const struct signalfd_siginfo *info, int pid)
{
    return info->ssi_code == SI_KERNEL && getpgid(pid) == getpgrp();
}

/* One of those that end this process is for all. */
static void end_all(sherd__rank_watch *w, const struct signalfd_siginfo *info)
{
    if (!w->signal) {
        w->lost_first = sherd__look(&w->arena->control->death) != 0;
        w->signal = (int)info->ssi_signo;
    }
    for (int r = 0; r < w->ranks; r++) {
        const sherd__child *child = &w->child[r];
        if (child->inner.lives && !has_had(info, child->inner.pid))
            sherd__wrapped_kill(child, (int)info->ssi_signo);
        if (!child->ended && !has_had(info, child->pid))
            kill(child->pid, (int)info->ssi_signo);
    }
    sherd__kill_all(w, SIGCONT);
    sherd__set_grace(w);
}

/* Whether a child is the rank itself. What has not joined yet may be a wrapper. */
static bool is_rank(const sherd__rank_watch *w, int rank)
{
    return !w->launcher ||
           sherd__look(&w->arena->control->post[rank].pid) == (uint64_t)w->child[rank].pid;
}

/*
 * SIGUSR2 goes to the ranks; SIGUSR1, which somebody may send who only wants to look, to those that
 * handle it, because by default it kills. A wrapper gets either only if it handles it.
 */
static void pass_on(const sherd__rank_watch *w, int signal)
{
    for (int r = 0; r < w->ranks; r++) {
        const sherd__child *child = &w->child[r];
        const sherd__wrapped *inner = &child->inner;
        if (inner->lives && (signal == SIGUSR2 || sherd__catches(inner->pid, signal)))
            sherd__wrapped_kill(child, signal);
        if (!child->ended &&
            ((signal == SIGUSR2 && is_rank(w, r)) || sherd__catches(child->pid, signal)))
            kill(child->pid, signal);
    }
}

bool sherd__signals_next(const sherd__signals *signals, int fd, struct signalfd_siginfo *out)
{
    const struct timespec at_once = {0, 0};
    siginfo_t info;

    if (fd >= 0)
        return read(fd, out, sizeof *out) == (ssize_t)sizeof *out;
    int signal = sigtimedwait(&signals->taken, &info, &at_once);
    if (signal <= 0)
        return false;
    memset(out, 0, sizeof *out);
    out->ssi_signo = (uint32_t)signal;
    out->ssi_code = info.si_code;
    return true;
}

void sherd__read_signals(sherd__rank_watch *w)
{
    struct signalfd_siginfo info;

    for (int r = 0; r < w->ranks; r++)
        sherd__wrapped_find(&w->child[r], &w->arena->control->post[r], w->space);
    while (sherd__signals_next(w->signals, w->signal_fd, &info))
        if (info.ssi_signo == SIGUSR1 || info.ssi_signo == SIGUSR2) {
            if (info.ssi_signo == SIGUSR1)
                sherd__recorder_asked(w);
            pass_on(w, (int)info.ssi_signo);
        } else {
            end_all(w, &info);
        }
}

/* ---- how long ranks have to end by themselves ------------------------------------------------ */

sherd_status sherd__grace_read(int64_t *nanoseconds, sherd__diag *diag)
{
    const char *text = sherd__variable("SHERD_GRACE");
    long seconds = GRACE_SECONDS;

    if (text && !sherd__read_seconds(&seconds, text))
        return sherd__fail(diag, SHERD_EINVAL, "SHERD_GRACE=%.40s: expected seconds, 0 to 1000000",
                           text);
    *nanoseconds = (int64_t)seconds * 1000000000;
    return SHERD_OK;
}

void sherd__set_grace(sherd__rank_watch *w)
{
    if (!w->kill_at)
        w->kill_at = sherd__now() + w->grace_ns;
}
