/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of 8 and 4 bits by AVX-512: see fast_quantized.inc. The build gives this file the flags
 * that it needs; machine.c asks the CPU.
 */
#include "bodies.h"
#include "base/num.h"

#ifdef __AVX512F__

#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "vector_avx512.h"

INLINE vf v_load_i8(const int8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* W pairs of 4 bits, each in a lane. */
INLINE vi v_load_pairs(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* What numbers of 4 bits stand for: here a table of all 16, of which the last 4 bits choose. */
INLINE vf v_meaning(float scale)
{
    return v_mul(_mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7),
                 v_set(scale));
}

INLINE vf v_lower(vi pairs, vf meaning)
{
    return _mm512_permutexvar_ps(pairs, meaning);
}

INLINE vf v_upper(vi pairs, vf meaning)
{
    return _mm512_permutexvar_ps(_mm512_srli_epi32(pairs, 4), meaning);
}

/* a and b by turns; of places from 16 on b has them. */
INLINE void v_store_turns(float *p, vf a, vf b)
{
    const vi first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const vi second = _mm512_add_epi32(first, _mm512_set1_epi32(8));

    v_store(p, _mm512_permutex2var_ps(a, first, b));
    v_store(p + W, _mm512_permutex2var_ps(a, second, b));
}

#include "fast_quantized.inc"

const sherd__quantized_kernels sherd__quantized_avx512 = {few, expand, quantize, quantize_pairs};

#endif
