/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons of 128-bit vectors vf of the compiler, with bits vi and masks vm, of f32 and f64. */
#ifndef SHERD__VECTOR_SIMD128_LANES_H
#define SHERD__VECTOR_SIMD128_LANES_H

INLINE vm v_less(vf a, vf b)
{
    return (vm){(vi)(a < b), 0};
}
INLINE vm v_not_greater(vf a, vf b)
{
    return (vm){(vi)(a <= b), 0};
}
INLINE vm v_is_nan(vf x)
{
    return (vm){(vi)(x != x), 0};
}
INLINE vm v_either(vm a, vm b)
{
    return (vm){a.lanes | b.lanes, 0};
}
INLINE vm v_unusual(vf x)
{
    return v_either(v_less(x, v_least()), v_is_nan(x - x));
}

#endif
