/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and names of element types: one table, so that a new type is one line. */
#include "sherd/dtype.h"

static const struct {
    size_t bytes;
    const char *name;
} types[SHERD_DTYPES] = {
    [SHERD_F32] = {4, "f32"},
    [SHERD_F64] = {8, "f64"},
    [SHERD_I32] = {4, "i32"},
    [SHERD_BOOL] = {1, "bool"},
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
