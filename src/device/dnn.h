/* SPDX-License-Identifier: Apache-2.0 */
/* Convolutions on the GPU, by cuDNN (dnn.c), which is started by the first one. */
#ifndef SHERD__DEVICE_DNN_H
#define SHERD__DEVICE_DNN_H

#include "device.h"
#include "kernels/conv.h"

/*
 * Whether there is a way to compute this one on the GPU, of pieces that are not empty; it is then
 * prepared. False, for good or this time: there is no cuDNN, it has no way that gives the same bits
 * in every run, the pieces are too large for it, or there was no memory to prepare it.
 */
bool sherd__device_convolves(sherd__device *device, sherd_dtype dtype, const sherd__conv *c,
                             sherd__conv_kind kind);
/* One that there is a way for; sums in f32, never in TF32, or f64 of f64. */
void sherd__device_convolve(sherd__device *device, sherd_dtype dtype, const sherd__conv *c,
                            const sherd__conv_task *task);

#endif
