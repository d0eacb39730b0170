/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world: the ranks that can talk to each other. It holds all state: memory, meshes, layouts,
 * cached plans, the alarm, the error text, the comm log. There are no globals; one process may hold
 * several worlds. A handle belongs to one thread at a time.
 *
 * Errors. A collective function that returns a status returns the same status on all ranks. An
 * expression on tensors that fails raises the world's *alarm* and returns the world's *failed
 * tensor*, which every later expression passes on. No rank falls out of step and no rank hangs.
 * sherd_world_check() reads and lowers the alarm: there all ranks get the same status and text, and
 * go on. A rank that has failed by itself calls sherd_world_fail() and may leave the step: it goes
 * on at the step's check. The others fail in what they call without it, and come there too.
 *
 * Branch only on a status: that of sherd_world_check() or of a collective function. Whether a
 * tensor has failed (sherd_tensor_failed(), or sherd_tensor_read() returning NULL) is a local
 * observation: one rank may already have seen another's alarm where a third has not. If such a
 * branch contains a collective call, only some ranks make it.
 *
 *     y = sherd_matmul(x, w);
 *     if (sherd_world_check(world))          all ranks take the same branch
 *         return skip_this_step(world);
 *
 * Waiting. A rank waits for the others for at most SHERD_TIMEOUT seconds (environment; 600 if it is
 * not set); with 0 or "none" for as long as it takes, as a server needs whose ranks wait for its
 * next request. A wait that takes longer closes the world, as the death of a rank does, and all
 * functions that may return EPEER return ETIMEDOUT. Time in which the whole job is stopped does not
 * count.
 *
 * Stack. A thread that calls functions on tensors needs 128 KiB, which is what musl gives; by
 * measure products, convolutions, attention and norms of this library's own take less than half of
 * it.
 *
 * NULL arguments. Passing NULL where the header does not allow it is an error with a defined
 * result:
 * - A function that returns a status returns EINVAL and sets *out to NULL. The error text is stored
 *   in the world that another argument belongs to. A collective function also tells the other
 *   ranks, so that all of them get EINVAL; if no argument belongs to a world, it cannot, and the
 *   others get EDIFFER at their next call or check.
 * - An expression, or any other function on tensors, fails with EINVAL in the world that another
 *   argument belongs to. If no argument belongs to a world, an expression returns NULL, and a
 *   function without a result does nothing.
 * - A getter returns the value that means "nothing there": count 0, rank or axis -1, pointer NULL,
 *   text "", false, or an empty box. Only sherd_tensor_failed(NULL) is true.
 * - Releasing, destroying, closing, ending, clearing or popping NULL does nothing.
 *
 * The failed tensor is a valid argument everywhere; it has no dims, no layout and no data. A number
 * out of range is EINVAL, or ELIMIT if it is merely too large; a getter called with one returns
 * what it returns for NULL. A handle of another world is EINVAL in the world of the first argument.
 *
 * Forks. A process that a rank forks has a copy of the rank's world that does not work: expressions
 * give the failed tensor, reads and writes NULL, functions with a status EINVAL, and the child's
 * sherd_world_check says so. Nothing there reaches the ranks. Pointers that were read before the
 * fork show what the rank makes of that memory later, so copy what the child needs before it. The
 * child ends by exit or _exit, closes nothing, and may start other programs.
 *
 * Not detected: a handle that is no longer valid (of a closed world, a destroyed module, a tensor
 * released more often than retained), and an array shorter than stated.
 */
#ifndef SHERD_WORLD_H
#define SHERD_WORLD_H

#include "status.h"

SHERD_BEGIN

typedef struct sherd_world sherd_world;

/* How the ranks of a spawned world live. Threads are for tests, sanitizers and debuggers. */
typedef enum sherd_ranks_as { SHERD_PROCESSES = 0, SHERD_THREADS = 1 } sherd_ranks_as;

/* All zero = the defaults. */
typedef struct sherd_world_options {
    int ranks;         /* sherd_spawn: how many; 0 = 1. Ignored under a launcher */
    sherd_ranks_as as; /* sherd_spawn: processes or threads */
    bool no_pin;       /* do not pin ranks; by default each gets a core, if enough are free */
    uint64_t seed;     /* of all random numbers of this world; equal on all ranks */
    /* address space for the tensors of one rank, at least 2 MiB; 0 = the machine's memory */
    size_t region_bytes;
    char *error; /* char[SHERD_ERROR_BYTES] for the text when opening fails, or a closing
                          * check in sherd_spawn; NULL: a line on standard error */
    /*
     * Price file (see sherd_price_parse) for plans whose options have no price. Rank 0 reads it and
     * distributes it; other ranks' values are ignored. NULL = SHERD_PRICE in rank 0's environment;
     * without that, plans are priced for the arena.
     */
    const char *price_file;
    /*
     * Where tensors are computed with: "cpu"; "cuda", a GPU of the machine for each rank, round
     * robin; "cuda:1", that one. Equal on all ranks, but for the number. NULL = SHERD_DEVICE in the
     * environment; without that, the CPU. Programs need no change: see docs/gpu.md.
     */
    const char *device;
} sherd_world_options;

/**
 * Join the world that this process was started in: by `sherd run`, or by the mpirun or srun of an
 * MPI that sherd was built with (docs/running.md). A process started in any other way gets a world
 * of one rank.
 *
 * Programs that this process starts afterwards are not ranks: SHERD_ARENA_FD, SHERD_RANK,
 * SHERD_RANKS and SHERD_LAUNCHER are removed from the environment, so call this before starting
 * threads that read the environment. The process itself may join again after it has closed the
 * world.
 *
 * @collective all ranks of the launch
 * @shapes     options: NULL = all zero
 * @owns       the caller closes *out with sherd_world_close; NULL on failure
 * @errors     EINVAL options out of range, a broken environment, a price file that cannot be read
 *             or parsed, SHERD_TRANSPORT other than arena, threads or mpi, or a launcher's MPI that
 *             sherd has no module for; ENOTSUP the memory of a rank of this machine cannot be
 *             opened, there is no GPU where one is asked for, or a static executable is under
 *             mpirun; EDIFFER ranks differ in their options; ETIMEDOUT a rank did not come within
 *             SHERD_TIMEOUT; ENOMEM; ELIMIT; EPEER
 */
SHERD_CALL sherd_status sherd_world_open(sherd_world **out, const sherd_world_options *options);

/**
 * Open a world of one rank, however this process was started.
 *
 * @local
 * @owns   the caller closes *out with sherd_world_close; NULL on failure
 * @errors EINVAL options out of range, a broken environment, or a price file that cannot be read or
 *         parsed; ENOTSUP there is no GPU where one is asked for; ENOMEM
 */
SHERD_CALL sherd_status sherd_world_alone(sherd_world **out, const sherd_world_options *options);

/**
 * Open a paper world: any number of ranks without memory or peers, for meshes, layouts and plans.
 *
 * @local
 * @shapes ranks: 1 .. 2^31-1; nothing is allocated per rank
 * @owns   the caller closes *out with sherd_world_close; NULL on failure
 * @errors EINVAL ranks < 1; ENOMEM
 */
SHERD_CALL sherd_status sherd_world_paper(sherd_world **out, int ranks);

/**
 * Check the world a last time, then close it. All objects that belong to it are freed.
 *
 * @collective the world; local for a paper world or a world of one rank
 * @owns       frees `world`; NULL is a no-op
 * @errors     what a last sherd_world_check returns; the world is freed in any case. Except EINVAL,
 *             and nothing is freed: in a forked process, in a function that sherd runs (a forward,
 *             a hook, ..), and for the world that sherd_spawn passed to a body (it closes that one)
 */
SHERD_API sherd_status sherd_world_close(sherd_world *world);

/**
 * Run `body` once on every rank and wait for all of them.
 *
 * Under a launcher (`sherd run`) the calling process is already a rank: `body` runs in it, on the
 * joined world, unless that is open already. Otherwise this function starts the ranks: as processes
 * forked from this one (call it before starting any thread; this process then only watches), or as
 * threads. `body` gets an open world, which is closed when it returns. If a rank dies, a line on
 * standard error names the rank and the signal, and the other ranks end.
 *
 * @local
 * @shapes *exit_status: 0 if it returns OK and every body returned 0; otherwise the first non-zero
 *         value, 128 + signal for a rank that was killed, 1 if there is no such value
 * @owns   `payload` is passed on; with processes each rank has its own copy of everything
 * @errors EINVAL ranks < 0, an unknown `as`, SHERD_TRANSPORT in the environment (it overrides `as`)
 *         other than arena, threads or mpi, SHERD_GRACE not a number of seconds, SHERD_ARENA_BYTES
 *         not a number of bytes, or a price file that cannot be read or parsed; ELIMIT more than
 *         SHERD_MAX_RANKS; ENOMEM no region, process or thread; EPEER a rank died, was stopped for
 *         half a second, or closed its world while others went on; otherwise what the closing check
 *         of the ranks returned
 */
SHERD_CALL sherd_status sherd_spawn(int *exit_status, const sherd_world_options *options,
                                    int (*body)(sherd_world *world, void *payload), void *payload);

/**
 * Read and lower the alarm, and give all ranks the same status.
 *
 * Waits for all ranks and compares the calls that they made and what they did on each mesh. After a
 * failure the calls in flight are dropped and the world works again. A tensor that some ranks had
 * not made becomes the failed tensor on all of them; so does one that some had written in place and
 * others not, until it is written anew or taken as it is (sherd_tensor_revive). After the death of
 * a rank (EPEER) the world stays closed.
 *
 * @collective the world
 * @errors     what raised the alarm; EDIFFER ranks made different calls, did different things on a
 *             mesh, or (with SHERD_VERIFY=1 in the environment) hold different values of what
 *             should be equal; EPEER; ETIMEDOUT a rank did not come within SHERD_TIMEOUT; EINVAL in
 *             a process that was forked from the rank's own
 */
SHERD_API sherd_status sherd_world_check(sherd_world *world);

/**
 * The largest of the numbers that all ranks pass; the same on all ranks. With 0 and 1: whether any
 * rank says yes, as when only some have got a signal and all must stop at the same step.
 *
 *     if (sherd_world_most(&stop, world, got_signal) == SHERD_OK && stop)
 *         ...
 *
 * @collective the world; in a dry world the others pass what this one does
 * @shapes     most: one number, which does not change after a failure
 * @errors     EINVAL `most` or `world` is NULL; ENOTSUP a paper world; after an alarm what raised
 *             it; ENOMEM; EPEER; ETIMEDOUT a rank did not call it within SHERD_TIMEOUT
 */
SHERD_CALL sherd_status sherd_world_most(int64_t *most, sherd_world *world, int64_t mine);

/**
 * The text of the last failure in one line: rank, function, values, what to do. "" if there was
 * none.
 *
 * @local   @owns borrowed, until the next failure or the close   @errors none
 */
SHERD_API const char *sherd_world_error(const sherd_world *world);

/**
 * Raise the alarm for a failure of the caller's own; all ranks learn of it at the next check.
 *
 * @local
 * @shapes text: one line, copied; it is prefixed with the rank
 * @errors none; a status other than EINVAL, EDIFFER, ENOTSUP, ENOMEM and ELIMIT counts as EINVAL
 */
SHERD_API void sherd_world_fail(sherd_world *world, sherd_status status, const char *text);

/** This rank's number, from 0. @local @errors none */
SHERD_API int sherd_world_rank(const sherd_world *world);

/** How many ranks there are. @local @errors none */
SHERD_API int sherd_world_ranks(const sherd_world *world);

/**
 * "arena" (processes, or one rank), "threads", "mpi" (some ranks share no memory) or "paper".
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_world_transport(const sherd_world *world);

/**
 * Where tensors are computed with: "cpu", or this rank's GPU, "cuda:0".
 *
 * @local   @owns borrowed, until the world is closed   @errors none
 */
SHERD_API const char *sherd_world_device(const sherd_world *world);

/** The seed that the world was opened with. @local @errors none */
SHERD_API uint64_t sherd_world_seed(const sherd_world *world);

/* What tensor storage is for; of several the last one counts. */
typedef enum sherd_memory_use {
    SHERD_MEMORY_OTHER = 0,      /* what is being computed, and what else the program holds */
    SHERD_MEMORY_SAVED = 1,      /* for backward */
    SHERD_MEMORY_OPTIMIZERS = 2, /* their state */
    SHERD_MEMORY_GRADIENTS = 3,  /* of leaves */
    SHERD_MEMORY_PARAMETERS = 4  /* of modules, and other leaves that require a gradient */
} sherd_memory_use;

enum { SHERD_MEMORY_USES = 5 };

/*
 * Tensor storage, in bytes. The tensors of all ranks of a machine share one limit:
 * SHERD_ARENA_BYTES in the environment (8G, 512M, 1073741824), by default 7/8 of the smallest of
 * the machine's memory, the memory cgroup's and RLIMIT_AS. If ranks have different limits the
 * smallest one holds. Each rank takes memory in pieces of 256 KB, so a limit below one piece for
 * each rank is EINVAL at the opening. A tensor beyond the limit fails with ENOMEM; the world goes
 * on.
 *
 * Each rank maps the regions of all. Whoever reserves them, `sherd run` or sherd_spawn, keeps
 * within its own RLIMIT_AS, and within what SHERD_ARENA_BYTES needs (for each rank twice that and
 * 80 MB). A rank whose RLIMIT_AS is too small for it all, because a wrapper has lowered it, does
 * not open the world (ENOMEM): start with a smaller SHERD_ARENA_BYTES.
 */
typedef struct sherd_memory {
    int64_t live_bytes;  /* of this rank's tensors that are alive now */
    int64_t peak_bytes;  /* maximum of live_bytes since the last reset */
    int64_t held_bytes;  /* taken from the machine: live tensors, and free blocks kept for reuse */
    int64_t limit_bytes; /* what all ranks together may hold; 0 in a paper world */
    /* of these in the memory of this rank's GPU: live, their maximum, taken from the driver */
    int64_t device_live_bytes, device_peak_bytes, device_held_bytes;
    /* what live_bytes is for, and was at its maximum; by sherd_memory_use */
    int64_t live_for[SHERD_MEMORY_USES], peak_for[SHERD_MEMORY_USES];
} sherd_memory;

/** How much tensor storage this rank uses and may use. @local @errors none */
SHERD_API sherd_memory sherd_world_memory(const sherd_world *world);

/** Reset both peaks to what is live. @local @errors none */
SHERD_API void sherd_world_memory_reset(sherd_world *world);

/**
 * For tests: make the n-th allocation from now on fail on this rank (1 = the next one; 0 = none).
 *
 * @local   @errors none
 */
SHERD_API void sherd_world_fail_allocation(sherd_world *world, int64_t n);

/** Allocations since the last sherd_world_fail_allocation. @local @errors none */
SHERD_API int64_t sherd_world_allocations(const sherd_world *world);

SHERD_END

#endif
