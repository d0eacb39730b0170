/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching and counting in sorted sequences. NaN is the largest, and all NaNs are equal; so are 0
 * and -0. All dtypes.
 */
#ifndef SHERD__KERNELS_SORTED_H
#define SHERD__KERNELS_SORTED_H

#include <stdbool.h>
#include <stdint.h>

#include "sherd/dtype.h"

/* Rows: sequences [rows, n], each ascending; values [rows, m]. */
typedef struct sherd__seek {
    int64_t rows, n, m;
    bool right; /* values go behind what is equal to them */
} sherd__seek;

/* at[i] = how many elements of its sequence are less than value i, or if `right`, not larger. */
void sherd__seek_all(sherd_dtype dtype, const sherd__seek *s, int64_t *at, const void *sorted,
                     const void *values);

/* seen[k] += how many of n values are equal to sorted[k], for the `count` that are sorted. */
void sherd__tally(sherd_dtype dtype, int64_t count, int64_t *seen, const void *sorted, int64_t n,
                  const void *values);

/*
 * Elements src[index[0]], src[index[1]], ..., ascending, to dst, those equal to the one before left
 * out, -0 as 0: how many there are. dst may not be src.
 */
int64_t sherd__distinct(sherd_dtype dtype, int64_t n, void *dst, const void *src,
                        const int32_t *index);

#endif
