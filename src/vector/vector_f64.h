/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of vectors of f64 that are alike for every instruction set, in vectors of the compiler:
 * vf numbers, vi their bits. vector_*_f64.h have the others and include this one. They are the
 * words of the vectors of f32, which vector_avx512.h explains, so that the same fast_*.inc compute
 * with both.
 */
#ifndef SHERD__VECTOR_F64_H
#define SHERD__VECTOR_F64_H

#include <string.h>

#include "vector_plain.h"

INLINE vf v_load(const double *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void v_store(double *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

INLINE vi v_bits(uint64_t x)
{
    return (vi)v_set(0) | x;
}
INLINE vf v_size(vf x)
{
    return (vf)((vi)x & v_bits(~0ull >> 1));
}
INLINE vf v_negative(vf x)
{
    return (vf)((vi)x ^ v_bits(1ull << 63));
}
/* x, which is not negative, with the sign of y. */
INLINE vf v_with_sign(vf x, vf y)
{
    return (vf)((vi)x | ((vi)y & v_bits(1ull << 63)));
}
/* bit ? yes : no, by the last bit of each number of `bits`. */
INLINE vf v_by_bit(vi bits, vf yes, vf no)
{
    vi chosen = v_bits(0) - (bits & v_bits(1));
    return (vf)(((vi)yes & chosen) | ((vi)no & ~chosen));
}
/* A whole number, |x| < 2^50: its last bits. */
INLINE vi v_whole(vf x)
{
    return (vi)v_add(x, v_set(0x1.8p52));
}
/* 2^n for whole n, -1022 <= n <= 1023. */
INLINE vf v_power(vf n)
{
    return (vf)((vi)v_add(n, v_set(0x1.8p52 + 1023)) << 52);
}
/* x 2^n, in two halves, so that results below 2^-1022 and above 2^1023 come out right. */
INLINE vf v_times_power(vf x, vf n)
{
    vf half = v_nearest(v_mul(n, v_set(0.5)));
    return v_mul(v_mul(x, v_power(half)), v_power(v_sub(n, half)));
}

#endif
