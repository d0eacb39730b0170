/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of 16 bits, to f32 and back, in plain C. To 16 bits is round to nearest, ties to even; a
 * NaN stays a NaN (a quiet one), what is too large becomes infinite, and f16 subnormals are exact.
 * From 16 bits is exact. A double goes through an f32 that is rounded to odd: then the second
 * rounding comes out as if it were the only one.
 */
#ifndef SHERD__KERNELS_HALF_H
#define SHERD__KERNELS_HALF_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t sherd__float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float sherd__float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float sherd__from_bf16(uint16_t h)
{
    return sherd__float_of((uint32_t)h << 16);
}

static inline uint16_t sherd__to_bf16(float x)
{
    uint32_t bits = sherd__float_bits(x);

    if ((bits & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* Without a branch, here and below, so that loops of it become vectors. */
static inline float sherd__from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, size = h & 0x7FFFu, bits = size << 13;
    /* Subnormal numbers are steps behind 2^-14, which is taken off. */
    uint32_t small = sherd__float_bits(sherd__float_of(bits + (113u << 23)) - 0x1p-14f);
    uint32_t y = bits + (112u << 23);

    y += size >= 0x7C00u ? 112u << 23 : 0; /* infinite, or a NaN, */
    y |= size > 0x7C00u ? 0x400000u : 0;   /* which becomes quiet */
    y = size < 0x400u ? small : y;
    return sherd__float_of(sign | y);
}

static inline uint16_t sherd__to_f16(float x)
{
    uint32_t bits = sherd__float_bits(x), sign = bits >> 16 & 0x8000u, size = bits & 0x7FFFFFFFu;
    /* Beside 0.5 the sum has steps of 2^-24, as subnormal numbers have: the addition rounds. */
    uint32_t small = sherd__float_bits(sherd__float_of(size) + 0.5f) - 0x3F000000u;
    uint32_t normal = ((size + 0xFFFu + (size >> 13 & 1u)) >> 13) - (112u << 10); /* carries too */
    uint32_t y = size < 0x38800000u ? small : normal;

    y = size < 0x477FF000u ? y : 0x7C00u; /* 65520 and more */
    y = size <= 0x7F800000u ? y : 0x7E00u | (size >> 13 & 0x3FFu);
    return (uint16_t)(sign | y);
}

/* The f32 on either side of x whose last bit is 1, or x itself if it is an f32. */
static inline float sherd__to_odd(double x)
{
    float f = (float)x;
    uint32_t bits = sherd__float_bits(f);

    if (isnan(x) || (double)f == x)
        return f;
    if (fabs((double)f) > fabs(x))
        bits--;
    return sherd__float_of(bits | 1u);
}

static inline uint16_t sherd__double_to_bf16(double x)
{
    return sherd__to_bf16(sherd__to_odd(x));
}

static inline uint16_t sherd__double_to_f16(double x)
{
    return sherd__to_f16(sherd__to_odd(x));
}

#endif
