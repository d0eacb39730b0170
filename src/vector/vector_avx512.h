/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of 16 f32, the words in which the fast_*.inc files are written: vf floats, vi 32-bit
 * integers, vd half as many doubles, vm a choice of lanes. Included by the file of this instruction
 * set only.
 */
#ifndef SHERD__VECTOR_VECTOR_AVX512_H
#define SHERD__VECTOR_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

/* Lanes; rows of a register tile of 2 vectors (12 x 2 sums, 2 of b, 1 of a: 27 of 32 registers). */
enum { W = 16, TILE_ROWS = 12 };
/* Whether v_fma rounds once. */
enum { FUSED = true };

typedef __m512 vf;
typedef __m512i vi;
typedef __m512d vd;
typedef __mmask16 vm;

/*
 * Before scalar code of another file is called in a loop: the upper halves of registers are left as
 * new. With something in them instructions of SSE wait for each other, and a logarithm takes
 * fifteen times as long.
 */
INLINE void v_leave(void)
{
    _mm256_zeroupper();
}

/* The first n lanes, 0 <= n; all of them for n >= W. */
INLINE vm v_part(int64_t n)
{
    return (vm)(n >= W ? 0xFFFFu : (1u << n) - 1);
}
INLINE vf v_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
INLINE void v_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
/* Past the cache; p is a multiple of a vector. */
INLINE void v_stream(float *p, vf x)
{
    _mm512_stream_ps(p, x);
}
/* Lanes that are not chosen read as 0, and their memory is not touched. */
INLINE vf v_load_part(const float *p, vm m)
{
    return _mm512_maskz_loadu_ps(m, p);
}
INLINE void v_store_part(float *p, vm m, vf x)
{
    _mm512_mask_storeu_ps(p, m, x);
}
INLINE vf v_set(float x)
{
    return _mm512_set1_ps(x);
}
INLINE vf v_zero(void)
{
    return _mm512_setzero_ps();
}
INLINE vf v_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
}
INLINE vf v_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
INLINE vf v_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
INLINE vf v_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
/* a * b + c */
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
/* c - a * b */
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_ps(a, b, c);
}
/* a * b - product, exactly. */
INLINE vf v_rest(vf a, vf b, vf product)
{
    return _mm512_fmsub_ps(a, b, product);
}
/* What rounding has added to `square`, which is x * x. */
INLINE vf v_rounded_off(vf x, vf square)
{
    return v_fnma(x, x, square);
}
/*
 * The bits of _mm512_sqrt_ps, which takes twice as long: an estimate, a Newton step of the root and
 * of half its inverse, and what the square then lacks (for all numbers, and estimates twice as far
 * off, tried one by one). Other numbers than those between 2^-100 and 2^100 are left to it.
 */
INLINE vf v_sqrt(vf x)
{
    const vf half = _mm512_set1_ps(0.5f);
    vf y = _mm512_rsqrt14_ps(x), root = _mm512_mul_ps(x, y), by = _mm512_mul_ps(half, y);
    vf left = _mm512_fnmadd_ps(root, by, half);

    vm near = _mm512_cmp_ps_mask(_mm512_set1_ps(0x1p-100f), x, _CMP_LT_OQ) &
              _mm512_cmp_ps_mask(x, _mm512_set1_ps(0x1p100f), _CMP_LT_OQ);

    if (__builtin_expect(near != 0xFFFF, 0))
        return _mm512_sqrt_ps(x);
    root = _mm512_fmadd_ps(root, left, root);
    by = _mm512_fmadd_ps(by, left, by);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(root, root, x), by, root);
}
/* The second operand, if one is NaN. */
INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_ps(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
INLINE vf v_nearest(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for whole n; underflows and overflows as a product would. */
INLINE vf v_times_power(vf x, vf n)
{
    return _mm512_scalef_ps(x, n);
}
/* 2^(n - 127) of the n in the last 8 bits, for n < 255; 0 for n = 0. */
INLINE vf v_power_of_bits(vf x)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 23));
}
/* x - floor(x), for finite x. */
INLINE vf v_fraction(vf x)
{
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
/* x * 2^floor(y), or 0 where it would be too small: subnormal results, and those that underflow,
 * take a hundred times as long. */
INLINE vf v_times_floor(vf x, vf y, vm gone)
{
    return _mm512_maskz_scalef_ps((vm)~gone, x, y);
}
/* 1 / x to about 2 ulp, for 0 < x < 2^120: an estimate and one Newton step. */
INLINE vf v_inverse(vf x)
{
    vf y = _mm512_rcp14_ps(x);
    return v_fma(y, v_fnma(x, y, v_set(1)), y);
}
/* The same, or 0. */
INLINE vf v_inverse_or_0(vf x, vm gone)
{
    vf y = _mm512_rcp14_ps(x);
    return _mm512_maskz_fmadd_ps((vm)~gone, y, v_fnma(x, y, v_set(1)), y);
}
INLINE vm v_less(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
INLINE vm v_not_greater(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
INLINE vm v_is_nan(vf x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
}
INLINE vm v_either(vm a, vm b)
{
    return (vm)(a | b);
}
/* Whether it is no positive normal number: 0, subnormal, negative, infinite, or NaN. */
INLINE vm v_unusual(vf x)
{
    return _mm512_fpclass_ps_mask(x, 0xFF);
}
/* Whether a lane is chosen. */
INLINE bool v_any(vm m)
{
    return m != 0;
}
/* m ? yes : no */
INLINE vf v_choose(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_ps(m, no, yes);
}
INLINE float v_sum(vf x)
{
    return _mm512_reduce_add_ps(x);
}
INLINE float v_most(vf x)
{
    return _mm512_reduce_max_ps(x);
}
/* Rows whose sums are made together; each its own, in the same order. */
enum { TOGETHER = 4 };
INLINE void v_sum_rows(const vf x[TOGETHER], float to[TOGETHER])
{
    vf a = v_add(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    vf b = v_add(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    vf c = v_add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    _mm_storeu_ps(to, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
INLINE void v_most_rows(const vf x[TOGETHER], float to[TOGETHER])
{
    vf a = v_max(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));
    vf b = v_max(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));
    vf c = v_max(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    __m256 half = _mm256_max_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
    _mm_storeu_ps(to, _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}

/* The lower and the upper half of the lanes as doubles. */
INLINE vd v_wide_low(vf x)
{
    return _mm512_cvtps_pd(_mm512_castps512_ps256(x));
}
INLINE vd v_wide_high(vf x)
{
    return _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
}
INLINE vf v_narrow(vd low, vd high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(_mm512_cvtpd_ps(low)), _mm512_cvtpd_ps(high),
                              1);
}
INLINE vd v_wide_load(const double *p)
{
    return _mm512_loadu_pd(p);
}
INLINE void v_wide_store(double *p, vd x)
{
    _mm512_storeu_pd(p, x);
}
INLINE vd v_wide_set(double x)
{
    return _mm512_set1_pd(x);
}
INLINE vd v_wide_add(vd a, vd b)
{
    return _mm512_add_pd(a, b);
}
INLINE vd v_wide_mul(vd a, vd b)
{
    return _mm512_mul_pd(a, b);
}
INLINE vd v_wide_fma(vd a, vd b, vd c)
{
    return _mm512_fmadd_pd(a, b, c);
}
INLINE double v_wide_sum(vd x)
{
    return _mm512_reduce_add_pd(x);
}

INLINE vi v_int(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}
INLINE vi v_int_load(const uint32_t *p)
{
    return _mm512_loadu_si512(p);
}
INLINE void v_int_store(uint32_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}
INLINE vi v_int_add(vi a, vi b)
{
    return _mm512_add_epi32(a, b);
}
INLINE vi v_int_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
/* The lower and the upper words of the 64-bit products a * b; b is the same in all lanes. */
INLINE vi v_int_product(vi a, vi b, vi *high)
{
    vi even = _mm512_mul_epu32(a, b);
    vi odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), b);
    *high = _mm512_mask_blend_epi32(0xAAAA, _mm512_srli_epi64(even, 32), odd);
    return _mm512_mullo_epi32(a, b);
}
/* The upper 24 bits of each word, as a float: exact. */
INLINE vf v_upper24(vi x)
{
    return _mm512_cvtepi32_ps(_mm512_srli_epi32(x, 8));
}
/* Within each 128 bits: the 4x4 words of x[0..4) transposed. */
INLINE void v_turn4(vi x[4])
{
    vi a = _mm512_unpacklo_epi32(x[0], x[1]), b = _mm512_unpackhi_epi32(x[0], x[1]);
    vi c = _mm512_unpacklo_epi32(x[2], x[3]), d = _mm512_unpackhi_epi32(x[2], x[3]);
    x[0] = _mm512_unpacklo_epi64(a, c);
    x[1] = _mm512_unpackhi_epi64(a, c);
    x[2] = _mm512_unpacklo_epi64(b, d);
    x[3] = _mm512_unpackhi_epi64(b, d);
}

/* 128 bits each of p, and what is `step` bytes further, ...: behind each other. */
INLINE vi v_load_quarters(const void *p, int64_t step)
{
    const char *at = p;
    vi x = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    x = _mm512_mask_broadcast_i32x4(x, 0x00F0, _mm_loadu_si128((const void *)(at + step)));
    x = _mm512_mask_broadcast_i32x4(x, 0x0F00, _mm_loadu_si128((const void *)(at + 2 * step)));
    return _mm512_mask_broadcast_i32x4(x, 0xF000, _mm_loadu_si128((const void *)(at + 3 * step)));
}
/* Four floats each of p, p + step, ... */
INLINE vi v_load_lanes(const float *p, int64_t step)
{
    return v_load_quarters(p, step * (int64_t)sizeof *p);
}
INLINE vf v_as_floats(vi x)
{
    return _mm512_castsi512_ps(x);
}

/* W numbers of 16 bits: n of p, which are all that is read, and zeroes behind them. */
INLINE void v_take_halves(uint16_t *lanes, const uint16_t *p, int64_t n)
{
    __m512i x = _mm512_maskz_loadu_epi16(v_part(n), p);
    _mm256_storeu_si256((__m256i *)(void *)lanes, _mm512_castsi512_si256(x));
}
/* The first n of W numbers. */
INLINE void v_put_halves(uint16_t *p, const uint16_t *lanes, int64_t n)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)lanes);
    _mm512_mask_storeu_epi16(p, v_part(n), _mm512_castsi256_si512(x));
}

/* 16 numbers of 16 bits; storing rounds to nearest, ties to even. */
INLINE vf v_load_bf16(const uint16_t *p)
{
    vi x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
}
/* 32 of them: those at even places, and those at odd ones. */
INLINE void v_load_two_bf16(const uint16_t *p, vf *y)
{
    vi x = _mm512_loadu_si512(p);
    y[0] = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
    y[1] = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32((int)0xFFFF0000u)));
}
/* Rounded in the upper half; vcvtneps2bf16 would lose subnormal numbers. Not for NaN. */
INLINE vi v_round_bf16(vf x)
{
    vi bits = _mm512_castps_si512(x);
    vi odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
}
/* NaN becomes quiet; others as they are. */
INLINE vi v_quiet_bf16(vf x, vi rounded)
{
    return _mm512_mask_or_epi32(rounded, v_is_nan(x), _mm512_castps_si512(x),
                                _mm512_set1_epi32(0x400000));
}
INLINE void v_store_bf16(uint16_t *p, vf x)
{
    vi y = v_quiet_bf16(x, v_round_bf16(x));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16)));
}
/* Two vectors rounded: NaN, which is rare, is looked for in both at once. */
INLINE void v_round_two_bf16(const vf *x, vi *y)
{
    y[0] = v_round_bf16(x[0]);
    y[1] = v_round_bf16(x[1]);
    if (__builtin_expect(_mm512_cmp_ps_mask(x[0], x[1], _CMP_UNORD_Q) != 0, 0)) {
        y[0] = v_quiet_bf16(x[0], y[0]);
        y[1] = v_quiet_bf16(x[1], y[1]);
    }
}
/* 32 of them: those for even places, and those for odd ones. */
INLINE void v_store_two_bf16(uint16_t *p, const vf *x)
{
    vi y[2];
    v_round_two_bf16(x, y);
    _mm512_storeu_si512(p, _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(y[0], 16), y[1]));
}
/* 32 of them, in order. */
INLINE void v_store_row_bf16(uint16_t *p, const vf *x)
{
    const vi upper = _mm512_set_epi32(0x3F003D, 0x3B0039, 0x370035, 0x330031, 0x2F002D, 0x2B0029,
                                      0x270025, 0x230021, 0x1F001D, 0x1B0019, 0x170015, 0x130011,
                                      0x0F000D, 0x0B0009, 0x070005, 0x030001);
    vi y[2];
    v_round_two_bf16(x, y);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(y[0], upper, y[1]));
}
INLINE vf v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
/* 32 of them, in order. */
INLINE void v_load_two_f16(const uint16_t *p, vf *y)
{
    y[0] = v_load_f16(p);
    y[1] = v_load_f16(p + W);
}
INLINE void v_store_f16(uint16_t *p, vf x)
{
    _mm256_storeu_si256((__m256i *)(void *)p,
                        _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
INLINE void v_store_two_f16(uint16_t *p, const vf *x)
{
    v_store_f16(p, x[0]);
    v_store_f16(p + W, x[1]);
}

#endif
