/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms with what stands around them (residual.cu): for rows that a block of threads can hold, of
 * sizes and places that allow loads of 16 bytes. False, and nothing is done: not for these.
 */
#ifndef SHERD__DEVICE_RESIDUAL_H
#define SHERD__DEVICE_RESIDUAL_H

#include "device.h"

/*
 * sum = x + delta, norm of sum; delta NULL: only the norm of x, with the same bits. `beside`: the
 * dtype of delta and of the norm, that of x or 16 bits where x is f32. mean NULL: an RMS norm.
 * weight, bias [cols] or NULL.
 */
typedef struct sherd__norm_there {
    sherd_dtype dtype, beside;
    int64_t rows, cols;
    const void *x, *delta, *weight, *bias;
    void *sum, *norm, *mean, *rstd;
    double eps;
} sherd__norm_there;
bool sherd__device_add_norm(sherd__device *device, const sherd__norm_there *p);

/* Backward, as sherd__added_grad of kernels.h; dtypes of dy and ddelta: that of x (then ddelta is
 * NULL: it is dx), or 16 bits where x is f32. */
typedef struct sherd__norm_back_there {
    sherd_dtype dtype, dy, ddelta;
    int64_t rows, cols;
    sherd__added_grad of;
} sherd__norm_back_there;
bool sherd__device_norm_back(sherd__device *device, const sherd__norm_back_there *p);

#endif
