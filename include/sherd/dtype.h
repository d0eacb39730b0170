/* SPDX-License-Identifier: Apache-2.0 */
/* Element types. f32 and f64 compute; i32 and bool serve as indices and masks. */
#ifndef SHERD_DTYPE_H
#define SHERD_DTYPE_H

#include "status.h"

SHERD_BEGIN

typedef enum sherd_dtype {
    SHERD_F32 = 0,
    SHERD_F64 = 1,
    SHERD_I32 = 2,
    SHERD_BOOL = 3 /* one byte, 0 or 1 */
} sherd_dtype;

enum { SHERD_DTYPES = 4 };

/**
 * Bytes of one element; 0 for a number that is no dtype.
 *
 * @local   @errors none
 */
SHERD_API size_t sherd_dtype_bytes(sherd_dtype dtype);

/**
 * The name as in texts and on the command line: "f32", "f64", "i32", "bool".
 *
 * @local   @owns static text   @errors none
 */
SHERD_API const char *sherd_dtype_name(sherd_dtype dtype);

SHERD_END

#endif
