/* SPDX-License-Identifier: Apache-2.0 */
/* What runs along a dim: see running.h. Some columns go side by side. */
#include "running.h"

#include <math.h>

enum { LANES = 32 };

/* log(e^a + e^b): NaN if one is, and infinite as the larger one. */
static double add_logs(double a, double b)
{
    double more = a > b ? a : b, less = a > b ? b : a;

    if (isnan(a) || isnan(b))
        return a + b;
    return isinf(more) ? more : more + log1p(exp(less - more));
}

#define T       float
#define TOTAL   double
#define NAME(x) f32_##x
#include "running_body.inc"

#define T       double
#define TOTAL   double
#define NAME(x) f64_##x
#include "running_body.inc"

#define T       int32_t
#define TOTAL   uint64_t
#define NAME(x) i32_##x
#include "running_body.inc"

#define T       int64_t
#define TOTAL   uint64_t
#define NAME(x) i64_##x
#include "running_body.inc"

#define T       uint8_t
#define TOTAL   uint64_t
#define NAME(x) u8_##x
#include "running_body.inc"

#define T       int8_t
#define TOTAL   uint64_t
#define NAME(x) i8_##x
#include "running_body.inc"

#define T       float
#define NAME(x) f32_##x
#include "running_fractions.inc"

#define T       double
#define NAME(x) f64_##x
#include "running_fractions.inc"

void sherd__running_product(sherd_dtype dtype, const int64_t size[3], void *dst, const void *src)
{
    switch (dtype) {
    case SHERD_F32:
        f32_product(size, dst, src);
        break;
    case SHERD_I32:
        i32_product(size, dst, src);
        break;
    case SHERD_I64:
        i64_product(size, dst, src);
        break;
    case SHERD_U8:
        u8_product(size, dst, src);
        break;
    case SHERD_I8:
        i8_product(size, dst, src);
        break;
    default:
        f64_product(size, dst, src);
    }
}

void sherd__running_most(sherd_dtype dtype, const int64_t size[3], bool least, int32_t *index,
                         const void *src)
{
    switch (dtype) {
    case SHERD_F32:
        f32_most(size, least, index, src);
        break;
    case SHERD_I32:
        i32_most(size, least, index, src);
        break;
    case SHERD_I64:
        i64_most(size, least, index, src);
        break;
    case SHERD_U8:
    case SHERD_BOOL:
        u8_most(size, least, index, src);
        break;
    case SHERD_I8:
        i8_most(size, least, index, src);
        break;
    default:
        f64_most(size, least, index, src);
    }
}

void sherd__running_log_sum(sherd_dtype dtype, const int64_t size[3], void *dst, const void *src)
{
    if (dtype == SHERD_F32)
        f32_log_sum(size, dst, src);
    else
        f64_log_sum(size, dst, src);
}

void sherd__recurrence(sherd_dtype dtype, const int64_t size[3], sherd__course course, void *dst,
                       const void *a, const void *b)
{
    if (dtype == SHERD_F32)
        f32_recurrence(size, course, dst, a, b);
    else
        f64_recurrence(size, course, dst, a, b);
}
