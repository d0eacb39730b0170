/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling and weighted sums along dims, on the GPU (fields.c): dtypes that it computes. */
#ifndef SHERD__DEVICE_FIELDS_H
#define SHERD__DEVICE_FIELDS_H

#include "device.h"
#include "kernels/pool.h"
#include "kernels/taps.h"

/* As the kernels in kernels/pool.h; 16 bits are computed in f32 and rounded once. */
void sherd__device_max_pool(sherd__device *device, sherd_dtype dtype, const sherd__pool *p, void *y,
                            int64_t *at, const void *x);
void sherd__device_max_pool_grad(sherd__device *device, sherd_dtype dtype, const sherd__pool *p,
                                 void *dx, const void *dy, const int64_t *at);

/*
 * A pass as in kernels/taps.h, from elements of one dtype to another: both the same, or one 16 bits
 * and the other f32. p->tap is the CPU's memory, and free again on return; its firsts and ends
 * never decrease.
 */
void sherd__device_taps(sherd__device *device, sherd_dtype to, sherd_dtype from,
                        const sherd__taps_pass *p, void *y, const void *x);
void sherd__device_taps_grad(sherd__device *device, sherd_dtype to, sherd_dtype from,
                             const sherd__taps_pass *p, void *dx, const void *dy);

/* Of f32 or f64, as in kernels.h. */
void sherd__device_complex_mul(sherd__device *device, sherd_dtype dtype, bool conj, int ndim,
                               const int64_t *size, void *dst, const void *a,
                               const int64_t *a_stride, const void *b, const int64_t *b_stride);

#endif
