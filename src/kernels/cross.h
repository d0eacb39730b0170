/* SPDX-License-Identifier: Apache-2.0 */
/* Cross products of vectors of three numbers. */
#ifndef SHERD__KERNELS_CROSS_H
#define SHERD__KERNELS_CROSS_H

#include <stdint.h>

#include "sherd/dtype.h"

/*
 * dst[.., 3], row-major, = a x b; a_stride, b_stride: [ndim], the last one is that of the three
 * numbers. size: [ndim - 1], of the others. f32, f64, bf16, f16.
 */
void sherd__cross(sherd_dtype dtype, int ndim, const int64_t *size, void *dst, const void *a,
                  const int64_t *a_stride, const void *b, const int64_t *b_stride);

#endif
