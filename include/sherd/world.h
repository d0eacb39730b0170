/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world: the ranks that can talk to each other. It holds all state: memory, meshes, layouts, cached
 * plans, the alarm, the error text, the comm log. There are no globals; one process may hold several
 * worlds. A handle belongs to one thread at a time.
 *
 * Errors. A collective function that returns a status returns the same status on all ranks. An expression
 * on tensors that fails raises the world's *alarm* and returns the world's failed tensor, which every
 * later expression passes on; no rank drops out of step, and no rank hangs. sherd_world_check() is where
 * the alarm is read and lowered: all ranks get the same status and text there and go on.
 *
 * Decide on a status only: on that of sherd_world_check(), or of a collective function. Whether a tensor has failed
 * (sherd_tensor_failed, or sherd_tensor_read giving NULL) is no such answer: one rank may have seen the alarm of another
 * already where a third has not, so at one line of the program the ranks differ. A collective call in a branch of that is
 * made by some ranks only.
 *
 *     y = sherd_matmul(x, w);
 *     if (sherd_world_check(world))          all ranks go the same way
 *         return skip_this_step(world);
 *
 * What a NULL does. An argument that a header does not allow to be NULL must not be; where it is, that is answered:
 * - a function that returns a status returns EINVAL, and clears *out. The text is in the error of the world that another
 *   argument leads to; there a collective function also tells the others, so that all ranks get EINVAL;
 * - an expression, and what else works on tensors, fails with EINVAL in the world that another argument leads to. Where
 *   none does, an expression returns NULL, and what returns nothing does nothing;
 * - a question answers what it answers where there is nothing to tell of: a count is 0, the number of a rank or an axis
 *   -1, a pointer NULL, a text "", a truth false, a box empty. Only sherd_tensor_failed(NULL) is true;
 * - to release, destroy, close, end, clear or pop nothing does nothing.
 * The failed tensor may be asked and used like any other: it has no dims, no layout and no data. A number that is out of
 * range is EINVAL, or ELIMIT where it is merely too large; a question about it has the answer of what is not there. A
 * handle of another world is EINVAL in the world of the first argument. What nobody can find out: a handle that is no
 * longer there (of a closed world, a destroyed module, a tensor that was released more often than retained), an array
 * shorter than was said.
 */
#ifndef SHERD_WORLD_H
#define SHERD_WORLD_H

#include "status.h"

SHERD_BEGIN

typedef struct sherd_world sherd_world;

/* How the ranks of a spawned world live. Threads are for tests, sanitizers and debuggers. */
typedef enum sherd_ranks_as { SHERD_PROCESSES = 0, SHERD_THREADS = 1 } sherd_ranks_as;

typedef struct sherd_world_options {
    int ranks;           /* for sherd_spawn: how many; 0 = 1. Ignored where a launcher says it */
    sherd_ranks_as as;   /* for sherd_spawn */
    bool no_pin;         /* do not pin ranks; each has a core of its own where enough are free */
    uint64_t seed;       /* of all random numbers of this world; equal on all ranks */
    size_t region_bytes; /* address space for the tensors of one rank; 0 = the machine's memory */
    char *error;         /* char[SHERD_ERROR_BYTES] for the text when opening fails, or NULL */
    /* file of a price (sherd_price_parse) for plans whose options name none: rank 0 reads it and hands it out, what other
     * ranks say is ignored. NULL = SHERD_PRICE in rank 0's environment; without it plans have the arena's price */
    const char *price_file;
} sherd_world_options;

/**
 * Join the world that this process was started in, by `sherd run`, or by the mpirun or srun of an MPI that sherd was built with
 * (docs/running.md); a world of one rank if by nobody.
 *
 * After that programs which this process starts are no ranks: SHERD_ARENA_FD, SHERD_RANK, SHERD_RANKS and SHERD_LAUNCHER
 * are taken out of the environment (so call this before threads that read it). The process itself may join again once
 * it has closed the world.
 *
 * @collective all ranks of the launch
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close; NULL on failure
 * @errors     EINVAL options out of range, a broken environment, a price file that can not be read or is none, or a
 *             launcher's MPI that sherd has no module for; ENOTSUP memory of a rank of this machine can not be opened; ENOMEM; ELIMIT; EPEER
 */
SHERD_CALL sherd_status sherd_world_open(sherd_world **out, const sherd_world_options *options);

/**
 * Open a world of one rank, whatever this process was started in.
 *
 * @local
 * @owns   the caller closes *out with sherd_world_close; NULL on failure
 * @errors EINVAL options out of range, a broken environment, or a price file that can not be read or is none; ENOMEM
 */
SHERD_CALL sherd_status sherd_world_alone(sherd_world **out, const sherd_world_options *options);

/**
 * Open a paper world: any number of ranks, no memory and no peers; for meshes, layouts and plans.
 *
 * @local
 * @shapes ranks: 1 .. 2^31-1; nothing is allocated per rank
 * @owns   the caller closes *out with sherd_world_close; NULL on failure
 * @errors EINVAL ranks < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_world_paper(sherd_world **out, int ranks);

/**
 * Close a world; a last check. Everything that belongs to it is gone after this.
 *
 * In a process that was forked from the rank's own nothing is closed: the world is the rank's.
 *
 * @collective the world; local for a paper world or a world of one rank
 * @owns       frees `world`; NULL is a no-op
 * @errors     what the last sherd_world_check would return; the world is freed in any case. But EINVAL in a forked process,
 *             and for the world that sherd_spawn gave to a body: sherd_spawn closes it, and until then it goes on
 */
SHERD_API sherd_status sherd_world_close(sherd_world *world);

/**
 * Run `body` once on every rank and wait for all of them.
 *
 * Under a launcher (`sherd run`) the calling process is a rank already: `body` runs here, with the joined
 * world, unless that is open now. Otherwise ranks are started: as processes forked from this one (call it before any thread
 * exists; this process only watches), or as threads. `body` gets an open world that is closed for it on
 * return. If a rank dies, one line on standard error names the rank and the signal, and the others end.
 *
 * @local
 * @shapes *exit_status: 0 if every body returned 0 and no rank was lost; else the first value that is not 0, 128 + signal
 *         for a rank that was killed, 1 if there is no such value
 * @owns   `payload` is passed on; with processes each rank has its own copy of everything
 * @errors EINVAL ranks < 0, an `as` that is none, or a SHERD_TRANSPORT in the environment that is not arena, threads or mpi (it
 *         says what ranks are, whatever the options say), a SHERD_GRACE that is no number of seconds, a
 *         SHERD_ARENA_BYTES that is no number of bytes, or a price file that can not be read or is none; ELIMIT more than SHERD_MAX_RANKS; ENOMEM no
 *         region, process or thread; EPEER a rank died, was stopped for half a second, or closed its
 *         world while others went on; else what the closing check of the ranks returned
 */
SHERD_CALL sherd_status sherd_spawn(int *exit_status, const sherd_world_options *options,
                                    int (*body)(sherd_world *world, void *payload), void *payload);

/**
 * The one place where the alarm is read and lowered.
 *
 * Waits for all ranks, compares the calls that they made and what they did on each mesh, and gives all the same verdict.
 * After a failure calls in flight are dropped and the world works again; tensors that not all ranks have made are
 * then failed on all of them. After a death (EPEER) it stays closed.
 *
 * @collective the world
 * @errors     what raised the alarm; EDIFFER ranks made different calls, did different things on a mesh, or (SHERD_VERIFY=1 in
 *             the environment) hold different values of what is said to be equal; EPEER; ETIMEDOUT; EINVAL in a
 *             process that was forked from the rank's own
 */
SHERD_API sherd_status sherd_world_check(sherd_world *world);

/**
 * The text of the last failure, one line: rank, function, values, what to do. "" if there was none.
 *
 * @local   @owns borrowed, until the next failure or the close   @errors none
 */
SHERD_API const char *sherd_world_error(const sherd_world *world);

/**
 * Raise the alarm for a failure of the caller's own, so that all ranks learn of it at the next check.
 *
 * @local
 * @shapes text: one line, copied; the rank is put in front
 * @errors none; a status other than EINVAL, EDIFFER, ENOTSUP, ENOMEM and ELIMIT counts as EINVAL
 */
SHERD_API void sherd_world_fail(sherd_world *world, sherd_status status, const char *text);

/** This rank's number, from 0. @local @errors none */
SHERD_API int sherd_world_rank(const sherd_world *world);

/** How many ranks there are. @local @errors none */
SHERD_API int sherd_world_ranks(const sherd_world *world);

/** "arena" (processes, or one rank), "threads", "mpi" (some ranks share no memory) or "paper". @local @owns static text @errors none */
SHERD_API const char *sherd_world_transport(const sherd_world *world);

/** The seed that the world was opened with. @local @errors none */
SHERD_API uint64_t sherd_world_seed(const sherd_world *world);

/*
 * Tensor storage, in bytes. Tensors of all ranks of a machine together have a limit: SHERD_ARENA_BYTES in the environment
 * (8G, 512M, 1073741824), or else seven eighths of the least of the machine's memory, a memory cgroup's, and RLIMIT_AS; the
 * smallest of all ranks counts. A tensor beyond it fails with ENOMEM, and the world goes on.
 */
typedef struct sherd_memory {
    int64_t live_bytes;  /* of this rank's tensors that are alive now */
    int64_t peak_bytes;  /* the most that was alive at once since the last reset */
    int64_t held_bytes;  /* what this rank has of the machine for them, and for the next ones */
    int64_t limit_bytes; /* what all ranks together may hold; 0 on paper */
} sherd_memory;

/** How much tensor storage there is, and may be. @local @errors none */
SHERD_API sherd_memory sherd_world_memory(const sherd_world *world);

/** Let peak_bytes start again from live_bytes. @local @errors none */
SHERD_API void sherd_world_memory_reset(sherd_world *world);

/**
 * Tests: let the n-th allocation from now on fail on this rank (1 = the next one; 0 = none).
 *
 * @local   @errors none
 */
SHERD_API void sherd_world_fail_allocation(sherd_world *world, int64_t n);

/** Allocations since the last sherd_world_fail_allocation. @local @errors none */
SHERD_API int64_t sherd_world_allocations(const sherd_world *world);

SHERD_END

#endif
