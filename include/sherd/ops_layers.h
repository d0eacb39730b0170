/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers as functions, with all their options: cross-entropy, attention, normalisation, rotary
 * positions. "See ops.h" means what the head of ops.h says of all operators.
 *
 * For sherd_op_override (op.h): these functions call operators of other names.
 * - Cross-entropy: sherd_cross_entropy_mean is the mean over index targets; all other cases are
 *   sherd_cross_entropy_with.
 * - Attention: sherd_attention_pieces over a sequence that stays sharded; sherd_attention_with if
 *   the logarithms of the sums are asked for; sherd_attention_general with a mask, a window, a
 *   softcap, dropout or shared heads; otherwise sherd_attention. The operands of
 *   sherd_attention_general are [..., positions, groups, heads of a group, width], those of
 *   sherd_attention_pieces have one dim of batch.
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
 * The mean for index targets is the sum divided by the sum of the weights of all targets that are
 * not ignored; NaN if all are. The mean for probabilities is the sum divided by the number of
 * positions. A class with q = 0 adds nothing, even if its logit is -inf (PyTorch: NaN). There are
 * gradients for logits and probabilities, not for the weight.
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
 * sherd_attention with a second result: for each query the logarithm of the sum of exp(score) over
 * its keys, [..., heads, s], f32 for 16-bit dtypes. With it, results over parts of the keys can
 * be combined. It is -inf for a query that sees no key, and is not affected by dropout. Gradients
 * flow through both results. Returns false after a failure; both results are the failed tensor
 * then.
 *
 * A *sink*, a learned logit of each head that takes part in the sums but has no value (GPT-OSS),
 * multiplies results by 1 / (1 + exp(sink - log_sum)):
 *
 *     sherd_tensor *sums; // [batch, heads, s]; w: the sinks, [heads]
 *     sherd_attention_with(&y, &sums, q, k, v, NULL);
 *     sums = sherd_sigmoid(sherd_sub(sums, sherd_unsqueeze(w, 1)));
 *     y = sherd_mul(y, sherd_unsqueeze(sherd_transpose(sums, 1, 2), 3));
 *
 * @collective see ops.h
 * @shapes     out: gets the result of sherd_attention; log_sum: gets the logarithms; NULL = not
 *             wanted
 * @owns       scope
 * @errors     as sherd_attention
 */
SHERD_API bool sherd_attention_with(sherd_tensor **out, sherd_tensor **log_sum, sherd_tensor *q,
                                    sherd_tensor *k, sherd_tensor *v,
                                    const sherd_attention_options *options);

/**
 * Spans of documents that lie one behind the other in sequences, for options->spans of
 * sherd_attention: each position sees those of its own document only. With `causal` up to itself.
 *
 *     const int64_t lengths[] = {100, 28, 384}; // of a sequence of 512 positions
 *     sherd_tensor *spans = sherd_document_spans(world, lengths, 1, 3);
 *     y = sherd_attention(q, k, v, &(sherd_attention_options){.causal = true, .spans = spans});
 *
 * Other spans are made by hand: all that is asked is that neither number falls from one position to
 * the next. So a prefix that all positions see is spans of [0, max(prefix, position + 1)), without
 * `causal`.
 *
 * @local
 * @shapes lengths: int64_t[batch documents], positions of each sequence's documents, 0 = none; all
 *         sequences have the same length. On all ranks the same
 * @owns   the result, i32 [batch, positions, 2], is plain and belongs to the scope
 * @errors EINVAL no lengths, a negative one, sequences of different lengths, or longer than
 *         2^31 - 1; ENOMEM. NULL for a NULL world
 */
SHERD_API sherd_tensor *sherd_document_spans(sherd_world *world, const int64_t *lengths,
                                             int64_t batch, int64_t documents);

/**
 * Rows of a dim in zigzag order, so that causal attention over them, sharded, is equal work for all
 * ranks (PyTorch: the load balancer of context_parallel). Shard i of `shards`, in default cuts, has
 * the positions of its first half from the front, behind those of the shards before it, and of its
 * second half from the end, before those of the shards before it: 16 positions for 4 shards are
 * 0 1 14 15, 2 3 12 13, 4 5 10 11, 6 7 8 9.
 *
 * Order the batch once, and shard it; then each attention is told. What works position by position
 * needs not know; what is done between positions comes before: targets are shifted first. Positions
 * of sherd_rotary and rows of a mask or of spans are ordered likewise (sherd_rotary_options has the
 * number too):
 *
 *     int64_t p = sherd_mesh_extent(mesh, 0); // of the axis that shards the sequence
 *     x = sherd_distribute_as(sherd_zigzag(x, 1, p), mesh, "S(1)", -1);
 *     y = sherd_distribute_as(sherd_zigzag(y, 1, p), mesh, "S(1)", -1); // targets
 *     // in the model
 *     q = sherd_rotary(q, NULL, &(sherd_rotary_options){.zigzag = p});
 *     k = sherd_rotary(k, NULL, &(sherd_rotary_options){.zigzag = p});
 *     q = sherd_attention(q, k, v, &(sherd_attention_options){.causal = true, .zigzag = p});
 *
 * It is right under any layout, and equal work if the dim is sharded n times in default cuts. A
 * rank then gets at most as many keys as without, the mean rank half as many again.
 *
 * @collective see ops.h; a sharded dim is gathered first
 * @shapes     shards: 1 leaves the order as it is
 * @numerics   bit-exact; a pending reduction passes through
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, fewer shards than 1
 */
SHERD_API sherd_tensor *sherd_zigzag(sherd_tensor *a, int dim, int64_t shards);

/** The order from before sherd_zigzag. @collective as there @owns scope @errors as there */
SHERD_API sherd_tensor *sherd_unzigzag(sherd_tensor *a, int dim, int64_t shards);

/**
 * Attention of new positions to a cache, for decoding: softmax(q k^T scale) v for each head, where
 * query (b, i) sees the keys 0 .. positions[b, i] of item b. So items of a batch may have different
 * lengths, and what the cache holds beyond them is not read. A query with a negative position sees
 * no key, and gets zeros. k and v may have fewer heads, as in sherd_attention. No gradient.
 *
 *     q = sherd_rotary(q, positions, NULL); // [batch, s, heads, width], as k and v
 *     k = sherd_rotary(k, positions, NULL);
 *     sherd_write_rows(cache_k, positions, k);
 *     sherd_write_rows(cache_v, positions, v);
 *     y = sherd_attention_cached(q, cache_k, cache_v, positions, 0);
 *
 * If at most 16 queries share the keys of a head (s times the heads that share one), each key and
 * value is read once, and not copied: so a new token takes the time to read its item's part of the
 * cache.
 *
 * @collective see ops.h; batch and heads may be sharded. So may the cache's positions t: each rank
 *             attends to its own keys, and ranks exchange width + 1 numbers for each query and
 *             head. A sharded s or width is gathered
 * @shapes     q: [batch, s, heads, width]; k, v: [batch, t, heads of k, width]; positions: i32
 *             [batch, s]; scale: 0 = 1/sqrt(width)
 * @numerics   as sherd_attention; an item gets the same bits in any batch, and however heads are
 *             sharded. Parts of a sharded t are combined in shard order, for 16-bit dtypes in f32
 *             (with more than 16 such queries, each part is rounded to 16 bits first)
 * @owns       scope
 * @errors     see ops.h; EINVAL a position of t or more, heads of q that are not a multiple of
 *             those of k, a scale that is not finite
 */
SHERD_API sherd_tensor *sherd_attention_cached(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                               sherd_tensor *positions, double scale);

/* All zero = the scale is 1/sqrt(width), and a query sees all keys up to its position. */
typedef struct sherd_cached_options {
    double scale;   /* as in sherd_attention_options, like the others */
    int64_t window; /* a query at position p sees the keys p - window + 1 .. p */
    double softcap;
} sherd_cached_options;

/**
 * sherd_attention_cached with options. Keys that are before the windows of all queries of an item
 * are not read.
 *
 * @collective as there
 * @shapes     as there; options: NULL = all zero
 * @owns       scope
 * @errors     as there; EINVAL a window or a softcap that is negative, a softcap that is not finite
 */
SHERD_API sherd_tensor *sherd_attention_cached_with(sherd_tensor *q, sherd_tensor *k,
                                                    sherd_tensor *v, sherd_tensor *positions,
                                                    const sherd_cached_options *options);

/**
 * sherd_attention_cached for a paged cache: keys and values are in blocks of n positions, in a pool
 * that many sequences share. Position p of sequence b is row p % n of block number table[b, p / n].
 * Sequences may share blocks, for example of a common beginning. Entries of the table that no query
 * needs are not looked at, and may be anything. A query at position p sees the keys 0 .. p; so
 * after `length` tokens of a sequence the next ones have the positions length, length + 1, ...
 *
 *     sherd_write_paged(pool_k, table, positions, k);
 *     sherd_write_paged(pool_v, table, positions, v);
 *     y = sherd_attention_paged(q, pool_k, pool_v, table, positions, 0);
 *
 * A pool may be sharded by heads, and by blocks. If it is sharded by blocks, the same axes shard
 * the sequences of q, and the blocks of each sequence are in its own shard; block numbers still
 * count all blocks of the pool. A pool is never moved: other layouts are refused.
 *
 * Up to 16 queries that share the keys of a head read keys and values in place; for more, the
 * blocks of a sequence are first copied together, into scratch memory, unless they follow one
 * another in the pool.
 *
 * A cache with a slot for each sequence, [slots, n, heads, width], is a pool whose blocks are the
 * slots. So for continuous batching, where row b of the batch has the slot slots[b], the table is
 * the slots as i32 [batch, 1]; nothing is copied then.
 *
 * @collective see ops.h; batch and heads may be sharded
 * @shapes     q: [batch, s, heads, width]; k, v: [blocks, n, heads of k, width]; table: i32 [batch,
 *             m]; positions: i32 [batch, s]; scale: 0 = 1/sqrt(width)
 * @numerics   the same bits as sherd_attention_cached whose t is not sharded
 * @owns       scope
 * @errors     see ops.h; EINVAL a position of m n or more, a block number that is not in the pool,
 *             or not in the shard of the sequence; pools of k and v with different layouts, with a
 *             pending reduction, sharded in the second or last dim, or by blocks where sequences
 *             are not; heads of q that are not a multiple of those of k, a scale that is not finite
 */
SHERD_API sherd_tensor *sherd_attention_paged(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                              sherd_tensor *table, sherd_tensor *positions,
                                              double scale);

/**
 * sherd_attention_paged with options. Entries of the table for positions that are before the
 * windows of all queries of a sequence are not looked at: such blocks may have gone to another
 * sequence.
 *
 * @collective as there
 * @shapes     as there; options: NULL = all zero
 * @owns       scope
 * @errors     as there; EINVAL a window or a softcap that is negative, a softcap that is not finite
 */
SHERD_API sherd_tensor *sherd_attention_paged_with(sherd_tensor *q, sherd_tensor *k,
                                                   sherd_tensor *v, sherd_tensor *table,
                                                   sherd_tensor *positions,
                                                   const sherd_cached_options *options);

/* ---- normalisation --------------------------------------------------------------------------- */

/**
 * sherd_layer_norm over the last `dims` dims: (x - mean) / sqrt(var + eps) * weight + bias. A *row*
 * is the elements of these dims at one index of the other dims; each row has its own mean and
 * variance. Any dim may be sharded: x is not moved, and ranks that share a row exchange two numbers
 * for it, in forward and in backward.
 *
 * @collective see ops.h
 * @shapes     weight, bias: the last `dims` sizes of x, or NULL; dims: at least 1, at most all
 * @numerics   mean and variance are computed in two passes; those of several ranks are combined in
 *             f64 by Chan's formula, in shard order, and are equal on all ranks. Backward keeps the
 *             mean in the dtype of x (f32 for 16 bits): one that is m times the deviation leaves
 *             gradients of f32 right to m 2^-25 of their size (PyTorch: 3 to 10 times that)
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
 * @shapes     eps: >= 0 (PyTorch's default is the machine epsilon of f32, for f64 that of f64)
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
    double eps; /* 0 = 1e-5; for an RMS norm, PyTorch's default (see sherd_rms_norm) */
    int dims;   /* how many dims to normalise, the last ones; 0 = 1 */
    double p;   /* dropout probability of delta, in [0, 1) */
    sherd_generator *generator; /* for dropout; may be NULL if p is 0 */
    sherd_dtype dtype; /* of `norm`: bf16 or f16 if x is f32; SHERD_DTYPE_NONE = that of x */
} sherd_add_norm_options;

/**
 * The step between two layers of a residual network, in one pass over memory: sum = x +
 * dropout(delta), norm = the layer norm of sum. Results and gradients are bit for bit those of
 * sherd_dropout, sherd_add, sherd_layer_norm_over and sherd_cast, one after the other. Returns
 * false after a failure; both results are the failed tensor then.
 *
 * delta has the dtype of x, or a 16-bit dtype if x is f32: then it is added as f32, and its
 * gradient is rounded once. `norm` can be a 16-bit tensor too (options->dtype; pass what
 * sherd_autocast returns if a product reads it): it is rounded once, and its gradients may be f32
 * or of its own dtype; those of several uses are added in f32 if any of them is f32.
 *
 * @collective see ops.h; pending reductions of x and of delta are settled first, one by one (after
 *             sherd_add there would be only one, of the sum). Sharded rows as in
 *             sherd_layer_norm_over. Under autocast x, weight and bias are cast to f32, and delta
 *             is not cast
 * @shapes     delta: of the shape of x; norm, sum: get the results; NULL = not wanted; options:
 *             NULL = all zero
 * @numerics   as above; if x and delta are both pending, the last bits may differ
 * @owns       scope
 * @errors     see ops.h; EINVAL the shapes of x and delta differ, other dtypes than above, dims out
 *             of range, an eps that is negative or NaN, p outside [0, 1), p > 0 without a generator
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
 * (x - mean) / sqrt(variance + eps) * weight + bias, for x [items, channels, ...], where each group
 * of channels / groups channels of one item has its own mean and variance. `weight` and `bias` are
 * [channels] or NULL. x may be sharded on any dims and is not moved; ranks that share a group
 * exchange its moments (Chan's formula).
 *
 * @collective see ops.h: one exchange of three numbers per group if groups are on several ranks, of
 *             two in backward
 * @numerics   moments in two passes, in f64; equal on all ranks that share a group. A mean that is
 *             large beside the deviation: as in sherd_layer_norm_over
 * @owns       scope
 * @errors     see ops.h; EINVAL fewer than 2 dims, a number of channels that is not a multiple of
 *             groups, an eps that is negative or NaN, a single item whose groups have one element
 *             each (all results would be 0)
 */
SHERD_API sherd_tensor *sherd_group_norm(sherd_tensor *x, int64_t groups, sherd_tensor *weight,
                                         sherd_tensor *bias, double eps);

/* All zero = normalise by the moments (mean and variance) of x, eps 1e-5, no running averages. */
typedef struct sherd_batch_norm_options {
    sherd_tensor *weight, *bias; /* [channels], of the dtype of x; NULL = ones, zeros */
    /*
     * Running averages of mean and variance, [channels], of any floating-point dtype; both or none.
     * Unless `fixed` is set, each call writes old (1 - momentum) + new momentum to them, where the
     * new variance is the unbiased one (divided by n - 1); the new ones are rounded to f32 unless x
     * is f64. They are not written if x has no elements, or while backward runs a checkpointed
     * module again. Plain averages stay plain, and those of ranks outside the mesh of x do not
     * change.
     */
    sherd_tensor *running_mean, *running_variance;
    bool fixed;      /* evaluation: normalise by the running averages, and do not update them */
    double momentum; /* 0 = 0.1 */
    double eps;      /* 0 = 1e-5 */
} sherd_batch_norm_options;

/**
 * (x - mean) / sqrt(variance + eps) * weight + bias for each channel of x [items, channels, ...].
 * The moments are taken over items and all dims after channels of the whole tensor, however it is
 * sharded (PyTorch: SyncBatchNorm). x is not moved.
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
    int64_t rotated;  /* r: rotate only the first r elements of each head; even; 0 = all */
    bool interleaved; /* pairs are (0,1), (2,3), ..; otherwise (0,r/2), (1,r/2+1), .. */
    /* unless positions are given: rows are in the order of sherd_zigzag for so many shards */
    int64_t zigzag;
    /*
     * f64 [r/2], equal on all ranks: the angle of pair j at position p is p frequencies[j], as in
     * models whose positions are scaled (Llama 3.1, YaRN); NULL = base^(-2j/r). No gradient
     */
    sherd_tensor *frequencies;
} sherd_rotary_options;

/**
 * Rotary position embedding of x [batch, positions, heads, width]: pair j at position p is rotated
 * by the angle p base^(-2j/r), or as options->frequencies say. Positions are global, even if x is
 * sharded on them: each rank rotates what it holds, and nothing is sent, except that a sharded
 * width, and sharded frequencies, are gathered. Gradient: rotated back.
 *
 * @collective see ops.h
 * @shapes     positions: i32 [positions] or [batch, positions], NULL = offset, offset + 1, ..;
 *             options: NULL = all zero
 * @numerics   angles are f64; a pending sum passes through
 * @owns       scope
 * @errors     see ops.h; EINVAL `rotated` is odd, negative or more than the width; a base that is
 *             not positive; an offset together with positions; an offset by which the last position
 *             is beyond 2^63 - 1, or in zigzag order not i32; a negative zigzag; frequencies
 *             that are not f64 [r/2], or come with a base
 */
SHERD_API sherd_tensor *sherd_rotary(sherd_tensor *x, sherd_tensor *positions,
                                     const sherd_rotary_options *options);

SHERD_END

#endif
