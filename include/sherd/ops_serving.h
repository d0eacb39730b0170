/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server computes for requests that share a step: each row of a batch belongs to a request
 * of its own, and what it gets depends on that request only, not on the rows beside it, on the
 * layout, or on the number of ranks.
 *
 *     logits = sherd_linear(x, w, NULL); // [requests, vocabulary]
 *     sherd_sample_options how = {.temperature = t}; // f32 [requests]
 *     next = sherd_sample_rows(logits, k, &how); // k: i64 [requests, 2], {seed, position}
 */
#ifndef SHERD_OPS_SERVING_H
#define SHERD_OPS_SERVING_H

#include "ops_layers.h"

SHERD_BEGIN

/*
 * Tensors have one element for each row, of the shape of the logits without the last dim; NULL: see
 * there.
 */
typedef struct sherd_sample_options {
    sherd_tensor *temperature; /* f32, logits are divided by it; 0: the largest logit. NULL = 1 */
    sherd_tensor *top_k;       /* i32, only so many of the largest; 0 or less: all. NULL = 0 */
    sherd_tensor *top_p;       /* f32, (0, 1]: the largest that have this probability. NULL = 1 */
    sherd_tensor *min_p;       /* f32, [0, 1]: at least this part of the largest one's. NULL = 0 */
    bool marks;                /* a row of which nothing can be drawn gets -1: see @errors */
} sherd_sample_options;

/**
 * Draw one index for each row of the last dim: index i with the probability softmax(logits /
 * temperature)[i], by a random number that depends on nothing but the row's key. A key is any
 * number of integers, all of which count: for example the request's seed and the position of the
 * token, or these and the number of the sample. Equal keys and logits give equal indices, in any
 * batch; the seed of the world does not count, and no generator is used.
 *
 * What is too improbable is left out first: by `min_p`, then of the rest by `top_k`, then of the
 * rest by `top_p`, as far as probabilities go after the temperature. Elements that are equal to the
 * last one kept are kept too. A logit of -infinity is never drawn. Of several largest logits a
 * temperature of 0 takes the first.
 *
 * @collective see ops.h. Rows may be sharded. If the last dim is, in shards of 1024 logits or
 *             more, these stay where they are: ranks share the work, and exchange a few numbers for
 *             each row (with top_k 1 KB, with top_p 4 KB); rows with a top_k above 128 are
 *             gathered. Otherwise a sharded last dim is gathered, or its shards are moved to
 *             another dim
 * @shapes     logits: [..., n], of any floating-point dtype; key: i32 or i64 [..., words], with at
 *             least one word; options: NULL = all NULL; the result: i32 [...]
 * @numerics   weights are f64 exponentials, rounded down to integers whose sums are exact: so the
 *             layout does not matter. Less than 2^-62 times twice the row's length of the largest
 *             weight is never drawn. Random numbers of 48 bits; what is drawn may change with the
 *             version, and between machines where a number falls between two indices to the last
 *             bit. Time for some passes over the row and n exponentials (with a top_k of up to 128,
 *             for as many); 28 bytes of memory for each element of one row, of shards 4 MB more
 * @owns       scope; it has no gradient
 * @errors     see ops.h; EINVAL no dims, a row of no elements or of more than i32 counts, shapes or
 *             dtypes of keys and options that do not fit; a logit that is NaN or +infinity, a row
 *             of which all are -infinity, a temperature that is negative or NaN, a top_p or min_p
 *             out of range: the whole call fails, and the text has the first such row, or where
 *             rows are sharded that of one of the ranks. With options->marks only that row gets
 *             -1, and the others are drawn: so one request whose logits overflow does not end the
 *             step of all
 */
SHERD_API sherd_tensor *sherd_sample_rows(sherd_tensor *logits, sherd_tensor *key,
                                          const sherd_sample_options *options);

/**
 * sherd_attention_paged for rows, each of which says of which sequence it is: so sequences may have
 * any numbers of new tokens, a part of a long prompt beside a token each of others (chunked
 * prefill), without padding. Row i is the query of sequence[i], a row of `table`, at positions[i],
 * and sees the keys 0 .. positions[i] of that sequence. Rows of a sequence should follow one
 * another: each such run reads its keys once. A row whose position is negative is no token: it gets
 * zeros, and its sequence may be any number. No gradient.
 *
 * Keys and values are written by the same table, with a row of it for each token:
 *
 *     sherd_tensor *rows = sherd_index_select(table, 0, sequence); // once in a step
 *     sherd_write_paged(pool_k, rows, sherd_unsqueeze(positions, 1), sherd_unsqueeze(k, 1));
 *     sherd_write_paged(pool_v, rows, sherd_unsqueeze(positions, 1), sherd_unsqueeze(v, 1));
 *     y = sherd_attention_paged_rows(q, pool_k, pool_v, table, sequence, positions, NULL);
 *
 * If the pool is sharded by blocks, each rank reads the blocks that it has: the rows must be
 * sharded by the same axes, and see blocks of their shard alone, by their numbers in the whole
 * pool. So each shard serves sequences of its own, in one table.
 *
 * @collective see ops.h; heads may be sharded, and rows as the blocks of the pool; otherwise
 *             sharded rows are gathered
 * @shapes     q: [rows, heads, width]; k, v: as there; table: i32 [sequences, m]; sequence,
 *             positions: i32 [rows]; options: NULL = all zero
 * @numerics   a run of rows gets the bits that sherd_attention_paged gives it as a batch of one
 * @owns       scope
 * @errors     as sherd_attention_paged_with; EINVAL a sequence that the table does not have, a pool
 *             that is sharded by blocks where rows are not, a block of another shard
 */
SHERD_API sherd_tensor *sherd_attention_paged_rows(sherd_tensor *q, sherd_tensor *k,
                                                   sherd_tensor *v, sherd_tensor *table,
                                                   sherd_tensor *sequence, sherd_tensor *positions,
                                                   const sherd_cached_options *options);

SHERD_END

#endif
