/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Searching and counting in sorted sequences: see sorted.h. Places are found by bisection, in about
 * log n steps a value.
 */
#include "sorted.h"

#include <math.h>

#include "half.h"

typedef struct sorted_kernels {
    void (*seek_all)(const sherd__seek *s, int64_t *at, const void *sorted, const void *values);
    void (*tally)(int64_t count, int64_t *seen, const void *sorted, int64_t n, const void *values);
    int64_t (*distinct)(int64_t n, void *dst, const void *src, const int32_t *index);
} sorted_kernels;

#define ELEMENT   float
#define VALUE     float
#define NAME(x)   x##_f32
#define GET(x)    (x)
#define IS_NAN(x) isnan(x)
#include "sorted_body.inc"

#define ELEMENT   double
#define VALUE     double
#define NAME(x)   x##_f64
#define GET(x)    (x)
#define IS_NAN(x) isnan(x)
#include "sorted_body.inc"

#define ELEMENT   uint16_t
#define VALUE     float
#define NAME(x)   x##_bf16
#define GET(x)    sherd__from_bf16(x)
#define IS_NAN(x) isnan(x)
#include "sorted_body.inc"

#define ELEMENT   uint16_t
#define VALUE     float
#define NAME(x)   x##_f16
#define GET(x)    sherd__from_f16(x)
#define IS_NAN(x) isnan(x)
#include "sorted_body.inc"

#define ELEMENT   int32_t
#define VALUE     int32_t
#define NAME(x)   x##_i32
#define GET(x)    (x)
#define IS_NAN(x) false
#include "sorted_body.inc"

#define ELEMENT   int64_t
#define VALUE     int64_t
#define NAME(x)   x##_i64
#define GET(x)    (x)
#define IS_NAN(x) false
#include "sorted_body.inc"

#define ELEMENT   int8_t
#define VALUE     int
#define NAME(x)   x##_i8
#define GET(x)    (x)
#define IS_NAN(x) false
#include "sorted_body.inc"

#define ELEMENT   uint8_t
#define VALUE     int
#define NAME(x)   x##_u8
#define GET(x)    (x)
#define IS_NAN(x) false
#include "sorted_body.inc"

static const sorted_kernels *of(sherd_dtype dtype)
{
    static const sorted_kernels *const all[] = {
        [SHERD_F32] = &kernels_f32, [SHERD_F64] = &kernels_f64, [SHERD_BF16] = &kernels_bf16,
        [SHERD_F16] = &kernels_f16, [SHERD_I32] = &kernels_i32, [SHERD_I64] = &kernels_i64,
        [SHERD_U8] = &kernels_u8,   [SHERD_BOOL] = &kernels_u8, [SHERD_I8] = &kernels_i8};

    return all[dtype];
}

void sherd__seek_all(sherd_dtype dtype, const sherd__seek *s, int64_t *at, const void *sorted,
                     const void *values)
{
    of(dtype)->seek_all(s, at, sorted, values);
}

void sherd__tally(sherd_dtype dtype, int64_t count, int64_t *seen, const void *sorted, int64_t n,
                  const void *values)
{
    of(dtype)->tally(count, seen, sorted, n, values);
}

int64_t sherd__distinct(sherd_dtype dtype, int64_t n, void *dst, const void *src,
                        const int32_t *index)
{
    return of(dtype)->distinct(n, dst, src, index);
}
