/* SPDX-License-Identifier: Apache-2.0 */
/* Folds over a dim on the GPU, queued. */
#ifndef SHERD__DEVICE_FOLDS_H
#define SHERD__DEVICE_FOLDS_H

#include "device.h"

typedef enum sherd__fold_kind {
    SHERD__FOLD_MAX,     /* any dtype, as it is; of nothing the least there is */
    SHERD__FOLD_MIN,     /* likewise */
    SHERD__FOLD_PRODUCT, /* fractions as they are, rounded once; others to i64 */
    SHERD__FOLD_SUM,     /* i32, i64, i8, u8 and bool to i64 */
    SHERD__FOLD_ANY,     /* any dtype to bool: whether it is not 0 */
    SHERD__FOLD_ALL,
    SHERD__FOLD_LOG_SUM, /* log of the sum of e^x: fractions, to f32 (f64 of f64) */
    SHERD__FOLDS
} sherd__fold_kind;

/* dst[outer,inner] = src[outer,mid,inner] folded over mid. */
void sherd__device_fold(sherd__device *device, sherd_dtype dtype, sherd__fold_kind kind, void *dst,
                        const void *src, int64_t outer, int64_t mid, int64_t inner);

/*
 * Where the largest element, or the least, is: the first of equals, any dtype. Indices are `index`
 * [outer,mid,inner], below 0: no element; or if NULL first, first + 1, ..
 */
typedef struct sherd__extremes {
    bool least;
    int64_t outer, mid, inner, first;
    const void *src;
    const int64_t *index;
} sherd__extremes;
/* To at[outer,inner]. */
void sherd__device_where(sherd__device *device, sherd_dtype dtype, const sherd__extremes *e,
                         int32_t *at);
/* The elements and their indices, -1 of none, to best and index [outer,inner]. */
void sherd__device_extremes(sherd__device *device, sherd_dtype dtype, const sherd__extremes *e,
                            void *best, int64_t *index);

#endif
