/* SPDX-License-Identifier: Apache-2.0 */
/* Fourier transforms on the GPU, by cuFFT (fourier.c), which is loaded by the first one. */
#ifndef SHERD__DEVICE_FOURIER_H
#define SHERD__DEVICE_FOURIER_H

#include "device.h"

/*
 * Whether the GPU can compute this one, of f32 or f64, which is not empty; it is then prepared.
 * False: there is no cuFFT, it cannot, or there was no memory to prepare it.
 */
bool sherd__device_transforms(sherd__device *device, sherd_dtype dtype, const sherd__fft *t);
/* One that it can compute, as the kernel in kernels.h. */
void sherd__device_fft(sherd__device *device, sherd_dtype dtype, const sherd__fft *t, void *dst,
                       const void *src);

#endif
