/* SPDX-License-Identifier: Apache-2.0 */
/* Elements by index on the GPU, as kernels/pick.h: see tables.cu. All pointers are the GPU's. */
#ifndef SHERD__DEVICE_TABLES_H
#define SHERD__DEVICE_TABLES_H

#include "device.h"
#include "kernels/pick.h"

void sherd__device_gather(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                          const void *src);
/* The same with index / each in the place of each index. */
void sherd__device_take_rows(sherd__device *device, size_t bytes, const sherd__pick *p,
                             int64_t each, void *dst, const void *src);
/* As scatter with src, where no index comes again. */
void sherd__device_put_rows(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                            const void *src);
/* As gather_last of pick.h. */
void sherd__device_gather_last(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                               const void *src);
/* src NULL: `value`, of `bytes`, on the CPU. */
void sherd__device_scatter(sherd__device *device, size_t bytes, const sherd__pick *p, void *dst,
                           const void *src, const void *value);
/* Whether scatter_add can: dtypes that it computes; indices and entries are numbered by 32 bits. */
bool sherd__device_scatter_adds(sherd_dtype dtype, const sherd__pick *p);
/* dst += src, in order of j; 16 bits are rounded once. */
void sherd__device_scatter_add(sherd__device *device, sherd_dtype dtype, const sherd__pick *p,
                               void *dst, const void *src);

#endif
