/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank computes of attention to blocks of a pool (attend_blocks.c): for a batch of sequences
 * that all have as many queries, or for one run of rows after the other, each of one sequence
 * (attend_paged.c).
 */
#ifndef SHERD__ATTENTION_PAGED_H
#define SHERD__ATTENTION_PAGED_H

#include "attend.h"

/* Operands; dims of the pool. */
enum {
    SHERD__PAGED_Q,
    SHERD__PAGED_K,
    SHERD__PAGED_V,
    SHERD__PAGED_TABLE,
    SHERD__PAGED_WHERE,
    SHERD__PAGED_SEQUENCE, /* only of rows */
    SHERD__PAGED_OPERANDS = SHERD__PAGED_SEQUENCE
};
enum { SHERD__POOL_BLOCKS, SHERD__POOL_TOGETHER, SHERD__POOL_HEADS, SHERD__POOL_WIDTH };

/* Memory for one sequence with as many queries, few or many, as there may be. On the GPU few need
 * none. */
typedef struct sherd__paging_room {
    int64_t *seen;
    void *out, *log_sum, *few; /* of few queries */
    void *k, *v, *sums, *many; /* of many */
} sherd__paging_room;

typedef struct sherd__paging {
    sherd_call *call;
    const sherd__kernels *kernels;
    sherd_dtype dtype;    /* of statistics, and of few queries' results */
    sherd__attending s;   /* of one sequence, without queries and keys */
    int64_t batch, first; /* sequences here: how many, and the first one */
    int64_t together, entries;
    int64_t block;           /* of the pool here: the first one */
    int64_t most;            /* keys that a table has room for */
    int64_t repeat;          /* heads that share keys, on all ranks */
    size_t q_bytes, k_bytes; /* of a position */
    bool few, dry;
    const char *q;
    char *out;
    const int32_t *table, *where;             /* on the CPU in any case */
    const int32_t *table_there, *where_there; /* beside q */
    sherd__paging_room room;
} sherd__paging;

/* All of a call. */
sherd__paging sherd__paging_of(sherd_call *call);
/* A part of it: `rows` rows from row `at` on, which are queries of one sequence. */
sherd__paging sherd__paging_part(const sherd__paging *p, int64_t at, int64_t rows,
                                 int64_t sequence);
/* The integers of an operand, as the CPU has them. False: failed. */
bool sherd__paging_numbers(const sherd__paging *p, int operand, const int32_t **out);
/* Whether table and positions fit the pool, before anything is computed. False: failed. */
bool sherd__paging_check(const sherd__paging *p);
/*
 * Memory for parts of at most so many queries, of either kind, of which those of many see at most
 * so many keys. False: failed.
 */
bool sherd__paging_take(sherd__paging *p, int64_t most_few, int64_t most_many, int64_t keys);
/* Keys that any query of a part sees, at most. */
int64_t sherd__paging_keys(const sherd__paging *p);
/* The same on the GPU, for parts of many queries that see at most so many keys. */
bool sherd__paging_take_there(sherd__paging *p, int64_t queries, int64_t keys);
/* Attend, with room. On the GPU; false: no kernel for these heads, or failed. Or on the CPU. */
bool sherd__paging_there(const sherd__paging *p);
void sherd__paging_here(sherd__paging *p);

#endif
