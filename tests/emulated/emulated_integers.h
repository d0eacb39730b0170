/* SPDX-License-Identifier: Apache-2.0 */
/* Integers, and words that change their lanes (see immintrin.h). */
#ifndef SHERD_EMULATED_INTEGERS_H
#define SHERD_EMULATED_INTEGERS_H

/* An instruction of two operands that AVX2 has for half as many lanes. */
#define EMULATED_INTEGERS(name, avx2)                          \
    EMULATED __m512i emulated_##name(__m512i x, __m512i y)     \
    {                                                          \
        emulated_bits a = {.i = x}, b = {.i = y};              \
        a.half_i[0] = _mm256_##avx2(a.half_i[0], b.half_i[0]); \
        a.half_i[1] = _mm256_##avx2(a.half_i[1], b.half_i[1]); \
        return a.i;                                            \
    }
EMULATED_INTEGERS(add_epi32, add_epi32)
EMULATED_INTEGERS(and_si512, and_si256)
EMULATED_INTEGERS(or_si512, or_si256)
EMULATED_INTEGERS(xor_si512, xor_si256)
EMULATED_INTEGERS(max_epu32, max_epu32)
EMULATED_INTEGERS(mul_epu32, mul_epu32)
EMULATED_INTEGERS(mullo_epi32, mullo_epi32)
EMULATED_INTEGERS(unpacklo_epi16, unpacklo_epi16)
EMULATED_INTEGERS(unpackhi_epi16, unpackhi_epi16)
EMULATED_INTEGERS(unpacklo_epi32, unpacklo_epi32)
EMULATED_INTEGERS(unpackhi_epi32, unpackhi_epi32)
EMULATED_INTEGERS(unpacklo_epi64, unpacklo_epi64)
EMULATED_INTEGERS(unpackhi_epi64, unpackhi_epi64)
#define _mm512_add_epi32      emulated_add_epi32
#define _mm512_and_si512      emulated_and_si512
#define _mm512_or_si512       emulated_or_si512
#define _mm512_xor_si512      emulated_xor_si512
#define _mm512_max_epu32      emulated_max_epu32
#define _mm512_mul_epu32      emulated_mul_epu32
#define _mm512_mullo_epi32    emulated_mullo_epi32
#define _mm512_unpacklo_epi16 emulated_unpacklo_epi16
#define _mm512_unpackhi_epi16 emulated_unpackhi_epi16
#define _mm512_unpacklo_epi32 emulated_unpacklo_epi32
#define _mm512_unpackhi_epi32 emulated_unpackhi_epi32
#define _mm512_unpacklo_epi64 emulated_unpacklo_epi64
#define _mm512_unpackhi_epi64 emulated_unpackhi_epi64

EMULATED_LANES uint32_t emulated_reduce_max_epu32(__m512i x)
{
    emulated_bits a = {.i = x};
    uint32_t most = 0;

    for (int i = 0; i < 16; i++)
        most = a.u32[i] > most ? a.u32[i] : most;
    return most;
}
#define _mm512_reduce_max_epu32 emulated_reduce_max_epu32

EMULATED __m512i emulated_slli_epi32(__m512i x, int n)
{
    emulated_bits a = {.i = x};

    a.half_i[0] = _mm256_slli_epi32(a.half_i[0], n);
    a.half_i[1] = _mm256_slli_epi32(a.half_i[1], n);
    return a.i;
}
#define _mm512_slli_epi32(x, n) emulated_slli_epi32(x, (int)(n))

EMULATED __m512i emulated_srli_epi32(__m512i x, int n)
{
    emulated_bits a = {.i = x};

    a.half_i[0] = _mm256_srli_epi32(a.half_i[0], n);
    a.half_i[1] = _mm256_srli_epi32(a.half_i[1], n);
    return a.i;
}
#define _mm512_srli_epi32(x, n) emulated_srli_epi32(x, (int)(n))

EMULATED __m512i emulated_srli_epi64(__m512i x, int n)
{
    emulated_bits a = {.i = x};

    a.half_i[0] = _mm256_srli_epi64(a.half_i[0], n);
    a.half_i[1] = _mm256_srli_epi64(a.half_i[1], n);
    return a.i;
}
#define _mm512_srli_epi64(x, n) emulated_srli_epi64(x, (int)(n))

EMULATED __m512i emulated_cvtepu16_epi32(__m256i x)
{
    emulated_bits a;

    a.half_i[0] = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(x));
    a.half_i[1] = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1));
    return a.i;
}
#define _mm512_cvtepu16_epi32 emulated_cvtepu16_epi32

/* The lower halves of 16 words. */
EMULATED_LANES __m256i emulated_cvtepi32_epi16(__m512i x)
{
    emulated_bits a = {.i = x}, to;

    for (int i = 0; i < 16; i++)
        to.u16[i] = (uint16_t)a.u32[i];
    return to.half_i[0];
}
#define _mm512_cvtepi32_epi16 emulated_cvtepi32_epi16

/* ---- masks: m ? y : x, lane by lane ---- */

EMULATED __m512i emulated_mask_blend_epi32(__mmask16 m, __m512i x, __m512i y)
{
    emulated_bits a = {.i = x}, b = {.i = y};

    return (emulated_bits){.f = emulated_mask_blend_ps(m, a.f, b.f)}.i;
}
#define _mm512_mask_blend_epi32          emulated_mask_blend_epi32
#define _mm512_mask_or_epi32(z, m, x, y) emulated_mask_blend_epi32(m, z, emulated_or_si512(x, y))

EMULATED_LANES __m512i emulated_mask_blend_epi16(__mmask32 m, __m512i x, __m512i y)
{
    emulated_bits a = {.i = x}, b = {.i = y};

    for (int i = 0; i < 32; i++)
        a.u16[i] = m >> i & 1 ? b.u16[i] : a.u16[i];
    return a.i;
}
#define _mm512_mask_blend_epi16 emulated_mask_blend_epi16

EMULATED_LANES __m512i emulated_mask_broadcast_i32x4(__m512i z, __mmask16 m, __m128i x)
{
    emulated_bits all;

    for (int i = 0; i < 4; i++)
        all.quarter_i[i] = x;
    return emulated_mask_blend_epi32(m, z, all.i);
}
#define _mm512_mask_broadcast_i32x4 emulated_mask_broadcast_i32x4

/* Where no bit is set in both. */
EMULATED_LANES __mmask32 emulated_testn_epi16_mask(__m512i x, __m512i y)
{
    emulated_bits a = {.i = emulated_and_si512(x, y)};
    __mmask32 m = 0;

    for (int i = 0; i < 32; i++)
        m |= (__mmask32)(a.u16[i] == 0) << i;
    return m;
}
#define _mm512_testn_epi16_mask emulated_testn_epi16_mask

/* ---- lanes by index: the lower bits count, the next one says which operand ---- */

EMULATED_LANES __m512i emulated_permutex2var_epi16(__m512i x, __m512i index, __m512i y)
{
    emulated_bits a = {.i = x}, at = {.i = index}, b = {.i = y}, to;

    for (int i = 0; i < 32; i++)
        to.u16[i] = (at.u16[i] & 32 ? b.u16 : a.u16)[at.u16[i] & 31];
    return to.i;
}
#define _mm512_permutex2var_epi16          emulated_permutex2var_epi16
#define _mm512_permutexvar_epi16(index, x) emulated_permutexvar_epi16(index, x)

EMULATED_LANES __m512i emulated_permutexvar_epi16(__m512i index, __m512i x)
{
    emulated_bits a = {.i = x}, at = {.i = index}, to;

    for (int i = 0; i < 32; i++)
        to.u16[i] = a.u16[at.u16[i] & 31];
    return to.i;
}

EMULATED_LANES __m512i emulated_permutex2var_epi64(__m512i x, __m512i index, __m512i y)
{
    emulated_bits a = {.i = x}, at = {.i = index}, b = {.i = y}, to;

    for (int i = 0; i < 8; i++)
        to.u64[i] = (at.u64[i] & 8 ? b.u64 : a.u64)[at.u64[i] & 7];
    return to.i;
}
#define _mm512_permutex2var_epi64 emulated_permutex2var_epi64

/* Two quarters of x, and two of y. */
EMULATED __m512i emulated_shuffle_i32x4(__m512i x, __m512i y, int how)
{
    emulated_bits a = {.i = x}, b = {.i = y}, to;

    for (int i = 0; i < 4; i++)
        to.quarter_i[i] = (i < 2 ? a.quarter_i : b.quarter_i)[how >> 2 * i & 3];
    return to.i;
}
#define _mm512_shuffle_i32x4 emulated_shuffle_i32x4

#endif
