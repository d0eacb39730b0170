/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and names of element types: one table, so that a new type is one line. */
#include "base/dtype.h"

static const struct {
    size_t bytes;
    const char *name;
    bool fractions;
} types[SHERD_DTYPES] = {
    [SHERD_DTYPE_NONE] = {0, "none", false}, [SHERD_F32] = {4, "f32", true},
    [SHERD_F64] = {8, "f64", true},          [SHERD_BF16] = {2, "bf16", true},
    [SHERD_F16] = {2, "f16", true},          [SHERD_I32] = {4, "i32", false},
    [SHERD_I64] = {8, "i64", false},         [SHERD_U8] = {1, "u8", false},
    [SHERD_BOOL] = {1, "bool", false},       [SHERD_I8] = {1, "i8", false},
};

static bool is_type(sherd_dtype dtype)
{
    return (int)dtype >= 0 && (int)dtype < SHERD_DTYPES;
}

size_t sherd_dtype_bytes(sherd_dtype dtype)
{
    return is_type(dtype) ? types[dtype].bytes : 0;
}

const char *sherd_dtype_name(sherd_dtype dtype)
{
    return is_type(dtype) ? types[dtype].name : "unknown";
}

bool sherd__has_fractions(sherd_dtype dtype)
{
    return is_type(dtype) && types[dtype].fractions;
}

bool sherd__is_half(sherd_dtype dtype)
{
    return sherd__has_fractions(dtype) && types[dtype].bytes == 2;
}

sherd_dtype sherd__statistics_dtype(sherd_dtype dtype)
{
    return sherd__is_half(dtype) ? SHERD_F32 : dtype;
}
