/* SPDX-License-Identifier: Apache-2.0 */
/* Starting ranks: as threads, as forked processes, and as programs (`sherd run`). watch.h has what
 * happens then. */
#ifndef SHERD__LAUNCH_LAUNCH_H
#define SHERD__LAUNCH_LAUNCH_H

#include "world/arena.h"
#include "world/pin.h"

struct sherd__flight; /* flight.h */

/* ---- launcher.c: ranks as programs ----------------------------------------------------------- */

typedef struct sherd__launch_options {
    int ranks;
    char *const *argv; /* program and arguments, NULL at the end; looked for in PATH */
    const char *cores; /* that the ranks may have, "0-3,6"; NULL = all that this process may use */
    bool drain;        /* a signal that all ranks answer by 0 does not end this process either */
    bool prefix;       /* put the rank in front of each line that it prints */
    const char *logs;  /* the folder for files of each rank's output (output.h); NULL = none */
    /* Is given each flight record that is told; NULL = nobody wants them. */
    void (*recorded)(const struct sherd__flight *flight, void *payload);
    void *payload;
} sherd__launch_options;

/*
 * `sherd run`: start copies of a program as the ranks of one arena, watch them, and wait for the
 * end. Returns the exit status: 0 if all returned 0 and none left the others alone, else the first
 * that is not, 128 + signal if a rank was killed; then the last line on standard error names the
 * cause. A negative value is the sherd_status (text in diag) of a failure to start: EINVAL the
 * program can not be run, or an option is wrong; ENOTSUP there is no /dev/null; ELIMIT; ENOMEM. A
 * signal that ends this process is passed on to all, then raised again (but see `drain`).
 */
int sherd__launch(const sherd__launch_options *options, sherd__diag *diag);

/* ---- hello.c: how ranks are to talk ---------------------------------------------------------- */

/* What SHERD_TRANSPORT says; "" where it says nothing. EINVAL: there is no such transport. */
sherd_status sherd__transport_asked(const char **name, sherd__diag *diag);

/* ---- invitation.c, join.c: in such a program ------------------------------------------------- */

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

/* Whether this very process was started by `sherd run` as a rank. */
bool sherd__is_launched(void);
/*
 * It has a world of its own, by a carrier, and may join besides; but programs that it starts from
 * now on are no ranks. False: no memory for the environment.
 */
bool sherd__leave_launch(void);
/* Run a body in the world that this process was started in. *here false: it is in that world now,
 * and nothing was run. */
sherd_status sherd__spawn_here(bool *here, int *exit_status, const sherd__launch_plan *plan,
                               sherd__diag *diag);

/* ---- rank.c, process.c: ranks of this program ------------------------------------------------ */

/* The exit status that a rank's value becomes: what is not 0 stays so. */
static inline int sherd__exit_code(int value)
{
    return value && (value & 0xFF) == 0 ? 1 : value & 0xFF;
}

/* Join, run the body, leave its value in the post, close. *opened: what joining returned (then the
 * body did not run). */
int sherd__run_rank(const sherd__launch_plan *plan, int rank, sherd_status *opened,
                    sherd__diag *diag);
/* Fork the ranks of a plan and watch them. */
sherd_status sherd__spawn_processes(int *exit_status, const sherd__launch_plan *plan,
                                    sherd__diag *diag);
/* What a world that is over came to: its end, or what its last check said. */
sherd_status sherd__outcome(const sherd__arena *arena, int ranks, sherd__diag *diag);

/* ---- cores.c --------------------------------------------------------------------------------- */

/* Take a free core for every rank out of this thread's affinity mask, or none; the posts say which.
 * One rank needs none. */
void sherd__cores_take(sherd__core_locks *out, sherd__control *control);
/* Close the locks. In a forked child they stay taken, since its parent holds them. */
void sherd__cores_give(sherd__core_locks *cores);
/* Let this thread, and what it starts, have the cores of a list such as "0-3,6" only. EINVAL,
 * ENOTSUP. */
sherd_status sherd__cores_confine(const char *list, sherd__diag *diag);

#endif
