/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching over ranks that are processes. The parent does nothing else: it sleeps on their pidfds, and ten
 * times a second asks whether one is stopped. A rank that dies ends the world for all, so that the next wait of
 * every other rank ends, within milliseconds; who is still there 1.5 s later is killed. If the parent
 * dies, the kernel kills the ranks (PR_SET_PDEATHSIG, set by each of them).
 */
#include "inside.h"
#include "launch.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TICK_MS = 100,
    TICK_BLIND_MS = 10,    /* where the kernel has no pidfds */
    STOPPED_MS = 500,      /* a rank that is stopped for longer counts as dead */
    GRACE_MS = 1500,       /* for survivors of a death, or of a signal to the parent */
    GRACE_TOLD_MS = 10000, /* after an end that a rank told, nobody has died */
    MS = 1000000
};

typedef struct watch {
    sherd__arena *arena;
    sherd__child *child;
    int ranks;
    int signals;     /* signalfd, or -1 */
    int signal;      /* that the parent got; 0 = none */
    int64_t kill_at; /* when survivors are killed; 0 = not yet */
} watch;

static void kill_all(const watch *w, int signal)
{
    for (int r = 0; r < w->ranks; r++)
        if (!w->child[r].ended)
            kill(w->child[r].pid, signal);
}

static void set_grace(watch *w, int64_t ms)
{
    if (!w->kill_at)
        w->kill_at = sherd__now() + ms * MS;
}

/* A rank is lost: end the world for all, and say so once. */
static void lose(watch *w, sherd__end end, int rank, int value)
{
    char text[SHERD_ERROR_BYTES];
    uint64_t word = sherd__end_word(end, rank, value, SHERD_EPEER);
    bool first = !sherd__look(&w->arena->control->death);

    sherd__end_world(w->arena, word);
    if (first && !w->signal && sherd__look(&w->arena->control->death) == word) {
        sherd__end_text(w->arena->control, word, text, sizeof text);
        fprintf(stderr, "sherd: %s\n", text);
    }
    set_grace(w, GRACE_MS);
}

static unsigned presence_of(const watch *w, int rank)
{
    return atomic_load(&w->arena->control->post[rank].presence);
}

/*
 * Somebody else in this program has taken the status of a child: the rank's own word counts. One that has closed its
 * world without leaving a value is a program, and has ended well as far as anybody knows.
 */
static void note_lost_end(watch *w, int rank)
{
    sherd__child *child = &w->child[rank];
    uint64_t value = sherd__look(&w->arena->control->post[rank].value);

    child->ended = true;
    child->code = value ? (int)value - 1 : presence_of(w, rank) == SHERD__GONE ? 0 : 1;
    if (presence_of(w, rank) == SHERD__PRESENT)
        lose(w, SHERD__END_VANISHED, rank, 0);
}

static void note_end(watch *w, int rank, const siginfo_t *info)
{
    sherd__child *child = &w->child[rank];
    bool killed = info->si_code == CLD_KILLED || info->si_code == CLD_DUMPED;

    child->ended = true;
    child->code = killed ? 128 + info->si_status : info->si_status;
    if (killed)
        lose(w, SHERD__END_KILLED, rank, info->si_status);
    else if (presence_of(w, rank) == SHERD__PRESENT)
        lose(w, SHERD__END_EXITED, rank, info->si_status);
}

static void look_at(watch *w, int rank)
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
            child->code = info.si_status;
        } else if (info.si_code == CLD_CONTINUED) {
            child->stopped_since = 0;
        } else if (info.si_code != CLD_TRAPPED) {
            note_end(w, rank, &info);
        }
    }
    if (!child->ended && child->stopped_since &&
        sherd__now() - child->stopped_since > (int64_t)STOPPED_MS * MS) {
        lose(w, SHERD__END_STOPPED, rank, child->code);
        kill(child->pid, SIGKILL);
    }
}

/* A rank that ended without ever opening its world is lost only if others opened theirs. */
static void look_for_absent(watch *w)
{
    bool opened = false;

    for (int r = 0; r < w->ranks; r++)
        opened |= presence_of(w, r) != SHERD__ABSENT;
    for (int r = 0; opened && r < w->ranks; r++)
        if (w->child[r].ended && presence_of(w, r) == SHERD__ABSENT)
            lose(w, SHERD__END_EXITED, r, w->child[r].code);
}

static void read_signal(watch *w)
{
    struct signalfd_siginfo info;

    if (read(w->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    w->signal = (int)info.ssi_signo;
    kill_all(w, w->signal);
    kill_all(w, SIGCONT);
    set_grace(w, GRACE_MS);
}

static void sleep_a_while(watch *w)
{
    struct pollfd fds[SHERD_MAX_RANKS + 1];
    nfds_t count = 0;
    bool blind = false;

    for (int r = 0; r < w->ranks; r++) {
        if (w->child[r].ended)
            continue;
        blind |= w->child[r].fd < 0;
        fds[count++] = (struct pollfd){.fd = w->child[r].fd, .events = POLLIN};
    }
    fds[count++] = (struct pollfd){.fd = w->signals, .events = POLLIN};
    if (poll(fds, count, blind ? TICK_BLIND_MS : TICK_MS) > 0 && fds[count - 1].revents)
        read_signal(w);
}

static bool all_ended(const watch *w)
{
    for (int r = 0; r < w->ranks; r++)
        if (!w->child[r].ended)
            return false;
    return true;
}

static void open_fds(watch *w, const sherd__signals *signals)
{
    w->signals = signalfd(-1, &signals->taken, SFD_CLOEXEC | SFD_NONBLOCK);
    for (int r = 0; r < w->ranks; r++)
        w->child[r].fd = (int)syscall(SYS_pidfd_open, w->child[r].pid, 0);
}

static void close_fds(const watch *w)
{
    if (w->signals >= 0)
        close(w->signals);
    for (int r = 0; r < w->ranks; r++)
        if (w->child[r].fd >= 0)
            close(w->child[r].fd);
}

int sherd__watch(sherd__arena *arena, sherd__child *child, int ranks, const sherd__signals *signals)
{
    watch w = {.arena = arena, .child = child, .ranks = ranks};

    open_fds(&w, signals);
    for (;;) {
        for (int r = 0; r < ranks; r++)
            look_at(&w, r);
        look_for_absent(&w);
        if (all_ended(&w))
            break;
        if (sherd__look(&arena->control->death))
            set_grace(&w, GRACE_TOLD_MS);
        if (w.kill_at && sherd__now() > w.kill_at)
            kill_all(&w, SIGKILL);
        sleep_a_while(&w);
    }
    close_fds(&w);
    return w.signal;
}

int sherd__exit_status(const sherd__arena *arena, const sherd__child *child, int ranks)
{
    uint64_t word = sherd__look(&arena->control->death);
    sherd__end end = (sherd__end)(word >> 32);
    int rank = (int)(word >> 24 & 0xFF);

    /* The others followed the one that was lost. */
    if (end == SHERD__END_KILLED || end == SHERD__END_STOPPED)
        return 128 + (int)(word >> 8 & 0xFFFF);
    if (end == SHERD__END_EXITED || end == SHERD__END_VANISHED)
        return child[rank].code ? child[rank].code : 1;
    for (int r = 0; r < ranks; r++)
        if (child[r].code)
            return child[r].code;
    return 0;
}
