/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers as functions, with all their options. What ops.h says of every operator holds here too.
 *
 * Who overrides operators (op.h) meets these names: sherd_cross_entropy_mean for the mean over indices, else
 * sherd_cross_entropy_with; sherd_attention_general with a mask, dropout or shared heads, on [batch, positions, groups, heads
 * of a group, width], else sherd_attention, or sherd_attention_with where logarithms are asked for; of a sequence that is
 * sharded and stays so sherd_attention_pieces, on the same operands as sherd_attention_general.
 */
#ifndef SHERD_OPS_LAYERS_H
#define SHERD_OPS_LAYERS_H

#include "ops_losses.h"

SHERD_BEGIN

/* ---- cross-entropy -------------------------------------------------------------------------- */

/* All zero = the mean of -log softmax(logits)[target] over targets that are not -100. */
typedef struct sherd_cross_entropy_options {
    sherd_tensor *weight; /* of classes, [classes], of the dtype of logits; NULL = ones */
    sherd_loss_reduction reduction;
    double label_smoothing; /* in [0,1]: this part of each target is spread over all classes */
    bool has_ignored;       /* `ignored` is said; else -100 */
    int32_t ignored;        /* a position with this target has no loss and no gradient */
} sherd_cross_entropy_options;

/**
 * Cross-entropy with options: logits [..., classes], targets i32 [...], or probabilities [..., classes] of the dtype of
 * logits. Of a position, with q = (1 - smoothing) t + smoothing / classes, where t is 1 for the target or a probability:
 * the sum over classes of weight q (log sum exp(logits) - logit).
 *
 * The mean of indices is the sum divided by that of the targets' weights: NaN if none counts. The mean of probabilities is
 * divided by the number of positions. A class without a share adds nothing, also where its logit is -inf (PyTorch: NaN).
 * Gradients: of logits and probabilities; none of the weight.
 *
 * @collective see ops.h; sharded classes cost one exchange of five numbers a position, never logits. The mean of indices
 *             over sharded positions costs one of two numbers more, and is equal on all ranks; the sum is pending then
 * @shapes     options: NULL = all zero   @owns scope
 * @errors     see ops.h; EINVAL a target that is neither in [0, classes) nor ignored, a label smoothing outside of [0,1],
 *             an index to ignore beside probabilities
 */
SHERD_API sherd_tensor *sherd_cross_entropy_with(sherd_tensor *logits, sherd_tensor *targets,
                                                 const sherd_cross_entropy_options *options);

/* ---- attention ------------------------------------------------------------------------------ */

/**
 * sherd_attention with the logarithm of the sums of exponentials beside it, [batch, heads, s], f32 of 16 bits: with it,
 * results over parts of the keys can be joined. -inf of a query that sees no key; dropout does not touch it. Gradients flow
 * through both. False: both are the failed tensor.
 *
 * @collective see ops.h
 * @shapes     log_sum: NULL = not wanted
 * @owns       scope   @errors as sherd_attention
 */
SHERD_API bool sherd_attention_with(sherd_tensor **out, sherd_tensor **log_sum, sherd_tensor *q,
                                    sherd_tensor *k, sherd_tensor *v,
                                    const sherd_attention_options *options);

/* ---- normalisation -------------------------------------------------------------------------- */

/**
 * sherd_layer_norm over the last `dims` dims: (x - mean) / sqrt(var + eps) * weight + bias, with the mean and the variance of
 * all elements of these dims. Any of them may be sharded: x stays where it is, and ranks that share a row (what these
 * dims have of one index of the others) exchange two numbers of it, forward and back.
 *
 * @collective see ops.h
 * @shapes     weight, bias: the last `dims` sizes of x, or NULL; dims: at least 1, at most all
 * @numerics   mean and variance in two passes; those of several ranks are joined by Chan's formula in the order of shards, in
 *             f64, and are the same on all
 * @owns       scope
 * @errors     see ops.h; EINVAL as many dims are not there
 */
SHERD_API sherd_tensor *sherd_layer_norm_over(sherd_tensor *x, int dims, sherd_tensor *weight,
                                              sherd_tensor *bias, double eps);

/**
 * x / sqrt(mean of x^2 over the last dim + eps) * weight; `weight` [last] or NULL. Any dim may be sharded: of rows that are,
 * ranks exchange a number each.
 *
 * @collective see ops.h   @shapes eps: >= 0; PyTorch's default is the distance from 1 to the next f32 (f64 of f64)
 * @owns       scope   @errors see ops.h; EINVAL an eps that is negative or NaN
 */
SHERD_API sherd_tensor *sherd_rms_norm(sherd_tensor *x, sherd_tensor *weight, double eps);

/** The same over the last `dims` dims; `weight` has their sizes. @collective see ops.h @owns scope @errors as sherd_rms_norm; EINVAL as many dims are not there */
SHERD_API sherd_tensor *sherd_rms_norm_over(sherd_tensor *x, int dims, sherd_tensor *weight,
                                            double eps);

/* All zero = no dropout, no weight and bias, over the last dim, the norm in the dtype of x. */
typedef struct sherd_add_norm_options {
    sherd_tensor *weight,
        *bias; /* the last `dims` sizes of x, of its dtype; NULL = ones, zeroes; an RMS norm has no bias */
    double eps; /* 0 = 1e-5; of an RMS norm PyTorch's default (see sherd_rms_norm) */
    int dims;   /* that are normalised, the last ones; 0 = 1 */
    double p;   /* of dropout of delta, in [0, 1) */
    sherd_generator *generator; /* of dropout; may be NULL where p is 0 */
    sherd_dtype dtype; /* of the norm: bf16 or f16 where x is f32; SHERD_DTYPE_NONE = that of x */
} sherd_add_norm_options;

/**
 * What stands between two layers of a residual network, in one pass over memory: sum = x + dropout(delta), and norm = the layer norm of
 * sum. To the bit what sherd_dropout, sherd_add, sherd_layer_norm_over and sherd_cast give one after the other, under autocast or with
 * options->dtype as said below; so are the gradients, which one pass makes out of those of both results. False: both are the failed tensor.
 *
 * delta has the dtype of x, or 16 bits where x is f32: then it is added as f32, and its gradient is rounded once. The norm may be
 * asked for in 16 bits too (give sherd_autocast's dtype where it is the operand of products): it is rounded once, and takes gradients of f32
 * as well as of its own dtype; what has come together of it is f32 where any of them is.
 *
 * @collective see ops.h; what is pending is settled first: of x and delta each for itself, where sherd_add settles their sum. Rows that
 *             are sharded: as sherd_layer_norm_over. Under autocast x, weight and bias go to f32, delta stays as it is
 * @shapes     delta: that of x; norm, sum: NULL = not wanted; options: NULL = all zero
 * @numerics   see above: bits of the single operators, but the last ones where x and delta are both pending
 * @owns       scope
 * @errors     see ops.h; EINVAL shapes of x and delta differ, a dtype that is none of the above, as many dims are not there, an eps that
 *             is negative or NaN, p outside of [0, 1), or above 0 without a generator
 */
SHERD_API bool sherd_add_layer_norm(sherd_tensor **norm, sherd_tensor **sum, sherd_tensor *x,
                                    sherd_tensor *delta, const sherd_add_norm_options *options);

/** The same with sherd_rms_norm_over; options->bias must be NULL. @collective as there @owns scope @errors as there; EINVAL a bias */
SHERD_API bool sherd_add_rms_norm(sherd_tensor **norm, sherd_tensor **sum, sherd_tensor *x,
                                  sherd_tensor *delta, const sherd_add_norm_options *options);

/**
 * (x - mean) / sqrt(variance + eps) * weight + bias over groups of channels: x [items, channels, ...], mean and variance of
 * the channels / groups channels of a group in one item; `weight` and `bias` [channels] or NULL. x stays as it is sharded,
 * on any dims; ranks that share groups exchange their moments (Chan's formula), never x.
 *
 * @collective see ops.h: one exchange of three numbers of each group where a group is on several ranks, of two in backward
 * @numerics   moments in two passes and in f64; equal on all ranks that share a group
 * @owns       scope
 * @errors     see ops.h; EINVAL fewer than 2 dims, channels that are not `groups` equal groups, an eps that is negative or NaN,
 *             groups of one element, of one item: nothing would be left of them
 */
SHERD_API sherd_tensor *sherd_group_norm(sherd_tensor *x, int64_t groups, sherd_tensor *weight,
                                         sherd_tensor *bias, double eps);

/* All zero = by x's own moments, eps 1e-5, nothing is kept. */
typedef struct sherd_batch_norm_options {
    sherd_tensor *weight, *bias; /* [channels], of the dtype of x; NULL = ones, zeroes */
    /*
     * Running averages of mean and variance, [channels], of any dtype with fractions; both or none. Unless `fixed` they are
     * written: old (1 - momentum) + new momentum, the variance with n - 1. Not of an x without elements, and not
     * where a checkpointed module runs again. Those of plain tensors stay plain; a rank outside of x's mesh keeps its own.
     */
    sherd_tensor *running_mean, *running_variance;
    bool fixed;      /* evaluation: by the running averages, which stay as they are */
    double momentum; /* 0 = 0.1 */
    double eps;      /* 0 = 1e-5 */
} sherd_batch_norm_options;

/**
 * (x - mean) / sqrt(variance + eps) * weight + bias for each channel of x [items, channels, ...]: moments of all items and
 * all that is behind channels, of the whole tensor, however it is sharded. x stays where it is.
 *
 * @collective see ops.h: one exchange of three numbers of each channel where items or dims behind channels are sharded, of
 *             two in backward; none if `fixed`
 * @shapes     options: NULL = all zero
 * @numerics   as sherd_group_norm
 * @owns       scope
 * @errors     see ops.h; EINVAL as sherd_group_norm, one element in a channel unless `fixed`, a running average without the
 *             other or of another shape, `fixed` without them, a momentum that is negative or NaN; those of sherd_copy_from
 */
SHERD_API sherd_tensor *sherd_batch_norm(sherd_tensor *x, const sherd_batch_norm_options *options);

/**
 * As sherd_batch_norm, but each item by moments of its own; running averages get the mean of those of all items.
 *
 * @collective as sherd_group_norm; none if `fixed`   @shapes options: NULL = all zero   @numerics as sherd_group_norm
 * @owns       scope   @errors as sherd_batch_norm; EINVAL one element in a channel of an item unless `fixed`
 */
SHERD_API sherd_tensor *sherd_instance_norm(sherd_tensor *x,
                                            const sherd_batch_norm_options *options);

/* ---- positions ------------------------------------------------------------------------------ */

/* All zero = all of each head, halves, base 10000, positions from 0. */
typedef struct sherd_rotary_options {
    double base;    /* 0 = 10000 */
    int64_t offset; /* of the first position, where no positions are given */
    int64_t
        rotated; /* so many numbers of each head turn, the first ones; even; 0 = all. Others stay */
    bool interleaved; /* pairs are (0,1), (2,3) ..; else (0,r/2), (1,r/2+1) .. */
} sherd_rotary_options;

/**
 * Rotary embedding of x [batch, positions, heads, width]: pair j of position p is turned by p base^(-2j/rotated). Positions
 * count through the whole tensor, also where it is sharded on them: each rank turns what it holds, nothing travels but
 * what makes heads whole in width. Gradient: turned back.
 *
 * @collective see ops.h
 * @shapes     positions: i32 [positions] or [batch, positions], NULL = offset, offset + 1, ..; options: NULL = all zero
 * @numerics   angles are f64; a pending sum passes
 * @owns       scope
 * @errors     see ops.h; EINVAL `rotated` is odd, negative or more than the width; a base that is not positive; an offset
 *             beside positions
 */
SHERD_API sherd_tensor *sherd_rotary(sherd_tensor *x, sherd_tensor *positions,
                                     const sherd_rotary_options *options);

SHERD_END

#endif
