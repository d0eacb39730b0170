/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The world: the ranks that can talk to each other. It holds all state: memory, meshes, layouts,
 * cached plans, the alarm, the error text, the comm log. There are no globals; one process may hold
 * several worlds. A world, and everything that belongs to it, may be used by one thread at a time.
 *
 * Errors. A collective function that returns a status returns the same status on all ranks; a local
 * one may fail on some ranks only. An expression on tensors that fails raises the world's *alarm*
 * and returns the world's *failed tensor*, which every later expression passes on. No rank falls
 * out of step and no rank hangs. sherd_world_check() reads and lowers the alarm: all ranks get the
 * same status and text from it, and go on. A rank on which something else fails (a local function
 * of sherd, or reading its data) calls sherd_world_fail(), and may then skip everything up to the
 * next sherd_world_check(), except for ends of scopes (sherd_scope_end_to). The collective calls
 * that the other ranks make meanwhile fail, so they reach that check as well.
 *
 * Branch only on a status: that of sherd_world_check() or of a collective function. Whether a
 * tensor has failed (sherd_tensor_failed(), or sherd_tensor_read() returning NULL) is a local
 * observation: one rank may already have seen an alarm that another has not. If such a branch
 * contains a collective call, only some ranks make it.
 *
 *     y = sherd_matmul(x, w);
 *     if (sherd_world_check(world))          // all ranks take the same branch
 *         return skip_this_step(world);
 *
 * Waiting. A rank waits for the others for at most SHERD_TIMEOUT seconds (an environment variable;
 * 600 if it is not set; a program may set it before it opens its world or calls sherd_spawn). 0 or
 * "none" means no limit: a server needs that if its ranks wait for the next request in a collective
 * function (docs/running.md, "A server"). A wait that takes longer ends the world as the death of a
 * rank does: from then on every function that may return EPEER returns ETIMEDOUT. Time during which
 * the whole job is stopped does not count.
 *
 * Stack. A thread that calls functions on tensors needs a stack of 128 KiB, which is musl's
 * default. In measurements sherd's own products, convolutions, attention and norms took less than
 * half of it.
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
 * - A getter returns the value that means "none": 0 for a count, -1 for a rank or an axis, NULL for
 *   a pointer, "" for a text, false, or an empty box. Only sherd_tensor_failed(NULL) is true.
 * - Releasing, destroying, closing, ending, clearing or popping NULL does nothing.
 *
 * The failed tensor is a valid argument everywhere; it has no dims, no layout and no data. A number
 * out of range is EINVAL, or ELIMIT if it is valid but more than the library supports; a getter
 * that is called with one returns what it returns for NULL. A handle of another world is EINVAL in
 * the world of the first argument.
 *
 * Forks. A process that a rank forks inherits the rank's world, but cannot use it: there
 * expressions return the failed tensor, sherd_tensor_read and sherd_tensor_write NULL, and
 * functions with a status EINVAL, sherd_world_check among them, with a text that says why. Nothing
 * that the child does reaches the ranks. Tensors are in shared memory, so a pointer obtained before
 * the fork shows what the rank writes there later: copy what the child needs before forking. The
 * child need not close the world; it ends by exit or _exit, and may start other programs.
 *
 * Not detected, and undefined: a handle that is no longer valid (of a closed world, of a destroyed
 * module, of a tensor that was released more often than retained), and an array that is shorter
 * than stated.
 */
#ifndef SHERD_WORLD_H
#define SHERD_WORLD_H

#include "status.h"

SHERD_BEGIN

typedef struct sherd_world sherd_world;

/* What the ranks of sherd_spawn are. Threads are for tests, sanitizers and debuggers. */
typedef enum sherd_ranks_as { SHERD_PROCESSES = 0, SHERD_THREADS = 1 } sherd_ranks_as;

/* All zero = the defaults. */
typedef struct sherd_world_options {
    int ranks;         /* sherd_spawn: how many; 0 = 1. Ignored under a launcher */
    sherd_ranks_as as; /* sherd_spawn: processes or threads */
    bool no_pin;       /* do not pin ranks; by default each gets a core, if enough are free */
    uint64_t seed;     /* of all random numbers of this world; equal on all ranks */
    /* addresses for tensors of a rank, 2 MiB .. 64 TiB, equal on all; 0 = the machine's memory */
    size_t region_bytes;
    /*
     * char[SHERD_ERROR_BYTES]: gets the error text if the function that takes these options fails
     * (sherd_spawn: also if the closing check of its ranks does), because then there is no world to
     * ask. NULL = the text is printed to standard error.
     */
    char *error;
    /*
     * Price file (see sherd_price_parse) for plans whose options have no price. Rank 0 reads it and
     * distributes it; other ranks' values are ignored. NULL = SHERD_PRICE in rank 0's environment;
     * without that, plans are priced for the arena.
     */
    const char *price_file;
    /*
     * The device that computes: "cpu"; "cuda", where the GPUs of the machine are dealt out to its
     * ranks in turn; "cuda:1", that GPU. Only its number may differ between ranks. NULL =
     * SHERD_DEVICE in the environment; without that, the CPU. Programs need no change: see
     * docs/gpu.md.
     */
    const char *device;
} sherd_world_options;

/**
 * Join the world that this process was started in: by `sherd run`, or by the mpirun or srun of an
 * MPI that sherd was built with (docs/running.md). A process started in any other way gets a world
 * of one rank.
 *
 * Under mpirun it initialises MPI (MPI_THREAD_FUNNELED) if the program has not, and then finalises
 * it when the process exits. So a program that calls MPI itself calls MPI_Init before this.
 *
 * Programs that this process starts afterwards are not ranks, because SHERD_ARENA_FD, SHERD_RANK,
 * SHERD_RANKS and SHERD_LAUNCHER are removed from the environment; so call this before starting
 * threads that read the environment. After closing the world, the process may join it again.
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
 * Check the world a last time (sherd_world_check), then close it. All objects that belong to it are
 * freed.
 *
 * @collective the world; local for a paper world or a world of one rank
 * @owns       frees `world`; NULL is a no-op
 * @errors     those of the last check, and the world is freed all the same; or EINVAL, and nothing
 *             is freed: in a forked process, inside a function that sherd calls (a forward, a
 *             hook), or for the world that sherd_spawn passed to `body` (sherd_spawn closes it)
 */
SHERD_API sherd_status sherd_world_close(sherd_world *world);

/**
 * Run `body` once on every rank and wait for all of them.
 *
 * Without a launcher this function starts the ranks: as processes forked from this one (call it
 * before starting any thread; this process then only watches), or as threads. Under a launcher
 * (`sherd run`; mpirun and srun of more than one rank) the calling process already is a rank, and
 * `body` runs in it, on the world of the launch; if the process has that world open already, ranks
 * are started as without a launcher.
 *
 * `body` gets an open world, which is closed when it returns. If a rank dies, a line on standard
 * error names the rank and the signal, and the other ranks end.
 *
 * @local
 * @shapes *exit_status: 0 if the result is OK and every `body` returned 0; 128 + signal if a rank
 *         was killed or stopped; otherwise the value of the first rank whose `body` did not return
 *         0 (of a process its low byte, or 1), or 1 if there is none; options: NULL = all zero
 * @owns   `payload` is passed to `body` as it is; if ranks are processes, each has its own copy of
 *         all memory
 * @errors EINVAL ranks < 0, an unknown `as`, SHERD_TRANSPORT in the environment (it overrides `as`)
 *         other than arena, threads or mpi, SHERD_GRACE not a number of seconds, SHERD_ARENA_BYTES
 *         not a number of bytes, or a price file that cannot be read or parsed; ELIMIT more than
 *         SHERD_MAX_RANKS; ENOMEM no region, process or thread; EPEER a rank died, was stopped (by
 *         a signal) for half a second, or closed its world while others went on; otherwise what the
 *         ranks' closing check returned
 */
SHERD_CALL sherd_status sherd_spawn(int *exit_status, const sherd_world_options *options,
                                    int (*body)(sherd_world *world, void *payload), void *payload);

/**
 * Read and lower the alarm, and give all ranks the same status.
 *
 * Waits for all ranks, and compares the calls that they made and what they did on each mesh. After
 * a failure, calls in flight are dropped and the world works again. Then all ranks have the same
 * tensors:
 * - a tensor that only some ranks of its mesh have made becomes the failed tensor on all of these;
 * - one that only some of these have written in place becomes failed on all of these, until it is
 *   written anew (sherd_fill, sherd_copy_from) or taken as it is (sherd_tensor_revive).
 *
 * After the death of a rank (EPEER) or a timeout (ETIMEDOUT) the world stays closed: every later
 * check and collective function fails with that status.
 *
 * @collective the world
 * @errors     the status that raised the alarm; EDIFFER ranks made different calls, did different
 *             things on a mesh, opened a replica for writing on some of its ranks only, or (with
 *             SHERD_VERIFY=1 in the environment) hold different values of what should be equal;
 *             EPEER; ETIMEDOUT a rank did not come within SHERD_TIMEOUT; EINVAL in a process that
 *             was forked from the rank's own
 */
SHERD_API sherd_status sherd_world_check(sherd_world *world);

/**
 * The maximum over all ranks of `mine`; all ranks get the same *most. With 0 and 1 it tells whether
 * any rank says yes: for example if only some ranks have got a signal, and all must stop at the
 * same step.
 *
 *     if (sherd_world_most(&stop, world, got_signal) == SHERD_OK && stop)
 *         ...
 *
 * @collective the world; in a dry world (dry.h) the other ranks count as passing the same number
 * @shapes     most: one number; not written on failure
 * @errors     EINVAL `most` or `world` is NULL; ENOTSUP a paper world; the status of an alarm that
 *             is raised; ENOMEM; EPEER; ETIMEDOUT a rank did not call it within SHERD_TIMEOUT
 */
SHERD_CALL sherd_status sherd_world_most(int64_t *most, sherd_world *world, int64_t mine);

/**
 * Whether the world has ended: SHERD_OK if not; otherwise EPEER or ETIMEDOUT, with which every
 * later check fails. It neither waits nor sends. So a rank that waits for something else than the
 * other ranks, as a server for its next request, can ask now and then whether they are still there.
 *
 *     while (!next_request(1.0)) // within a second
 *         if (sherd_world_ended(world))
 *             return 1;
 *
 * @local
 * @errors EPEER a rank has died, as far as this rank knows; ETIMEDOUT; EINVAL NULL, or a process
 *         that a rank has forked
 */
SHERD_CALL sherd_status sherd_world_ended(const sherd_world *world);

/**
 * The text of the last failure: one line with the rank, the function, the values, and what to do.
 * "" if there was none.
 *
 * @local   @owns borrowed, until the next failure or the close   @errors none
 */
SHERD_API const char *sherd_world_error(const sherd_world *world);

/**
 * Raise the alarm for a failure of the program's own. All ranks get `status` and `text` from the
 * next sherd_world_check.
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
 * How ranks reach each other: "arena" (processes that share memory, or one rank), "threads", "mpi"
 * (messages, because some ranks share no memory), "dry" or "paper".
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_world_transport(const sherd_world *world);

/**
 * The device that this rank computes on: "cpu", or a GPU such as "cuda:0".
 *
 * @local   @owns borrowed, until the world is closed   @errors none
 */
SHERD_API const char *sherd_world_device(const sherd_world *world);

/** The seed that the world was opened with. @local @errors none */
SHERD_API uint64_t sherd_world_seed(const sherd_world *world);

/* What tensor storage is used for. Storage with several uses counts as the last of them. */
typedef enum sherd_memory_use {
    SHERD_MEMORY_OTHER = 0,      /* intermediate results, and other tensors of the program */
    SHERD_MEMORY_SAVED = 1,      /* saved by the tape for backward */
    SHERD_MEMORY_OPTIMIZERS = 2, /* state of optimizers */
    SHERD_MEMORY_GRADIENTS = 3,  /* gradients of leaves */
    SHERD_MEMORY_PARAMETERS = 4  /* parameters, and other leaves that require a gradient */
} sherd_memory_use;

enum { SHERD_MEMORY_USES = 5 };

/*
 * Tensor storage, in bytes. The tensors of all ranks of a machine share one limit:
 * SHERD_ARENA_BYTES in the environment (8G, 512M, 1073741824), by default 7/8 of the smallest of
 * the machine's memory, the memory cgroup's and RLIMIT_AS. If ranks have different limits, the
 * smallest one counts. Ranks take memory in pieces of 256 KB, so opening a world fails with EINVAL
 * if the limit is below one piece for each rank. A tensor beyond the limit fails with ENOMEM, and
 * the world goes on.
 *
 * Each rank maps the memory of all ranks. Whoever starts the ranks (`sherd run` or sherd_spawn)
 * reserves addresses for it within its own RLIMIT_AS: with SHERD_ARENA_BYTES for each rank at most
 * twice that and 80 MB. A rank with a lower RLIMIT_AS (set by a wrapper) in which they do not fit
 * fails to open the world with ENOMEM; a smaller SHERD_ARENA_BYTES helps.
 */
typedef struct sherd_memory {
    int64_t live_bytes;  /* tensors of this rank that exist now */
    int64_t peak_bytes;  /* maximum of live_bytes since sherd_world_memory_reset */
    int64_t held_bytes;  /* taken from the machine: live_bytes, and free blocks kept for reuse */
    int64_t limit_bytes; /* what all ranks together may hold; 0 in a paper world */
    /* the same three for the part that is in the memory of this rank's GPU; 0 without a GPU */
    int64_t device_live_bytes, device_peak_bytes, device_held_bytes;
    /* live_bytes by sherd_memory_use, now and at the time of peak_bytes */
    int64_t live_for[SHERD_MEMORY_USES], peak_for[SHERD_MEMORY_USES];
} sherd_memory;

/** How much tensor storage this rank uses, and may use. @local @errors none */
SHERD_API sherd_memory sherd_world_memory(const sherd_world *world);

/** Set the peaks to what is live now. @local @errors none */
SHERD_API void sherd_world_memory_reset(sherd_world *world);

/**
 * For tests: make the n-th allocation of this world from now on fail on this rank (1 = the next
 * one; 0 = none).
 *
 * @local   @errors none
 */
SHERD_API void sherd_world_fail_allocation(sherd_world *world, int64_t n);

/** Allocations since the last sherd_world_fail_allocation. @local @errors none */
SHERD_API int64_t sherd_world_allocations(const sherd_world *world);

SHERD_END

#endif
