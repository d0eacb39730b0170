/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers of many parameters in one call, for modules whose parameters are sharded: recorded so
 * that backward gathers them again in one call, and settles their gradients in one round.
 */
#ifndef SHERD__TOGETHER_H
#define SHERD__TOGETHER_H

#include "autograd/tape.h"

/*
 * Record that whole[i] was moved from pieces[i], in one call. Unless `keep`, the tape may save the
 * pieces instead.
 */
void sherd__record_gather(sherd_tensor *const *pieces, sherd_tensor *const *whole, int count,
                          bool keep);

/*
 * For a recomputed part that used what was gathered around it: whole[i] as it was there, without a
 * record.
 */
void sherd__stand_in(sherd_tensor *const *pieces, sherd_tensor *const *whole, int count);
/* Whether what is recomputed has recorded a gather of these leaves here, the first time. */
bool sherd__gather_comes(sherd_tensor *const *pieces, int count);

/*
 * Those of whole[count] of which the tape has saved the pieces are gathered again in one call, when
 * backward needs the first of them. Each is freed when what needs it has run. Out of memory:
 * raised.
 */
void sherd__restore_together(sherd_tensor *const *whole, int count);

#endif
