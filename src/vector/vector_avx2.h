/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 8 f32: the same words as vector_avx512.h, which explains them. Included by the file of
 * this instruction set only. */
#ifndef SHERD__VECTOR_VECTOR_AVX2_H
#define SHERD__VECTOR_VECTOR_AVX2_H

#include <immintrin.h>
#include <float.h>
#include <stdint.h>

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

/* A tile of 6 x 2 sums, 2 of b and 1 of a takes 15 of 16 registers. */
enum { W = 8, TILE_ROWS = 6 };
enum { FUSED = true };

typedef __m256 vf;
typedef __m256i vi;
typedef __m256d vd;
typedef __m256i vm; /* all bits of a chosen lane are set */

/*
 * Before scalar code of another file is called in a loop: the upper halves of registers are left as
 * new. With something in them instructions of SSE wait for each other, and a logarithm takes
 * fifteen times as long.
 */
INLINE void v_leave(void)
{
    _mm256_zeroupper();
}

INLINE vm v_part(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)(n < W ? n : W)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE vf v_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
INLINE void v_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
INLINE void v_stream(float *p, vf x)
{
    _mm256_stream_ps(p, x);
}
/*
 * m: the first lanes, as v_part says. A whole vector is the common case: a load with a mask,
 * whatever is in it, waits until what was stored there has reached the cache (Zen 3: 4.5 ns instead
 * of 0.9), and loops that read and write take up to 1.5 times as long.
 */
INLINE vf v_load_part(const float *p, vm m)
{
    if (_mm256_movemask_ps(_mm256_castsi256_ps(m)) == 0xFF)
        return _mm256_loadu_ps(p);
    return _mm256_maskload_ps(p, m);
}
/* By parts, because CPUs of AMD take 12 cycles and more for a store with a mask, too. */
INLINE void v_store_part(float *p, vm m, vf x)
{
    int lanes = _mm256_movemask_ps(_mm256_castsi256_ps(m));
    __m128 rest = _mm256_castps256_ps128(x);

    if (lanes == 0xFF) {
        _mm256_storeu_ps(p, x);
        return;
    }
    if (lanes & 8) {
        _mm_storeu_ps(p, rest);
        rest = _mm256_extractf128_ps(x, 1);
        p += 4;
        lanes >>= 4;
    }
    if (lanes & 2) {
        _mm_storel_pi((__m64 *)(void *)p, rest);
        rest = _mm_movehl_ps(rest, rest);
        p += 2;
        lanes >>= 2;
    }
    if (lanes & 1)
        _mm_store_ss(p, rest);
}
INLINE vf v_set(float x)
{
    return _mm256_set1_ps(x);
}
INLINE vf v_zero(void)
{
    return _mm256_setzero_ps();
}
INLINE vf v_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
}
INLINE vf v_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
INLINE vf v_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
INLINE vf v_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_ps(a, b, c);
}
INLINE vf v_rest(vf a, vf b, vf product)
{
    return _mm256_fmsub_ps(a, b, product);
}
INLINE vf v_rounded_off(vf x, vf square)
{
    return v_fnma(x, x, square);
}
INLINE vf v_sqrt(vf x)
{
    return _mm256_sqrt_ps(x);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_ps(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
INLINE vf v_nearest(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* 2^n as bits, for -126 <= n <= 127. */
INLINE vf v_power(vi n)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
/* In two halves, so that results below 2^-126 and above 2^127 come out right. */
INLINE vf v_times_power(vf x, vf n)
{
    vi whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
    return v_mul(v_mul(x, v_power(half)), v_power(_mm256_sub_epi32(whole, half)));
}
INLINE vf v_power_of_bits(vf x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 23));
}
/* The estimate here has 12 bits, too few for one Newton step. */
INLINE vf v_inverse(vf x)
{
    return v_div(v_set(1), x);
}
INLINE vf v_inverse_or_0(vf x, vm gone)
{
    return _mm256_andnot_ps(_mm256_castsi256_ps(gone), v_inverse(x));
}
INLINE vm v_less(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE vm v_not_greater(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_LE_OQ));
}
INLINE vm v_is_nan(vf x)
{
    return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}
INLINE vm v_either(vm a, vm b)
{
    return _mm256_or_si256(a, b);
}
INLINE vm v_unusual(vf x)
{
    return v_either(v_less(x, v_set(FLT_MIN)), v_is_nan(x - x));
}
INLINE bool v_any(vm m)
{
    return _mm256_movemask_ps(_mm256_castsi256_ps(m)) != 0;
}
INLINE vf v_choose(vm m, vf yes, vf no)
{
    return _mm256_blendv_ps(no, yes, _mm256_castsi256_ps(m));
}
INLINE float v_sum(vf x)
{
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
INLINE float v_most(vf x)
{
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

enum { TOGETHER = 2 };
INLINE void v_sum_rows(const vf x[TOGETHER], float to[TOGETHER])
{
    vf a = v_add(_mm256_unpacklo_ps(x[0], x[1]), _mm256_unpackhi_ps(x[0], x[1]));
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    _mm_storel_pi((__m64 *)(void *)to, _mm_add_ps(half, _mm_movehl_ps(half, half)));
}
INLINE void v_most_rows(const vf x[TOGETHER], float to[TOGETHER])
{
    vf a = v_max(_mm256_unpacklo_ps(x[0], x[1]), _mm256_unpackhi_ps(x[0], x[1]));
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    _mm_storel_pi((__m64 *)(void *)to, _mm_max_ps(half, _mm_movehl_ps(half, half)));
}

INLINE vd v_wide_low(vf x)
{
    return _mm256_cvtps_pd(_mm256_castps256_ps128(x));
}
INLINE vd v_wide_high(vf x)
{
    return _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
}
INLINE vf v_narrow(vd low, vd high)
{
    return _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low));
}
INLINE vd v_wide_load(const double *p)
{
    return _mm256_loadu_pd(p);
}
INLINE void v_wide_store(double *p, vd x)
{
    _mm256_storeu_pd(p, x);
}
INLINE vd v_wide_set(double x)
{
    return _mm256_set1_pd(x);
}
INLINE vd v_wide_add(vd a, vd b)
{
    return _mm256_add_pd(a, b);
}
INLINE vd v_wide_mul(vd a, vd b)
{
    return _mm256_mul_pd(a, b);
}
INLINE vd v_wide_fma(vd a, vd b, vd c)
{
    return _mm256_fmadd_pd(a, b, c);
}
INLINE double v_wide_sum(vd x)
{
    __m128d y = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(y, _mm_unpackhi_pd(y, y)));
}

INLINE vi v_int(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}
INLINE vi v_int_load(const uint32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
INLINE void v_int_store(uint32_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}
INLINE vi v_int_add(vi a, vi b)
{
    return _mm256_add_epi32(a, b);
}
INLINE vi v_int_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
INLINE vi v_int_product(vi a, vi b, vi *high)
{
    vi even = _mm256_mul_epu32(a, b);
    vi odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), b);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xAA);
    return _mm256_mullo_epi32(a, b);
}
INLINE vf v_upper24(vi x)
{
    return _mm256_cvtepi32_ps(_mm256_srli_epi32(x, 8));
}
INLINE void v_turn4(vi x[4])
{
    vi a = _mm256_unpacklo_epi32(x[0], x[1]), b = _mm256_unpackhi_epi32(x[0], x[1]);
    vi c = _mm256_unpacklo_epi32(x[2], x[3]), d = _mm256_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm256_unpacklo_epi64(a, c);
    x[1] = _mm256_unpackhi_epi64(a, c);
    x[2] = _mm256_unpacklo_epi64(b, d);
    x[3] = _mm256_unpackhi_epi64(b, d);
}

/* Four floats each of p and p + step: 128 bits behind each other. */
INLINE vi v_load_lanes(const float *p, int64_t step)
{
    return _mm256_castps_si256(_mm256_set_m128(_mm_loadu_ps(p + step), _mm_loadu_ps(p)));
}
INLINE vf v_as_floats(vi x)
{
    return _mm256_castsi256_ps(x);
}

#include "few_halves.h"

INLINE vf v_load_bf16(const uint16_t *p)
{
    vi x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
}
INLINE void v_load_two_bf16(const uint16_t *p, vf *y)
{
    vi x = _mm256_loadu_si256((const __m256i *)(const void *)p);
    y[0] = _mm256_castsi256_ps(_mm256_slli_epi32(x, 16));
    y[1] = _mm256_castsi256_ps(_mm256_and_si256(x, _mm256_set1_epi32((int)0xFFFF0000u)));
}
INLINE vi v_round_bf16(vf x)
{
    vi bits = _mm256_castps_si256(x);
    vi odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    return _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
}
INLINE vi v_quiet_bf16(vf x, vi rounded)
{
    vi quiet = _mm256_or_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x400000));
    return _mm256_blendv_epi8(rounded, quiet, v_is_nan(x));
}
INLINE void v_store_bf16(uint16_t *p, vf x)
{
    vi y = _mm256_srli_epi32(v_quiet_bf16(x, v_round_bf16(x)), 16);
    /* Packing works within halves of 128 bits: the numbers are in words 0 and 2 of 64 bits. */
    vi packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(y, y), 0x08);
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(packed));
}
INLINE void v_round_two_bf16(const vf *x, vi *y)
{
    y[0] = v_round_bf16(x[0]);
    y[1] = v_round_bf16(x[1]);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(x[0], x[1], _CMP_UNORD_Q)) != 0, 0)) {
        y[0] = v_quiet_bf16(x[0], y[0]);
        y[1] = v_quiet_bf16(x[1], y[1]);
    }
}
INLINE void v_store_two_bf16(uint16_t *p, const vf *x)
{
    vi y[2];
    v_round_two_bf16(x, y);
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm256_blend_epi16(_mm256_srli_epi32(y[0], 16), y[1], 0xAA));
}
INLINE void v_store_row_bf16(uint16_t *p, const vf *x)
{
    vi y[2];
    v_round_two_bf16(x, y);
    vi packed = _mm256_packus_epi32(_mm256_srli_epi32(y[0], 16), _mm256_srli_epi32(y[1], 16));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm256_permute4x64_epi64(packed, 0xD8));
}
INLINE vf v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
INLINE void v_load_two_f16(const uint16_t *p, vf *y)
{
    y[0] = v_load_f16(p);
    y[1] = v_load_f16(p + W);
}
INLINE void v_store_f16(uint16_t *p, vf x)
{
    _mm_storeu_si128((__m128i *)(void *)p,
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE void v_store_two_f16(uint16_t *p, const vf *x)
{
    v_store_f16(p, x[0]);
    v_store_f16(p + W, x[1]);
}

#endif
