/* SPDX-License-Identifier: Apache-2.0 */
/* What sizes of products there are on the GPU: see product.c. */
#ifndef SHERD__DEVICE_PRODUCT_H
#define SHERD__DEVICE_PRODUCT_H

#include "device.h"

/* Whether cuBLAS, which counts in 31 bits, can compute it: then sherd__device_multiply may be asked
 * to. */
bool sherd__device_multiplies(const sherd__product *p, int64_t times);

#endif
