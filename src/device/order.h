/* SPDX-License-Identifier: Apache-2.0 */
/* Order on the GPU: see order.cu. */
#ifndef SHERD__DEVICE_ORDER_H
#define SHERD__DEVICE_ORDER_H

#include "device.h"

/* As sherd__order of kernels/pick.h, of all dtypes, and values[o,j,i] of src too (NULL: not). */
void sherd__device_order(sherd__device *device, sherd_dtype dtype, const int64_t size[3], int64_t k,
                         bool descending, void *values, int32_t *index, const void *src);

/*
 * Sort key[rows,n] of 4 or 8 bytes by bits [low, high), equal ones in order, and where each was:
 * key[0], position[0] to the result in key[i], position[i], where i is returned; the other is
 * overwritten. position[0] need not be set. -1: memory lacked, and that was noted: there are no
 * positions.
 */
typedef struct sherd__radix {
    int64_t rows, n;
    int bytes, low, high;
    void *key[2];
    int32_t *position[2];
} sherd__radix;
int sherd__device_radix(sherd__device *device, const sherd__radix *r);

#endif
