/* SPDX-License-Identifier: Apache-2.0 */
/* Watching over ranks that are processes, until all have ended, and what came of them. */
#ifndef SHERD__LAUNCH_WATCH_H
#define SHERD__LAUNCH_WATCH_H

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>

#include "output.h"
#include "world/arena.h"
#include "world/notice.h"

/* ---- signals.c ------------------------------------------------------------------------------- */

/* What a process that watches does with signals, and what it did before. */
typedef struct sherd__signals {
    sigset_t
        taken; /* blocked, to be read from a descriptor: those that end it, or that it passes on */
    sigset_t mask;
    struct sigaction child, pipe;
} sherd__signals;

/* Before there are children; given back in each of them, and when none is left. `launcher`: this is
 * `sherd run`. */
void sherd__signals_take(sherd__signals *out, bool launcher);
void sherd__signals_give_back(const sherd__signals *signals);
/* The next that has come; false: none. `fd`: a signalfd of them that does not block; -1, where the
 * kernel refuses one: they are asked for. */
bool sherd__signals_next(const sherd__signals *signals, int fd, struct signalfd_siginfo *out);
/* SHERD_GRACE in seconds, 10 if it is not set. EINVAL. */
sherd_status sherd__grace_read(int64_t *nanoseconds, sherd__diag *diag);

/* ---- process.c: children --------------------------------------------------------------------- */

/* The process that has joined as a rank, where it is not the child itself but was started by it. */
typedef struct sherd__wrapped {
    int pid; /* 0 = none */
    uint64_t start;
    int fd; /* pidfd, or -1 */
    bool lives;
    int64_t stopped_since; /* ns; 0 = it is not stopped */
} sherd__wrapped;

/* A process that is a rank, or that has started one. */
typedef struct sherd__child {
    int pid;
    int fd;                /* pidfd, or -1 where the kernel has none */
    bool ended;            /* reaped; then: */
    int code;              /* exit status, or 128 + signal */
    int signal;            /* that has killed it; 0 = none */
    int64_t stopped_since; /* ns; 0 = it is not stopped */
    int stop_signal;
    sherd__wrapped inner;
} sherd__child;

/* What every forked child does first: die with its parent, and take signals again. */
void sherd__be_child(int parent, const sherd__signals *signals);
/* Kill children, and wait for them. */
void sherd__end_children(const sherd__child *child, int count);

struct sherd__flight; /* flight.h */

/* ---- watch.c --------------------------------------------------------------------------------- */

typedef struct sherd__rank_watch {
    sherd__arena *arena;
    sherd__child *child; /* one a rank */
    struct pollfd *fds;  /* room for 2 a rank and 1; with an output, for SHERD__OUTPUT_FDS more */
    int ranks;
    const sherd__signals *signals;
    int64_t grace_ns;      /* from a signal that ends all, or the end of the world, to SIGKILL */
    bool launcher;         /* `sherd run` says what happened in its last line; others at once */
    sherd__output *output; /* NULL: ranks print for themselves */
    struct sherd__flight
        *flight; /* room for the record of a failure (flight.h); NULL: none is taken */
    void (*recorded)(const struct sherd__flight *flight, void *payload); /* or NULL */
    void *payload;

    /* Set while watching. */
    uint64_t space;    /* this process's pid namespace */
    int64_t oom_kills; /* when watching began */
    int signal_fd;     /* or -1: then signals are asked for in each round */
    int signal;        /* that is to end this process; 0 = none */
    bool lost_first;   /* the world had ended before that signal came */
    int64_t kill_at;   /* when survivors are killed, ns; 0 = not yet */
    int64_t round;     /* when the last round of watching began, ns */
    bool taken;        /* the flight record of a failure is in `flight` */
    bool differs;      /* ... which was EDIFFER, and may be dealt with yet */
} sherd__rank_watch;

/*
 * Watch until all ranks have ended. One that dies, or exits without closing its world, ends the
 * world for all; those still alive when the grace is over are killed. Signals are passed on.
 */
void sherd__watch_all(sherd__rank_watch *w);

/* ---- signals.c, recorder.c: parts of watching ------------------------------------------------ */

void sherd__read_signals(sherd__rank_watch *w);
void sherd__kill_rank(const sherd__child *child, int signal);
void sherd__kill_all(const sherd__rank_watch *w, int signal);
/* Start the time after which survivors are killed, unless it runs already. */
void sherd__set_grace(sherd__rank_watch *w);

/*
 * The flight record of a failure. Lose: take it now, as a rank has died (`word`
 * says how). Look: in each round of watching, take it if the world has failed. Tell: print it.
 */
void sherd__recorder_lose(sherd__rank_watch *w, uint64_t word);
void sherd__recorder_look(sherd__rank_watch *w);
void sherd__recorder_tell(const sherd__rank_watch *w);
/* Take and tell one now. */
void sherd__recorder_asked(const sherd__rank_watch *w);

/* ---- wrapped.c ------------------------------------------------------------------------------- */

/* Take up the process that a rank has left in its post; true if it is another one than before, and
 * lives. */
bool sherd__wrapped_find(sherd__child *child, const sherd__post *post, uint64_t space);
/* Bring up to date whether it lives, or is stopped. */
void sherd__wrapped_look(sherd__child *child);
void sherd__wrapped_kill(const sherd__child *child, int signal);
void sherd__wrapped_drop(sherd__child *child);

/* ---- ending.c: what came of all, once all have ended ----------------------------------------- */

/* The first exit status that is not 0 of those that did not merely follow another's death. */
int sherd__exit_status(const sherd__arena *arena, const sherd__child *child, int ranks);
/* Why it is not 0, in one line: "rank 1 exited with status 3: rank 1: out of memory". */
void sherd__cause_text(const sherd__arena *arena, const sherd__child *child, char *out,
                       size_t room);

/* ---- oom.c: the memory cgroup ---------------------------------------------------------------- */

/* Processes of it that were killed for lack of memory; -1 = not known. */
int64_t sherd__oom_kills(void);

/* ---- lifeline.c ------------------------------------------------------------------------------ */

/* Make the pipe of a launcher: line[0] is for the ranks, line[1] for the launcher alone. ENOMEM. */
sherd_status sherd__lifeline_create(sherd__control *control, int line[2], sherd__diag *diag);
/*
 * Make this process end with its launcher. `held`: what an earlier call returned, or -1. Returns
 * the descriptor to keep; -1: there is no life-line.
 */
int sherd__lifeline_hold(const sherd__control *control, int held);

#endif
