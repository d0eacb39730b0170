/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of optimizers and sums of squares on the GPU: as in kernels.h, but of lists of tensors of
 * one dtype, of any length, of which a launch takes many. p, m and v of 16-bit dtypes are f32, the
 * gradient is not.
 */
#ifndef SHERD__DEVICE_UPDATE_H
#define SHERD__DEVICE_UPDATE_H

#include "device.h"

/* A tensor's step; eps, betas and grad_scale are those of the first one of a list. */
typedef struct sherd__adamw_there {
    void *p, *m, *v;
    const void *grad;
    int64_t n;
    sherd__adamw_step step;
} sherd__adamw_there;
void sherd__device_adamw(sherd__device *device, sherd_dtype dtype, int count,
                         const sherd__adamw_there *all);
void sherd__device_sgd(sherd__device *device, sherd_dtype dtype, int64_t n, void *p, void *m,
                       const void *grad, const sherd__sgd_step *step);

/* Add the sum of the squares of all elements of src[count], n[count] to dst, one f64. */
void sherd__device_add_squares(sherd__device *device, sherd_dtype dtype, double *dst, int count,
                               const void *const *src, const int64_t *n);

#endif
