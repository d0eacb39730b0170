/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AVX512_BF16 (see immintrin.h). Whatever the CPU's settings say, rounding is to nearest, ties to
 * even, and what is subnormal is 0 with its sign, as operand and as result. (To the last bit: a
 * result just below 2^-126 that rounds up to it is kept, whichever way a CPU decides that.)
 */
#ifndef SHERD_EMULATED_BF16_H
#define SHERD_EMULATED_BF16_H

/* Subnormal numbers are 0. */
EMULATED __m256 emulated_flush(__m256 x)
{
    const __m256 sign = _mm256_set1_ps(-0.0f);
    __m256 small = _mm256_cmp_ps(_mm256_andnot_ps(sign, x), _mm256_set1_ps(0x1p-126f), _CMP_LT_OQ);

    return _mm256_blendv_ps(x, _mm256_and_ps(x, sign), small);
}

/* The upper and the lower words of pairs, as numbers. */
EMULATED __m256 emulated_upper(__m256i x)
{
    return emulated_flush(
        _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xFFFF0000u))));
}

EMULATED __m256 emulated_lower(__m256i x)
{
    return emulated_flush(_mm256_castsi256_ps(_mm256_slli_epi32(x, 16)));
}

/* Each product is added with one rounding, that of the upper words first. */
EMULATED_LANES __m512 emulated_dpbf16_ps(__m512 sum, __m512bh x, __m512bh y)
{
    emulated_bits a = {.b = x}, b = {.b = y}, c = {.f = sum};

    for (int i = 0; i < 2; i++) {
        __m256i l = a.half_i[i], r = b.half_i[i];
        __m256 s = emulated_flush(c.half[i]);
        s = emulated_flush(_mm256_fmadd_ps(emulated_upper(l), emulated_upper(r), s));
        c.half[i] = emulated_flush(_mm256_fmadd_ps(emulated_lower(l), emulated_lower(r), s));
    }
    return c.f;
}
#define _mm512_dpbf16_ps emulated_dpbf16_ps

/* Rounded to bf16; a NaN is quiet. */
EMULATED uint16_t emulated_to_bf16(float x)
{
    uint32_t bits = emulated_bits_of(x), size = bits & 0x7FFFFFFFu;
    uint32_t rounded = (bits + 0x7FFFu + (bits >> 16 & 1)) >> 16;

    rounded = size < 0x00800000u ? bits >> 16 & 0x8000u : rounded;
    return (uint16_t)(size > 0x7F800000u ? bits >> 16 | 0x40u : rounded);
}

/* y behind x: the second operand is the front half. */
EMULATED_LANES __m512bh emulated_cvtne2ps_pbh(__m512 y, __m512 x)
{
    emulated_bits a = {.f = x}, b = {.f = y}, to;

    for (int i = 0; i < 16; i++) {
        to.u16[i] = emulated_to_bf16(a.f32[i]);
        to.u16[i + 16] = emulated_to_bf16(b.f32[i]);
    }
    return to.b;
}
#define _mm512_cvtne2ps_pbh emulated_cvtne2ps_pbh

#endif
