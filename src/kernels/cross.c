/* SPDX-License-Identifier: Apache-2.0 */
/* Cross products: see cross.h. */
#include "cross.h"

#include "half.h"
#include "rows.h"

#define ELEMENT float
#define VALUE   float
#define GET(x)  (x)
#define PUT(x)  (x)
#define NAME(x) x##_f32
#include "cross_body.inc"

#define ELEMENT double
#define VALUE   double
#define GET(x)  (x)
#define PUT(x)  (x)
#define NAME(x) x##_f64
#include "cross_body.inc"

#define ELEMENT uint16_t
#define VALUE   float
#define GET(x)  sherd__from_bf16(x)
#define PUT(x)  sherd__to_bf16(x)
#define NAME(x) x##_bf16
#include "cross_body.inc"

#define ELEMENT uint16_t
#define VALUE   float
#define GET(x)  sherd__from_f16(x)
#define PUT(x)  sherd__to_f16(x)
#define NAME(x) x##_f16
#include "cross_body.inc"

void sherd__cross(sherd_dtype dtype, int ndim, const int64_t *size, void *dst, const void *a,
                  const int64_t *a_stride, const void *b, const int64_t *b_stride)
{
    switch (dtype) {
    case SHERD_F32:
        cross_f32(ndim, size, dst, a, a_stride, b, b_stride);
        break;
    case SHERD_BF16:
        cross_bf16(ndim, size, dst, a, a_stride, b, b_stride);
        break;
    case SHERD_F16:
        cross_f16(ndim, size, dst, a, a_stride, b, b_stride);
        break;
    default:
        cross_f64(ndim, size, dst, a, a_stride, b, b_stride);
    }
}
