/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements and rows that a mask chooses (boolean indexing). How many there are follows from values,
 * so ranks of the mesh exchange their counts, 8 bytes for each shard; then each keeps what it has
 * chosen: results are sharded as the mask, with cuts where the shards' own choices end, and nothing
 * else moves. What ops.h says of all operators holds here too.
 *
 * A mask has one or more dims, the leading ones of what it chooses from. Dims are merged first, as
 * sherd_view does: shards of the first dim stay, those of others may have to move.
 *
 *     sherd_tensor *old = sherd_ge_scalar(age, 60);           // bool [people], sharded
 *     sherd_tensor *their = sherd_masked_select(income, old); // [some], of [people]
 *     income = sherd_masked_scatter(income, old, sherd_scale(their, 1.1));
 *
 * Only ranks of the mesh know the counts: on others a result has no rows, and rows of another
 * origin that go with it must be none there, too. In a dry world (dry.h) nobody knows them, and all
 * elements are chosen, as many as there may be.
 */
#ifndef SHERD_OPS_MASKS_H
#define SHERD_OPS_MASKS_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * Where elements of `a` (any dtype) are not 0, NaN counts, row-major: i32 [count, dims of a].
 *
 * @collective the mesh of `a`
 * @owns       scope
 * @errors     see ops.h; EINVAL no dims, or one of 2^31 or more
 */
SHERD_API sherd_tensor *sherd_nonzero(sherd_tensor *a);

/**
 * The rows of `a` for which the mask (bool) is true, row-major: [mask..., rest...] -> [count,
 * rest...]; with a mask of all dims, elements: [count]. If the merged rows of `a` are sharded, the
 * mask is moved to them; otherwise each rank takes those of its shard of the mask. A pending
 * reduction of `a` stays pending.
 *
 * @collective the mesh of `a`
 * @owns       scope
 * @errors     see ops.h; EINVAL a mask without dims, or not with the first sizes of `a`
 */
SHERD_API sherd_tensor *sherd_masked_select(sherd_tensor *a, sherd_tensor *mask);

/**
 * A copy of `a` in which the rows for which the mask is true are those of `rows`, in order: the
 * inverse of sherd_masked_select.
 *
 * @collective the mesh of `a`; rows that lie otherwise than sherd_masked_select leaves them move
 * @shapes     a: [mask..., rest...]; rows: [count, rest...], of the same dtype
 * @owns       scope
 * @errors     as sherd_masked_select; EINVAL another number of rows, another dtype
 */
SHERD_API sherd_tensor *sherd_masked_scatter(sherd_tensor *a, sherd_tensor *mask,
                                             sherd_tensor *rows);

SHERD_END

#endif
