/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every dtype to every other, in blocks: f32 and 16 bits pass through f32, f64 stays, integers pass
 * through 64 bits, all of which hold them exactly, so that a few readers and writers do for 64
 * pairs and each element is rounded once. Up to 1 ns an element; the tables have versions of their
 * own of f32 with the 16-bit types.
 */
#include "cast.h"

#include "half.h"
#include "base/dtype.h"

#define CAST        sherd__cast
#define CAST_TO_ODD sherd__cast_to_odd
#include "cast_body.inc"

bool sherd__holds(sherd_dtype dtype, double value)
{
    unsigned char element[8];
    double back = 0;

    if (sherd__has_fractions(dtype))
        return true;
    if (value >= 0x1p63) /* the largest i64 would be rounded to that on its way back */
        return false;
    sherd__cast(dtype, SHERD_F64, 1, element, &value);
    sherd__cast(SHERD_F64, dtype, 1, &back, element);
    return back == value;
}
