/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 8 f64 by AVX-512: the words of vector_avx512.h, which explains them, and of
 * vector_f64.h. Included by the file of this instruction set only. */
#ifndef SHERD__VECTOR_VECTOR_AVX512_F64_H
#define SHERD__VECTOR_VECTOR_AVX512_F64_H

#include <immintrin.h>
#include <stdint.h>

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum { W = 8, TILE_ROWS = 12 };
enum { FUSED = true };

typedef __m512d vf;
typedef __mmask8 vm;

INLINE void v_leave(void)
{
    _mm256_zeroupper();
}

INLINE vm v_part(int64_t n)
{
    return (vm)(n >= W ? 0xFFu : (1u << n) - 1);
}
INLINE void v_stream(double *p, vf x)
{
    _mm512_stream_pd(p, x);
}
INLINE vf v_load_part(const double *p, vm m)
{
    return _mm512_maskz_loadu_pd(m, p);
}
INLINE void v_store_part(double *p, vm m, vf x)
{
    _mm512_mask_storeu_pd(p, m, x);
}
INLINE vf v_set(double x)
{
    return _mm512_set1_pd(x);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_pd(a, b, c);
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm512_fnmadd_pd(a, b, c);
}
INLINE vf v_rest(vf a, vf b, vf product)
{
    return _mm512_fmsub_pd(a, b, product);
}
/*
 * The bits of _mm512_sqrt_pd, as in vector_avx512.h. Two steps leave root and by 3 ulp off at most,
 * so the last one is off by 16 2^-106 before it is rounded. Nearer than that to the middle between
 * two numbers are the roots of some hundred numbers only, all of which test_kernels_slopes.c tries.
 */
INLINE vf v_sqrt(vf x)
{
    const vf half = _mm512_set1_pd(0.5);
    vf y = _mm512_rsqrt14_pd(x), root = _mm512_mul_pd(x, y), by = _mm512_mul_pd(half, y);
    vm near = (vm)(_mm512_cmp_pd_mask(_mm512_set1_pd(0x1p-900), x, _CMP_LT_OQ) &
                   _mm512_cmp_pd_mask(x, _mm512_set1_pd(0x1p900), _CMP_LT_OQ));

    if (__builtin_expect(near != 0xFF, 0))
        return _mm512_sqrt_pd(x);
    for (int i = 0; i < 2; i++) {
        vf left = _mm512_fnmadd_pd(root, by, half);
        root = _mm512_fmadd_pd(root, left, root);
        by = _mm512_fmadd_pd(by, left, by);
    }
    return _mm512_fmadd_pd(_mm512_fnmadd_pd(root, root, x), by, root);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm512_min_pd(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm512_max_pd(a, b);
}
INLINE vf v_nearest(vf x)
{
    return _mm512_roundscale_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for whole n, rounded once. fast_numbers_f64.inc has it for the others. */
#define HAS_TIMES_POWER
INLINE vf v_times_power(vf x, vf n)
{
    return _mm512_scalef_pd(x, n);
}
INLINE vm v_less(vf a, vf b)
{
    return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ);
}
INLINE vm v_not_greater(vf a, vf b)
{
    return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ);
}
INLINE vm v_is_nan(vf x)
{
    return _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q);
}
INLINE vm v_either(vm a, vm b)
{
    return (vm)(a | b);
}
INLINE vm v_unusual(vf x)
{
    return _mm512_fpclass_pd_mask(x, 0xFF);
}
INLINE bool v_any(vm m)
{
    return m != 0;
}
INLINE vf v_choose(vm m, vf yes, vf no)
{
    return _mm512_mask_blend_pd(m, no, yes);
}
/* Of 16 numbers those at the last four bits of each number of `at`. */
#define HAS_PICK
INLINE vf v_pick(const double *from, vf at)
{
    return _mm512_permutex2var_pd(_mm512_loadu_pd(from), _mm512_castpd_si512(at),
                                  _mm512_loadu_pd(from + W));
}
INLINE double v_sum(vf x)
{
    return _mm512_reduce_add_pd(x);
}
INLINE double v_most(vf x)
{
    return _mm512_reduce_max_pd(x);
}

#include "vector_f64.h"

#endif
