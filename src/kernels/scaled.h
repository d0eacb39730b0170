/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a tensor and a multiple of another in one pass over memory, as solvers and optimizers
 * take them all the time. */
#ifndef SHERD__KERNELS_SCALED_H
#define SHERD__KERNELS_SCALED_H

#include "kernels.h"

/*
 * d = a + factor b, d row-major, a and b with these strides (elements). d may be a or b, if that is
 * row-major too. In the dtype, rounded after the product and after the sum; of 16 bits in f32,
 * rounded once. The factor is rounded to what is computed in.
 */
void sherd__add_scaled(sherd_dtype dtype, double factor, int ndim, const int64_t *size, void *d,
                       const void *a, const int64_t *a_stride, const void *b,
                       const int64_t *b_stride);

#endif
