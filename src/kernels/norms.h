/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of norms over x[batch,channels,inner], one table per dtype. A row is what shares its
 * coefficients: a channel of one item, or of all items. Numbers of rows, [rows], are f64 whatever
 * the dtype, and so is all arithmetic of the functions here; each element is rounded once, when it
 * is stored (one of bf16 below 2^-126 twice). They are plain; vector/bodies.h has them for each
 * instruction set, where elements of 16 bits are computed in f32 and sums in f64. As all kernels
 * they allocate nothing, keep nothing and cannot fail.
 */
#ifndef SHERD__KERNELS_NORMS_H
#define SHERD__KERNELS_NORMS_H

#include "kernels.h"

typedef struct sherd__norming {
    int64_t batch, channels, inner;
    bool whole; /* a row is a channel of all items, rows = channels; else rows = batch * channels */
} sherd__norming;

typedef struct sherd__norm_kernels {
    /* sum[rows] += sum of x, or of (x - mean)^2 where there is a mean[rows] (else NULL) */
    void (*add_up)(const sherd__norming *n, double *sum, const void *x, const double *mean);
    /* sum[rows] += sum of dy, by_x[rows] += sum of dy (x - mean) */
    void (*add_products)(const sherd__norming *n, double *sum, double *by_x, const void *dy,
                         const void *x, const double *mean);
    /* y = (x - mean) scale + shift */
    void (*spread)(const sherd__norming *n, void *y, const void *x, const double *mean,
                   const double *scale, const double *shift);
    /* dx = dy scale - shift - (x - mean) slope; shift and slope may be NULL: both are zeroes */
    void (*gradient)(const sherd__norming *n, void *dx, const void *dy, const void *x,
                     const double *mean, const double *scale, const double *shift,
                     const double *slope);
} sherd__norm_kernels;

/* Of x[rows,inner], whose elements have a weight[inner] and bias[inner] each, in f64. */
typedef struct sherd__along_kernels {
    /* y = (x - mean) scale weight + bias */
    void (*spread_along)(int64_t rows, int64_t inner, void *y, const void *x, const double *mean,
                         const double *scale, const double *weight, const double *bias);
    /* sum[rows] += sum of weight dy, by_x[rows] += sum of weight dy (x - mean) */
    void (*add_along)(int64_t rows, int64_t inner, double *sum, double *by_x, const void *dy,
                      const void *x, const double *mean, const double *weight);
    /* dx = weight dy scale - shift - (x - mean) slope; dweight[inner] += dy (x - mean) scale,
     * dbias[inner] += dy */
    void (*gradient_along)(int64_t rows, int64_t inner, void *dx, double *dweight, double *dbias,
                           const void *dy, const void *x, const double *mean, const double *scale,
                           const double *shift, const double *slope, const double *weight);
} sherd__along_kernels;

/* NULL of a dtype that does not compute. */
const sherd__norm_kernels *sherd__norm_kernels_of(sherd_dtype dtype);
const sherd__along_kernels *sherd__along_kernels_of(sherd_dtype dtype);

#endif
