/* SPDX-License-Identifier: Apache-2.0 */
/* Bits of integers: the compiler makes a loop of vectors of each kind. */
#include "bits.h"

#include <stdbool.h>

#include "rows.h"

#define INTEGER        int32_t
#define UNSIGNED       uint32_t
#define NAME(x)        i32_##x
#define IS_NEGATIVE(x) ((x) < 0)
#include "bits_body.inc"

#define INTEGER        int64_t
#define UNSIGNED       uint64_t
#define NAME(x)        i64_##x
#define IS_NEGATIVE(x) ((x) < 0)
#include "bits_body.inc"

#define INTEGER        int8_t
#define UNSIGNED       uint32_t
#define NAME(x)        i8_##x
#define IS_NEGATIVE(x) ((x) < 0)
#include "bits_body.inc"

#define INTEGER        uint8_t
#define UNSIGNED       uint32_t
#define NAME(x)        u8_##x
#define IS_NEGATIVE(x) false
#include "bits_body.inc"

void sherd__bits(sherd_dtype dtype, sherd__bits_kind kind, int ndim, const int64_t *size, void *dst,
                 const void *a, const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    const sherd__rows r = sherd__rows_of(ndim, size, 2, (const int64_t *[]){a_stride, b_stride});

    if (dtype == SHERD_I32)
        i32_bits(kind, r, dst, a, b);
    else if (dtype == SHERD_I64)
        i64_bits(kind, r, dst, a, b);
    else if (dtype == SHERD_I8)
        i8_bits(kind, r, dst, a, b);
    else
        u8_bits(kind, r, dst, a, b);
}
