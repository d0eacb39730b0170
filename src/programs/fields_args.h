/* SPDX-License-Identifier: Apache-2.0 */
/* What kernels of fields.cu are told; part of the program's text too, so no headers here. */
#ifndef SHERD__PROGRAMS_FIELDS_ARGS_H
#define SHERD__PROGRAMS_FIELDS_ARGS_H

/* As sherd__pool in kernels/pool.h. */
typedef struct pool_of {
    int64_t outer, in[3], out[3], kernel[3], stride[3], dilation[3], before[3], offset[3], whole[3];
} pool_of;

typedef struct max_pool_args {
    pool_of p;
    int64_t items; /* of y */
    void *y;
    int64_t *at;
    const void *x;
} max_pool_args;

typedef struct max_pool_grad_args {
    pool_of p;
    int64_t items; /* of dx */
    void *dx;
    const void *dy;
    const int64_t *at;
} max_pool_grad_args;

/* As sherd__tap in kernels/taps.h. */
typedef struct tap_of {
    int64_t first, count;
    uint8_t even;
    double weight[4];
    double divisor;
} tap_of;

/* y[outer,rows,inner] of x[outer,in,inner]. */
typedef struct taps_args {
    int64_t items, in, rows, inner;
    void *y;
    const void *x;
    const tap_of *tap;
} taps_args;

/* dx[outer,in,inner] of dy[outer,rows,inner]; reader[in,2]: the rows that read an element. */
typedef struct taps_grad_args {
    int64_t items, in, rows, inner;
    void *dx;
    const void *dy;
    const tap_of *tap;
    const int64_t *reader;
} taps_grad_args;

/* Pairs; strides of a and b in pairs. aligned: a and b lie on the size of a pair, as dst does. */
typedef struct complex_mul_args {
    int64_t items;
    int32_t ndim, small;
    uint32_t multiplier[8], shift[8];
    int64_t size[8], stride[2][8];
    int32_t conj, aligned;
    void *dst;
    const void *a, *b;
} complex_mul_args;

/*
 * Pairs [outer,m,inner], times `scale`; those that have a conjugate among n, all but the first and
 * of an even n the last, times `middle` too, the imaginary part times `sign`; real_ends: that of
 * the others is 0.
 */
typedef struct fft_scale_args {
    int64_t items, m, inner, n;
    void *dst;
    const void *src;
    double scale, middle, sign;
    int32_t real_ends, aligned; /* src lies on the size of a pair, as dst does */
} fft_scale_args;

#endif
