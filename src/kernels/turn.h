/* SPDX-License-Identifier: Apache-2.0 */
/* Planes whose two sides are dense along different dims, and rows that run backwards. */
#ifndef SHERD__KERNELS_TURN_H
#define SHERD__KERNELS_TURN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * dst[r * dst_row + c * bytes] = src[r * bytes + c * src_col], for elements of 1, 2, 4 or 8 bytes;
 * strides in bytes. False: for other sizes, or few rows or columns; then nothing is done.
 */
bool sherd__turn(size_t bytes, int64_t rows, int64_t cols, char *dst, int64_t dst_row,
                 const char *src, int64_t src_col);

/* dst[i * bytes] = src[-i * bytes], for n elements. False: for other sizes. */
bool sherd__reverse(size_t bytes, int64_t n, char *dst, const char *src);

#endif
