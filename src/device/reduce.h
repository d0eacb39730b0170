/* SPDX-License-Identifier: Apache-2.0 */
/* What other launchers and operators need of reduce.c. */
#ifndef SHERD__DEVICE_REDUCE_H
#define SHERD__DEVICE_REDUCE_H

#include "device.h"

/* As sherd__device_sum, from f32 to 16 bits or back too: sums in between are not rounded. */
void sherd__device_sum_to(sherd__device *device, sherd_dtype to, sherd_dtype from, void *dst,
                          const void *src, int64_t outer, int64_t mid, int64_t inner, bool add);

#endif
