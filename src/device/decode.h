/* SPDX-License-Identifier: Apache-2.0 */
/* What decoding with a cache asks of the GPU: see decode.cu. */
#ifndef SHERD__DEVICE_DECODE_H
#define SHERD__DEVICE_DECODE_H

#include "device.h"

enum { SHERD__CACHED_WIDTH = 256 /* of a head, at most */ };

/*
 * Queries q [batch,queries,groups,repeat,width] at positions [batch,queries], of the GPU's memory,
 * and a cache k, v [batch,room,groups,width], whose first key has the position `first`. A query
 * sees the keys up to its position. With a table of the GPU's memory, k and v are blocks of a pool,
 * from number first_block on, [..,together,groups,width]: key j of item b is row j % together of
 * block table[b,j / together].
 */
typedef struct sherd__caching {
    int64_t batch, queries, groups, repeat, width, room, first;
    int64_t seen; /* keys that any query sees, at most */
    double scale;
    void *log_sum;
    const int32_t *table; /* [batch,entries]; NULL: there are no blocks */
    int64_t entries, together, first_block;
    int64_t window; /* as in sherd__attending, and softcap */
    double softcap;
} sherd__caching;

/*
 * Few queries: each key is read once for every eight rows [queries,repeat]. s->log_sum
 * [batch,groups,repeat,queries]: what attention_join of kernels.h needs of it; then that and out
 * are statistics, of f32 (f64 of f64); or NULL. False: heads are too wide.
 */
bool sherd__device_attention_cached(sherd__device *device, sherd_dtype dtype,
                                    const sherd__caching *s, const int32_t *positions, void *out,
                                    const void *q, const void *k, const void *v);

/*
 * dst[b, index[b,i] - first] = src[b,i], of `bytes` that are dense; an index that is not in
 * [first, first + entries) takes nothing, and of equal ones the last counts. Strides in bytes.
 * With a table[batch,entries] of the GPU's memory dst is blocks of `together` rows, from number
 * `first` on, dst_batch apart: the row goes to place index % together of the block that
 * table[b,index / together] names; a negative index takes nothing.
 */
typedef struct sherd__row_writes {
    int64_t batch, n, bytes, first, entries;
    int64_t dst_batch, dst_row, src_batch, src_row;
    const int32_t *table; /* NULL: there are no blocks */
    int64_t together;
} sherd__row_writes;
void sherd__device_write_rows(sherd__device *device, const sherd__row_writes *w, void *dst,
                              const void *src, const int32_t *index);

#endif
