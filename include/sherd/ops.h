/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators: expressions on tensors, plain or distributed. All are recorded for backward.
 *
 * Every operator has a rule for the layouts of its operands (docs/operators.md lists them).
 * Operands whose layouts fit the rule are never moved; otherwise sherd makes the cheapest move
 * after which they fit, and logs it. All distributed operands of one operator are on one mesh.
 * Beside distributed operands, a plain tensor that does not vary counts as replicated, and one that
 * varies is an error. An empty shard is a valid operand.
 *
 * The operands of one operator have the same dtype: f32, f64, bf16 or f16, unless it says otherwise
 * (indices are i32). bf16 and f16 compute in f32, and each element of a result is rounded once, to
 * nearest.
 *
 * For all operators, where their comments say "see above" or "see ops.h": the call is collective
 * over the operands' mesh if they are distributed; the result belongs to the scope; and errors are
 * EINVAL (dtypes or shapes do not fit, or a plain tensor that varies beside distributed ones),
 * ENOMEM, EDIFFER and EPEER.
 */
#ifndef SHERD_OPS_H
#define SHERD_OPS_H

#include "ops_shape.h"
#include "random.h"

SHERD_BEGIN

/* ---- elementwise. Shapes broadcast as in NumPy ----------------------------------------------- */

/**
 * a + b. Beside a pending sum, an operand that is not pending is added once.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_add(sherd_tensor *a, sherd_tensor *b);

/** a - b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sub(sherd_tensor *a, sherd_tensor *b);
/** a * b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mul(sherd_tensor *a, sherd_tensor *b);
/** a * factor. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_scale(sherd_tensor *a, double factor);

/**
 * The same values in another dtype. Floating-point results are rounded to nearest, ties to even.
 * From floating point to an integer, values are truncated and clamped to the range, and NaN becomes
 * 0; a wider integer keeps its low bits; to bool, nonzero is true. A pending sum stays pending
 * from floating point to floating point; otherwise it is settled first.
 *
 * Gradient: cast back.
 *
 * @collective see above, only if a pending reduction is settled
 * @owns       scope; `t` itself if it has this dtype
 * @errors     see above; EINVAL an unknown dtype
 */
SHERD_API sherd_tensor *sherd_cast(sherd_tensor *t, sherd_dtype dtype);

/** max(a, 0). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_relu(sherd_tensor *a);

/**
 * The tanh form of GELU: a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_gelu(sherd_tensor *a);

/* ---- products -------------------------------------------------------------------------------- */

/**
 * The matrix product a b: [..., m, k] x [..., k, n] -> [..., m, n], as numpy.matmul: leading dims
 * broadcast, and a vector is taken as a matrix with a dim of size 1, which the result does not
 * have.
 *
 * @collective see above
 * @numerics   f32, bf16 and f16 accumulate in f32; a sharded k gives a pending sum
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_matmul(sherd_tensor *a, sherd_tensor *b);

/**
 * x W^T + b: [..., in] x [out, in] -> [..., out]. `bias` [out] may be NULL. It is added once, even
 * if `in` is sharded and the result is a pending sum.
 *
 * @collective see above   @numerics as sherd_matmul   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_linear(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias);

/**
 * A sum of products given by an index string, as numpy.einsum: "bij,bjk->bik" multiplies two
 * batches of matrices, "ij->j" sums rows, "i,j->ij" is an outer product. A letter stands for one
 * dim, "..." for any number of dims, which broadcast; a letter that the result lacks is summed
 * over. Without "->" the result has the letters that occur once, in alphabetical order. Three or
 * more operands are multiplied in the order that costs least.
 *
 * @collective see above
 * @shapes     text: at most 63 bytes; operands: [count]
 * @numerics   as sherd_matmul, for each product of two operands
 * @owns       scope
 * @errors     see above; EINVAL a text that does not fit the operands, or with a letter twice in
 *             one term; ELIMIT an intermediate product has more dims than a tensor may have
 */
SHERD_API sherd_tensor *sherd_einsum(const char *text, sherd_tensor *const *operands, int count);

/* ---- reductions ------------------------------------------------------------------------------ */

/**
 * The sum of all elements, a scalar (ndim 0). The sum of a sharded tensor is pending; integers and
 * bool are added in i64 (as in sherd_sum_over).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_sum(sherd_tensor *a);

/**
 * The mean of all elements: the sum divided by the global count.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_mean(sherd_tensor *a);

/* ---- shape ----------------------------------------------------------------------------------- */

/**
 * The same elements in another shape, row-major. One size may be -1. Splitting a sharded dim into
 * (a, b) leaves its axes on a; its cuts must be multiples of b, otherwise they are moved there
 * first. Merging (a, b) keeps the axes of a. If b is sharded, its axes first move to a, or to
 * another dim if then the busiest rank receives less. A sharded dim of size 1 that disappears is
 * gathered.
 *
 * @collective only if something must move
 * @shapes     shape: int64_t[ndim], global
 * @owns       scope; shares the storage if possible
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_view(sherd_tensor *a, const int64_t *shape, int ndim);

/* ---- layers as functions --------------------------------------------------------------------- */

/**
 * Normalise the last dim: (x - mean) / sqrt(var + eps) * weight + bias. `weight` and `bias` are
 * [last] or NULL. For several dims, and for sharded ones, see sherd_layer_norm_over (ops_layers.h).
 *
 * @collective see above
 * @numerics   mean and variance in two passes
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_layer_norm(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                         double eps);

/**
 * Rows of a table: weight [entries, width], ids i32 [...] -> [..., width]. With a table sharded by
 * entries the result is a pending sum.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL an id outside [0, entries)
 */
SHERD_API sherd_tensor *sherd_embedding(sherd_tensor *weight, sherd_tensor *ids);

/**
 * Zero each element with probability p and scale the others by 1/(1-p). The mask depends on the
 * generator and the global index only, never on the layout; backward computes it again.
 *
 * @collective see above
 * @owns       scope; `a` itself if p is 0
 * @errors     see above; EINVAL p outside [0, 1)
 */
SHERD_API sherd_tensor *sherd_dropout(sherd_tensor *a, double p, sherd_generator *generator);

/* How attention over a sharded sequence communicates; irrelevant if no sequence is sharded. */
typedef enum sherd_attention_way {
    /* the cheapest one, by the price of its calls and the work of the busiest rank */
    SHERD_ATTENTION_CHEAPEST = 0,
    /* each rank keeps its queries; keys and values come round half a piece at a time */
    SHERD_ATTENTION_RING,
    /* each rank keeps its queries; one call brings all keys and values that they see */
    SHERD_ATTENTION_GATHER,
    /* shards move from the sequence to heads, and the result moves back (Ulysses) */
    SHERD_ATTENTION_HEADS
} sherd_attention_way;

typedef struct sherd_attention_options {
    bool causal;  /* position s sees positions 0..s */
    double scale; /* 0 = 1/sqrt(width) */
    /* broadcasts to [batch, heads, s, t]: bool, false = hidden; or of q's dtype, added to scores */
    sherd_tensor *mask;
    /* the probability, in [0, 1), of dropping an attention weight; the others are scaled */
    double dropout;
    sherd_generator *generator; /* for dropout */
    sherd_attention_way way;
} sherd_attention_options;

/**
 * softmax(q k^T scale + mask) v per head: q [batch, s, heads, width], k and v [batch, t, heads,
 * width] -> shape of q. k and v may have fewer heads, a divisor of q's: then neighbouring heads of
 * q share one. Batch and heads may be sharded; a sharded width is gathered. A query that sees no
 * key gets zeros. Hidden keys have the weight 0; but 0 times NaN or infinity is NaN, so keys and
 * values that are hidden from some queries only must be finite, as in PyTorch. The dropout mask
 * depends on the generator and the global indices only, and backward computes it again. There are
 * gradients for q, k, v, and for a mask that is added.
 *
 * Sequences may be sharded too, with any cuts. The result has the layout of q (if only k and v are
 * sharded, q is sliced like them). Keys that no query of a rank may see, because of the causal
 * mask, are neither sent nor computed; sherd_balanced_cuts gives shards of equal work. With the
 * ring, no rank holds more of k and v than two pieces, its own included.
 *
 * @collective see above; heads that share keys but are on two ranks are moved first. With sequences
 *             sharded in p pieces: the ring makes at most 2(p-1) calls forward and twice as many
 *             backward, each overlapped with computation; gathering makes one call, and two
 *             backward; heads makes four, and four backward
 * @shapes     options: NULL = all zero; causal needs s = t, and may be combined with a mask
 * @numerics   backward computes the softmax again from the saved logarithms of its sums. The
 *             gradient of a mask is computed by a plain kernel with f64 sums, about twenty times
 *             slower in f32. Pieces are combined by their logarithms of sums, in an order that
 *             depends on layouts only; results of 16 bits stay f32 until the end
 * @owns       scope
 * @errors     see above; EINVAL a mask that does not broadcast, dropout outside [0, 1) or without a
 *             generator, an unknown way, a scale that is not finite
 */
SHERD_API sherd_tensor *sherd_attention(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                        const sherd_attention_options *options);

/**
 * The mean over all positions of -log softmax(logits)[target]: logits [..., classes], targets i32
 * [...] -> a scalar. If classes are sharded, ranks exchange three numbers for each position; logits
 * are never gathered.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a target outside [0, classes)
 */
SHERD_API sherd_tensor *sherd_cross_entropy(sherd_tensor *logits, sherd_tensor *targets);

SHERD_END

#endif
