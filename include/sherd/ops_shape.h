/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on shape and index: views, parts and what is made of parts. What is said of all operators in ops.h
 * holds here too. Elements go through as they are, so every dtype does, and a pending reduction stays pending, unless a
 * function says otherwise. Dims may be counted from the end (-1 is the last one).
 *
 * Shards pass through: a dim that a function does nothing to stays sharded as it is, evenly or not. Of a dim that is
 * cut, padded or joined each rank keeps what it has, and the cuts of the result are what follows from that.
 *
 * A *view* shares the storage of its operand: writing one in place writes both.
 */
#ifndef SHERD_OPS_SHAPE_H
#define SHERD_OPS_SHAPE_H

#include "tensor.h"

SHERD_BEGIN

/* ---- another shape -------------------------------------------------------------------------- */

/** sherd_view by its other name: it copies where strides do not allow a view. @collective only if something must move @shapes shape: int64_t[ndim] @owns scope @errors as sherd_view */
SHERD_API sherd_tensor *sherd_reshape(sherd_tensor *a, const int64_t *shape, int ndim);

/** Dims from..to (both counted) merged into one, as sherd_view does; a scalar becomes [1]. @collective only if something must move @owns scope @errors see ops.h; EINVAL no such dims */
SHERD_API sherd_tensor *sherd_flatten(sherd_tensor *a, int from, int to);

/**
 * A dim split into several, as sherd_view does.
 *
 * @collective only if something must move
 * @shapes     sizes: int64_t[count], one may be -1
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, sizes that do not multiply to it
 */
SHERD_API sherd_tensor *sherd_unflatten(sherd_tensor *a, int dim, const int64_t *sizes, int count);

/** Dims p and q exchanged; a view. @local @owns scope; shares the storage @errors EINVAL no such dim */
SHERD_API sherd_tensor *sherd_transpose(sherd_tensor *a, int p, int q);

/** Dim d of the result is dims[d] of `a`; a view. @local @shapes dims: int[count], each dim once @owns scope; shares the storage @errors EINVAL no such order */
SHERD_API sherd_tensor *sherd_permute(sherd_tensor *a, const int *dims, int count);

/** Leave out a dim of size 1; one of another size stays. A view; shards of the dim are gathered. @collective only if it is sharded @owns scope; shares the storage @errors see ops.h; EINVAL no such dim */
SHERD_API sherd_tensor *sherd_squeeze(sherd_tensor *a, int dim);
/** Leave out all dims of size 1. @collective as sherd_squeeze @owns scope; shares the storage @errors see ops.h */
SHERD_API sherd_tensor *sherd_squeeze_all(sherd_tensor *a);
/** A dim of size 1 before dim `dim` (-1: behind the last); a view. @local @owns scope; shares the storage @errors EINVAL no such place */
SHERD_API sherd_tensor *sherd_unsqueeze(sherd_tensor *a, int dim);

/**
 * Dims of size 1 stretched, and new ones before the first, as broadcasting does it; a view. (PyTorch: expand, broadcast_to.)
 *
 * @collective only if a dim that is stretched is sharded
 * @shapes     shape: int64_t[ndim]; -1 = as it is
 * @owns       scope; shares the storage
 * @errors     see ops.h; EINVAL a dim of another size than 1 would change
 */
SHERD_API sherd_tensor *sherd_expand(sherd_tensor *a, const int64_t *shape, int ndim);

/** Row-major in memory: a view, or a copy where pieces are strided. @local @owns scope @errors ENOMEM */
SHERD_API sherd_tensor *sherd_contiguous(sherd_tensor *a);
/** A copy, row-major; the gradient goes through. @local @owns scope @errors ENOMEM */
SHERD_API sherd_tensor *sherd_clone(sherd_tensor *a);
/** The same storage as a tensor through which no gradient flows. @local @owns scope; shares the storage @errors ENOMEM */
SHERD_API sherd_tensor *sherd_detach(sherd_tensor *a);

/* ---- parts ---------------------------------------------------------------------------------- */

/**
 * Indices start, start + step, ... below end of a dim, as in Python: negative ones count from the end, and what is outside
 * is left out; end INT64_MAX is the end. A view.
 *
 * On a sharded dim nothing moves: a rank that holds [lo, hi) keeps what it has of the part, which may be nothing.
 *
 * @local   @owns scope; shares the storage   @errors EINVAL no such dim, step < 1
 */
SHERD_API sherd_tensor *sherd_slice(sherd_tensor *a, int dim, int64_t start, int64_t end,
                                    int64_t step);

/** `length` indices of a dim from `start` on, which must be there; otherwise as sherd_slice. @local @owns scope; shares the storage @errors EINVAL no such dim or indices */
SHERD_API sherd_tensor *sherd_narrow(sherd_tensor *a, int dim, int64_t start, int64_t length);

/** One index of a dim, without the dim; a view. Of a sharded dim this index goes to all ranks that share it. @collective only if the dim is sharded @owns scope; shares the storage where nothing moves @errors see ops.h; EINVAL no such dim or index */
SHERD_API sherd_tensor *sherd_select(sherd_tensor *a, int dim, int64_t index);

/**
 * A dim cut into parts of these sizes, each a view as by sherd_narrow. False: failed.
 *
 * @local
 * @shapes out: [count]; sizes: int64_t[count], adding up to the dim
 * @owns   the results belong to the scope; they share the storage
 * @errors EINVAL no such dim, sizes that do not add up; ENOMEM; then out[] holds failed tensors
 */
SHERD_API bool sherd_split(sherd_tensor **out, sherd_tensor *a, int dim, const int64_t *sizes,
                           int count);

/**
 * A dim cut into parts of ceil(n / count), the last one shorter: fewer than `count` where that is enough. Returns how many
 * there are; 0: failed.
 *
 * @local
 * @shapes out: [count]
 * @owns   the results belong to the scope; they share the storage
 * @errors EINVAL no such dim, count < 1; ENOMEM; then out[] holds failed tensors
 */
SHERD_API int sherd_chunk(sherd_tensor **out, sherd_tensor *a, int dim, int count);

/* ---- joined and repeated -------------------------------------------------------------------- */

/**
 * Elements of one value before and behind those of each dim; negative numbers take some away. Along a sharded dim the first and
 * the last rank that have elements get more of them, and nothing moves. A pending sum holds the value once.
 *
 * @collective only if a pending product must be settled
 * @shapes     before, after: int64_t[ndim of a]
 * @owns       scope
 * @errors     see ops.h; EINVAL a size below 0, a value that the dtype can not hold
 */
SHERD_API sherd_tensor *sherd_pad(sherd_tensor *a, const int64_t *before, const int64_t *after,
                                  double value);

/**
 * Tensors one behind the other along a dim; other dims have equal sizes. Along a sharded dim each rank joins what it has, if
 * the operands' cuts fit together so; else those move to cuts that do, by the cheapest way. A tensor that is equal on all
 * ranks counts once beside a pending sum.
 *
 * @collective only if something must move
 * @shapes     list: [count], at least one
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim. NULL for a list without a tensor
 */
SHERD_API sherd_tensor *sherd_cat(sherd_tensor *const *list, int count, int dim);

/** Tensors of one shape along a new dim before dim `dim` (-1: behind the last). @collective as sherd_cat @shapes list: [count] @owns scope @errors as sherd_cat */
SHERD_API sherd_tensor *sherd_stack(sherd_tensor *const *list, int count, int dim);

/** The indices of some dims backwards, a copy. Such a dim is made whole first. @collective only if one is sharded @shapes dims: int[count]; count < 0 = all @owns scope @errors see ops.h; EINVAL no such dims */
SHERD_API sherd_tensor *sherd_flip(sherd_tensor *a, const int *dims, int count);

/** Index i of a dim goes to i + by, around the end. Along a sharded dim only what crosses a cut travels. @collective only if the dim is sharded @owns scope @errors see ops.h; EINVAL no such dim */
SHERD_API sherd_tensor *sherd_roll(sherd_tensor *a, int64_t by, int dim);

/** Each dim several times, one behind the other; more numbers than dims make new ones before the first. A dim that is repeated is made whole first. @collective only if one is sharded @shapes time: int64_t[count], count >= ndim @owns scope @errors see ops.h; EINVAL fewer numbers than dims, one below 0 */
SHERD_API sherd_tensor *sherd_repeat(sherd_tensor *a, const int64_t *time, int count);
/** As sherd_repeat; dims before those that have a number stay as they are. @collective as there @shapes time: int64_t[count] @owns scope @errors as there */
SHERD_API sherd_tensor *sherd_tile(sherd_tensor *a, const int64_t *time, int count);

/* ---- by index: i32 tensors of numbers in [0, size of the dim) ------------------------------- */

/**
 * Some indices of a dim, in any order: `index` [n]. Of a sharded dim the least that there is to move: ranks tell the owners
 * what they want, and get that, in three calls, counts, indices and entries (and for each rank that they exchange with a
 * plan of its own, as what travels depends on the indices: tens of microseconds), and the gradient goes back in two; the result then lies as `a` and the
 * index do. Or the dim is made whole; or each rank takes what it has, and the result is a pending sum.
 *
 * @collective only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside of it
 */
SHERD_API sherd_tensor *sherd_index_select(sherd_tensor *a, int dim, sherd_tensor *index);

/**
 * y[.., j, ..] = a[.., index[.., j, ..], ..] along a dim: as many dims as `a`, in the others at most its sizes. A sharded dim
 * as in sherd_index_select.
 *
 * @collective only if something must move
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside of it
 */
SHERD_API sherd_tensor *sherd_gather(sherd_tensor *a, int dim, sherd_tensor *index);

/**
 * `a` with y[.., index[.., j, ..], ..] = source[.., j, ..] along a dim; of several at one place the last one counts, and
 * it alone gets the gradient. Other dims of the index have the sizes of `a`, those of the source at least these. (PyTorch
 * says nothing of several at one place, and gives the gradient to all of them.)
 *
 * @collective only if something must move: the index is made whole along the dim, the rest may be sharded
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an index outside of it
 */
SHERD_API sherd_tensor *sherd_scatter(sherd_tensor *a, int dim, sherd_tensor *index,
                                      sherd_tensor *source);
/** The same with one value. @collective as sherd_scatter @owns scope @errors as sherd_scatter */
SHERD_API sherd_tensor *sherd_scatter_fill(sherd_tensor *a, int dim, sherd_tensor *index,
                                           double value);

/**
 * `a` with y[.., index[.., j, ..], ..] += source[.., j, ..] along a dim. An index that is sharded along the dim by axes that
 * do not shard it in `a` gives a pending sum, in which `a` counts once; by the same axes what is added goes to its owners, or
 * the index is made whole, whichever is less to move.
 *
 * @collective only if something must move
 * @numerics   in order of j; what owners get in order of their shards, and then of j; 16 bits add up in f32
 * @owns       scope
 * @errors     as sherd_scatter
 */
SHERD_API sherd_tensor *sherd_scatter_add(sherd_tensor *a, int dim, sherd_tensor *index,
                                          sherd_tensor *source);

/* ---- of whole dims: a sharded one is gathered, or its shards go to another dim -------------- */

/**
 * A dim in order, and where its elements were: equal ones keep their order, NaN is the largest.
 *
 * @collective only if the dim is sharded
 * @shapes     indices: where the i32 result goes; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_sort(sherd_tensor *a, int dim, bool descending,
                                   sherd_tensor **indices);

/**
 * The k largest (or smallest) elements of a dim in order, and where they are; of equal ones the first.
 *
 * @collective only if the dim is sharded
 * @shapes     indices: where the i32 result goes; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim, or fewer elements than k
 */
SHERD_API sherd_tensor *sherd_topk(sherd_tensor *a, int64_t k, int dim, bool largest,
                                   sherd_tensor **indices);

/** Running sums of a dim. A pending sum stays pending; integers keep their dtype. @collective only if the dim is sharded @numerics f32 and 16 bits add up in f64, in order @owns scope @errors see ops.h; EINVAL no such dim, bool */
SHERD_API sherd_tensor *sherd_cumsum(sherd_tensor *a, int dim);

/** Zeroes above a diagonal of the last two dims (0: the main one, 1: the next above). Nothing moves. @local @owns scope @errors see ops.h; EINVAL fewer than two dims */
SHERD_API sherd_tensor *sherd_tril(sherd_tensor *a, int64_t diagonal);
/** Zeroes below a diagonal of the last two dims. Nothing moves. @local @owns scope @errors as sherd_tril */
SHERD_API sherd_tensor *sherd_triu(sherd_tensor *a, int64_t diagonal);

/* ---- in place ------------------------------------------------------------------------------- */

/*
 * These write into the storage of `a` and return `a`: all views of it change. What is written moves to where `a` lies, and
 * broadcasts to its shape; a pending sum is written so that the sum changes as it says. No gradient flows through a
 * write: while the tape records, a leaf that wants a gradient, or any tensor through which one flows, is refused; and
 * a backward that needs what the storage held before says that it was written.
 */

/** a += b. @collective only if `b` must move; waits until peers have read `a` @owns `a` itself @errors see ops.h; EINVAL a gradient would be lost, a stretched view; ENOTSUP `a` is pending by another reduction than a sum */
SHERD_API sherd_tensor *sherd_add_to(sherd_tensor *a, sherd_tensor *b);
/** a *= b; `a` may be pending by an average too. @collective as sherd_add_to @owns `a` itself @errors as sherd_add_to */
SHERD_API sherd_tensor *sherd_mul_by(sherd_tensor *a, sherd_tensor *b);
/** a = b, cast to the dtype of `a`. @collective as sherd_add_to @owns `a` itself @errors as sherd_add_to */
SHERD_API sherd_tensor *sherd_copy_from(sherd_tensor *a, sherd_tensor *b);
/** Each element of `a` = value. @local waits until peers have read `a` @owns `a` itself @errors as sherd_add_to; EINVAL a value that the dtype can not hold */
SHERD_API sherd_tensor *sherd_fill(sherd_tensor *a, double value);

SHERD_END

#endif
