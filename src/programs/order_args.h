/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of order.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_ORDER_ARGS_H
#define SHERD__PROGRAMS_ORDER_ARGS_H

enum {
    RADIX_BITS = 8, /* that a pass sorts by */
    RADIX = 1 << RADIX_BITS,
    RADIX_THREADS = RADIX, /* a thread has a digit */
    RADIX_WARPS = RADIX_THREADS / 32,
    RADIX_EACH = 16, /* keys of a thread */
    RADIX_TILE = RADIX_THREADS * RADIX_EACH,
    SELECT_MOST = 1024 /* that a block sorts in its memory */
};

/* Keys of src[outer,n,inner], to key[outer,inner,n]. */
typedef struct order_keys_args {
    int64_t rows, n, inner;
    const void *src;
    void *key;
    int32_t descending;
} order_keys_args;

/* The first k of each row, in order. values may be NULL. */
typedef struct order_select_args {
    int64_t rows, n, inner, k;
    const void *src;
    void *values;
    int32_t *index;
    int32_t descending;
} order_select_args;

/* A pass over key[rows,n] and position[rows,n] (NULL: 0 .. n-1), by the digit at `shift`. */
typedef struct radix_count_args {
    int64_t rows, n, tiles;
    int32_t shift;
    const void *key;
    const int32_t *position;
    void *to_key;
    int32_t *to_position;
    uint32_t *count, *total; /* [rows,RADIX,tiles], [rows,RADIX] */
} radix_count_args;
typedef radix_count_args radix_scan_args;
typedef radix_count_args radix_move_args;

/* The first k of position[rows,n] to index[outer,k,inner], and what is there of src to values. */
typedef struct order_write_args {
    int64_t rows, n, inner, k;
    const int32_t *position;
    const void *src;
    void *values;
    int32_t *index;
} order_write_args;

#endif
