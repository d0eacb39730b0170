/* SPDX-License-Identifier: Apache-2.0 */
/* Overlapping windows, added up: see fold.h. */
#include "fold.h"

#include "half.h"

#define ELEMENT float
#define GET(x)  (double)(x)
#define PUT(x)  (float)(x)
#define NAME(x) x##_f32
#include "fold_body.inc"

#define ELEMENT double
#define GET(x)  (x)
#define PUT(x)  (x)
#define NAME(x) x##_f64
#include "fold_body.inc"

#define ELEMENT uint16_t
#define GET(x)  (double)sherd__from_bf16(x)
#define PUT(x)  sherd__to_bf16((float)(x))
#define NAME(x) x##_bf16
#include "fold_body.inc"

#define ELEMENT uint16_t
#define GET(x)  (double)sherd__from_f16(x)
#define PUT(x)  sherd__to_f16((float)(x))
#define NAME(x) x##_f16
#include "fold_body.inc"

void sherd__fold_windows_of(sherd_dtype dtype, const sherd__fold_of *f, void *dst, const void *src)
{
    switch (dtype) {
    case SHERD_F32:
        fold_f32(f, dst, src);
        break;
    case SHERD_BF16:
        fold_bf16(f, dst, src);
        break;
    case SHERD_F16:
        fold_f16(f, dst, src);
        break;
    default:
        fold_f64(f, dst, src);
    }
}
