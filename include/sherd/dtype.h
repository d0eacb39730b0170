/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element types. f32 and f64 are computed with in their own precision. bf16 and f16 are stored in
 * two bytes and computed with in f32; each result is rounded once, when it is stored. Integers and
 * bool serve as indices, masks and data. In this documentation a *floating-point* dtype is one of
 * f32, f64, bf16 and f16.
 */
#ifndef SHERD_DTYPE_H
#define SHERD_DTYPE_H

#include "status.h"

SHERD_BEGIN

typedef enum sherd_dtype {
    SHERD_DTYPE_NONE = 0, /* unset: the default in options, invalid elsewhere */
    SHERD_F32 = 1,
    SHERD_F64 = 2,
    SHERD_BF16 = 3, /* the upper half of an f32: 8 bits of exponent, 7 of fraction */
    SHERD_F16 = 4,  /* IEEE 754 binary16: 5 bits of exponent, 10 of fraction */
    SHERD_I32 = 5,
    SHERD_I64 = 6,
    SHERD_U8 = 7,
    SHERD_BOOL = 8, /* one byte, 0 or 1 */
    SHERD_I8 = 9
} sherd_dtype;

enum { SHERD_DTYPES = 10 }; /* how many values, SHERD_DTYPE_NONE included */

/**
 * Bytes of one element; 0 for SHERD_DTYPE_NONE and for a number that is not a dtype.
 *
 * @local   @errors none
 */
SHERD_API size_t sherd_dtype_bytes(sherd_dtype dtype);

/**
 * The name of a dtype, as in texts of tensors and on the command line: "f32", "f64", "bf16", "f16",
 * "i32", "i64", "i8", "u8", "bool"; "none" for SHERD_DTYPE_NONE; "unknown" for a number that is
 * not a dtype.
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_dtype_name(sherd_dtype dtype);

SHERD_END

#endif
