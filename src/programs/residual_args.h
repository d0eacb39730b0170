/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of residual.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_RESIDUAL_ARGS_H
#define SHERD__PROGRAMS_RESIDUAL_ARGS_H

enum {
    RESIDUAL_MOST = 512,   /* threads of a block that have a piece of a row each, at most */
    RESIDUAL_MANY = 256,   /* threads of a block that have several */
    RESIDUAL_PIECES = 8,   /* of a thread, at most: half as many of 16-bit types */
    RESIDUAL_ADDERS = 1024 /* threads of a block of norm_back_end */
};

/* sum = x + delta, and its norm; delta NULL: the norm of x, and sum is not written. mean: NULL of
 * an RMS norm. weight, bias: NULL = none. */
typedef struct add_norm_args {
    int64_t rows, cols;
    void *sum, *norm, *mean, *rstd; /* the latter two are statistics: f32, f64 of f64 */
    const void *x, *delta, *weight, *bias;
    double eps;
} add_norm_args;

/* sums[blocks,2,cols]: what a block's rows give to the gradients of weight and bias, statistics.
 * dsum, ddelta, sums: NULL = none. */
typedef struct norm_back_args {
    int64_t rows, cols;
    void *dx, *ddelta, *sums;
    const void *dy, *x, *dsum, *weight, *mean, *rstd;
} norm_back_args;

typedef struct norm_back_end_args {
    int64_t cols, parts;
    void *dweight, *dbias; /* NULL = not wanted */
    const void *sums;
    int32_t add;
} norm_back_end_args;

#endif
