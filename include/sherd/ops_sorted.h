/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is sorted: where values go in a sorted sequence, and the distinct values of a tensor. NaN is
 * the largest number, and all NaNs are equal here; so are 0 and -0. What ops.h says of all
 * operators holds here too. Nothing here has a gradient.
 *
 *     sherd_tensor *inverse, *values = sherd_unique(species, &inverse, NULL); // of any layout
 *     sherd_tensor *bin = sherd_searchsorted(edges, energy, true, SHERD_I32);
 */
#ifndef SHERD_OPS_SORTED_H
#define SHERD_OPS_SORTED_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * Where values go in ascending sequences: the number of elements of the sequence that are less, or
 * if `right`, less or equal (torch.searchsorted; torch.bucketize, where `sorted` are boundaries).
 * Of a sequence that is not ascending the result is undefined.
 *
 * @collective see ops.h. Values may be sharded in any way: with one sequence they stay, and it is
 *             gathered; with a sequence for each row, leading dims are sharded alike
 * @shapes     sorted: [n], for values of any shape; or [..., n] for values [..., m], with the same
 *             leading dims; the result has the shape of the values; dtype: of the result, SHERD_I64
 *             or SHERD_I32
 * @owns       scope
 * @errors     see ops.h; EINVAL a sequence without dims, other leading dims, another dtype, more
 *             elements than an i32 counts if it is to be i32
 */
SHERD_API sherd_tensor *sherd_searchsorted(sherd_tensor *sorted, sherd_tensor *values, bool right,
                                           sherd_dtype dtype);

/**
 * The distinct values of all of `a`, ascending: [count], on all ranks of the mesh, a 0 as 0 even
 * where it is -0. How many there are follows from values. Each shard sorts its elements, ranks
 * exchange how many distinct ones each has, and then these: what travels is what shards have of
 * distinct values, 8 bytes for each shard, and nothing else.
 *
 * Only ranks of the mesh know how many there are: on others a result has no elements. In a dry
 * world (dry.h) nobody knows, and all elements of `a` are taken to be distinct.
 *
 * @collective the mesh of `a`
 * @shapes     inverse: gets the i32 tensor of the shape and layout of `a`: which of the values each
 *             element is; counts: gets the i64 tensor [count] of how often each occurs, on all
 *             ranks; NULL = not wanted, which is the same on all ranks
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a shard of 2^31 elements or more, or so many distinct ones
 */
SHERD_API sherd_tensor *sherd_unique(sherd_tensor *a, sherd_tensor **inverse,
                                     sherd_tensor **counts);

SHERD_END

#endif
