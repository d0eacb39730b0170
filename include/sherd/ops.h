/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators: expressions on tensors, plain or distributed. All are recorded for backward.
 *
 * On distributed operands every operator has a rule. Operands that the rule accepts as they lie are never
 * moved; otherwise the cheapest move that makes them fit is taken, and logged. Operands of one operator lie
 * on one mesh. A plain tensor that does not vary counts as replicated beside distributed ones; one that
 * varies is refused. An empty shard is a valid operand.
 *
 * Operands of one operator have one dtype: f32, f64, bf16 or f16 (indices are i32). bf16 and f16 are computed with in f32,
 * and each element of a result is rounded once, to nearest.
 *
 * @collective for all: the operands' mesh, if distributed. @owns for all: the result belongs to the scope.
 * @errors for all, besides those named: EINVAL dtypes or shapes do not fit, or a plain tensor that varies beside
 * distributed ones; ENOMEM; EDIFFER; EPEER.
 */
#ifndef SHERD_OPS_H
#define SHERD_OPS_H

#include "ops_shape.h"
#include "tensor.h"

SHERD_BEGIN

/* ---- element by element. Shapes broadcast as in NumPy; a pending sum passes through where it may. ---- */

/** a + b. A replicated operand is added once to a pending sum. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_add(sherd_tensor *a, sherd_tensor *b);
/** a - b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sub(sherd_tensor *a, sherd_tensor *b);
/** a * b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mul(sherd_tensor *a, sherd_tensor *b);
/** a * factor. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_scale(sherd_tensor *a, double factor);
/**
 * The same numbers in another dtype. Fractions are rounded to nearest, ties to even; those that become integers are cut
 * off, held within the range, and NaN is 0; wider integers keep their low bits; to bool is whether it is not 0. A
 * pending sum stays pending, unless it is to have no fractions: then it is settled first.
 *
 * Gradient: cast back.
 *
 * @collective see above, only where something pending is settled
 * @owns       scope; `t` itself if it has this dtype
 * @errors     see above; EINVAL no such dtype
 */
SHERD_API sherd_tensor *sherd_cast(sherd_tensor *t, sherd_dtype dtype);

/** max(a, 0). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_relu(sherd_tensor *a);
/** The tanh form of GELU: a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_gelu(sherd_tensor *a);

/* ---- products ------------------------------------------------------------------------------- */

/**
 * a b: [..., m, k] x [..., k, n] -> [..., m, n], as numpy.matmul: leading dims broadcast; of a vector the dim that it lacks is
 * taken for 1, and left out of the result.
 *
 * @collective see above
 * @numerics   f32, bf16 and f16 accumulate in f32; a sharded k gives a pending sum
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_matmul(sherd_tensor *a, sherd_tensor *b);

/**
 * x W^T + b: [..., in] x [out, in] -> [..., out]. `bias` [out] may be NULL; it is added once, also where
 * `in` is sharded and the result a pending sum.
 *
 * @collective see above   @numerics as sherd_matmul   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_linear(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias);

/**
 * A sum of products by an index string, as numpy.einsum: "bij,bjk->bik" multiplies two batches of matrices, "ij->j" sums rows,
 * "i,j->ij" is an outer product. A letter stands for one dim, "..." for any number of them, which broadcast; what the
 * result lacks is summed over. Without "->" the result has the letters that are there once, in alphabetical order. Of three
 * operands or more those are multiplied first that cost least altogether.
 *
 * @collective see above
 * @shapes     text: at most 63 bytes; operands: [count]
 * @numerics   as sherd_matmul, for each product of two
 * @owns       scope
 * @errors     see above; EINVAL a text that does not fit the operands, or with a letter twice in one term; ELIMIT some product
 *             has more dims than a tensor may
 */
SHERD_API sherd_tensor *sherd_einsum(const char *text, sherd_tensor *const *operands, int count);

/* ---- reductions ----------------------------------------------------------------------------- */

/** Sum of all elements, a scalar (ndim 0); of a sharded tensor a pending sum; of integers and bool in i64 (sherd_sum_over). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sum(sherd_tensor *a);
/** Mean of all elements: the sum divided by the global count. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mean(sherd_tensor *a);

/* ---- shape ---------------------------------------------------------------------------------- */

/**
 * The same elements in another shape, row-major. One size may be -1. Splitting a sharded dim into (a, b)
 * leaves the axes on a and needs cuts at multiples of b (other cuts are moved there first); merging (a, b)
 * keeps the axes of a. If b is sharded its axes move to a first, or to another dim where that is less for the rank
 * that receives most; a dim of size 1 that goes is gathered.
 *
 * @collective only if something must move
 * @shapes     shape: int64_t[ndim], global
 * @owns       scope; shares the storage where it can
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_view(sherd_tensor *a, const int64_t *shape, int ndim);

/* ---- layers as functions -------------------------------------------------------------------- */

/**
 * Normalise the last dim: (x - mean) / sqrt(var + eps) * weight + bias. `weight`, `bias` [last] or NULL. Several dims, and
 * what happens where they are sharded: sherd_layer_norm_over (ops_layers.h).
 *
 * @collective see above   @numerics mean and variance in two passes   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_layer_norm(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                                         double eps);

/**
 * Rows of a table: weight [entries, width], ids i32 [...] -> [..., width]. A table sharded on entries gives
 * a pending sum.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL an id outside of [0, entries)
 */
SHERD_API sherd_tensor *sherd_embedding(sherd_tensor *weight, sherd_tensor *ids);

/**
 * Zero each element with probability p, scale the others by 1/(1-p). The mask depends on the generator and
 * the global index only, never on the layout; backward replays it.
 *
 * @collective see above   @owns scope; `a` itself if p is 0   @errors see above; EINVAL p outside of [0, 1)
 */
SHERD_API sherd_tensor *sherd_dropout(sherd_tensor *a, double p, sherd_generator *generator);

/* How attention over a sharded sequence goes about it; where no sequence is sharded it does not matter. */
typedef enum sherd_attention_way {
    SHERD_ATTENTION_CHEAPEST =
        0, /* of these, by the price of their calls and the work of the busiest rank */
    /* each rank keeps its queries, and meets the keys and values of the others half a piece at a time */
    SHERD_ATTENTION_RING,
    SHERD_ATTENTION_GATHER, /* each rank keeps its queries, and gets all keys and values that they see by one call */
    SHERD_ATTENTION_HEADS /* shards go to heads, and the result back */
} sherd_attention_way;

typedef struct sherd_attention_options {
    bool causal;  /* position s sees positions 0..s */
    double scale; /* 0 = 1/sqrt(width) */
    /* Broadcasts to [batch, heads, s, t]: bool, where false is not seen; or of the dtype of q, added to the scores. */
    sherd_tensor *mask;
    double
        dropout; /* each probability is dropped with this one, in [0, 1), and the others scaled */
    sherd_generator *generator; /* of dropout */
    sherd_attention_way way;
} sherd_attention_options;

/**
 * softmax(q k^T scale + mask) v per head: q [batch, s, heads, width], k and v [batch, t, heads, width] -> as q. Of k and v
 * there may be fewer heads, a divisor: then as many neighbours of q share one. Batch and heads may be sharded; width is made
 * whole. A query that sees no key gets zeroes. What is hidden has the weight 0, also of NaN and infinity, whose product is NaN:
 * hidden keys and values that others see must be finite, as in PyTorch. What dropout drops depends on the generator and the
 * global indices only, and backward replays it. Gradients: of q, k, v, and of a mask that is added.
 *
 * Sequences may be sharded too, with any cuts: the result lies as q does (where only k and v are sharded, q is sliced as
 * they are). Keys that no query of a rank may see, as causal ones go, neither travel nor count; sherd_balanced_cuts makes
 * the work even. In a ring no rank has more of k and v, its own piece included, than two pieces.
 *
 * @collective see above; where heads that share keys lie on two ranks, they are moved first. Sharded sequences, of p pieces:
 *             a ring has at most 2(p-1) calls forward and twice as many back, one is begun while another is computed with; to
 *             gather takes one call, and two back; heads four, and as many back
 * @shapes     options: NULL = all zero; causal needs s = t, and goes together with a mask
 * @numerics   the softmax is computed again in backward; only its logarithm of sums is kept. The gradient of a
 *             mask is by a plain kernel with f64 sums: about twenty times slower in f32. Pieces are joined by their logarithms
 *             of sums, in an order that depends on layouts only; of 16 bits they stay f32 until the end
 * @owns       scope
 * @errors     see above; EINVAL a mask that does not broadcast, a dropout outside of [0, 1) or without a generator, a way that
 *             is none
 */
SHERD_API sherd_tensor *sherd_attention(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                        const sherd_attention_options *options);

/**
 * Mean over all positions of -log softmax(logits)[target]: logits [..., classes], targets i32 [...] -> a
 * scalar. Sharded classes cost one exchange of three numbers a position; the logits are never gathered.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a target outside of [0, classes)
 */
SHERD_API sherd_tensor *sherd_cross_entropy(sherd_tensor *logits, sherd_tensor *targets);

SHERD_END

#endif
