/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What kernels of rows.cu are told. Rows lie one after the other; "statistics" are f32, f64 of f64.
 * Part of the program's text too, so there are no headers here.
 */
#ifndef SHERD__PROGRAMS_ROWS_ARGS_H
#define SHERD__PROGRAMS_ROWS_ARGS_H

/* Of rows that a warp or a block of threads holds: values of each thread. */
enum { ROWS_KEPT = 32 };
/* Threads of a block: with a row per warp; with one per block; with one too long to be held. */
enum { ROWS_WARPS = 128, ROWS_BLOCK = 256, ROWS_LONG = 512 };

/* mean: NULL of an RMS norm. weight, bias: NULL = none. */
typedef struct norm_args {
    int64_t rows, cols;
    void *y, *mean, *rstd; /* the latter two are statistics */
    const void *x, *weight, *bias;
    double eps;
} norm_args;

typedef struct norm_grad_args {
    int64_t rows, cols;
    void *dx;
    const void *dy, *x, *weight, *mean, *rstd;
} norm_grad_args;

/* log: of the softmax's logarithm. */
typedef struct softmax_args {
    int64_t rows, cols;
    void *y;
    const void *x;
    int32_t log;
} softmax_args;

typedef struct softmax_grad_args {
    int64_t rows, cols;
    void *dx;
    const void *dy, *y;
    int32_t log;
} softmax_grad_args;

typedef struct cross_entropy_args {
    int64_t rows, cols, first;
    void *stats;
    const void *logits;
    const int32_t *targets;
} cross_entropy_args;

typedef struct cross_entropy_grad_args {
    int64_t rows, cols, first;
    void *dlogits;
    const void *logits, *dy;
    const double *sums;
    const int32_t *targets;
    double factor;
} cross_entropy_grad_args;

#endif
