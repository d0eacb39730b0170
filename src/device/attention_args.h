/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels of attention.cu and attention_half.cu are told; part of the programs' texts too, so
 * there are no headers here.
 */
#ifndef SHERD__ATTENTION_ARGS_H
#define SHERD__ATTENTION_ARGS_H

enum {
    ATTENTION_THREADS = 128, /* 8 by 16 */
    ATTENTION_EACH = 4,      /* a tile is 16 * this many queries and keys; of f64 half as many */
    ATTENTION_PIECE = 16,    /* bytes */
    ATTENTION_HALF_THREADS = 128, /* of 16 bits: warps with 16 or 32 rows each */
    ATTENTION_HALF_SIDE = 64,     /* rows of tiles that a block goes through */
    ATTENTION_HALF_GAP = 8,       /* numbers between rows of a tile */
    ATTENTION_DELTA_LANES = 8     /* for a query */
};

/* As sherd__attending says. log_sum and delta are statistics [batch,groups,repeat,queries]. */
typedef struct attending {
    int64_t batch, groups, repeat, queries, keys, width;
    int64_t ahead; /* of a causal one: query i sees keys 0 .. i + ahead */
    double scale;
    int32_t causal, wide; /* rows allow loads of 16 bytes */
    const void *q, *k, *v;
    void *out, *log_sum;
    const void *dout;
    void *dq, *dk, *dv, *delta;
} attending;

typedef attending attention_args;
typedef attending attention_delta_args;
typedef attending attention_dq_args;
typedef attending attention_dkv_args;
typedef attending attention_half_args;
typedef attending attention_half_delta_args;
typedef attending attention_half_dq_args;
typedef attending attention_half_dkv_args;

#endif
