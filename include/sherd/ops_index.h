/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whole rows by index, elements by several indices, and elements repeated. An index is an i32
 * tensor of numbers in [0, size of its dim). "See ops.h" means what the head of ops.h says of all
 * operators; what moves is what sherd_index_select, sherd_scatter and sherd_scatter_add say
 * (ops_shape.h).
 */
#ifndef SHERD_OPS_INDEX_H
#define SHERD_OPS_INDEX_H

#include "ops_shape.h"

SHERD_BEGIN

/* ---- repeated -------------------------------------------------------------------------------- */

/**
 * Each index of a dim `times` times in a row: a0 a0 a1 a1 .. (torch.repeat_interleave; sherd_repeat
 * gives a0 a1 .. a0 a1 ..). A shard of the dim stays where it is, `times` times as long.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, negative times
 */
SHERD_API sherd_tensor *sherd_repeat_interleave(sherd_tensor *a, int dim, int64_t times);

/**
 * Index i of a dim counts[i] times in a row. `total` is the sum of the counts, the size of the
 * result's dim; ask for it (sherd_item of their sum) if you do not know it.
 *
 * @collective see ops.h: `counts` is gathered on all ranks
 * @shapes     counts: i32 [size of the dim]
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, a negative count, another sum than `total`, a total
 *             outside [0, 2^31)
 */
SHERD_API sherd_tensor *sherd_repeat_interleave_by(sherd_tensor *a, int dim, sherd_tensor *counts,
                                                   int64_t total);

/* ---- rows by one index ----------------------------------------------------------------------- */

/**
 * A copy of `a` to whose slices at index[j] of a dim the slices at j of `source` are added, those
 * of equal indices one after the other.
 *
 * @collective see ops.h
 * @shapes     index: [n]; source: as `a`, with n along the dim
 * @numerics   as sherd_scatter_add; but slices that go from one shard to a slice of another may be
 *             added up before they are sent
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it, shapes that do not fit
 */
SHERD_API sherd_tensor *sherd_index_add(sherd_tensor *a, int dim, sherd_tensor *index,
                                        sherd_tensor *source);

/**
 * A copy of `a` whose slices at index[j] of a dim are the slices at j of `source`; of several with
 * one index the last.
 *
 * @collective see ops.h
 * @shapes     as sherd_index_add
 * @owns       scope
 * @errors     as sherd_index_add
 */
SHERD_API sherd_tensor *sherd_index_copy(sherd_tensor *a, int dim, sherd_tensor *index,
                                         sherd_tensor *source);

/**
 * A copy of `a` whose slices at index[j] of a dim are all `value`.
 *
 * @collective see ops.h
 * @shapes     index: [n]
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it, a value that the dtype lacks
 */
SHERD_API sherd_tensor *sherd_index_fill(sherd_tensor *a, int dim, sherd_tensor *index,
                                         double value);

/**
 * A copy of `a`, where each slice that `index` names along a dim is replaced by a reduction (sum,
 * average, maximum, minimum or product) of all slices of `source` with that index, element by
 * element, and of the slice of `a` itself if `include_self` is set. Slices that no index names
 * stay. (torch.Tensor.index_reduce; sherd_scatter_reduce is the same with an index for each
 * element.)
 *
 * What a shard has for one slice of another is put together before it is sent, and sent once. A sum
 * may stay pending. Elements that are equally large share the gradient of a maximum evenly; without
 * include_self that of `a` gets no part (PyTorch gives it one, and drops it). The gradient of a
 * factor is the product of the others, also if it is 0.
 *
 * @collective see ops.h; without include_self, and for an average, counts of slices move too
 * @shapes     index: [n]; source: as `a`, with n along the dim
 * @numerics   sums as sherd_index_add; products in the order of shards, then of j. 16-bit elements
 *             are put together in f32, and rounded once; a product then again, times that of `a`.
 *             NaN counts as the largest and as the smallest number. A minimum of i64 without
 *             include_self is at most 2^63 - 1024. Second derivatives of a product leave out those
 *             by two factors that are both 0
 * @owns       scope
 * @errors     as sherd_index_add; EINVAL an unknown reduction, bool, an average of integers
 */
SHERD_API sherd_tensor *sherd_index_reduce(sherd_tensor *a, int dim, sherd_tensor *index,
                                           sherd_tensor *source, sherd_reduce_op reduce,
                                           bool include_self);

/**
 * Softmax of the elements along a dim in groups: y[j] = exp(a[j]) divided by the sum of exp(a[i])
 * of all i with index[i] = index[j]; for each place in the other dims on its own. So a graph's
 * attention weighs the messages that come to one node (PyTorch Geometric's `softmax`):
 *
 *     sherd_tensor *weight = sherd_index_softmax(score, 0, target, 5000); // [edges, heads]
 *     nodes = sherd_index_add(nodes, 0, target, sherd_mul(weight, edges)); // the sum of messages
 *
 * Groups are sharded by the axes that shard the dim, where none of it is asked for: a shard sends
 * and gets a maximum and a sum for each group of another shard that it has elements of.
 *
 * @collective only if `a` or the index is sharded along the dim
 * @shapes     index: [n], numbers in [0, groups); a and the result: n along the dim
 * @numerics   as sherd_softmax, by the largest element of a group; sums as sherd_index_add. 16-bit
 *             elements are computed with in f32
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index of another length or outside [0, groups),
 *             groups < 0
 */
SHERD_API sherd_tensor *sherd_index_softmax(sherd_tensor *a, int dim, sherd_tensor *index,
                                            int64_t groups);

/* ---- by several indices ---------------------------------------------------------------------- */

/**
 * y[j.., rest..] = a[index[0][j..], index[1][j..], .., rest..]: indices of the first `count` dims,
 * which broadcast to one shape (PyTorch: a[i, j]). These dims are merged first, as sherd_view does:
 * shards of the first stay, those of the others may have to move.
 *
 * @collective see ops.h
 * @shapes     index: [count], 1 to 4 tensors
 * @owns       scope
 * @errors     see ops.h; EINVAL more indices than dims, an index outside its dim, dims that have
 *             2^31 elements or more together
 */
SHERD_API sherd_tensor *sherd_index_at(sherd_tensor *a, sherd_tensor *const *index, int count);

/**
 * A copy of `a` in which these elements are those of `values`, or have them added (`accumulates`):
 * without, the last one counts of several at one place; with it, all (PyTorch: a[i, j] = values,
 * index_put).
 *
 * @collective see ops.h
 * @shapes     index: as in sherd_index_at; values: broadcast to the shape of its result
 * @numerics   as sherd_scatter_add
 * @owns       scope
 * @errors     as sherd_index_at; EINVAL values that do not broadcast, another dtype
 */
SHERD_API sherd_tensor *sherd_index_put(sherd_tensor *a, sherd_tensor *const *index, int count,
                                        sherd_tensor *values, bool accumulates);

SHERD_END

#endif
