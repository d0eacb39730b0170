/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over sets of channels on the GPU (sets.c): see kernels/norms.h and norms/sets.h. Of
 * dtypes that it computes, arithmetic in f64; numbers of rows, of f64, are in the GPU's memory, and
 * for a set each of its rows has them. Means and variances are statistics of the dtype.
 */
#ifndef SHERD__DEVICE_SETS_H
#define SHERD__DEVICE_SETS_H

#include "device.h"
#include "kernels/norms.h"

/* As sherd__sets; rows and sets of this rank. */
typedef struct sherd__device_sets {
    sherd__norming n;
    int64_t first, group, slots, rows, sets;
} sherd__device_sets;

enum { SHERD__SET_MOMENTS = 3, SHERD__SET_SUMS = 2 }; /* numbers for a row */

/* numbers[3,rows]: elements of the set that are here, their mean, the sum of squared differences.
 */
void sherd__device_set_moments(sherd__device *device, sherd_dtype dtype,
                               const sherd__device_sets *s, double *numbers, const void *x);

/* How y = (x - mean) / sqrt(var + eps) weight + bias is computed. */
typedef struct sherd__device_set_scales {
    const double *numbers; /* [parts,3,rows], combined in order */
    int64_t parts;
    const void *weight, *bias; /* of `dtype`; NULL: ones, zeros */
    void *mean, *var;          /* written: [rows]; NULL: not wanted */
    double eps;
} sherd__device_set_scales;
void sherd__device_set_spread(sherd__device *device, sherd_dtype dtype, const sherd__device_sets *s,
                              const sherd__device_set_scales *by, void *y, const void *x);

/* What backward is computed from. */
typedef struct sherd__device_set_back {
    const void *dy, *x, *mean, *var, *weight; /* weight NULL: ones */
    double eps, together;                     /* elements of a set, on all ranks */
} sherd__device_set_back;

/* numbers[2,rows] for sherd__device_set_gradient, NULL: not wanted; this rank's addends of the
 * gradients of weight and bias, NULL: not wanted. */
void sherd__device_set_products(sherd__device *device, sherd_dtype dtype,
                                const sherd__device_sets *s, const sherd__device_set_back *of,
                                double *numbers, void *dweight, void *dbias);
/* numbers[parts,2,rows]; NULL: the moments were given. */
void sherd__device_set_gradient(sherd__device *device, sherd_dtype dtype,
                                const sherd__device_sets *s, const sherd__device_set_back *of,
                                const double *numbers, int64_t parts, void *dx);

#endif
