/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of 4 f32, for every machine that has 128 bits: the same words as vector_avx512.h, which
 * explains them. In vectors of the compiler, which knows the machine's instructions; words that it
 * does not know are in a file of each machine. Included by the file of this instruction set only.
 */
#ifndef SHERD__VECTOR_VECTOR_SIMD128_H
#define SHERD__VECTOR_VECTOR_SIMD128_H

#include <float.h>
#include <stdint.h>
#include <string.h>

#define INLINE   static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))

/* With two vectors of b and a few numbers of a, the sums of a tile take 29 of the 32 registers of
 * arm64, or 15 of 16; rows whose maxima are looked for together, a part of a tile. */
#if defined(__aarch64__)
#define F32_TAKES F32_ALL
enum { W = 4, TILE_ROWS = 12, TOGETHER = 4 };
enum { FUSED = true };
#else
#define F32_TAKES F32_FEW
enum { W = 4, TILE_ROWS = 6, TOGETHER = 2 };
enum { FUSED = false };
#endif

typedef float vf __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));
typedef uint32_t vi __attribute__((vector_size(16)));
typedef int32_t v_signed __attribute__((vector_size(16))); /* what comparisons give */

/* All bits of a chosen lane are set. Loads and stores of a part go by the number of its lanes,
 * which only v_part tells. */
typedef struct vm {
    vi lanes;
    int64_t n;
} vm;

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

INLINE void v_leave(void)
{
}

INLINE vi v_int(uint32_t x)
{
    return (vi){x, x, x, x};
}
INLINE vm v_part(int64_t n)
{
    return (vm){(vi)((v_signed){0, 1, 2, 3} < (v_signed)v_int((uint32_t)(n < W ? n : W))), n};
}
INLINE vf v_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void v_store(float *p, vf x)
{
    memcpy(p, &x, sizeof x);
}

#include "vector_plain.h"

/* m: the first lanes, as v_part says. */
INLINE vf v_load_part(const float *p, vm m)
{
    vf x = v_zero();

    if (m.n >= W)
        return v_load(p);
    if (m.n & 2)
        memcpy(&x, p, 2 * sizeof *p);
    if (m.n == 3)
        x[2] = p[2];
    else if (m.n == 1)
        x[0] = p[0];
    return x;
}
INLINE void v_store_part(float *p, vm m, vf x)
{
    if (m.n >= W) {
        v_store(p, x);
        return;
    }
    if (m.n & 2)
        memcpy(p, &x, 2 * sizeof *p);
    if (m.n == 3)
        p[2] = x[2];
    else if (m.n == 1)
        p[0] = x[0];
}
INLINE vf v_set(float x)
{
    return (vf){x, x, x, x};
}
/* The smallest normal number. */
INLINE vf v_least(void)
{
    return v_set(FLT_MIN);
}

#if defined(__aarch64__)
#include "simd128_neon.h"
#else
#include "simd128_sse2.h"
#endif

/* 2^n as bits, for -126 <= n <= 127. */
INLINE vf v_power(v_signed n)
{
    return (vf)((n + 127) << 23);
}
/* In two halves, so that results below 2^-126 and above 2^127 come out right. */
INLINE vf v_times_power(vf x, vf n)
{
    v_signed whole = __builtin_convertvector(n, v_signed), half = whole >> 1;
    return v_mul(v_mul(x, v_power(half)), v_power(whole - half));
}
INLINE vf v_power_of_bits(vf x)
{
    return (vf)((vi)x << 23);
}
INLINE vf v_inverse(vf x)
{
    return v_div(v_set(1), x);
}
INLINE vf v_inverse_or_0(vf x, vm gone)
{
    return (vf)((vi)v_inverse(x) & ~gone.lanes);
}

#include "simd128_lanes.h"

INLINE vf v_choose(vm m, vf yes, vf no)
{
    return (vf)v_choose_bits(m.lanes, (vi)yes, (vi)no);
}
INLINE float v_most(vf x)
{
    vf y = v_max(x, SHUFFLE(x, x, 2, 3, 0, 1));
    return v_max(y, SHUFFLE(y, y, 1, 0, 3, 2))[0];
}
INLINE void v_sum_rows(const vf x[TOGETHER], float to[TOGETHER])
{
    for (int i = 0; i < TOGETHER; i++)
        to[i] = v_sum(x[i]);
}
INLINE void v_most_rows(const vf x[TOGETHER], float to[TOGETHER])
{
    for (int i = 0; i < TOGETHER; i++)
        to[i] = v_most(x[i]);
}

INLINE vd v_wide_load(const double *p)
{
    vd x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void v_wide_store(double *p, vd x)
{
    memcpy(p, &x, sizeof x);
}
INLINE vd v_wide_set(double x)
{
    return (vd){x, x};
}
INLINE vd v_wide_add(vd a, vd b)
{
    return a + b;
}
INLINE vd v_wide_mul(vd a, vd b)
{
    return a * b;
}
INLINE double v_wide_sum(vd x)
{
    return x[0] + x[1];
}

INLINE vi v_int_load(const uint32_t *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}
INLINE void v_int_store(uint32_t *p, vi x)
{
    memcpy(p, &x, sizeof x);
}
INLINE vi v_int_add(vi a, vi b)
{
    return a + b;
}
INLINE vi v_int_xor(vi a, vi b)
{
    return a ^ b;
}
INLINE vf v_upper24(vi x)
{
    return __builtin_convertvector((v_signed)(x >> 8), vf);
}
INLINE void v_turn4(vi x[4])
{
    vi a = SHUFFLE(x[0], x[1], 0, 4, 1, 5), b = SHUFFLE(x[0], x[1], 2, 6, 3, 7);
    vi c = SHUFFLE(x[2], x[3], 0, 4, 1, 5), d = SHUFFLE(x[2], x[3], 2, 6, 3, 7);
    x[0] = SHUFFLE(a, c, 0, 1, 4, 5);
    x[1] = SHUFFLE(a, c, 2, 3, 6, 7);
    x[2] = SHUFFLE(b, d, 0, 1, 4, 5);
    x[3] = SHUFFLE(b, d, 2, 3, 6, 7);
}

/* Four floats of p; others have more vectors' worth, `step` apart. */
INLINE vi v_load_lanes(const float *p, int64_t step)
{
    (void)step;
    return (vi)v_load(p);
}
INLINE vf v_as_floats(vi x)
{
    return (vf)x;
}

#include "few_halves.h"

INLINE vf v_load_bf16(const uint16_t *p)
{
    return (vf)v_load_upper4(p);
}
INLINE void v_load_two_bf16(const uint16_t *p, vf *y)
{
    vi x;
    memcpy(&x, p, sizeof x);
    y[0] = (vf)(x << 16);
    y[1] = (vf)(x & v_int(0xFFFF0000u));
}
/* In the upper half; NaN becomes quiet. */
INLINE vi v_round_bf16(vf x)
{
    vi bits = (vi)x, odd = (bits >> 16) & v_int(1);
    return v_choose_bits((vi)(x != x), bits | v_int(0x400000), bits + (odd + v_int(0x7FFF)));
}
INLINE void v_store_bf16(uint16_t *p, vf x)
{
    v_store_upper4(p, v_round_bf16(x));
}
INLINE void v_store_two_bf16(uint16_t *p, const vf *x)
{
    vi y = (v_round_bf16(x[0]) >> 16) | (v_round_bf16(x[1]) & v_int(0xFFFF0000u));
    memcpy(p, &y, sizeof y);
}
INLINE void v_store_row_bf16(uint16_t *p, const vf *x)
{
    v_store_upper(p, v_round_bf16(x[0]), v_round_bf16(x[1]));
}
INLINE void v_load_two_f16(const uint16_t *p, vf *y)
{
    y[0] = v_load_f16(p);
    y[1] = v_load_f16(p + W);
}
INLINE void v_store_two_f16(uint16_t *p, const vf *x)
{
    v_store_f16(p, x[0]);
    v_store_f16(p + W, x[1]);
}

#endif
