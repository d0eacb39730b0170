/* SPDX-License-Identifier: Apache-2.0 */
/* Running sums on the GPU, queued. */
#ifndef SHERD__DEVICE_RUNNING_H
#define SHERD__DEVICE_RUNNING_H

#include "device.h"
#include "kernels/running.h"

/* Of src[size], over the middle one, from its end if `reverse`; any dtype but bool, sums of 16 bits
 * in f32, and of integers modulo a power of two. The same bits in every run. */
void sherd__device_running_sum(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                               bool reverse, void *dst, const void *src);

/*
 * What kernels/running.h has, for dtypes that compute, products of i32, i64, i8 and u8 and extremes
 * of all these and bool too. False: lines are so long and few that one thread for each is too
 * little.
 */
bool sherd__device_runs(const int64_t size[3]);
void sherd__device_running_product(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                   void *dst, const void *src);
void sherd__device_running_log_sum(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                   void *dst, const void *src);
void sherd__device_recurrence(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                              sherd__course course, void *dst, const void *a, const void *b);
/* dst: the elements themselves. */
void sherd__device_running_most(sherd__device *device, sherd_dtype dtype, const int64_t size[3],
                                bool least, void *dst, int32_t *index, const void *src);

#endif
