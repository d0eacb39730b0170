/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of shared_rows.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_SHARED_ROWS_ARGS_H
#define SHERD__PROGRAMS_SHARED_ROWS_ARGS_H

enum { SHARED_THREADS = 256 /* of a block, at most */ };

/*
 * Softmax of [outer,mid,inner] over mid, of which other ranks have parts: n = outer * inner
 * positions. `along`: a block has a position (inner is 1); else a thread. Statistics [n].
 */
typedef struct soft_place {
    int64_t n, mid, inner;
    int32_t along, of_log; /* the logarithm of softmax */
} soft_place;

typedef struct soft_stats_args {
    soft_place at;
    void *most, *total;
    const void *src;
} soft_stats_args;

/* stats[parts,2,n] */
typedef struct soft_join_args {
    int64_t parts, n;
    void *most, *total;
    const void *stats;
} soft_join_args;

typedef struct soft_args {
    soft_place at;
    void *dst;
    const void *src, *most, *total;
} soft_args;

typedef struct soft_grad_sum_args {
    soft_place at;
    void *total;
    const void *dy, *y;
} soft_grad_sum_args;

typedef struct soft_grad_with_args {
    soft_place at;
    void *dx;
    const void *dy, *y, *total;
} soft_grad_with_args;

typedef struct soft_spread_args {
    soft_place at;
    void *dx;
    const void *src, *log_sum, *dy;
} soft_spread_args;

typedef struct log_sum_args {
    int64_t n;
    void *y, *log_sum;
    const void *most, *total;
} log_sum_args;

/* Rows of a norm, [rows,cols] here; a block has a row. moments: [3,rows]; not centred, [rows]. */
typedef struct row_moments_args {
    int64_t rows, cols;
    int32_t centred;
    void *moments;
    const void *x;
} row_moments_args;

/* moments[parts,...] of all parts; `length` of whole rows. mean: not NULL if rows are centred. */
typedef struct row_moments_join_args {
    int64_t parts, rows;
    double length, eps;
    void *mean, *rstd;
    const void *moments;
} row_moments_join_args;

/* What is missing is NULL: mean, weight, bias. */
typedef struct row_norm_args {
    int64_t rows, cols;
    void *y;
    const void *x, *mean, *rstd, *weight, *bias;
} row_norm_args;

/* sums[2,rows] of w dy and of w dy (x - mean); without a mean [rows], the latter. */
typedef struct row_sums_args {
    int64_t rows, cols;
    void *sums;
    const void *dy, *x, *mean, *weight;
} row_sums_args;

typedef struct row_norm_grad_args {
    int64_t rows, cols;
    double length;
    void *dx;
    const void *dy, *x, *mean, *rstd, *weight, *sums;
} row_norm_grad_args;

/* out[batch,queries,heads,width] and log_sum[batch,heads,queries], both statistics. */
typedef struct attention_add_args {
    int64_t batch, queries, heads, width;
    void *out, *log_sum;
    const void *more, *more_log_sum; /* more: of 16 bits maybe */
} attention_add_args;

/* sum[n] += x[n] */
typedef struct add_up_args {
    int64_t n;
    void *sum;
    const void *x;
} add_up_args;

#endif
