/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums on the GPU, queued. */
#ifndef SHERD__RUNNING_H
#define SHERD__RUNNING_H

#include "device.h"

/* Of src[size], over the middle one, from its end if `reverse`; any dtype but bool, sums of 16 bits
 * in f32, and of integers modulo a power of two. The same bits in every run. */
void sherd__device_running_sum(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                               bool reverse, void *dst, const void *src);

#endif
