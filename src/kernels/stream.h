/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that pass the cache by, where the machine has such stores; plain copies elsewhere. */
#ifndef SHERD__STREAM_H
#define SHERD__STREAM_H

#include "kernels.h"

/* Copy bytes that do not overlap. Others see them in order only after sherd__stream_end. */
void sherd__stream(void *dst, const void *src, size_t bytes);
void sherd__stream_end(void);

#endif
