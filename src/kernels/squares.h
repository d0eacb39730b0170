/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and sums of squares of x[outer,mid,inner] over mid, in f64, which holds the squares of all
 * f32; and the gradients of their roots and of variances. f32, f64, bf16, f16. `k` is the table of
 * the dtype.
 */
#ifndef SHERD__KERNELS_SQUARES_H
#define SHERD__KERNELS_SQUARES_H

#include "kernels.h"

typedef struct sherd__squares {
    int64_t outer, mid, inner;
} sherd__squares;

/* sum[outer,inner] */
void sherd__sum_squares_of(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                           double *sum, const void *x);
/*
 * sum[outer,inner]; of numbers, or, about mean[outer,inner], of the squares of differences from it.
 */
void sherd__sums_about(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                       double *sum, const double *mean, const void *x);
/* dx = by (x - mean), of by[outer,inner] and mean[outer,inner], rounded once. */
void sherd__spread_slope(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                         void *dx, const double *by, const double *mean, const void *x);
/* dx = dy / length x, of length[outer,inner] and dy[outer,inner]; 0 where the length is 0. */
void sherd__length_slope(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                         void *dx, const void *dy, const double *length, const void *x);

#endif
