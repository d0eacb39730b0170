/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs along a dim: products, extremes, logarithms of sums, linear recurrences. (Running sums
 * are in pick.h.) All is [outer, n, inner], row-major.
 */
#ifndef SHERD__KERNELS_RUNNING_H
#define SHERD__KERNELS_RUNNING_H

#include <stdbool.h>
#include <stdint.h>

#include "sherd/dtype.h"

/*
 * dst[o, j, i] = the product of src[o, m, i] over m <= j. f32 is multiplied in f64; integers keep
 * the low bits. f32, f64, i32, i64, i8, u8.
 */
void sherd__running_product(sherd_dtype dtype, const int64_t size[3], void *dst, const void *src);

/*
 * index[o, j, i] = where the largest (or least) of src[o, m, i] over m <= j is: the last one of
 * equal elements, and the last NaN if there is one. All dtypes but those of 16 bits.
 */
void sherd__running_most(sherd_dtype dtype, const int64_t size[3], bool least, int32_t *index,
                         const void *src);

/* dst[o, j, i] = the logarithm of the sum of e^src[o, m, i] over m <= j. f32 (in f64), f64. */
void sherd__running_log_sum(sherd_dtype dtype, const int64_t size[3], void *dst, const void *src);

/* The way along the dim; and whether a step takes the factor of the place that it comes from. */
typedef struct sherd__course {
    bool reverse, behind;
} sherd__course;

/*
 * dst[o, j, i] = b[o, j, i] + a[o, k, i] dst[o, j - 1, i], from 0; j + 1 if `reverse`. k is j, or
 * if `behind` the place before. f32 (in f64), f64.
 */
void sherd__recurrence(sherd_dtype dtype, const int64_t size[3], sherd__course course, void *dst,
                       const void *a, const void *b);

#endif
