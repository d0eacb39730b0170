/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Weighted sums along one dim, each of neighbouring elements: averages over windows, interpolation.
 * x[outer, in, inner], y[outer, rows, inner], row-major; row o of y is the sum of weight[k] x[first
 * + k] over `count` taps, divided; neither first nor first + count falls from a row to the next.
 * Plain versions for f32 and f64; several dims are several passes.
 */
#ifndef SHERD__KERNELS_TAPS_H
#define SHERD__KERNELS_TAPS_H

#include "kernels.h"

enum { SHERD__TAPS = 4 };

typedef struct sherd__tap {
    int64_t first, count;
    bool even; /* all weights are 1, of any number */
    double weight[SHERD__TAPS];
    double divisor;
} sherd__tap;

typedef struct sherd__taps_pass {
    int64_t outer, in, rows, inner;
    const sherd__tap *tap; /* [rows] */
} sherd__taps_pass;

typedef struct sherd__taps_kernels {
    void (*forward)(const sherd__taps_pass *p, void *y, const void *x); /* taps lie in x */
    /* The adjoint: dx from dy; taps outside of dx are left out. */
    void (*backward)(const sherd__taps_pass *p, void *dx, const void *dy);
} sherd__taps_kernels;

/* forward of elements of 2, 4 or 8 bytes whose taps are one each, of weight 1: copies. */
void sherd__taps_copy(size_t element_bytes, const sherd__taps_pass *p, void *y, const void *x);

/* Of f32 or f64. */
const sherd__taps_kernels *sherd__taps_kernels_of(sherd_dtype dtype);

#endif
