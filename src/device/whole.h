/* SPDX-License-Identifier: Apache-2.0 */
/* Integers on the GPU: as in kernels.h, queued. */
#ifndef SHERD__DEVICE_WHOLE_H
#define SHERD__DEVICE_WHOLE_H

#include "device.h"

/* i32, i64, i8, u8; functions that integers have. */
void sherd__device_whole_unary(sherd__device *device, sherd_dtype dtype, sherd__unary_kind kind,
                               int64_t n, void *dst, const void *src, const double *parameter);
void sherd__device_whole_binary(sherd__device *device, sherd_dtype dtype, sherd__binary_kind kind,
                                int ndim, const int64_t *size, void *dst, const void *a,
                                const int64_t *a_stride, const void *b, const int64_t *b_stride);
/* counts[classes]: how often first, first + 1, .. are among index[n]. */
void sherd__device_count(sherd__device *device, int64_t n, int64_t first, int64_t classes,
                         int32_t *counts, const int32_t *index);

#endif
