/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of integers and bool. */
#ifndef SHERD__KERNELS_BITS_H
#define SHERD__KERNELS_BITS_H

#include "sherd/dtype.h"

#include <stdint.h>

typedef enum sherd__bits_kind {
    SHERD__BITS_AND,
    SHERD__BITS_OR,
    SHERD__BITS_XOR,
    SHERD__BITS_LEFT,  /* shifted by b; no bool. A b below 0, or of all bits or more, shifts all */
    SHERD__BITS_RIGHT, /* copies of the sign come in */
    SHERD__BITS_KINDS
} sherd__bits_kind;

/* dst[size] = a and b, ..; dst is contiguous, the others have strides, in elements. */
void sherd__bits(sherd_dtype dtype, sherd__bits_kind kind, int ndim, const int64_t *size, void *dst,
                 const void *a, const int64_t *a_stride, const void *b, const int64_t *b_stride);

#endif
