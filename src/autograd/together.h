/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers of many parameters in one call, for modules whose parameters are sharded: recorded so
 * that backward gathers them again in one call, and settles their gradients in one round.
 */
#ifndef SHERD__AUTOGRAD_TOGETHER_H
#define SHERD__AUTOGRAD_TOGETHER_H

#include "autograd/tape.h"

/* A call that moved pieces[i] to whole[i], perhaps in another dtype; equal ones were not moved. */
typedef struct sherd__gathering {
    sherd_tensor *const *pieces, *const *whole; /* [count] */
    int count;
    bool keep;          /* whole[i] for backward; otherwise the tape may save the pieces instead */
    sherd_dtype reduce; /* gradients are added up in this dtype; SHERD_DTYPE_NONE: in their own */
    bool ahead;         /* backward may begin to gather them again before it needs them */
} sherd__gathering;

/* Record it. */
void sherd__record_gather(const sherd__gathering *g);

/*
 * For a recomputed part that used what was gathered around it: whole[i] as it was there, without a
 * record.
 */
void sherd__stand_in(sherd_tensor *const *pieces, sherd_tensor *const *whole, int count);

/*
 * Those of whole[i] of which the tape has saved the pieces are gathered again in one call, when
 * backward needs the first of them, or, if all wish so, begun when it needs the first of those that
 * come before them in backward. Each is freed when what needs it has run. Out of memory: raised.
 */
void sherd__restore_together(const sherd__gathering *g);

#endif
