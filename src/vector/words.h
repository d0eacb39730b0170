/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of 32 numbers of bf16, and the instruction of AVX512_BF16 that multiplies pairs of them:
 * words in which products of bf16 are written, by tiles (fast_pairs.inc) and in blocks (blocks.h).
 */
#ifndef SHERD__VECTOR_WORDS_H
#define SHERD__VECTOR_WORDS_H

#include "vector_avx512.h"

enum { WORDS = 2 * W };

INLINE __mmask32 words_part(int64_t n)
{
    return n >= WORDS ? ~0u : n <= 0 ? 0 : (1u << n) - 1;
}

INLINE vi load_words(const uint16_t *p)
{
    return _mm512_loadu_si512(p);
}

/* n of them, zeroes behind. */
INLINE vi load_words_part(const uint16_t *p, int64_t n)
{
    return _mm512_maskz_loadu_epi16(words_part(n), p);
}

INLINE void store_words(uint16_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}

/* Words of two rows side by side: columns 0 to 15, and those from 16 on. */
INLINE void pair_rows(vi a, vi b, vi *low, vi *high)
{
    const vi first = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const vi second = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    vi x = _mm512_unpacklo_epi16(a, b), y = _mm512_unpackhi_epi16(a, b);

    *low = _mm512_permutex2var_epi64(x, first, y);
    *high = _mm512_permutex2var_epi64(x, second, y);
}

/* sum + both products of the pairs of a and b. What is subnormal counts as 0. */
INLINE vf add_pairs(vf sum, vi a, vi b)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#endif
