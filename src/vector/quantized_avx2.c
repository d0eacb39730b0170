/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of 8 and 4 bits by AVX2: see fast_few_i8.inc, fast_few_i4.inc. The build gives this file
 * the flags that it needs; machine.c asks the CPU.
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

#include "fast_few_i8.inc"
#include "fast_few_i4.inc"

static void few(const sherd__quantized *q, int64_t n, float *y, const float *x)
{
    if (q->pairs)
        few_i4(q, n, y, x);
    else
        few_i8(q, n, y, x);
}

#define EXPAND         expand
#define QUANTIZE       quantize
#define QUANTIZE_PAIRS quantize_pairs
#define PAIRS_TO_F32   pairs_to_f32
#include "kernels/quantized_body.inc"

const sherd__quantized_kernels sherd__quantized_avx2 = {few, expand, quantize, quantize_pairs};

#endif
