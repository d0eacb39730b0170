/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A few numbers for each position that ranks exchange if classes are sharded, instead of the
 * logits.
 */
#ifndef SHERD__FUNCTIONAL_STATS_H
#define SHERD__FUNCTIONAL_STATS_H

#include "ops/shared.h"

/*
 * New stats of the classes that this rank holds of operand 0, logits [positions...,classes]:
 * [numbers,rows], uninitialised; in the GPU's memory if `there`. In the call's scope.
 */
sherd_tensor *sherd__new_stats(sherd_call *call, int numbers, int64_t rows, bool there);

/*
 * The stats of all classes, [parts,numbers,rows], in one call; `stats` itself if logits are plain
 * (layout NULL).
 */
sherd_tensor *sherd__gather_stats(sherd_tensor *stats, const sherd_layout *logits);

/* How many parts there are. */
int64_t sherd__stats_parts(const sherd_tensor *all, const sherd_layout *logits);

#endif
