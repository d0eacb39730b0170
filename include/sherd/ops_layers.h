/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers as functions, with all their options. What ops.h says of all operators holds here too.
 *
 * Names for operators that are overridden (op.h): sherd_cross_entropy_mean is the mean over index
 * targets; all other cases are sherd_cross_entropy_with. Attention is sherd_attention_general with
 * a mask, dropout or shared heads, on [batch, positions, groups, heads of a group, width];
 * sherd_attention_with if the logarithms of the sums are asked for; sherd_attention_pieces over a
 * sequence that stays sharded, with the operands of sherd_attention_general; otherwise
 * sherd_attention.
 */
#ifndef SHERD_OPS_LAYERS_H
#define SHERD_OPS_LAYERS_H

#include "ops_losses.h"

SHERD_BEGIN

/* ---- cross-entropy --------------------------------------------------------------------------- */

/* All zero = the mean of -log softmax(logits)[target] over targets that are not -100. */
typedef struct sherd_cross_entropy_options {
    sherd_tensor *weight; /* per class, [classes], of the dtype of logits; NULL = ones */
    sherd_loss_reduction reduction;
    double label_smoothing; /* in [0,1]: this part of each target is spread over all classes */
    bool has_ignored;       /* use `ignored`; otherwise -100 */
    int32_t ignored;        /* a position with this target has no loss and no gradient */
} sherd_cross_entropy_options;

/**
 * Cross-entropy with options: logits [..., classes]; targets i32 [...], or probabilities [...,
 * classes] of the dtype of logits. The loss of a position is the sum over classes of weight q (log
 * sum exp(logits) - logit), with q = (1 - smoothing) t + smoothing / classes, where t is the
 * probability, or 1 for the target class and 0 for the others.
 *
 * The mean for index targets is the sum divided by the sum of the targets' weights; NaN if none
 * counts. The mean for probabilities is divided by the number of positions. A class with q = 0 adds
 * nothing, even if its logit is -inf (PyTorch: NaN). Gradients: for logits and probabilities, not
 * for the weight.
 *
 * @collective see ops.h; if classes are sharded, ranks exchange five numbers for each position,
 *             never logits. The mean for index targets over sharded positions takes one more
 *             exchange, of two numbers, and is equal on all ranks; the sum is pending
 * @shapes     options: NULL = all zero
 * @owns       scope
 * @errors     see ops.h; EINVAL a target that is neither in [0, classes) nor ignored, label
 *             smoothing outside [0,1], has_ignored with probabilities
 */
SHERD_API sherd_tensor *sherd_cross_entropy_with(sherd_tensor *logits, sherd_tensor *targets,
                                                 const sherd_cross_entropy_options *options);

/* ---- attention ------------------------------------------------------------------------------- */

/**
 * sherd_attention, and the logarithms of the sums of exponentials, [batch, heads, s], in f32 for
 * 16-bit dtypes. With them, results over parts of the keys can be combined. They are -inf for a
 * query that sees no key, and unaffected by dropout. Gradients flow through both results. False:
 * failed, and both are the failed tensor.
 *
 * @collective see ops.h
 * @shapes     log_sum: NULL = not wanted
 * @owns       scope
 * @errors     as sherd_attention
 */
SHERD_API bool sherd_attention_with(sherd_tensor **out, sherd_tensor **log_sum, sherd_tensor *q,
                                    sherd_tensor *k, sherd_tensor *v,
                                    const sherd_attention_options *options);

/**
 * Attention of new positions to a cache, for decoding: softmax(q k^T scale) v per head, where query
 * (b, i) sees the keys 0 .. positions[b, i] of item b. So items of a batch may have different
 * lengths, and what the cache holds behind them is not read. A negative position sees nothing, and
 * gets zeros. Fewer heads of k and v as in sherd_attention. No gradient.
 *
 *     k, v, q = ..., rotated by sherd_rotary(.., positions, ..)       [batch, s, heads, width]
 *     sherd_write_rows(cache_k, positions, k); sherd_write_rows(cache_v, positions, v);
 *     y = sherd_attention_cached(q, cache_k, cache_v, positions, 0);
 *
 * Few queries, up to 16 of the heads that share keys, read keys and values once, where they lie: a
 * token takes the time of reading what its text has.
 *
 * @collective see ops.h; batch and heads may be sharded. So may the positions of the cache: each
 *             rank attends to its keys, and ranks exchange width + 1 numbers for each query and
 *             head. Sharded queries are gathered, and so is width
 * @shapes     q: [batch, s, heads, width]; k, v: [batch, t, heads of k, width]; positions: i32
 *             [batch, s]; scale: 0 = 1/sqrt(width)
 * @numerics   as sherd_attention; a text has the same bits in any batch, and on any ranks that
 *             share heads. Shards of positions are joined in their order, in f32 for 16-bit dtypes
 * @owns       scope
 * @errors     see ops.h; EINVAL a position of t or more, heads that k's do not divide, a scale that
 *             is not finite
 */
SHERD_API sherd_tensor *sherd_attention_cached(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                               sherd_tensor *positions, double scale);

/**
 * sherd_attention_cached where keys and values lie in blocks of a pool that many sequences share,
 * as engines that serve them keep them: position p of sequence b is the place p % n of the block
 * table[b, p / n]. Sequences may share blocks, as of a common beginning. Entries of the table that
 * no query needs are not looked at: they may be anything. A query at position p sees 0 .. p, so a
 * sequence that has had `length` tokens has its next ones at length, length + 1, ...
 *
 *     sherd_write_paged(pool_k, table, positions, k);
 *     sherd_write_paged(pool_v, table, positions, v);
 *     y = sherd_attention_paged(q, pool_k, pool_v, table, positions, 0);
 *
 * A pool may be sharded by heads, and by blocks where the sequences of q are sharded by the same
 * axes, each with blocks of its own shard; numbers of blocks count those of the whole pool. It is
 * never moved: other layouts are refused.
 *
 * Up to 16 queries of the heads that share keys read keys and values once, where they lie. For
 * more, the blocks of a sequence are copied together, in scratch. On a GPU the CPU does it, with
 * copies: there keep caches of sherd_attention_cached.
 *
 * @collective see ops.h; batch and heads may be sharded
 * @shapes     q: [batch, s, heads, width]; k, v: [blocks, n, heads of k, width]; table: i32 [batch,
 *             m]; positions: i32 [batch, s]; scale: 0 = 1/sqrt(width)
 * @numerics   the bits of sherd_attention_cached with the same keys, which a rank has all of
 * @owns       scope
 * @errors     see ops.h; EINVAL a position of m n or more, a number of a block that the pool, or
 *             the shard of the sequence, does not have; pools with two layouts, pending, or sharded
 *             in the second or last dim, or by blocks where sequences are not; heads that k's do
 *             not divide, a scale that is not finite
 */
SHERD_API sherd_tensor *sherd_attention_paged(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                              sherd_tensor *table, sherd_tensor *positions,
                                              double scale);

/* ---- normalisation --------------------------------------------------------------------------- */

/**
 * sherd_layer_norm over the last `dims` dims: (x - mean) / sqrt(var + eps) * weight + bias, with
 * the mean and variance of all elements of these dims. A *row* is the elements of these dims at one
 * index of the others. Any dim may be sharded: x is not moved; the ranks that share a row exchange
 * two numbers for it, forward and backward.
 *
 * @collective see ops.h
 * @shapes     weight, bias: the last `dims` sizes of x, or NULL; dims: at least 1, at most all
 * @numerics   mean and variance in two passes; those of several ranks are combined in f64 by Chan's
 *             formula, in shard order, and are equal on all ranks
 * @owns       scope
 * @errors     see ops.h; EINVAL dims out of range
 */
SHERD_API sherd_tensor *sherd_layer_norm_over(sherd_tensor *x, int dims, sherd_tensor *weight,
                                              sherd_tensor *bias, double eps);

/**
 * x / sqrt(mean of x^2 over the last dim + eps) * weight; `weight` is [last] or NULL. Any dim may
 * be sharded: ranks that share a row exchange one number for it.
 *
 * @collective see ops.h
 * @shapes     eps: >= 0; PyTorch's default is the distance from 1 to the next f32 (for f64, the
 *             next f64)
 * @owns       scope
 * @errors     see ops.h; EINVAL an eps that is negative or NaN
 */
SHERD_API sherd_tensor *sherd_rms_norm(sherd_tensor *x, sherd_tensor *weight, double eps);

/**
 * sherd_rms_norm over the last `dims` dims; `weight` has their sizes.
 *
 * @collective see ops.h   @owns scope   @errors as sherd_rms_norm; EINVAL dims out of range
 */
SHERD_API sherd_tensor *sherd_rms_norm_over(sherd_tensor *x, int dims, sherd_tensor *weight,
                                            double eps);

/* All zero = no dropout, no weight, no bias, over the last dim, the norm in the dtype of x. */
typedef struct sherd_add_norm_options {
    /* the last `dims` sizes of x, of its dtype; NULL = ones, zeros; an RMS norm has no bias */
    sherd_tensor *weight, *bias;
    double eps; /* 0 = 1e-5; for an RMS norm PyTorch's default (see sherd_rms_norm) */
    int dims;   /* how many dims to normalise, the last ones; 0 = 1 */
    double p;   /* dropout probability of delta, in [0, 1) */
    sherd_generator *generator; /* for dropout; may be NULL if p is 0 */
    sherd_dtype dtype; /* of the norm: bf16 or f16 if x is f32; SHERD_DTYPE_NONE = that of x */
} sherd_add_norm_options;

/**
 * The step between two layers of a residual network, in one pass over memory: sum = x +
 * dropout(delta), and norm = the layer norm of sum. Results and gradients are bit for bit those of
 * sherd_dropout, sherd_add, sherd_layer_norm_over and sherd_cast, one after the other. False:
 * failed, and both results are the failed tensor.
 *
 * delta has the dtype of x, or 16 bits while x is f32: then it is added as f32, and its gradient is
 * rounded once. The norm may be asked for in 16 bits too (pass sherd_autocast's dtype if a product
 * reads it): it is rounded once, and accepts gradients of f32 as well as of its own dtype; the
 * gradients of several uses are added in f32 if any of them is f32.
 *
 * @collective see ops.h; pending reductions of x and of delta are settled first, each by itself
 *             (sherd_add settles their sum). For sharded rows as sherd_layer_norm_over. Under
 *             autocast x, weight and bias are cast to f32, and delta is not cast
 * @shapes     delta: as x; norm, sum: NULL = not wanted; options: NULL = all zero
 * @numerics   as above; if x and delta are both pending, the last bits may differ
 * @owns       scope
 * @errors     see ops.h; EINVAL the shapes of x and delta differ, another dtype than above, dims
 *             out of range, an eps that is negative or NaN, p outside [0, 1), p > 0 without a
 *             generator
 */
SHERD_API bool sherd_add_layer_norm(sherd_tensor **norm, sherd_tensor **sum, sherd_tensor *x,
                                    sherd_tensor *delta, const sherd_add_norm_options *options);

/**
 * As sherd_add_layer_norm, with sherd_rms_norm_over; options->bias must be NULL.
 *
 * @collective as there   @owns scope   @errors as there; EINVAL a bias
 */
SHERD_API bool sherd_add_rms_norm(sherd_tensor **norm, sherd_tensor **sum, sherd_tensor *x,
                                  sherd_tensor *delta, const sherd_add_norm_options *options);

/**
 * (x - mean) / sqrt(variance + eps) * weight + bias over groups of channels. x is [items, channels,
 * ...]; mean and variance are of the channels / groups channels of a group in one item; `weight`
 * and `bias` are [channels] or NULL. x may be sharded on any dims and is not moved; ranks that
 * share a group exchange its moments (Chan's formula).
 *
 * @collective see ops.h: one exchange of three numbers per group if groups are on several ranks, of
 *             two in backward
 * @numerics   moments in two passes, in f64; equal on all ranks that share a group
 * @owns       scope
 * @errors     see ops.h; EINVAL fewer than 2 dims, a number of channels that is not a multiple of
 *             groups, an eps that is negative or NaN, groups of a single element with a single item
 *             (they would all become 0)
 */
SHERD_API sherd_tensor *sherd_group_norm(sherd_tensor *x, int64_t groups, sherd_tensor *weight,
                                         sherd_tensor *bias, double eps);

/* All zero = normalise by x's own moments, eps 1e-5, no running averages. */
typedef struct sherd_batch_norm_options {
    sherd_tensor *weight, *bias; /* [channels], of the dtype of x; NULL = ones, zeros */
    /*
     * Running averages of mean and variance, [channels], of any floating-point dtype; both or none.
     * Unless `fixed`, they are updated in place: old (1 - momentum) + new momentum, where the new
     * variance is divided by n - 1. They are not updated if x has no elements, or when backward
     * runs a checkpointed module again. Plain averages stay plain; a rank outside x's mesh keeps
     * its own.
     */
    sherd_tensor *running_mean, *running_variance;
    bool fixed;      /* evaluation: normalise by the running averages, and do not update them */
    double momentum; /* 0 = 0.1 */
    double eps;      /* 0 = 1e-5 */
} sherd_batch_norm_options;

/**
 * (x - mean) / sqrt(variance + eps) * weight + bias for each channel of x [items, channels, ...].
 * The moments are those of the whole tensor over items and all dims after channels, however it is
 * sharded. x is not moved.
 *
 * @collective see ops.h: one exchange of three numbers per channel if items or dims after channels
 *             are sharded, of two in backward; none if `fixed`
 * @shapes     options: NULL = all zero
 * @numerics   as sherd_group_norm
 * @owns       scope
 * @errors     see ops.h; EINVAL as sherd_group_norm, one element in a channel unless `fixed`, one
 *             running average without the other or of another shape, `fixed` without them, a
 *             momentum that is negative or NaN; those of sherd_copy_from
 */
SHERD_API sherd_tensor *sherd_batch_norm(sherd_tensor *x, const sherd_batch_norm_options *options);

/**
 * As sherd_batch_norm, but each item is normalised by its own moments; the running averages get the
 * mean over all items.
 *
 * @collective as sherd_group_norm; none if `fixed`
 * @shapes     options: NULL = all zero
 * @numerics   as sherd_group_norm
 * @owns       scope
 * @errors     as sherd_batch_norm; EINVAL one element in a channel of an item unless `fixed`
 */
SHERD_API sherd_tensor *sherd_instance_norm(sherd_tensor *x,
                                            const sherd_batch_norm_options *options);

/* ---- positions ------------------------------------------------------------------------------- */

/* All zero = rotate all of each head, in halves, base 10000, positions from 0. */
typedef struct sherd_rotary_options {
    double base;      /* 0 = 10000 */
    int64_t offset;   /* the first position, if no positions are given */
    int64_t rotated;  /* rotate only the first r elements of each head; even; 0 = all */
    bool interleaved; /* pairs are (0,1), (2,3), ..; otherwise (0,r/2), (1,r/2+1), .. */
} sherd_rotary_options;

/**
 * Rotary position embedding of x [batch, positions, heads, width]: pair j at position p is rotated
 * by p base^(-2j/rotated). Positions are global, even if x is sharded on them: each rank rotates
 * what it holds, and nothing is sent, except that a sharded width is gathered. Gradient: rotated
 * back.
 *
 * @collective see ops.h
 * @shapes     positions: i32 [positions] or [batch, positions], NULL = offset, offset + 1, ..;
 *             options: NULL = all zero
 * @numerics   angles are f64; a pending sum passes through
 * @owns       scope
 * @errors     see ops.h; EINVAL `rotated` is odd, negative or more than the width; a base that is
 *             not positive; an offset together with positions
 */
SHERD_API sherd_tensor *sherd_rotary(sherd_tensor *x, sherd_tensor *positions,
                                     const sherd_rotary_options *options);

SHERD_END

#endif
