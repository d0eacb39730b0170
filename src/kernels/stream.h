/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that pass the cache by, where the machine has such stores; plain copies elsewhere. */
#ifndef SHERD__STREAM_H
#define SHERD__STREAM_H

#include "kernels.h"

/* Copy bytes that do not overlap. Others see them in order only after sherd__stream_end. */
void sherd__stream(void *dst, const void *src, size_t bytes);
void sherd__stream_end(void);

/*
 * The same for rows of `bytes`, strides in bytes. Several rows are copied side by side, a line of each in turn: a
 * machine reads ahead along each of them, but not from the end of one into the next. Twice as fast, for rows of some pages.
 */
void sherd__stream_rows(char *dst, int64_t dst_stride, const char *src, int64_t src_stride,
                        int64_t rows, size_t bytes);

#endif
