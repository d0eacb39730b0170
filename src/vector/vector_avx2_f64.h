/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 4 f64 by AVX2: the words of vector_avx512.h, and of vector_f64.h. Included by the file
 * of this instruction set only. */
#ifndef SHERD__VECTOR_VECTOR_AVX2_F64_H
#define SHERD__VECTOR_VECTOR_AVX2_F64_H

#include <immintrin.h>
#include <float.h>
#include <stdint.h>

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

enum { W = 4, TILE_ROWS = 6 };
enum { FUSED = true };

typedef __m256d vf;
typedef __m256i vm; /* all bits of a chosen lane are set */

INLINE void v_leave(void)
{
    _mm256_zeroupper();
}

INLINE vm v_part(int64_t n)
{
    return _mm256_cmpgt_epi64(_mm256_set1_epi64x(n), _mm256_setr_epi64x(0, 1, 2, 3));
}
INLINE void v_stream(double *p, vf x)
{
    _mm256_stream_pd(p, x);
}
/* By parts: see vector_avx2.h. */
INLINE vf v_load_part(const double *p, vm m)
{
    if (_mm256_movemask_pd(_mm256_castsi256_pd(m)) == 0xF)
        return _mm256_loadu_pd(p);
    return _mm256_maskload_pd(p, m);
}
INLINE void v_store_part(double *p, vm m, vf x)
{
    int lanes = _mm256_movemask_pd(_mm256_castsi256_pd(m));
    __m128d rest = _mm256_castpd256_pd128(x);

    if (lanes == 0xF) {
        _mm256_storeu_pd(p, x);
        return;
    }
    if (lanes & 2) {
        _mm_storeu_pd(p, rest);
        rest = _mm256_extractf128_pd(x, 1);
        p += 2;
        lanes >>= 2;
    }
    if (lanes & 1)
        _mm_store_sd(p, rest);
}
INLINE vf v_set(double x)
{
    return _mm256_set1_pd(x);
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_pd(a, b, c);
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return _mm256_fnmadd_pd(a, b, c);
}
INLINE vf v_rest(vf a, vf b, vf product)
{
    return _mm256_fmsub_pd(a, b, product);
}
INLINE vf v_sqrt(vf x)
{
    return _mm256_sqrt_pd(x);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm256_min_pd(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm256_max_pd(a, b);
}
INLINE vf v_nearest(vf x)
{
    return _mm256_round_pd(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
INLINE vm v_less(vf a, vf b)
{
    return _mm256_castpd_si256(_mm256_cmp_pd(a, b, _CMP_LT_OQ));
}
INLINE vm v_not_greater(vf a, vf b)
{
    return _mm256_castpd_si256(_mm256_cmp_pd(a, b, _CMP_LE_OQ));
}
INLINE vm v_is_nan(vf x)
{
    return _mm256_castpd_si256(_mm256_cmp_pd(x, x, _CMP_UNORD_Q));
}
INLINE vm v_either(vm a, vm b)
{
    return _mm256_or_si256(a, b);
}
INLINE vm v_unusual(vf x)
{
    return v_either(v_less(x, v_set(DBL_MIN)), v_is_nan(x - x));
}
INLINE bool v_any(vm m)
{
    return _mm256_movemask_pd(_mm256_castsi256_pd(m)) != 0;
}
INLINE vf v_choose(vm m, vf yes, vf no)
{
    return _mm256_blendv_pd(no, yes, _mm256_castsi256_pd(m));
}
INLINE double v_sum(vf x)
{
    __m128d y = _mm_add_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_add_sd(y, _mm_unpackhi_pd(y, y)));
}
INLINE double v_most(vf x)
{
    __m128d y = _mm_max_pd(_mm256_castpd256_pd128(x), _mm256_extractf128_pd(x, 1));
    return _mm_cvtsd_f64(_mm_max_sd(y, _mm_unpackhi_pd(y, y)));
}

#include "vector_f64.h"

#endif
