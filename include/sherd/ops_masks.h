/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boolean indexing: elements and rows that a mask chooses. The size of a result depends on values,
 * so the ranks of the mesh exchange their counts, 8 bytes for each shard. Each rank keeps what it
 * has chosen, and nothing else moves: a result is sharded by the axes of the mask, with as many
 * rows in each shard as were chosen there. "See ops.h" means what the head of ops.h says of all
 * operators.
 *
 * A mask covers one or more dims, the first ones of the tensor. These are merged first, as
 * sherd_view does: shards of the first dim stay, those of the others may have to move.
 *
 *     sherd_tensor *old = sherd_ge_scalar(age, 60);           // bool [people], sharded
 *     sherd_tensor *their = sherd_masked_select(income, old); // [some], of [people]
 *     income = sherd_masked_scatter(income, old, sherd_scale(their, 1.1));
 *
 * Only ranks of the mesh know the counts. On other ranks a result has the size 0, and `rows` of
 * another origin must have no rows there. In a dry world (dry.h) counts are not known: all elements
 * count as chosen, the largest possible result.
 */
#ifndef SHERD_OPS_MASKS_H
#define SHERD_OPS_MASKS_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * The indices of all elements of `a` (any dtype) that are not 0, NaN included, in row-major order:
 * i32 [count, ndim of a].
 *
 * @collective the mesh of `a`
 * @owns       scope
 * @errors     see ops.h; EINVAL no dims, or one of 2^31 or more
 */
SHERD_API sherd_tensor *sherd_nonzero(sherd_tensor *a);

/**
 * The rows of `a` for which `mask` (bool) is true, in row-major order: a [mask's dims..., rest...]
 * -> [count, rest...]; if the mask covers all dims, elements: [count]. If the merged rows of `a`
 * are sharded, the mask is moved to them; otherwise each rank takes the rows of its shard of the
 * mask. A pending reduction of `a` stays pending.
 *
 * @collective the mesh of `a`
 * @owns       scope
 * @errors     see ops.h; EINVAL a mask without dims, or not with the first sizes of `a`
 */
SHERD_API sherd_tensor *sherd_masked_select(sherd_tensor *a, sherd_tensor *mask);

/**
 * A copy of `a` in which the rows for which `mask` is true are replaced by those of `rows`, in
 * order: the inverse of sherd_masked_select.
 *
 * @collective the mesh of `a`; `rows` is moved if it is sharded otherwise than sherd_masked_select
 *             leaves it
 * @shapes     a: [mask's dims..., rest...]; rows: [count, rest...], of the same dtype
 * @owns       scope
 * @errors     as sherd_masked_select; EINVAL another number of rows, another dtype
 */
SHERD_API sherd_tensor *sherd_masked_scatter(sherd_tensor *a, sherd_tensor *mask,
                                             sherd_tensor *rows);

SHERD_END

#endif
