/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators: expressions on tensors, plain or distributed. All are recorded for backward.
 *
 * Every operator has a rule for the layouts of its operands (docs/operators.md lists them).
 * Operands whose layouts fit the rule are not moved; otherwise sherd makes the cheapest moves after
 * which they fit, and logs them (comm.h). All distributed operands of one operator are on one mesh.
 * Beside distributed operands, a plain tensor that does not vary counts as replicated, and one that
 * varies is an error. An empty shard is a valid operand.
 *
 * The operands of one operator have the same dtype, which is f32, f64, bf16 or f16, unless its
 * comment says otherwise (indices are i32). bf16 and f16 are computed with in f32, and each element
 * of a result is rounded once, to nearest.
 *
 * What the comments of all operators in these headers have in common, and abbreviate as "see above"
 * or "see ops.h":
 * - The call is collective over the operands' mesh if they are distributed, otherwise local.
 * - The result belongs to the scope (tensor.h); "scope" under "owns" says just that.
 * - A failure raises the alarm, and the failed tensor is returned.
 * - Errors are EINVAL (dtypes or shapes do not fit, or a plain tensor that varies beside
 *   distributed ones), ENOMEM, EDIFFER and EPEER.
 *
 *     y = sherd_relu(sherd_linear(x, w, NULL)); // any layouts of x and w
 */
#ifndef SHERD_OPS_H
#define SHERD_OPS_H

#include "ops_shape.h"
#include "random.h"

SHERD_BEGIN

/* ---- elementwise. Shapes broadcast as in NumPy ----------------------------------------------- */

/**
 * a + b. If one operand is a pending sum, the other is added to it once, not once per rank, and the
 * result is pending.
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
 * From floating point to an integer dtype, values are truncated and clamped to its range, and NaN
 * becomes 0. From an integer dtype to a narrower one, the low bits are kept. To bool, nonzero is
 * true. A pending sum stays pending if both dtypes are floating-point; otherwise it is settled
 * first.
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
 * broadcast; a vector counts as a matrix with one more dim of size 1, which is removed from the
 * result.
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
 * batches of matrices, "ij->j" sums rows, "i,j->ij" is an outer product. A letter, small or
 * capital, stands for one dim, "..." for any number of dims, which broadcast. Letters that the
 * result does not have are summed over. A letter that comes twice in a term is the diagonal of its
 * dims (sherd_diagonal): "ii->i", "ii->" for a trace. Without "->" the result has the letters that
 * occur once, in alphabetical order, capital ones first. Three or more operands are multiplied two
 * at a time, in the order that costs least. One operand without a sum, "ij->ji", gives a view.
 *
 * @collective see above
 * @shapes     text: at most 63 bytes; operands: [count]
 * @numerics   as sherd_matmul, for each product of two operands
 * @owns       scope
 * @errors     see above; EINVAL a text that does not fit the operands, or with a letter twice in
 *             the result, or with more than 26 letters, some of them capital; ELIMIT an
 *             intermediate product has more dims than a tensor may have
 */
SHERD_API sherd_tensor *sherd_einsum(const char *text, sherd_tensor *const *operands, int count);

/* ---- reductions ------------------------------------------------------------------------------ */

/**
 * The sum of all elements, a scalar (ndim 0). Of a sharded tensor it is a pending sum. Integers and
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
 * The same elements, row-major, in another shape.
 *
 * In terms of shards: splitting a sharded dim into (a, b) keeps its axes on a; if its cuts are not
 * multiples of b, they are moved there first. Merging (a, b) keeps the axes of a; if b is sharded,
 * its axes first move to a, or to another dim if the busiest rank receives less then. A sharded dim
 * of size 1 that disappears is gathered.
 *
 * @collective only if something must move
 * @shapes     shape: int64_t[ndim], global; one size may be -1, and follows from the others
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
 * The rows of a table with the given numbers: weight [entries, width], ids i32 [...] -> [...,
 * width]. If the table is sharded by entries, the result is a pending sum.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL an id outside [0, entries)
 */
SHERD_API sherd_tensor *sherd_embedding(sherd_tensor *weight, sherd_tensor *ids);

/**
 * Set each element to zero with probability p, and scale the others by 1/(1-p). Which elements
 * these are depends only on the generator and the global index, never on the layout; backward draws
 * them again.
 *
 * @collective see above
 * @owns       scope; `a` itself if p is 0
 * @errors     see above; EINVAL p outside [0, 1)
 */
SHERD_API sherd_tensor *sherd_dropout(sherd_tensor *a, double p, sherd_generator *generator);

/* How attention over a sharded sequence communicates; ignored if no sequence is sharded. */
typedef enum sherd_attention_way {
    /* the cheapest one, by the price of its calls and the work of the busiest rank */
    SHERD_ATTENTION_CHEAPEST = 0,
    /* each rank keeps its queries; keys and values go round the ranks, half a piece at a time */
    SHERD_ATTENTION_RING,
    /* each rank keeps its queries; one call fetches all keys and values that they see */
    SHERD_ATTENTION_GATHER,
    /* shards move from the sequence to heads, and the result moves back (Ulysses) */
    SHERD_ATTENTION_HEADS
} sherd_attention_way;

typedef struct sherd_attention_options {
    bool causal;  /* position s sees positions 0..s */
    double scale; /* 0 = 1/sqrt(width) */
    /* broadcasts to [..., heads, s, t]; bool: false hides a key; of q's dtype: added to scores */
    sherd_tensor *mask;
    /* probability, in [0, 1), that an attention weight is dropped; the others are scaled up */
    double dropout;
    sherd_generator *generator; /* for dropout */
    sherd_attention_way way;
    int64_t window; /* position s sees positions s - window + 1 .. s; needs causal; 0 = 0..s */
    double softcap; /* scores become softcap tanh(score / softcap), before the mask; 0 = no */
    /* i32 [..., s, 2], each dim of batch as of q or 1: position s sees positions spans[s,0] ..
     * spans[s,1] - 1 only, such as those of its document (sherd_document_spans, ops_layers.h).
     * Neither number may fall from one position to the next. Not together with a mask */
    sherd_tensor *spans;
    /* rows of q, k and v, and so of masks and spans, are in the order of sherd_zigzag for so many
     * shards (ops_layers.h); positions above are those before. Needs s = t; 0 = in order */
    int64_t zigzag;
} sherd_attention_options;

/**
 * softmax(q k^T scale + mask) v for each head: q [..., s, heads, width], k and v [..., t, heads,
 * width] -> shape of q. There are up to four dims of batch: windows of a field are [batch, windows,
 * s, heads, width], their mask [windows, 1, s, t], a learned bias [heads, s, t]. k and v may have
 * fewer heads, a divisor of q's; then neighbouring heads of q share one. A query that sees no key
 * gets zeros. A hidden key has the weight 0, but 0 times NaN or infinity is NaN: as in PyTorch,
 * keys and values that are hidden from only some queries must be finite. Which weights are dropped
 * depends only on the generator and the global indices; backward draws them again. There are
 * gradients for q, k, v, and for a mask that is added: summed over the dims in which it was
 * stretched, and pending on the axes that shard these.
 *
 * Each dim of batch, and heads, may be sharded by axes of its own; nothing moves if q, k, v and the
 * dims that the mask has are sharded alike. A sharded width is gathered. Sequences may be sharded
 * too, with any cuts. The result has the layout of q (if only k and v are sharded, q is sliced like
 * them). Keys that causality or the window hides from all queries of a rank are neither sent there
 * nor computed with. Then later shards have more work than earlier ones; rows in zigzag order give
 * all the same (options->zigzag), and sherd_balanced_cuts does by shards of other sizes. What a
 * window or spans hide is not computed. With the ring, no rank holds more of k and v than two
 * pieces, its own included. If sequences are sharded, dims of batch are merged (sherd_reshape), and
 * a mask that is stretched in only some of them is repeated.
 *
 * @collective see above; heads that share keys but are on different ranks are moved first. If
 *             sequences are sharded in p pieces, RING makes at most 2(p-1) calls in forward and
 *             twice as many in backward, all overlapped with computation; GATHER one in forward and
 *             two in backward; HEADS four in forward and four in backward
 * @shapes     options: NULL = all zero; causal needs s = t, and may be combined with a mask
 * @numerics   backward computes the softmax again, from the saved logarithms of its sums. The
 *             gradient of a mask is summed in f64; of 16-bit dtypes it takes kernels of f32, not
 *             tiles. Results over parts of a sharded sequence are combined in an order that
 *             depends on layouts only, in f32 for 16-bit dtypes
 * @owns       scope
 * @errors     see above; EINVAL a mask that does not broadcast, dropout outside [0, 1) or without a
 *             generator, an unknown way, a scale that is not finite, a window that is negative or
 *             not causal, a softcap that is negative or not finite, spans that are not i32 [...,
 *             s, 2], fall within a rank's piece, or come with a mask; a negative zigzag, one
 *             of more keys than queries or fewer
 */
SHERD_API sherd_tensor *sherd_attention(sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                                        const sherd_attention_options *options);

/**
 * The mean over all positions of -log softmax(logits)[target]: logits [..., classes], targets i32
 * [...] -> a scalar. Logits are never gathered: if classes are sharded, ranks exchange three
 * numbers for each position. For options such as ignored targets see sherd_cross_entropy_with
 * (ops_layers.h).
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a target outside [0, classes)
 */
SHERD_API sherd_tensor *sherd_cross_entropy(sherd_tensor *logits, sherd_tensor *targets);

SHERD_END

#endif
