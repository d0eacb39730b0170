/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of 8 and 4 bits by AVX2: see fast_quantized.inc. The build gives this file the flags
 * that it needs; machine.c asks the CPU.
 */
#include "bodies.h"
#include "base/num.h"

#ifdef __AVX2__

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "vector_avx2.h"

INLINE vf v_load_i8(const int8_t *p)
{
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* W pairs of 4 bits, each in a lane. */
INLINE vi v_load_pairs(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

/* What numbers of 4 bits stand for: here the scale of all. */
INLINE vf v_meaning(float scale)
{
    return v_set(scale);
}

INLINE vf v_lower(vi pairs, vf meaning)
{
    vi half = _mm256_and_si256(pairs, _mm256_set1_epi32(15));
    return v_mul(_mm256_cvtepi32_ps(_mm256_sub_epi32(half, _mm256_set1_epi32(8))), meaning);
}

INLINE vf v_upper(vi pairs, vf meaning)
{
    vi half = _mm256_sub_epi32(_mm256_srli_epi32(pairs, 4), _mm256_set1_epi32(8));
    return v_mul(_mm256_cvtepi32_ps(half), meaning);
}

/* a and b by turns. */
INLINE void v_store_turns(float *p, vf a, vf b)
{
    vf low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);

    v_store(p, _mm256_permute2f128_ps(low, high, 0x20));
    v_store(p + W, _mm256_permute2f128_ps(low, high, 0x31));
}

#include "fast_quantized.inc"

const sherd__quantized_kernels sherd__quantized_avx2 = {few, expand, quantize, quantize_pairs};

#endif
