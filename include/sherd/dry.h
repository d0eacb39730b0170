/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dry runs: one rank of a machine that need not exist. The process is that rank, and there is no
 * other. A program does there what it does on the real one, in the same order: it makes the same
 * layouts and plans, the same calls, takes and gives back the same memory. But no kernel runs and
 * nothing moves. So what a change of mesh, layout or style costs on 512 ranks is found on a laptop,
 * in about the time that it takes to make the plans:
 *
 *     sherd dry -n 512 build/examples/gpt --mesh dp=64,tp=8 --layers 32 --dim 4096
 *
 * What is the same as on the real rank, exactly: the comm log (calls and bytes, by kind, axes and
 * module), the operators and the shapes that they are called with, and the peak of memory. What is
 * an estimate: times. A call takes what its plan's price says (SHERD_PRICE), an operator the longer
 * of its operations and its bytes at the rates of sherd_rates; nothing overlaps.
 *
 * Tensors have addresses, and no memory until the program itself writes to them. What is read is
 * what the program has written there, else zero: losses and norms are 0. What ranks tell each other
 * in numbers (shapes in sherd_from_local, say) is taken to be what this rank tells. Where a rank
 * needs data of others to know what comes next, and that can not be assumed, the call fails with
 * ENOTSUP.
 *
 * What data decide on real ranks is taken to be even, so equality ends there. Choices of groups
 * (ops_groups.h) are spread over the groups, whatever they hold, and so are runs of rows whose ends
 * are not known; indices by which ranks fetch elements from each other (sherd_index_select,
 * sherd_gather, their gradients) are spread over the dim. No index is found to be out of range. A
 * scaler takes each step, as its norms are finite. Files are read but for their elements, and not
 * written (files.h).
 */
#ifndef SHERD_DRY_H
#define SHERD_DRY_H

#include "world.h"

SHERD_BEGIN

/* What a rank does in a second; 0 = whatever it is takes no time. */
typedef struct sherd_rates {
    double f32, f64; /* floating-point operations of operators that compute in this dtype */
    double half;     /* the same of bf16 and f16 */
    double memory;   /* bytes that are read or written */
} sherd_rates;

/**
 * Open a dry world. sherd_world_open and sherd_spawn open one if SHERD_DRY is in the environment,
 * as `sherd dry` sets it: "3/512" for rank 3 of 512, or "3" for rank 3 of as many as sherd_spawn is
 * asked for; the rates are in SHERD_DRY_RATES, as "f32=1.5e11,memory=2e10". sherd_spawn then runs
 * its body once, in the calling process. If SHERD_DRY_REPORT names a file, closing a dry world
 * appends what it came to: one line of JSON (docs/dry_runs.md).
 *
 * @local
 * @shapes ranks: 1 .. 2^31-1, also more than SHERD_MAX_RANKS; rates, options: NULL = all zero; the
 *         options' `ranks`, `as` and `device` are not looked at
 * @owns   the caller closes *out with sherd_world_close; NULL on failure
 * @errors EINVAL rank outside of 0 .. ranks - 1, a negative rate, a price file that cannot be read
 *         or parsed; ENOMEM
 */
SHERD_CALL sherd_status sherd_world_dry(sherd_world **out, int ranks, int rank,
                                        const sherd_rates *rates,
                                        const sherd_world_options *options);

/** Whether it is a dry world: then numbers that are read mean nothing. @local @errors none */
SHERD_API bool sherd_world_is_dry(const sherd_world *world);

/** What has passed in a dry world since it was opened, ns; 0 in others. @local @errors none */
SHERD_API int64_t sherd_dry_time(const sherd_world *world);

/* All that was left out under one name: an operator, or another thing that the library does. */
typedef struct sherd_dry_work {
    const char *name; /* "sherd_linear", "draw", "sherd_optimizer_step", ... */
    int64_t calls;
    double operations;   /* floating-point operations */
    int64_t bytes;       /* read and written */
    int64_t picoseconds; /* by the rates */
} sherd_dry_work;

/**
 * What was left out under the i-th name, in the order of first calls; all zero after the last.
 *
 * @local   @owns borrowed until the world is closed   @errors none
 */
SHERD_API sherd_dry_work sherd_dry_work_at(const sherd_world *world, int i);

SHERD_END

#endif
