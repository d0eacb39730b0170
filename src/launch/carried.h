/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that somebody else has started (mpirun, srun), and that a carrier brings together:
 * sherd/carrier.h. */
#ifndef SHERD__LAUNCH_CARRIED_H
#define SHERD__LAUNCH_CARRIED_H

#include "launch.h"
#include "sherd/carrier.h"

/* ---- job.c: which MPI has started this process ---------------------------------------------- */

/* What launchers of an MPI set, and the modules that fit. */
typedef struct sherd__mpi_mark {
    const char *rank, *ranks;
    const char *module[2];
} sherd__mpi_mark;

/* The mark in the environment; NULL: there is none. */
const sherd__mpi_mark *sherd__mark_find(void);
/* How many ranks the launcher says there are; 0: it does not say. */
int sherd__mark_ranks(const sherd__mpi_mark *mark);

/* Whether a launcher of MPI has started this very process, as one of several ranks. */
bool sherd__is_carried(void);
/* Whether a launcher of MPI has started several processes here, of which this is one or was started
 * by one. */
bool sherd__is_in_job(void);
/* A hash of what launchers of MPI have left in the environment; 0: none has. */
uint64_t sherd__carrier_marks(void);
/* Whether this process has a world open that it has joined through its launcher of MPI. */
bool sherd__has_joined(void);
/*
 * Note that it has such a world open, or has closed it; programs that it starts are no ranks.
 * False: no memory for the environment.
 */
bool sherd__say_joined(bool open);
/*
 * The same if its world came by a carrier that the program has brought: it may still join the job.
 */
bool sherd__leave_job(void);

/* ---- module.c -------------------------------------------------------------------------------- */

/* Load the module of this launcher's MPI, and open its carrier. EINVAL. */
sherd_status sherd__carrier_find(sherd_carrier *out, sherd__diag *diag);

/* ---- carried.c: a world of its ranks --------------------------------------------------------- */

/* What a carried world holds until it is closed. */
typedef struct sherd__carried {
    sherd_carrier carrier;
    struct sherd__remote *remote; /* of ranks that share no memory: it has the carrier then */
    sherd__core_locks cores;
    struct sherd__world_guard *guard; /* of this rank; or NULL */
    bool launched;        /* by sherd_world_open, which may come again when it is closed */
    const char *function; /* that opens it */
    sherd_price price;    /* that rank 0 brings; all zero if none */
} sherd__carried;

sherd_status sherd__carried_open(sherd_world **out, const sherd_world_options *options,
                                 sherd__diag *diag);
/* As sherd__spawn_here. */
sherd_status sherd__spawn_carried(bool *here, int *exit_status, const sherd__launch_plan *plan,
                                  sherd__diag *diag);

/* ---- guard.c: a rank that dies --------------------------------------------------------------- */

typedef struct sherd__world_guard sherd__world_guard;

/*
 * Fork a process, the guard, that watches over this rank. If the rank ends without closing its
 * world, the guard ends the world for the other ranks of the arena, and prints which rank ended and
 * where; if several ranks of a machine end, only the first. `job`: a number that the ranks of this
 * job share and no others on this machine have. The guard ends when it is dismissed, or after the
 * rank. NULL: there is no guard, and only the launcher sees who dies.
 */
sherd__world_guard *sherd__guard_post(const sherd__arena *arena, int rank, uint64_t job);
/* The rank has closed its world. NULL is a no-op. */
void sherd__guard_dismiss(sherd__world_guard *guard);

#endif
