/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest element of each window, and where it is. x[outer, in], y[outer, out] with three dims
 * of space (missing ones have size 1); element o of y looks at o stride - before + k dilation of x,
 * for what lies in x. The first of equal ones counts, and a NaN before all numbers. Positions are
 * row-major in the whole space, of which x is the part at `offset`; -1: nothing was looked at, and
 * y is -infinity. Plain versions for f32 and f64.
 */
#ifndef SHERD__KERNELS_POOL_H
#define SHERD__KERNELS_POOL_H

#include "kernels.h"

enum { SHERD__POOL_DIMS = 3 };

typedef struct sherd__pool {
    int64_t outer;
    int64_t in[SHERD__POOL_DIMS], out[SHERD__POOL_DIMS], kernel[SHERD__POOL_DIMS];
    int64_t stride[SHERD__POOL_DIMS], dilation[SHERD__POOL_DIMS], before[SHERD__POOL_DIMS];
    int64_t offset[SHERD__POOL_DIMS], whole[SHERD__POOL_DIMS];
    /* not 0: windows are so many parts of the whole, of which y has those from `first_part` on */
    int64_t parts[SHERD__POOL_DIMS], first_part[SHERD__POOL_DIMS];
} sherd__pool;

typedef struct sherd__pool_kernels {
    void (*forward)(const sherd__pool *p, void *y, int64_t *at, const void *x);
    /* Add each dy where its element was taken, if that is in dx. */
    void (*backward)(const sherd__pool *p, void *dx, const void *dy, const int64_t *at);
} sherd__pool_kernels;

/* Of f32 or f64. */
const sherd__pool_kernels *sherd__pool_kernels_of(sherd_dtype dtype);

#endif
