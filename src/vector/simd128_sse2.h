/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words of vector_simd128.h by SSE2, which all of x86-64 has. That has no multiply-add, no rounding
 * to whole numbers, and no f16: those take some instructions more. Included by that file only.
 */
#ifndef SHERD__VECTOR_SIMD128_SSE2_H
#define SHERD__VECTOR_SIMD128_SSE2_H

#include <emmintrin.h>

INLINE void v_stream(float *p, vf x)
{
    _mm_stream_ps(p, x);
}
/* Rounded twice. */
INLINE vf v_fma(vf a, vf b, vf c)
{
    return v_add(v_mul(a, b), c);
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return v_sub(c, v_mul(a, b));
}
/* By halves of 12 bits, whose products are exact. */
INLINE vf v_rest(vf a, vf b, vf product)
{
    const vi upper = v_int(0xFFFFF000u);
    vf ah = (vf)((vi)a & upper), bh = (vf)((vi)b & upper), al = v_sub(a, ah), bl = v_sub(b, bh);
    vf rest = v_add(v_sub(v_mul(ah, bh), product), v_mul(ah, bl));
    return v_add(v_add(rest, v_mul(al, bh)), v_mul(al, bl));
}
/* x = a + b, 12 bits each, whose products are exact. */
INLINE vf v_rounded_off(vf x, vf square)
{
    vf a = (vf)((vi)x & v_int(0xFFFFF000u)), b = v_sub(x, a);
    vf rest = v_sub(square, v_mul(a, a));
    return v_sub(v_sub(rest, v_mul(v_add(a, a), b)), v_mul(b, b));
}
INLINE vf v_sqrt(vf x)
{
    return _mm_sqrt_ps(x);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm_min_ps(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm_max_ps(a, b);
}
INLINE vi v_choose_bits(vi lanes, vi yes, vi no)
{
    return (yes & lanes) | (no & ~lanes);
}
/* Beside 2^23 there are no fractions; what is as large has none, and NaN stays. */
INLINE vf v_nearest(vf x)
{
    const vi sign = v_int(0x80000000u);
    vf all = v_set(0x1p23f), beside = (vf)((vi)all | ((vi)x & sign));
    vf whole = (vf)((vi)v_sub(v_add(x, beside), beside) | ((vi)x & sign));
    vf size = (vf)((vi)x & ~sign);
    return (vf)v_choose_bits((vi)(size < all), (vi)whole, (vi)x);
}
INLINE bool v_any(vm m)
{
    return _mm_movemask_ps((__m128)m.lanes) != 0;
}
INLINE float v_sum(vf x)
{
    vf y = v_add(x, _mm_movehl_ps(x, x));
    return y[0] + y[1];
}

INLINE vd v_wide_low(vf x)
{
    return _mm_cvtps_pd(x);
}
INLINE vd v_wide_high(vf x)
{
    return _mm_cvtps_pd(_mm_movehl_ps(x, x));
}
INLINE vf v_narrow(vd low, vd high)
{
    return _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
}
INLINE vd v_wide_fma(vd a, vd b, vd c)
{
    return a * b + c;
}

INLINE vi v_int_product(vi a, vi b, vi *high)
{
    vf even = (vf)_mm_mul_epu32((__m128i)a, (__m128i)b);
    vf odd = (vf)_mm_mul_epu32(_mm_srli_epi64((__m128i)a, 32), (__m128i)b);
    vf upper = _mm_shuffle_ps(even, odd, 0xDD), lower = _mm_shuffle_ps(even, odd, 0x88);

    *high = (vi)_mm_shuffle_ps(upper, upper, 0xD8);
    return (vi)_mm_shuffle_ps(lower, lower, 0xD8);
}

/* The upper halves of eight words; as signed ones they are packed as they are. */
INLINE void v_store_upper(uint16_t *p, vi first, vi second)
{
    __m128i low = _mm_srai_epi32((__m128i)first, 16), high = _mm_srai_epi32((__m128i)second, 16);
    _mm_storeu_si128((__m128i *)(void *)p, _mm_packs_epi32(low, high));
}
/* The upper halves of four. */
INLINE void v_store_upper4(uint16_t *p, vi x)
{
    __m128i low = _mm_srai_epi32((__m128i)x, 16);
    _mm_storel_epi64((__m128i *)(void *)p, _mm_packs_epi32(low, low));
}
/* Four numbers of 16 bits as the upper halves of words; the lower ones are 0. */
INLINE vi v_load_upper4(const uint16_t *p)
{
    __m128i x = _mm_loadl_epi64((const __m128i *)(const void *)p);
    return (vi)_mm_unpacklo_epi16(_mm_setzero_si128(), x);
}
/* As sherd__from_f16: shifted into place an f16 is 2^112 too small, also a subnormal one. */
INLINE vf v_load_f16(const uint16_t *p)
{
    vi x = v_load_upper4(p), sign = x & v_int(0x80000000u), size = (x ^ sign) >> 3;
    vi infinite = (vi)((v_signed)size >= (v_signed)v_int(0x0F800000)) & v_int(0x7F800000);
    vi quiet = (vi)((v_signed)size > (v_signed)v_int(0x0F800000)) & v_int(0x400000);
    vi wide = (vi)v_mul((vf)size, v_set(0x1p112f));
    return (vf)(wide | infinite | quiet | sign);
}
/* As sherd__to_f16. */
INLINE void v_store_f16(uint16_t *p, vf x)
{
    vi sign = (vi)x & v_int(0x80000000u), size = (vi)x ^ sign, shifted = size >> 13;
    vi normal = ((size + v_int(0xFFF) + (shifted & v_int(1))) >> 13) - v_int(112u << 10);
    vi small = (vi)v_add((vf)size, v_set(0.5f)) - v_int(0x3F000000);
    vi nan = v_int(0x7E00) | (shifted & v_int(0x3FF));
    vi y = v_choose_bits((vi)((v_signed)size < (v_signed)v_int(0x38800000)), small, normal);

    y = v_choose_bits((vi)((v_signed)size >= (v_signed)v_int(0x477FF000)), v_int(0x7C00), y);
    y = v_choose_bits((vi)((v_signed)size > (v_signed)v_int(0x7F800000)), nan, y);
    v_store_upper4(p, y << 16 | sign);
}

#endif
