/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks and watching over them: as threads, as forked processes, and as programs (`sherd run`). */
#ifndef SHERD__LAUNCH_H
#define SHERD__LAUNCH_H

#include <signal.h>

#include "arena.h"

typedef struct sherd__launch_options {
    int ranks;
    char *const *argv; /* program and arguments, NULL at the end; looked for in PATH */
    const char *cores; /* that the ranks may have, "0-3,6"; NULL = all that this process may use */
} sherd__launch_options;

/*
 * `sherd run`: start copies of a program as the ranks of one arena, watch them, and wait for the end. Returns the exit
 * status: 0 if all returned 0 and none left the others alone, else the first that is not, 128 + signal if a rank was
 * killed; then the last line on standard error names the cause. A negative value is the sherd_status (text in diag) of
 * a failure to start: EINVAL the program can not be run, ELIMIT, ENOMEM. A signal that ends this process is passed on
 * to all, then raised again.
 */
int sherd__launch(const sherd__launch_options *options, sherd__diag *diag);

/* The cores that a job has taken, held as long as these descriptors are open. */
typedef struct sherd__core_locks {
    int count;
    int fd[SHERD_MAX_RANKS], core[SHERD_MAX_RANKS];
} sherd__core_locks;

/* What a spawned rank does. */
typedef struct sherd__launch_plan {
    const sherd_world_options *options;
    int (*body)(sherd_world *world, void *payload);
    void *payload;
    int ranks;
    sherd__arena arena;
    sherd__core_locks cores;
} sherd__launch_plan;

/* The exit status that a rank's value becomes: what is not 0 stays so. */
static inline int sherd__exit_code(int value)
{
    return value && (value & 0xFF) == 0 ? 1 : value & 0xFF;
}

/* Join, run the body, leave its value in the post, close. *opened: what joining returned (then the body did not run); *closed: the last check. */
int sherd__run_rank(const sherd__launch_plan *plan, int rank, sherd_status *opened,
                    sherd_status *closed, sherd__diag *diag);

/* Fork the ranks of a plan and watch them. */
sherd_status sherd__spawn_processes(int *exit_status, const sherd__launch_plan *plan,
                                    sherd__diag *diag);

/* Whether this very process was started by `sherd run` as a rank. */
bool sherd__is_launched(void);
/* Run a body in the world that this process was started in. *here false: it is in that world now, and nothing was run. */
sherd_status sherd__spawn_here(bool *here, int *exit_status, const sherd__launch_plan *plan,
                               sherd__diag *diag);

/* Cores in the affinity mask of this thread. */
int sherd__cores(void);
/* Pin this thread to the core that its rank has, if it has one; what it was is returned, for unpin. */
sherd__pinning sherd__pin(const sherd__post *post);
void sherd__unpin(const sherd__pinning *before);

/* cores.c: take a free core for every rank out of this thread's affinity mask, or none; the posts say which. One rank needs none. */
void sherd__cores_take(sherd__core_locks *out, sherd__control *control);
/* Also in a forked child, whose parent goes on holding them. */
void sherd__cores_give(sherd__core_locks *cores);
/* Let this thread, and what it starts, have the cores of a list such as "0-3,6" only. EINVAL, ENOTSUP. */
sherd_status sherd__cores_confine(const char *list, sherd__diag *diag);

/* ---- signals.c -------------------------------------------------------------------------------- */

/* What a process that watches does with signals, and what it did before. */
typedef struct sherd__signals {
    sigset_t
        taken; /* blocked, to be read from a signalfd: those that end it, those that it passes on */
    sigset_t mask;
    struct sigaction child;
} sherd__signals;

/* Before there are children; given back in each of them, and when none is left. */
void sherd__signals_take(sherd__signals *out);
void sherd__signals_give_back(const sherd__signals *signals);

/* ---- watch.c ---------------------------------------------------------------------------------- */

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
    int64_t stopped_since; /* ns; 0 = it is not stopped */
    int stop_signal;
    sherd__wrapped inner;
} sherd__child;

typedef struct sherd__watch {
    sherd__arena *arena;
    sherd__child *child; /* one a rank */
    int ranks;
    const sherd__signals *signals;
    int64_t grace_ns; /* from a signal that ends all, or the end of the world, to SIGKILL */
    bool launcher;    /* `sherd run` says what happened in its last line; others at once */

    /* Set while watching. */
    uint64_t space; /* this process's pid namespace */
    int signal_fd;
    int signal;      /* that is to end this process; 0 = none */
    bool lost_first; /* the world had ended before that signal came */
    int64_t kill_at; /* when survivors are killed, ns; 0 = not yet */
} sherd__watch;

/*
 * Watch until all ranks have ended. One that dies, or exits without closing its world, ends the world for all; those
 * still alive when the grace is over are killed. Signals are passed on.
 */
void sherd__watch_all(sherd__watch *w);

/* signals.c: its part of watching. */
void sherd__read_signals(sherd__watch *w);
void sherd__kill_rank(const sherd__child *child, int signal);
void sherd__kill_all(const sherd__watch *w, int signal);
/* The time runs from now, unless it does already. */
void sherd__set_grace(sherd__watch *w);
/* SHERD_GRACE in seconds, 10 if it is not set. EINVAL. */
sherd_status sherd__grace_read(int64_t *nanoseconds, sherd__diag *diag);

/* ---- proc.c ------------------------------------------------------------------------------------ */

typedef struct sherd__process {
    int pid;
    uint64_t start; /* clock ticks since the machine started */
    char state;     /* as in ps: R, S, D, T stopped, Z dead and not yet waited for */
} sherd__process;

/* What there is to say of a process, 0 = this one. False if there is none. */
bool sherd__process_look(int pid, sherd__process *out);
/* Which pid namespace this process is in; 0 = nobody knows. */
uint64_t sherd__pid_space(void);
/* Whether a process has a handler for a signal. */
bool sherd__catches(int pid, int signal);
/* A short file, zero-terminated and cut at the room. */
bool sherd__read_file(const char *path, char *out, size_t room);

/* ---- lifeline.c -------------------------------------------------------------------------------- */

/* Make the pipe of a launcher: line[0] is for the ranks, line[1] for the launcher alone. ENOMEM. */
sherd_status sherd__lifeline_create(sherd__control *control, int line[2], sherd__diag *diag);
/* From now on this process ends with its launcher. `held`: what this gave before, or -1. -1: it can not be had. */
int sherd__lifeline_hold(const sherd__control *control, int held);

/* ---- wrapped.c --------------------------------------------------------------------------------- */

/* Take up the process that a rank has left in its post; true if it is another one than before, and lives. */
bool sherd__wrapped_find(sherd__child *child, const sherd__post *post, uint64_t space);
/* Bring up to date whether it lives, or is stopped. */
void sherd__wrapped_look(sherd__child *child);
void sherd__wrapped_kill(const sherd__child *child, int signal);
void sherd__wrapped_drop(sherd__child *child);

/* ---- ending.c: what came of all, once all have ended ------------------------------------------- */

/* The first exit status that is not 0 of those that did not merely follow another's death. */
int sherd__exit_status(const sherd__arena *arena, const sherd__child *child, int ranks);
/* Why it is not 0, in one line: "rank 1 exited with status 3: rank 1: out of memory". */
void sherd__cause_text(const sherd__arena *arena, const sherd__child *child, char *out,
                       size_t room);

/* ---- post.c: what a rank has left in its post; it may be half written -------------------------- */

/* A text out of shared memory into out[room]: one line, whatever is there. */
void sherd__read_text(char *out, size_t room, const char *shared, size_t shared_room);
/* Leave this process in the post of its rank. */
void sherd__post_process(sherd__post *post);
/* The failure that a rank learned of since its last good check; OK and "" if there is none. */
sherd_status sherd__read_told(const sherd__post *post, char *out, size_t room);

#endif
