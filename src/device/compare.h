/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons, choices by a mask, and triangles on the GPU: as in kernels.h, queued. */
#ifndef SHERD__DEVICE_COMPARE_H
#define SHERD__DEVICE_COMPARE_H

#include "device.h"

/* Any dtype to bool; dst contiguous of `size`, a and b with strides, 0 = broadcast. */
void sherd__device_compare(sherd__device *device, sherd_dtype dtype, sherd__compare_kind kind,
                           int ndim, const int64_t *size, void *dst, const void *a,
                           const int64_t *a_stride, const void *b, const int64_t *b_stride);
/* dst[n] = whether a[n] compares so with a number: `number`, or of integers `whole`. No logic. */
void sherd__device_compare_number(sherd__device *device, sherd_dtype dtype,
                                  sherd__compare_kind kind, int64_t n, void *dst, const void *a,
                                  double number, int64_t whole);

/* Elements by their strides, 0 = broadcast; or if `data` is NULL that of `value` for all. */
typedef struct sherd__picked {
    const void *data;
    const int64_t *stride;
    uint64_t value; /* its bytes are the first */
} sherd__picked;
/* dst = mask ? a : b, any dtype; dst contiguous of `size`. Only one of a and b may be a value. */
void sherd__device_pick(sherd__device *device, size_t element_bytes, int ndim, const int64_t *size,
                        void *dst, const void *mask, const int64_t *mask_stride, sherd__picked a,
                        sherd__picked b);

/*
 * dst[n] = src[n], matrices of `height` rows and `cols` columns, with zeroes before column edge + r
 * of row r (upper), or from there on.
 */
typedef struct sherd__corner {
    int64_t rows, cols; /* of all matrices together */
    int64_t height, edge;
    bool upper;
} sherd__corner;
void sherd__device_corner(sherd__device *device, size_t element_bytes, const sherd__corner *c,
                          void *dst, const void *src);

/*
 * Of each row the column target - first, if it is one of the columns and not `ignored`, times the
 * weight of that column (NULL: 1); with a weight of 0 it is 0. Fractions.
 */
typedef struct sherd__classes {
    int64_t rows, cols, first;
    const int32_t *target;
    const void *weight;
    bool ignores;
    int32_t ignored;
} sherd__classes;
/* y[rows] from x[rows,cols], 0 of none; and back, with zeroes elsewhere. */
void sherd__device_take_class(sherd__device *device, sherd_dtype dtype, const sherd__classes *c,
                              void *y, const void *x);
void sherd__device_put_class(sherd__device *device, sherd_dtype dtype, const sherd__classes *c,
                             void *dx, const void *dy);

#endif
