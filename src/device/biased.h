/* SPDX-License-Identifier: Apache-2.0 */
/* A product and a bias at once; see biased.c. */
#ifndef SHERD__DEVICE_BIASED_H
#define SHERD__DEVICE_BIASED_H

#include "inside.h"

/* For each matrix as stored: elements from one row to the next. */
typedef struct sherd__leads {
    int64_t a, b, c;
} sherd__leads;

/*
 * c = a b + bias, which has n elements of the operands' dtype. False: cuBLASLt has nothing for this
 * product; nothing is done.
 */
bool sherd__device_multiply_biased(sherd__device *device, const sherd__product *p,
                                   const sherd__leads *leads, void *c, const void *a, const void *b,
                                   const void *bias);

#endif
