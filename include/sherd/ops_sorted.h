/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching in sorted sequences, and the distinct values of a tensor. Here NaN counts as the
 * largest number, all NaNs are equal, and so are 0 and -0. Nothing here has a gradient. "See ops.h"
 * means what the head of ops.h says of all operators.
 *
 *     sherd_tensor *inverse, *values = sherd_unique(species, &inverse, NULL); // of any layout
 *     sherd_tensor *bin = sherd_searchsorted(edges, energy, true, SHERD_I32);
 */
#ifndef SHERD_OPS_SORTED_H
#define SHERD_OPS_SORTED_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * For each value, where it would be inserted in an ascending sequence: the number of elements that
 * are less than it, or with `right` less or equal (torch.searchsorted; torch.bucketize, where
 * `sorted` has the boundaries). The result is undefined for a sequence that is not ascending.
 *
 * @collective see ops.h. A single sequence is gathered, and values stay, sharded in any way; if
 *             each row has its own sequence, the leading dims of both are sharded alike
 * @shapes     sorted: [n], one sequence for values of any shape; or [..., n], one for each row of
 *             values [..., m] with the same leading dims; dtype: of the result, SHERD_I64 or
 *             SHERD_I32; the result: the shape of the values
 * @owns       scope
 * @errors     see ops.h; EINVAL `sorted` without dims, leading dims that differ, another dtype, a
 *             sequence too long for SHERD_I32
 */
SHERD_API sherd_tensor *sherd_searchsorted(sherd_tensor *sorted, sherd_tensor *values, bool right,
                                           sherd_dtype dtype);

/**
 * The distinct values of all of `a`, ascending: [count], replicated over the mesh; -0 is given as
 * 0. Each rank sorts its shard; then ranks exchange the number of distinct values of each shard (8
 * bytes), and these values, and nothing else.
 *
 * Only ranks of the mesh know the count; on other ranks a result has no elements. In a dry world
 * (dry.h) all elements of `a` count as distinct.
 *
 * @collective the mesh of `a`
 * @shapes     inverse: gets an i32 tensor with the shape and layout of `a`, the index in the result
 *             of each element; counts: gets an i64 tensor [count], how often each value occurs,
 *             replicated as the result; NULL = not wanted, on all ranks or on none
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a shard with 2^31 elements or more, or as many distinct values
 */
SHERD_API sherd_tensor *sherd_unique(sherd_tensor *a, sherd_tensor **inverse,
                                     sherd_tensor **counts);

SHERD_END

#endif
