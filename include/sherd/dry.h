/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Dry runs. A dry world is one rank of a machine that need not exist: the process is that rank, and
 * there are no others. The program does what it would do on the real machine, in the same order: it
 * makes the same layouts and plans and the same calls, and takes and frees the same memory. But no
 * kernel runs and nothing is sent. So a laptop can tell what a change of mesh, layout or style
 * costs on 512 ranks, in about the time that it takes to make the plans:
 *
 *     sherd dry -n 512 build/examples/gpt --mesh dp=64,tp=8 --layers 32 --dim 4096 --heads 32
 *
 * Exactly as on the real rank are the comm log (calls and bytes, by kind, axes and module), the
 * operators and the shapes that they are called with, and the peak of memory. Times are estimates:
 * a call takes as long as the price of its plan says (SHERD_PRICE), an operator as long as its
 * operations or its bytes take at the rates of sherd_rates, whichever is longer; nothing overlaps.
 *
 * Tensors have addresses, but take no memory until the program itself writes to them. Reading
 * returns what the program has written there, otherwise zeros: losses and norms are 0. Where ranks
 * exchange numbers (shapes in sherd_from_local, say), the others are assumed to pass what this rank
 * passes. If data of other ranks decides what comes next, and cannot be assumed, the call fails
 * with ENOTSUP.
 *
 * What depends on values on a real machine is assumed to be evenly spread, so there the comparison
 * with real ranks is not exact:
 * - Choices of groups (ops_groups.h) are spread over the groups, whatever their values, and so are
 *   runs of rows whose ends are not known.
 * - Indices by which ranks fetch elements from each other (sherd_index_select, sherd_gather,
 *   sherd_copy_rows, gradients) are spread over the dim.
 * - Attention to blocks of a pool: all tables are full, and seen to the end; rows are of one
 *   sequence.
 * - No index is found to be out of range.
 * - A loss scaler takes each step, because its norms are finite.
 * - Files: only headers are read, and nothing is written (files.h).
 */
#ifndef SHERD_DRY_H
#define SHERD_DRY_H

#include "world.h"

SHERD_BEGIN

/* How much a rank does in a second; 0 = that takes no time. */
typedef struct sherd_rates {
    double f32, f64; /* floating-point operations of operators on this dtype */
    double half;     /* the same for bf16 and f16 */
    double memory;   /* bytes that are read or written */
} sherd_rates;

/**
 * Open a dry world. Programs need not call this: sherd_world_open and sherd_spawn open a dry world
 * if the environment has SHERD_DRY, which `sherd dry` sets: "3/512" for rank 3 of 512, or "3" for
 * rank 3 of as many as the program asks sherd_spawn for. The rates are then those of
 * SHERD_DRY_RATES, such as "f32=1.5e11,memory=2e10", and sherd_spawn runs its body once, in the
 * calling process. If SHERD_DRY_REPORT names a file, closing a dry world appends a report to it,
 * one line of JSON (docs/dry_runs.md).
 *
 * @local
 * @shapes ranks: 1 .. 2^31-1, so it may be more than SHERD_MAX_RANKS; rates, options: NULL = all
 *         zero; `ranks`, `as` and `device` of the options are ignored
 * @owns   the caller closes *out with sherd_world_close; NULL on failure
 * @errors EINVAL rank outside of 0 .. ranks - 1, a negative rate, a price file that cannot be read
 *         or parsed; ENOMEM
 */
SHERD_CALL sherd_status sherd_world_dry(sherd_world **out, int ranks, int rank,
                                        const sherd_rates *rates,
                                        const sherd_world_options *options);

/** Whether a world is dry: then values that are read mean nothing. @local @errors none */
SHERD_API bool sherd_world_is_dry(const sherd_world *world);

/** The estimated time since a dry world was opened, in ns; 0 in others. @local @errors none */
SHERD_API int64_t sherd_dry_time(const sherd_world *world);

/* The work that a dry world has not done under one name: of an operator, or of the library. */
typedef struct sherd_dry_work {
    const char *name; /* "sherd_linear", "draw", "sherd_optimizer_step", ... */
    int64_t calls;
    double operations;   /* floating-point operations */
    int64_t bytes;       /* read and written */
    int64_t picoseconds; /* estimated by the rates */
} sherd_dry_work;

/**
 * The work that was not done under the i-th name, in the order of first calls; all zero after the
 * last.
 *
 * @local   @owns borrowed until the world is closed   @errors none
 */
SHERD_API sherd_dry_work sherd_dry_work_at(const sherd_world *world, int i);

SHERD_END

#endif
