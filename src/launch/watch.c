/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching over ranks that are processes. The parent does nothing else: it sleeps on their pidfds,
 * and ten times a second asks whether one is stopped. A rank that dies ends the world for all, so
 * that the next wait of every other rank ends, within milliseconds. They have some time then
 * (SHERD_GRACE), to save what they have, and so they have after a signal that ends the parent; who
 * is still there afterwards is killed. If the parent dies, the kernel kills the ranks
 * (PR_SET_PDEATHSIG, set by each of them; lifeline.c).
 */
#include "watch.h"
#include "world/inside.h"

#include "base/num.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    TICK_BLIND_MS = 10, /* where the kernel has no pidfds, or there are no more descriptors */
    STOPPED_MS = 500,   /* a rank that is stopped for longer counts as dead */
    MS = 1000000
};

/* What is said of a rank that ended in a way that lack of memory may be behind. */
static int with_cause(const sherd__rank_watch *w, sherd__end end, int value)
{
    bool may_be = end == SHERD__END_VANISHED || (end == SHERD__END_KILLED && value == SIGKILL);

    return may_be && w->oom_kills >= 0 && sherd__oom_kills() > w->oom_kills
               ? value | SHERD__OUT_OF_MEMORY
               : value;
}

/* A rank is lost: end the world for all, and say so once. */
static void lose(sherd__rank_watch *w, sherd__end end, int rank, int value)
{
    char text[SHERD_ERROR_BYTES];
    uint64_t word = sherd__end_word(end, rank, with_cause(w, end, value), SHERD_EPEER);
    bool first = !sherd__look(&w->arena->control->death);

    /* A terminal's signal has reached all: then it is the cause, and not the rank that died of it
     * first. */
    sherd__read_signals(w);
    if (first)
        sherd__recorder_lose(w, word);
    sherd__end_world(w->arena, word);
    if (first && !w->signal && !w->launcher && sherd__look(&w->arena->control->death) == word) {
        sherd__end_text(w->arena->control, word, text, sizeof text);
        fprintf(stderr, "sherd: %s\n", text);
    }
    sherd__set_grace(w);
}

/* The rank and its wrapper. */
static bool has_ended(const sherd__child *child)
{
    return child->ended && !child->inner.lives;
}

static unsigned presence_of(const sherd__rank_watch *w, int rank)
{
    return atomic_load(&w->arena->control->post[rank].presence);
}

/* Look after a rank behind a wrapper; only the wrapper knows how it ended. */
static void look_behind(sherd__rank_watch *w, int rank)
{
    sherd__child *child = &w->child[rank];
    const sherd__post *post = &w->arena->control->post[rank];

    if (sherd__wrapped_find(child, post, w->space) && w->signal)
        sherd__wrapped_kill(child, w->signal); /* it joined too late to get it */
    sherd__wrapped_look(child);
    if (child->inner.pid && !child->inner.lives && presence_of(w, rank) == SHERD__PRESENT &&
        sherd__look(&post->pid) == (uint64_t)child->inner.pid)
        lose(w, SHERD__END_VANISHED, rank, 0);
}

/*
 * Somebody else in this program has taken the status of a child: the rank's own word counts. One
 * that has closed its world without leaving a value is a program, and has ended well as far as
 * anybody knows.
 */
static void note_lost_end(sherd__rank_watch *w, int rank)
{
    sherd__child *child = &w->child[rank];
    uint64_t value = sherd__look(&w->arena->control->post[rank].value);

    child->ended = true;
    child->code = value ? (int)value - 1 : presence_of(w, rank) == SHERD__GONE ? 0 : 1;
    if (presence_of(w, rank) == SHERD__PRESENT && !child->inner.lives)
        lose(w, SHERD__END_VANISHED, rank, 0);
}

static void note_end(sherd__rank_watch *w, int rank, const siginfo_t *info)
{
    sherd__child *child = &w->child[rank];
    bool killed = info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;

    look_behind(w, rank); /* it may have joined just now */
    child->ended = true;
    child->signal = killed ? info->si_status : 0;
    child->code = killed ? 128 + info->si_status : info->si_status;
    if (w->signal && child->inner.lives)
        return; /* a wrapper that did not wait for its rank, which may have to save something */
    if (killed)
        lose(w, SHERD__END_KILLED, rank, info->si_status);
    else if (presence_of(w, rank) == SHERD__PRESENT && !child->inner.lives)
        lose(w, SHERD__END_EXITED, rank, info->si_status);
}

/* A rank that is stopped for long counts as dead. */
static void look_if_stopped(sherd__rank_watch *w, int rank)
{
    sherd__child *child = &w->child[rank];
    bool itself = !child->ended && child->stopped_since;
    int64_t since = itself ? child->stopped_since : child->inner.stopped_since;

    if (!since || sherd__now() - since <= (int64_t)STOPPED_MS * MS)
        return;
    lose(w, SHERD__END_STOPPED, rank, itself ? child->stop_signal : SIGSTOP);
    sherd__kill_rank(child, SIGKILL);
}

/* A time, if it is one, so much later, but no later than `most`. */
static int64_t put_off(int64_t at, int64_t by, int64_t most)
{
    return at ? sherd__min(at + by, most) : 0;
}

/*
 * A round counts as at most one tick: time in which this process was stopped itself, as all of a
 * job that is suspended are, was not theirs.
 */
static void begin_round(sherd__rank_watch *w)
{
    int64_t now = sherd__now(), away = w->round ? now - w->round - (int64_t)TICK_MS * MS : 0;

    w->round = now;
    if (away <= 0)
        return;
    for (int r = 0; r < w->ranks; r++) {
        sherd__child *child = &w->child[r];
        child->stopped_since = put_off(child->stopped_since, away, now);
        child->inner.stopped_since = put_off(child->inner.stopped_since, away, now);
    }
    w->kill_at = put_off(w->kill_at, away, now + w->grace_ns);
}

/* What the kernel has to tell of a child: that it was stopped, goes on, or has ended. */
static void reap(sherd__rank_watch *w, int rank)
{
    sherd__child *child = &w->child[rank];
    siginfo_t info;

    while (!child->ended) {
        memset(&info, 0, sizeof info);
        if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WSTOPPED | WCONTINUED | WNOHANG)) {
            note_lost_end(w, rank);
            return;
        }
        if (info.si_pid == 0)
            break;
        if (info.si_code == CLD_STOPPED) {
            child->stopped_since = sherd__now();
            child->stop_signal = info.si_status;
        } else if (info.si_code == CLD_CONTINUED) {
            child->stopped_since = 0;
        } else if (info.si_code != CLD_TRAPPED) {
            note_end(w, rank, &info);
        }
    }
}

/*
 * The launcher is the first process of some containers, and gets their orphans: nobody else waits
 * for those, and what nobody waits for stays.
 */
static void reap_orphans(const sherd__rank_watch *w)
{
    bool ours = !w->launcher;
    siginfo_t info;

    while (!ours) {
        memset(&info, 0, sizeof info);
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid == 0)
            return;
        for (int r = 0; r < w->ranks; r++)
            ours |= w->child[r].pid == info.si_pid && !w->child[r].ended; /* the next round's */
        if (!ours)
            (void)waitpid(info.si_pid, NULL, WNOHANG);
    }
}

/*
 * A rank that ended without ever opening its world is lost only if others opened theirs; one that
 * has closed it, if others have come to a meeting since, of the next world.
 */
static void look_for_missing(sherd__rank_watch *w)
{
    const sherd__post *post = w->arena->control->post;
    uint64_t latest = 0;
    bool opened = false;

    for (int r = 0; r < w->ranks; r++) {
        uint64_t arrived = sherd__look(&post[r].arrived);
        opened |= presence_of(w, r) != SHERD__ABSENT;
        latest = arrived > latest ? arrived : latest;
    }
    for (int r = 0; opened && r < w->ranks; r++)
        if (has_ended(&w->child[r]) &&
            (presence_of(w, r) == SHERD__ABSENT || sherd__look(&post[r].arrived) < latest))
            lose(w, SHERD__END_EXITED, r, w->child[r].code);
}

static nfds_t add_fd(struct pollfd *fds, nfds_t count, int fd)
{
    if (fd >= 0)
        fds[count++] = (struct pollfd){.fd = fd, .events = POLLIN};
    return count;
}

/* Only descriptors that there are: poll refuses a list that is longer than a process may have
 * files. */
static void sleep_a_while(sherd__rank_watch *w)
{
    struct pollfd *fds = w->fds;
    nfds_t count = add_fd(fds, 0, w->signal_fd);
    bool blind = w->signal_fd < 0;

    for (int r = 0; r < w->ranks; r++) {
        const sherd__child *child = &w->child[r];
        if (!child->ended) {
            blind |= child->fd < 0;
            count = add_fd(fds, count, child->fd);
        }
        if (child->inner.lives)
            count = add_fd(fds, count, child->inner.fd);
    }
    nfds_t all = count + (nfds_t)(w->output ? sherd__output_poll(w->output, fds + count) : 0);
    int ready = poll(fds, all, blind ? TICK_BLIND_MS : TICK_MS);
    if (w->signal_fd < 0 || ready < 0 || fds[0].revents)
        sherd__read_signals(w);
    if (ready <= 0)
        return;
    if (w->output)
        sherd__output_move(w->output, fds + count);
}

static bool all_ended(const sherd__rank_watch *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (!has_ended(&w->child[r]))
            return false;
    return true;
}

static void open_fds(sherd__rank_watch *w)
{
    w->signal_fd = signalfd(-1, &w->signals->taken, SFD_CLOEXEC | SFD_NONBLOCK);
    w->space = sherd__pid_space();
    w->oom_kills = sherd__oom_kills();
    for (int r = 0; r < w->ranks; r++) {
        w->child[r].fd = (int)syscall(SYS_pidfd_open, w->child[r].pid, 0);
        w->child[r].inner.fd = -1;
    }
}

static void close_fds(const sherd__rank_watch *w)
{
    if (w->signal_fd >= 0)
        close(w->signal_fd);
    for (int r = 0; r < w->ranks; r++) {
        if (w->child[r].fd >= 0)
            close(w->child[r].fd);
        sherd__wrapped_drop(&w->child[r]);
    }
}

void sherd__watch_all(sherd__rank_watch *w)
{
    open_fds(w);
    for (;;) {
        begin_round(w);
        for (int r = 0; r < w->ranks; r++) {
            look_behind(w, r);
            reap(w, r);
            look_if_stopped(w, r);
        }
        reap_orphans(w);
        look_for_missing(w);
        sherd__recorder_look(w);
        if (all_ended(w))
            break;
        if (sherd__look(&w->arena->control->death))
            sherd__set_grace(w);
        if (w->kill_at && sherd__now() > w->kill_at)
            sherd__kill_all(w, SIGKILL);
        sleep_a_while(w);
    }
    /* Whoever reads the output takes his time; who ended this process does not want to wait for
     * that. */
    while (w->output && sherd__output_remains(w->output) &&
           !(w->signal && sherd__now() > w->kill_at))
        sleep_a_while(w);
    close_fds(w);
}
