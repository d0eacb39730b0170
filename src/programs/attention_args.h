/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels of attention.cu and attention_half.cu are told; part of the programs' texts too, so
 * there are no headers here.
 */
#ifndef SHERD__PROGRAMS_ATTENTION_ARGS_H
#define SHERD__PROGRAMS_ATTENTION_ARGS_H

enum {
    ATTENTION_THREADS = 128, /* 8 by 16 */
    ATTENTION_EACH = 4,      /* a tile is 16 * this many queries and keys; of f64 half as many */
    ATTENTION_PIECE = 16,    /* bytes */
    ATTENTION_HALF_THREADS = 128, /* of 16 bits: warps with 16 or 32 rows each */
    ATTENTION_HALF_SIDE = 64,     /* rows of tiles that a block goes through */
    ATTENTION_HALF_GAP = 8,       /* numbers between rows of a tile */
    ATTENTION_DELTA_LANES = 8     /* for a query */
};

/* What elements of a mask are. */
enum {
    ATTENTION_MASK_BOOL, /* false = not seen; all others are added to scores */
    ATTENTION_MASK_OWN,  /* as q */
    ATTENTION_MASK_BF16,
    ATTENTION_MASK_F16
};

/* As sherd__attending says. log_sum and delta are statistics [batch,groups,repeat,queries]. */
typedef struct attending {
    int64_t batch, groups, repeat, queries, keys, width;
    int64_t ahead;       /* of a causal one: query i sees keys 0 .. i + ahead */
    int64_t window;      /* with MORE: only so many of them, the last ones; 0 = all */
    const int32_t *span; /* with MORE: as sherd__attending's, of all items; NULL = none */
    int64_t span_batch, first_key;
    double scale;
    double cap;           /* with MORE, without a mask: of scores, as sherd__attending's softcap */
    int32_t causal, wide; /* rows allow loads of 16 bytes */
    int32_t spare;        /* attention.cu: a block has memory for one more tile */
    const void *q, *k, *v;
    void *out, *log_sum;
    const void *dout;
    void *dq, *dk, *dv, *delta;
    const void *dlog_sum; /* NULL = zeroes */
    /* Kernels with MORE only. The mask from the first key that is here; NULL = none. */
    const void *mask;
    int64_t mask_stride[5];
    double *dmask; /* as the mask lies; added to */
    int32_t mask_kind, drops;
    int32_t mask_pairs; /* neighbours in a row, of an even number and the next, are one word */
    /* Dropout: what is kept is multiplied by `keep`; scores that are numbered as in the whole
     * tensor decide, of which batch items, heads and queries have so many. */
    double keep;
    uint32_t threshold, key_word[2], key_high[2];
    int64_t first_score, batch_scores, head_scores, query_scores, all_repeat;
} attending;

typedef attending attention_args;
typedef attending attention_delta_args;
typedef attending attention_dq_args;
typedef attending attention_dkv_args;
typedef attending attention_dmask_args;
typedef attending attention_half_args;
typedef attending attention_half_delta_args;
typedef attending attention_half_dq_args;
typedef attending attention_half_dkv_args;

/* Results over more keys, and the logarithms of their sums, to be joined to others. */
typedef struct attention_join_args {
    int64_t batch, groups, repeat, queries, width;
    void *out, *log_sum;
    const void *more, *more_log_sum;
} attention_join_args;

#endif
