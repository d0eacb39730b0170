/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on shapes and indices: views, parts, and joining parts. What ops.h says of all
 * operators holds here too. Unless a comment says otherwise, elements are only moved or copied:
 * every dtype is accepted, and a pending reduction stays pending. Dims may be negative (-1 is the
 * last one).
 *
 * Shards pass through: a dim that a function does not change stays sharded as it is, evenly or not.
 * If a sharded dim is cut, padded or joined, each rank keeps what it has, and the cuts of the
 * result follow from that.
 *
 * A *view* shares the storage of its operand: writing one in place changes both.
 */
#ifndef SHERD_OPS_SHAPE_H
#define SHERD_OPS_SHAPE_H

#include "tensor.h"

SHERD_BEGIN

/* ---- another shape --------------------------------------------------------------------------- */

/**
 * Another name of sherd_view: it copies if strides do not allow a view.
 *
 * @collective only if something must move
 * @shapes     shape: int64_t[ndim]
 * @owns       scope
 * @errors     as sherd_view
 */
SHERD_API sherd_tensor *sherd_reshape(sherd_tensor *a, const int64_t *shape, int ndim);

/**
 * Merge the dims from..to (both included) into one, as sherd_view does; a scalar becomes [1].
 *
 * @collective only if something must move   @owns scope   @errors see ops.h; EINVAL no such dims
 */
SHERD_API sherd_tensor *sherd_flatten(sherd_tensor *a, int from, int to);

/**
 * Split a dim into several, as sherd_view does.
 *
 * @collective only if something must move
 * @shapes     sizes: int64_t[count], one may be -1
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, sizes whose product is not the dim's size
 */
SHERD_API sherd_tensor *sherd_unflatten(sherd_tensor *a, int dim, const int64_t *sizes, int count);

/**
 * Exchange the dims p and q; a view.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_transpose(sherd_tensor *a, int p, int q);

/**
 * Reorder dims: dim d of the result is dim dims[d] of `a`; a view.
 *
 * @local
 * @shapes dims: int[count], each dim once
 * @owns   scope; shares the storage
 * @errors EINVAL not a permutation of the dims
 */
SHERD_API sherd_tensor *sherd_permute(sherd_tensor *a, const int *dims, int count);

/**
 * Remove a dim of size 1; a dim of another size stays. A view; if the dim is sharded, it is
 * gathered.
 *
 * @collective only if it is sharded
 * @owns       scope; shares the storage
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_squeeze(sherd_tensor *a, int dim);

/**
 * Remove all dims of size 1.
 *
 * @collective as sherd_squeeze   @owns scope; shares the storage   @errors see ops.h
 */
SHERD_API sherd_tensor *sherd_squeeze_all(sherd_tensor *a);

/**
 * Insert a dim of size 1 before dim `dim` (-1: after the last one); a view.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such position
 */
SHERD_API sherd_tensor *sherd_unsqueeze(sherd_tensor *a, int dim);

/**
 * Stretch dims of size 1, and add new dims before the first, as broadcasting does; a view.
 * (PyTorch: expand, broadcast_to.)
 *
 * @collective only if a dim that is stretched is sharded
 * @shapes     shape: int64_t[ndim]; -1 = unchanged
 * @owns       scope; shares the storage
 * @errors     see ops.h; EINVAL a dim of a size other than 1 would change
 */
SHERD_API sherd_tensor *sherd_expand(sherd_tensor *a, const int64_t *shape, int ndim);

/**
 * Row-major in memory: a view, or a copy if the piece is strided.
 *
 * @local   @owns scope   @errors ENOMEM
 */
SHERD_API sherd_tensor *sherd_contiguous(sherd_tensor *a);

/** A row-major copy; gradients flow through it. @local @owns scope @errors ENOMEM */
SHERD_API sherd_tensor *sherd_clone(sherd_tensor *a);

/**
 * The same storage as a tensor through which no gradient flows.
 *
 * @local   @owns scope; shares the storage   @errors ENOMEM
 */
SHERD_API sherd_tensor *sherd_detach(sherd_tensor *a);

/* ---- parts ----------------------------------------------------------------------------------- */

/**
 * The indices start, start + step, ... below end of a dim, as in Python: negative indices count
 * from the end, indices outside the dim are clipped; INT64_MAX means up to the end. A view.
 *
 * Nothing is moved: a rank that holds [lo, hi) of a sharded dim keeps its part of the slice, which
 * may be empty.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such dim, step < 1
 */
SHERD_API sherd_tensor *sherd_slice(sherd_tensor *a, int dim, int64_t start, int64_t end,
                                    int64_t step);

/**
 * `length` indices of a dim from `start` on, all of which must exist; otherwise as sherd_slice.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such dim or indices
 */
SHERD_API sherd_tensor *sherd_narrow(sherd_tensor *a, int dim, int64_t start, int64_t length);

/**
 * One index of a dim, which the result does not have; a view. If the dim is sharded, the index is
 * sent to all ranks that share the dim.
 *
 * @collective only if the dim is sharded
 * @owns       scope; shares the storage if nothing is sent
 * @errors     see ops.h; EINVAL no such dim or index
 */
SHERD_API sherd_tensor *sherd_select(sherd_tensor *a, int dim, int64_t index);

/**
 * Split a dim into parts of the given sizes, each a view as by sherd_narrow. False: failed.
 *
 * @local
 * @shapes out: [count]; sizes: int64_t[count], adding up to the dim
 * @owns   the results belong to the scope; they share the storage
 * @errors EINVAL no such dim, sizes that do not add up; ENOMEM; then every out[i] is the failed
 *         tensor
 */
SHERD_API bool sherd_split(sherd_tensor **out, sherd_tensor *a, int dim, const int64_t *sizes,
                           int count);

/**
 * Split a dim into parts of ceil(n / count), of which the last may be shorter; there may be fewer
 * than `count` parts. Returns how many there are; 0: failed.
 *
 * @local
 * @shapes out: [count]
 * @owns   the results belong to the scope; they share the storage
 * @errors EINVAL no such dim, count < 1; ENOMEM; then every out[i] is the failed tensor
 */
SHERD_API int sherd_chunk(sherd_tensor **out, sherd_tensor *a, int dim, int count);

/* ---- joined and repeated --------------------------------------------------------------------- */

/**
 * Add elements of one value before and after those of each dim; negative numbers remove elements.
 * Along a sharded dim the first and the last rank that have elements get the new ones, and nothing
 * is moved. On a pending sum the value is added once.
 *
 * @collective only if a pending product must be settled
 * @shapes     before, after: int64_t[ndim of a]
 * @owns       scope
 * @errors     see ops.h; EINVAL a size below 0, a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_pad(sherd_tensor *a, const int64_t *before, const int64_t *after,
                                  double value);

/**
 * Concatenate tensors along a dim; all other dims have equal sizes. Along a sharded dim each rank
 * joins its pieces if the operands' cuts allow it; otherwise operands move to cuts that do, in the
 * cheapest way. Beside a pending sum, a tensor that is equal on all ranks counts once.
 *
 * @collective only if something must move
 * @shapes     list: [count], at least one
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim. NULL for a list without a tensor
 */
SHERD_API sherd_tensor *sherd_cat(sherd_tensor *const *list, int count, int dim);

/**
 * Join tensors of one shape along a new dim before dim `dim` (-1: after the last one).
 *
 * @collective as sherd_cat   @shapes list: [count]   @owns scope   @errors as sherd_cat
 */
SHERD_API sherd_tensor *sherd_stack(sherd_tensor *const *list, int count, int dim);

/**
 * Reverse the indices of some dims; a copy. A sharded one is gathered first.
 *
 * @collective only if one is sharded
 * @shapes     dims: int[count]; count < 0 = all
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dims
 */
SHERD_API sherd_tensor *sherd_flip(sherd_tensor *a, const int *dims, int count);

/**
 * Move index i of a dim to i + by, cyclically. Along a sharded dim only elements that cross a cut
 * are sent.
 *
 * @collective only if the dim is sharded   @owns scope   @errors see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_roll(sherd_tensor *a, int64_t by, int dim);

/**
 * Repeat dim d of the tensor times[d] times (PyTorch: Tensor.repeat). With more numbers than dims,
 * new dims are added before the first. A repeated dim that is sharded is gathered first.
 *
 * @collective only if one is sharded
 * @shapes     times: int64_t[count], count >= ndim
 * @owns       scope
 * @errors     see ops.h; EINVAL fewer numbers than dims, a number below 0
 */
SHERD_API sherd_tensor *sherd_repeat(sherd_tensor *a, const int64_t *times, int count);

/**
 * As sherd_repeat, but with fewer numbers than dims the first dims are not repeated.
 *
 * @collective as there   @shapes times: int64_t[count]   @owns scope   @errors as there
 */
SHERD_API sherd_tensor *sherd_tile(sherd_tensor *a, const int64_t *times, int count);

/* ---- by index: an index is an i32 tensor of numbers in [0, size of the dim) ------------------ */

/**
 * The given indices of a dim, in any order: `index` is [n]. For a sharded dim, the way that moves
 * least is chosen. (a) Ranks ask the owners: three calls for counts, indices and elements, and two
 * for the gradient; the result has the layout of `a` and the index. What is sent depends on the
 * indices, so each rank makes a plan for each rank that it exchanges with, in tens of microseconds.
 * (b) The dim is gathered. (c) Each rank picks what it has, and the result is a pending sum.
 *
 * @collective only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it
 */
SHERD_API sherd_tensor *sherd_index_select(sherd_tensor *a, int dim, sherd_tensor *index);

/**
 * y[.., j, ..] = a[.., index[.., j, ..], ..] along a dim. The index has as many dims as `a`; in the
 * others its sizes are at most those of `a`. A sharded dim as in sherd_index_select.
 *
 * @collective only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it
 */
SHERD_API sherd_tensor *sherd_gather(sherd_tensor *a, int dim, sherd_tensor *index);

/**
 * A copy of `a` with y[.., index[.., j, ..], ..] = source[.., j, ..] along a dim. If several j have
 * the same index, the last one is stored, and it alone gets the gradient (PyTorch leaves the value
 * undefined and gives the gradient to all). In the other dims the index has the sizes of `a`, and
 * the source at least these.
 *
 * @collective only if something must move: the index is gathered along the dim, the rest may be
 *             sharded
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it
 */
SHERD_API sherd_tensor *sherd_scatter(sherd_tensor *a, int dim, sherd_tensor *index,
                                      sherd_tensor *source);

/**
 * As sherd_scatter, with one value for all elements.
 *
 * @collective as sherd_scatter
 * @owns       scope
 * @errors     as sherd_scatter; EINVAL a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_scatter_fill(sherd_tensor *a, int dim, sherd_tensor *index,
                                           double value);

/**
 * A copy of `a` with y[.., index[.., j, ..], ..] += source[.., j, ..] along a dim. If the index is
 * sharded along the dim by axes that do not shard it in `a`, the result is a pending sum, in which
 * `a` counts once. If the same axes shard both, the addends are sent to the owners, or the index is
 * gathered, whichever moves less.
 *
 * @collective only if something must move
 * @numerics   added in the order of j; at an owner in the order of shards, and then of j; 16 bits
 *             add up in f32, of which more than 64 for one place are added in groups, in f64
 * @owns       scope
 * @errors     as sherd_scatter
 */
SHERD_API sherd_tensor *sherd_scatter_add(sherd_tensor *a, int dim, sherd_tensor *index,
                                          sherd_tensor *source);

/**
 * A copy of `a` with y[.., index[.., j, ..], ..] = what `reduce` makes of all source[.., j, ..]
 * with that index along a dim, and of a's own element if `include_self`: the sum, the average, the
 * largest or the smallest. Places without an index keep a's element. For messages of a graph:
 *
 *     most = sherd_scatter_reduce(nodes, 0, target, score, SHERD_MAX, false);
 *     score = sherd_exp(sherd_sub(score, sherd_gather(most, 0, target)));
 *
 * Shards as in sherd_scatter_add. A sum may be pending; the largest and smallest are settled, and
 * the gradient of equal ones is shared evenly.
 *
 * @collective only if something must move: without include_self also what counts elements
 * @numerics   as sherd_scatter_add; NaN is both the largest and the smallest; the smallest i64
 *             without include_self is at most 2^63 - 1024
 * @owns       scope
 * @errors     as sherd_scatter; EINVAL SHERD_PRODUCT, bool, an average of integers
 */
SHERD_API sherd_tensor *sherd_scatter_reduce(sherd_tensor *a, int dim, sherd_tensor *index,
                                             sherd_tensor *source, sherd_reduce_op reduce,
                                             bool include_self);

/* ---- over whole dims: shards of the dim are gathered, or moved to another dim ---------------- */

/**
 * Sort a dim, and return where its elements were. Stable; NaN is the largest.
 *
 * @collective only if the dim is sharded
 * @shapes     indices: gets the i32 tensor; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_sort(sherd_tensor *a, int dim, bool descending,
                                   sherd_tensor **indices);

/**
 * The k largest (or smallest) elements of a dim in order, and where they are; of equal elements the
 * first.
 *
 * @collective only if the dim is sharded
 * @shapes     indices: gets the i32 tensor; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim, or fewer than k elements
 */
SHERD_API sherd_tensor *sherd_topk(sherd_tensor *a, int64_t k, int dim, bool largest,
                                   sherd_tensor **indices);

/**
 * Running sums along a dim. A pending sum stays pending; integers keep their dtype.
 *
 * @collective only if the dim is sharded
 * @numerics   f32 and 16 bits add up in f64, in order
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, bool
 */
SHERD_API sherd_tensor *sherd_cumsum(sherd_tensor *a, int dim);

/**
 * Zero the elements above a diagonal of the last two dims (0: the main one, 1: the next above).
 * Nothing is moved.
 *
 * @local   @owns scope   @errors see ops.h; EINVAL fewer than two dims
 */
SHERD_API sherd_tensor *sherd_tril(sherd_tensor *a, int64_t diagonal);

/**
 * Zero the elements below a diagonal of the last two dims. Nothing is moved.
 *
 * @local   @owns scope   @errors as sherd_tril
 */
SHERD_API sherd_tensor *sherd_triu(sherd_tensor *a, int64_t diagonal);

/* ---- in place -------------------------------------------------------------------------------- */

/*
 * These functions write into the storage of `a` and return `a`; all its views change. `b` is moved
 * to the layout of `a` and broadcasts to its shape; a pending sum is written so that the sum has
 * the new value. No gradient flows through a write: while the tape records, a tensor that requires
 * a gradient is refused, and a backward that needs what the storage held before is an error.
 *
 * If a step fails when some ranks have written `a`, and others have not yet, it is lost on all of
 * them at the check, and so are its views. sherd_fill and sherd_copy_from take a lost `a` and make
 * it valid again (with its views, if it is no view itself); sherd_tensor_revive takes what is
 * there.
 */

/**
 * a += b.
 *
 * @collective only if `b` must move; waits until peers have read `a`
 * @owns       `a` itself
 * @errors     see ops.h; EINVAL a gradient would be lost, `a` is an expanded view; ENOTSUP `a` has
 *             a pending reduction other than a sum
 */
SHERD_API sherd_tensor *sherd_add_to(sherd_tensor *a, sherd_tensor *b);

/**
 * a *= b; `a` may also be a pending average.
 *
 * @collective as sherd_add_to   @owns `a` itself   @errors as sherd_add_to
 */
SHERD_API sherd_tensor *sherd_mul_by(sherd_tensor *a, sherd_tensor *b);

/**
 * a *= factor, with the bits of sherd_scale; `a` may also be a pending average.
 *
 * @local  waits until peers have read `a`
 * @owns   `a` itself
 * @errors as sherd_add_to
 */
SHERD_API sherd_tensor *sherd_scale_by(sherd_tensor *a, double factor);

/**
 * a = b, cast to the dtype of `a`.
 *
 * @collective as sherd_add_to   @owns `a` itself   @errors as sherd_add_to
 */
SHERD_API sherd_tensor *sherd_copy_from(sherd_tensor *a, sherd_tensor *b);

/**
 * a[b, index[b, j], ...] = rows[b, j, ...]: fill a cache, such as that of the keys of attention. A
 * negative index writes nothing; if a number is there twice, its last row stays. A rank writes what
 * lies in its piece; `a` may be sharded in any dim, the second too.
 *
 * @collective only if the index or the rows must move: to the layout of `a`, with the second dim
 *             whole; waits until peers have read `a`
 * @shapes     a: [batch, n, ...]; index: i32 [batch, count]; rows: [batch, count, ...], of the
 *             dtype of `a`
 * @owns       `a` itself
 * @errors     as sherd_add_to; EINVAL an index of n or more, another dtype; ENOTSUP `a` has a
 *             pending reduction
 */
SHERD_API sherd_tensor *sherd_write_rows(sherd_tensor *a, sherd_tensor *index, sherd_tensor *rows);

/**
 * Fill a cache that lies in blocks (sherd_attention_paged): position p = positions[b, j] of
 * sequence b is the place p % n of the block table[b, p / n] of the pool, and becomes rows[b, j,
 * ...]. So positions are counted in each sequence, wherever its blocks lie. A negative one writes
 * nothing; of rows that have one place the last one stays. Entries of the table that no position
 * needs are not looked at.
 *
 * How a pool may be sharded is said at sherd_attention_paged. Dims behind the second may be sharded
 * in any way.
 *
 * @collective only if table, positions or rows must move: to the layout of the pool, the first two
 *             dims whole; or, if the pool is sharded by blocks, they stay with their sequences.
 *             Waits until peers have read the pool
 * @shapes     pool: [blocks, n, ...]; table: i32 [batch, m]; positions: i32 [batch, count]; rows:
 *             [batch, count, ...], of the dtype of the pool
 * @owns       `pool` itself
 * @errors     as sherd_add_to; EINVAL a position of m n or more, a number of a block that the pool,
 *             or the shard of the sequence, does not have: a rank that finds it writes nothing, all
 *             ranks get it, and the pool is lost until sherd_tensor_revive; another dtype, a
 *             sharded second dim, blocks that are sharded where sequences are not; ENOTSUP the pool
 *             has a pending reduction
 */
SHERD_API sherd_tensor *sherd_write_paged(sherd_tensor *pool, sherd_tensor *table,
                                          sherd_tensor *positions, sherd_tensor *rows);

/**
 * Set each element of `a` to `value`.
 *
 * @local  waits until peers have read `a`
 * @owns   `a` itself
 * @errors as sherd_add_to; EINVAL a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_fill(sherd_tensor *a, double value);

SHERD_END

#endif
