/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on shapes and indices: views, parts, joined tensors, indexing, sorting, writes in
 * place. "See ops.h" means what the head of ops.h says of all operators. Unless a comment says
 * otherwise, elements are only moved or copied: every dtype is accepted, and a pending reduction
 * stays pending. Dims may be negative (-1 is the last one).
 *
 * A dim that a function does not change stays sharded as it is, evenly or not. If a sharded dim is
 * sliced, padded or joined, each rank keeps the elements that it has, and the cuts of the result
 * follow from that.
 *
 * A *view* shares the storage of its operand: writing one in place changes both.
 */
#ifndef SHERD_OPS_SHAPE_H
#define SHERD_OPS_SHAPE_H

#include "tensor.h"

SHERD_BEGIN

/* ---- another shape --------------------------------------------------------------------------- */

/**
 * The same as sherd_view, which copies (all pieces, or none) if strides do not allow a view.
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
 * Insert a dim of size 1 before dim `dim` (-1 = after the last one); a view.
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
 * The same tensor with all pieces row-major in memory: a view, or copies if some may be strided.
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
 * The indices start, start + step, ... below `end` of a dim, as in Python: negative indices count
 * from the end of the dim, and indices outside it are clipped, so INT64_MAX means up to the end. A
 * view.
 *
 * Nothing moves: if the dim is sharded, each rank keeps its part of the slice, which may be empty.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such dim, step < 1
 */
SHERD_API sherd_tensor *sherd_slice(sherd_tensor *a, int dim, int64_t start, int64_t end,
                                    int64_t step);

/**
 * The indices [start, start + length) of a dim, all of which must exist; otherwise as sherd_slice.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such dim or indices
 */
SHERD_API sherd_tensor *sherd_narrow(sherd_tensor *a, int dim, int64_t start, int64_t length);

/**
 * The elements at one index of a dim, which is removed; a view. If the dim is sharded, its owner
 * sends them to all ranks that share the dim.
 *
 * @collective only if the dim is sharded
 * @owns       scope; shares the storage if nothing is sent
 * @errors     see ops.h; EINVAL no such dim or index
 */
SHERD_API sherd_tensor *sherd_select(sherd_tensor *a, int dim, int64_t index);

/**
 * Split a dim into parts of the given sizes, each a view as by sherd_narrow. Returns false after a
 * failure.
 *
 * @local
 * @shapes out: gets [count] tensors; sizes: int64_t[count], which add up to the dim
 * @owns   the results belong to the scope; they share the storage
 * @errors EINVAL no such dim, sizes that do not add up; ENOMEM; then every out[i] is the failed
 *         tensor
 */
SHERD_API bool sherd_split(sherd_tensor **out, sherd_tensor *a, int dim, const int64_t *sizes,
                           int count);

/**
 * Split a dim of size n into parts of ceil(n / count); the last part may be shorter, and there may
 * be fewer than `count` parts. Returns how many parts there are; 0 after a failure.
 *
 * @local
 * @shapes out: [count]
 * @owns   the results belong to the scope; they share the storage
 * @errors EINVAL no such dim, count < 1; ENOMEM; then every out[i] is the failed tensor
 */
SHERD_API int sherd_chunk(sherd_tensor **out, sherd_tensor *a, int dim, int count);

/* ---- joined and repeated --------------------------------------------------------------------- */

/**
 * Add elements with one value before and after those of each dim; negative numbers remove elements.
 * If a dim is sharded, the first and the last rank that have elements get the new ones, and nothing
 * moves. In a pending sum, only one addend gets the value. What is pending and gets four times as
 * large or more, by whole multiples of its sizes, is settled first, while it is small.
 *
 * @collective only if a pending reduction must be settled
 * @shapes     before, after: int64_t[ndim of a], how many elements
 * @owns       scope
 * @errors     see ops.h; EINVAL a size below 0, a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_pad(sherd_tensor *a, const int64_t *before, const int64_t *after,
                                  double value);

/**
 * Concatenate tensors along a dim; all other dims have equal sizes. If the dim is sharded, each
 * rank joins its own pieces if the operands' cuts allow it; otherwise operands first move, in the
 * cheapest way, to cuts that do. If one operand is a pending sum, so is the result, in which
 * operands that are not pending count once, not once per rank; but if all that is pending is a
 * quarter of the result or less, it is settled first.
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
 * Reverse the order of indices in some dims; a copy. A sharded one is gathered first.
 *
 * @collective only if one is sharded
 * @shapes     dims: int[count]; count < 0 = all dims
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
 * Repeat the tensor times[d] times along dim d (PyTorch: Tensor.repeat). If `times` has more
 * numbers than there are dims, new dims are added before the first. A repeated dim that is sharded
 * is gathered first.
 *
 * @collective only if one is sharded
 * @shapes     times: int64_t[count], count >= ndim
 * @owns       scope
 * @errors     see ops.h; EINVAL fewer numbers than dims, a number below 0
 */
SHERD_API sherd_tensor *sherd_repeat(sherd_tensor *a, const int64_t *times, int count);

/**
 * As sherd_repeat, but `times` may have fewer numbers than there are dims: then the first dims are
 * not repeated.
 *
 * @collective as there   @shapes times: int64_t[count]   @owns scope   @errors as there
 */
SHERD_API sherd_tensor *sherd_tile(sherd_tensor *a, const int64_t *times, int count);

/* ---- by index: an index is an i32 tensor of numbers in [0, size of the dim) ------------------ */

/**
 * The elements at the given indices of a dim: `index` is [n], in any order. If the dim is sharded,
 * the cheapest of three ways is chosen:
 * - Each rank asks the owners for what it needs, once for each slice: three calls, for counts,
 *   indices and elements, and two for the gradient, whose addends for one slice are added up before
 *   they are sent. The result is sharded as `a` and `index` are. What is sent depends on the
 *   indices, so this is planned anew in each call, in tens of microseconds for each rank asked.
 * - The dim is gathered.
 * - Each rank takes the elements that it has, and the result is a pending sum.
 *
 * @collective only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it
 */
SHERD_API sherd_tensor *sherd_index_select(sherd_tensor *a, int dim, sherd_tensor *index);

/**
 * y[.., j, ..] = a[.., index[.., j, ..], ..] along a dim. `index` has as many dims as `a`; in the
 * other dims its sizes are at most those of `a`. For a sharded dim see sherd_index_select.
 *
 * @collective only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it
 */
SHERD_API sherd_tensor *sherd_gather(sherd_tensor *a, int dim, sherd_tensor *index);

/**
 * A copy of `a` with y[.., index[.., j, ..], ..] = source[.., j, ..] along a dim. If several j have
 * the same index, the last one counts, and it alone gets the gradient (PyTorch leaves the value
 * undefined and gives the gradient to all). In the other dims `index` has the sizes of `a`, and
 * `source` at least these.
 *
 * @collective only if something must move: `index` is gathered along the dim; other dims may be
 *             sharded
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside it
 */
SHERD_API sherd_tensor *sherd_scatter(sherd_tensor *a, int dim, sherd_tensor *index,
                                      sherd_tensor *source);

/**
 * As sherd_scatter, with one value in place of `source`.
 *
 * @collective as sherd_scatter
 * @owns       scope
 * @errors     as sherd_scatter; EINVAL a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_scatter_fill(sherd_tensor *a, int dim, sherd_tensor *index,
                                           double value);

/**
 * A copy of `a` with y[.., index[.., j, ..], ..] += source[.., j, ..] along a dim. If `index` is
 * sharded along the dim by axes that do not shard `a` there, the result is a pending sum, in which
 * `a` counts once. If the same axes shard both, the addends are sent to the owners, or the index is
 * gathered, whichever moves less.
 *
 * @collective only if something must move
 * @numerics   added in the order of j; at an owner in the order of shards, then of j. 16-bit
 *             elements are added in f32; more than 64 for one place in groups, whose sums are added
 *             in f64
 * @owns       scope
 * @errors     as sherd_scatter
 */
SHERD_API sherd_tensor *sherd_scatter_add(sherd_tensor *a, int dim, sherd_tensor *index,
                                          sherd_tensor *source);

/**
 * A copy of `a`, where each element that an index names along a dim is replaced by a reduction
 * (sum, average, maximum, minimum or product) of all source[.., j, ..] with that index, and of the
 * element of `a` itself if `include_self` is set. Elements that no index names stay. (An index for
 * whole slices: sherd_index_reduce; the softmax over the messages that each node of a graph gets:
 * sherd_index_softmax.)
 *
 * Shards are treated as in sherd_scatter_add. A sum may stay pending; other results are settled.
 * Elements that are equally large share the gradient of a maximum or minimum evenly.
 *
 * @collective only if something must move; without include_self the counts of elements move too
 * @numerics   as sherd_scatter_add; more is said at sherd_index_reduce
 * @owns       scope
 * @errors     as sherd_scatter; EINVAL an unknown reduction, bool, an average of integers
 */
SHERD_API sherd_tensor *sherd_scatter_reduce(sherd_tensor *a, int dim, sherd_tensor *index,
                                             sherd_tensor *source, sherd_reduce_op reduce,
                                             bool include_self);

/* ---- over whole dims: shards of the dim are gathered, or moved to another dim ---------------- */

/**
 * Sort the elements along a dim. The sort is stable; NaN counts as the largest number.
 *
 * @collective only if the dim is sharded
 * @shapes     indices: gets an i32 tensor: where each element was; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_sort(sherd_tensor *a, int dim, bool descending,
                                   sherd_tensor **indices);

/**
 * The k largest (or smallest) elements along a dim, in order; of equal elements the first ones.
 *
 * @collective only if the dim is sharded; each shard sends its first k, if that is less
 * @shapes     indices: gets an i32 tensor: where each element was; NULL = not wanted
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
 * Set the elements above a diagonal of the last two dims to zero (0: the main one, 1: the next
 * above).
 *
 * @local   @owns scope   @errors see ops.h; EINVAL fewer than two dims
 */
SHERD_API sherd_tensor *sherd_tril(sherd_tensor *a, int64_t diagonal);

/** The same of the elements below a diagonal. @local @owns scope @errors as sherd_tril */
SHERD_API sherd_tensor *sherd_triu(sherd_tensor *a, int64_t diagonal);

/* ---- in place -------------------------------------------------------------------------------- */

/*
 * These functions write into the storage of `a` and return `a`; all views of the storage change.
 * `b` is moved to the layout of `a`, and broadcasts to its shape. If `a` is a pending sum, addends
 * are written so that the sum has the new value. No gradient flows through a write: while the tape
 * records, a tensor that requires a gradient is refused, and a later backward that needs the old
 * values is an error.
 *
 * If a step fails after some ranks have written `a` and others have not, `a` and its views are lost
 * on all ranks at the next check (sherd_tensor_failed). sherd_fill and sherd_copy_from accept a
 * lost `a` and make it valid again, and its views too if `a` is not a view itself.
 * sherd_tensor_revive keeps the elements that are there.
 */

/**
 * a += b, of one dtype; integers wrap around, and of bool it is "or".
 *
 * @collective only if `b` must move; blocks until other ranks have finished reading `a`
 * @owns       `a` itself
 * @errors     see ops.h; EINVAL `a` or `b` requires a gradient while the tape records, `a` is an
 *             expanded view; ENOTSUP `a` has a pending reduction other than a sum
 */
SHERD_API sherd_tensor *sherd_add_to(sherd_tensor *a, sherd_tensor *b);

/**
 * a *= b, of one dtype; integers wrap around, and of bool it is "and". `a` may also be a pending
 * average.
 *
 * @collective as sherd_add_to   @owns `a` itself   @errors as sherd_add_to
 */
SHERD_API sherd_tensor *sherd_mul_by(sherd_tensor *a, sherd_tensor *b);

/**
 * a *= factor, with the same bits as sherd_scale; `a` may also be a pending average. Integers and
 * bool are multiplied by a factor that their dtype can hold, and integers wrap around.
 *
 * @local  blocks until other ranks have finished reading `a`
 * @owns   `a` itself
 * @errors as sherd_add_to; EINVAL a factor that integers or bool cannot hold
 */
SHERD_API sherd_tensor *sherd_scale_by(sherd_tensor *a, double factor);

/**
 * a = b, cast to the dtype of `a`.
 *
 * @collective as sherd_add_to   @owns `a` itself   @errors as sherd_add_to
 */
SHERD_API sherd_tensor *sherd_copy_from(sherd_tensor *a, sherd_tensor *b);

/**
 * a[b, index[b, j], ...] = rows[b, j, ...]: write rows into a cache, such as that of the keys of
 * attention. A negative index writes nothing; if an index occurs twice in b, the last of its rows
 * counts. Each rank writes what lies in its piece; `a` may be sharded in any dim, the second too.
 *
 * @collective only if `index` or `rows` must move, to the layout of `a` but with the second dim
 *             whole; blocks until other ranks have finished reading `a`
 * @shapes     a: [batch, n, ...]; index: i32 [batch, count]; rows: [batch, count, ...], of the
 *             dtype of `a`
 * @owns       `a` itself
 * @errors     as sherd_add_to; EINVAL an index of n or more, another dtype; ENOTSUP `a` has a
 *             pending reduction
 */
SHERD_API sherd_tensor *sherd_write_rows(sherd_tensor *a, sherd_tensor *index, sherd_tensor *rows);

/**
 * Write rows into a paged cache (sherd_attention_paged): row p % n of block table[b, p / n] becomes
 * rows[b, j, ...], where p = positions[b, j] is a position in sequence b. A negative position
 * writes nothing; of several rows for one place the last one counts. Entries of the table that no
 * position needs are not looked at.
 *
 * For how a pool may be sharded see sherd_attention_paged; its dims after the second may be sharded
 * in any way.
 *
 * @collective only if `table`, `positions` or `rows` must move, to the layout of the pool but with
 *             the first two dims whole (if the pool is sharded by blocks, they stay with their
 *             sequences); blocks until other ranks have finished reading the pool
 * @shapes     pool: [blocks, n, ...]; table: i32 [batch, m]; positions: i32 [batch, count]; rows:
 *             [batch, count, ...], of the dtype of the pool
 * @owns       `pool` itself
 * @errors     as sherd_add_to; EINVAL a position of m n or more, or a block number that is not in
 *             the pool or not in the shard of the sequence (a rank that finds it writes nothing,
 *             all ranks get the error, and the pool is lost if others have written:
 *             sherd_tensor_revive; so a server compares with the pool first); another dtype, a
 *             sharded second dim, blocks that are sharded where sequences are not; ENOTSUP the pool
 *             has a pending reduction
 */
SHERD_API sherd_tensor *sherd_write_paged(sherd_tensor *pool, sherd_tensor *table,
                                          sherd_tensor *positions, sherd_tensor *rows);

/**
 * a[to[i], ...] = a[from[i], ...] for all i at once: blocks of a paged cache that sequences no
 * longer share (vLLM: copy_blocks), or slots of a cache that go to other beams (reorder_cache). All
 * rows are taken before any is written; if a number occurs twice in `to`, the last one counts. A
 * negative `from` or `to` copies nothing.
 *
 * @collective if rows of `a` are sharded (in any way; each shard takes the rows that it lacks from
 *             their owners), or `from` or `to` is; otherwise nothing moves. Blocks until other
 *             ranks have finished reading `a`
 * @shapes     from, to: i32 [n]; to NULL = 0, 1, .. n - 1
 * @owns       `a` itself; for a while each rank has memory for the rows that it writes
 * @errors     as sherd_add_to; EINVAL a number outside the rows of `a` (nothing is written), more
 *             numbers than rows without `to`; ENOTSUP `a` has a pending reduction
 */
SHERD_API sherd_tensor *sherd_copy_rows(sherd_tensor *a, sherd_tensor *from, sherd_tensor *to);

/**
 * Set each element of `a` to `value`.
 *
 * @local  blocks until other ranks have finished reading `a`
 * @owns   `a` itself
 * @errors as sherd_add_to; EINVAL a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_fill(sherd_tensor *a, double value);

SHERD_END

#endif
