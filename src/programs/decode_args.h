/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of decode.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_DECODE_ARGS_H
#define SHERD__PROGRAMS_DECODE_ARGS_H

enum {
    CACHED_THREADS = 128,
    CACHED_WARPS = CACHED_THREADS / 32,
    CACHED_KEYS = 256 /* of a part, at most */
};

/*
 * q, out [batch,queries,groups,repeat,width]; k, v [batch,room,groups,width]. Rows are the queries
 * of the heads that share keys, [queries,repeat]; a block has a chunk of them and a part of keys.
 * With a table k and v are a pool, [..,together,groups,width] from number first_block on, and key j
 * of an item is in block table[item,j / together].
 */
typedef struct cached_part_args {
    int64_t batch, queries, groups, repeat, width, room;
    int64_t first;         /* position of the first key here */
    int64_t chunks, parts; /* of rows, of keys */
    int64_t keys;          /* of a part */
    int64_t window;        /* keys that a query sees, the last ones up to its position; 0 = all */
    double scale, cap;     /* cap: scores become cap tanh(score / cap); 0 = they do not */
    int32_t wide;          /* rows allow loads of 16 bytes */
    const int32_t *where;  /* [batch,queries] */
    const void *q, *k, *v;
    void *out;                 /* written if there is one part */
    void *log_sum;             /* [batch,groups,repeat,queries], and out statistics too; or NULL */
    void *sums, *most, *total; /* else: [batch,groups,rows,parts], of sums also [width] */
    const int32_t *table;      /* [batch,entries]; or NULL */
    int64_t entries, together, first_block;
} cached_part_args;

typedef cached_part_args cached_join_args;

/* Rows of `units` each, index[batch,n]; strides in units. With a table[batch,entries] dst is blocks
 * of `together` rows, from number `first` on, dst_batch apart. */
typedef struct write_rows_args {
    int64_t batch, n, units, first, entries, together;
    int64_t dst_batch, dst_row, src_batch, src_row;
    const int32_t *index, *table;
    void *dst;
    const void *src;
} write_rows_args;

#endif
