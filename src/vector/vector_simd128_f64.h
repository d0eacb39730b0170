/* SPDX-License-Identifier: Apache-2.0 */
/* Vectors of 2 f64, for every machine that has 128 bits: the words of vector_avx512.h, which
 * explains them, and of vector_f64.h. Included by the file of this instruction set only. */
#ifndef SHERD__VECTOR_VECTOR_SIMD128_F64_H
#define SHERD__VECTOR_VECTOR_SIMD128_F64_H

#include <float.h>
#include <stdint.h>
#if defined(__aarch64__)
#include <arm_neon.h>
#else
#include <emmintrin.h>
#endif

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

#if defined(__aarch64__)
enum { W = 2, TILE_ROWS = 12 };
enum { FUSED = true };
#else
enum { W = 2, TILE_ROWS = 6 };
enum { FUSED = false };
#endif

typedef double vf __attribute__((vector_size(16)));
typedef uint64_t vi __attribute__((vector_size(16)));

/* All bits of a chosen lane are set. Loads and stores of a part go by the number of its lanes,
 * which only v_part tells. */
typedef struct vm {
    vi lanes;
    int64_t n;
} vm;

INLINE void v_leave(void)
{
}

INLINE vm v_part(int64_t n)
{
    return (vm){(vi){n > 0 ? ~0ull : 0, n > 1 ? ~0ull : 0}, n};
}
INLINE vf v_load_part(const double *p, vm m)
{
    if (m.n >= W)
        return (vf){p[0], p[1]};
    return m.n == 1 ? (vf){p[0], 0} : (vf){0, 0};
}
INLINE void v_store_part(double *p, vm m, vf x)
{
    if (m.n > 0)
        p[0] = x[0];
    if (m.n > 1)
        p[1] = x[1];
}
INLINE vf v_set(double x)
{
    return (vf){x, x};
}
/* The smallest normal number. */
INLINE vf v_least(void)
{
    return v_set(DBL_MIN);
}

#include "simd128_lanes.h"

INLINE bool v_any(vm m)
{
    return (m.lanes[0] | m.lanes[1]) != 0;
}
INLINE vf v_choose(vm m, vf yes, vf no)
{
    return (vf)(((vi)yes & m.lanes) | ((vi)no & ~m.lanes));
}
INLINE double v_sum(vf x)
{
    return x[0] + x[1];
}
INLINE double v_most(vf x)
{
    return x[0] > x[1] ? x[0] : x[1];
}

#if defined(__aarch64__)
INLINE void v_stream(double *p, vf x)
{
    p[0] = x[0]; /* such a store has no name in C */
    p[1] = x[1];
}
INLINE vf v_fma(vf a, vf b, vf c)
{
    return (vf)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    return (vf)vfmsq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
}
INLINE vf v_rest(vf a, vf b, vf product)
{
    return v_fma(a, b, -product);
}
INLINE vf v_sqrt(vf x)
{
    return (vf)vsqrtq_f64((float64x2_t)x);
}
INLINE vf v_nearest(vf x)
{
    return (vf)vrndnq_f64((float64x2_t)x);
}
INLINE vf v_min(vf a, vf b)
{
    return v_choose(v_less(a, b), a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return v_choose(v_less(b, a), a, b);
}
#else
INLINE void v_stream(double *p, vf x)
{
    _mm_stream_pd(p, x);
}
/* Rounded twice. */
INLINE vf v_fma(vf a, vf b, vf c)
{
    vf product = a * b;
    return product + c;
}
INLINE vf v_fnma(vf a, vf b, vf c)
{
    vf product = a * b;
    return c - product;
}
/* By halves of 26 and 27 bits, whose products are exact but for the last bit of the least one. */
INLINE vf v_rest(vf a, vf b, vf product)
{
    const vi upper = {~0ull << 27, ~0ull << 27};
    vf ah = (vf)((vi)a & upper), bh = (vf)((vi)b & upper), al = a - ah, bl = b - bh;
    vf most = ah * bh, second = ah * bl, third = al * bh, least = al * bl;
    return (most - product) + second + third + least;
}
INLINE vf v_sqrt(vf x)
{
    return _mm_sqrt_pd(x);
}
INLINE vf v_min(vf a, vf b)
{
    return _mm_min_pd(a, b);
}
INLINE vf v_max(vf a, vf b)
{
    return _mm_max_pd(a, b);
}
/* Beside 2^52 there are no fractions; what is as large has none, and NaN stays. */
INLINE vf v_nearest(vf x)
{
    const vi sign = {1ull << 63, 1ull << 63};
    vf all = v_set(0x1p52), beside = (vf)((vi)all | ((vi)x & sign));
    vf whole = (vf)((vi)(x + beside - beside) | ((vi)x & sign));
    return v_choose(v_less((vf)((vi)x & ~sign), all), whole, x);
}
#endif

#include "vector_f64.h"

#endif
