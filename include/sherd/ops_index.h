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
