/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU of bf16, in both forms, and its gradient where AVX512_BF16 is fast (machine.c,
 * sherd__has_fast_pairs). All that they take is arithmetic, so there is only as much as the
 * rounding to bf16 does not hide, and one instruction rounds two vectors. That instruction rounds
 * subnormal numbers to 0, so if any result is 0, both vectors are rounded again without it. A
 * result is off by 0.52 ulp of bf16 at most, of which 0.5 are the rounding's. 26 % less time than
 * by f32's arithmetic, the gradient 20 %.
 */
#include "fast.h"

#ifdef SHERD_HAVE_AVX512_BF16

/* Of what these files share not all is used here. */
#pragma GCC diagnostic ignored "-Wunused-function"

#include "words.h"
#include "kernels/half.h"

typedef float real;
typedef uint32_t word;
enum { MANTISSA = 23 };

#include "fast_line.inc"
#include "fast_words.inc"
#include "fast_math.inc"

/* v_exp2_within, to 3e-6: a polynomial of degree 4 (minimax of the relative error, 1 at 0). */
INLINE vf power_of(vf x)
{
    const vf whole = v_set(0x1.8p23f + 126);
    vf n = v_add(x, whole), r = v_sub(x, v_sub(n, whole));
    vf p = v_fma(v_set(1.916570641e-2f), r, v_set(1.118128506e-1f));
    p = v_fma(p, r, v_set(4.804819722e-1f));
    p = v_fma(p, r, v_set(1.386248387f));
    p = v_fma(p, r, v_set(2));
    return v_mul(p, v_power_of_bits(n));
}

/* v_gelu and v_gelu_slope, with inverses as they are estimated: to 2^-14. */
INLINE vf gelu_of(vf x)
{
    vf power = power_of(v_max(v_set(-126), v_gelu_power(x, v_mul(x, x))));
    vm gone = v_less(x, v_set(-9));
    return v_mul(x, _mm512_maskz_rcp14_ps((vm)~gone, v_add(v_set(1), power)));
}

INLINE vf slope_of(vf x)
{
    x = v_min(v_set(9.6f), v_max(v_set(-9.6f), x));
    vf square = v_mul(x, x);
    vf power = power_of(v_gelu_power(x, square));
    vf s = _mm512_rcp14_ps(v_add(v_set(1), power));
    vf inner = v_fma(square, v_set(3 * gelu_cubic * gelu_twice_slope), v_set(gelu_twice_slope));
    return v_fma(v_mul(v_mul(x, inner), v_mul(power, s)), s, s);
}

/* v_bell_of, to 1.2e-5. */
INLINE belled bell_of(vf x)
{
    const vf whole = v_set(0x1.8p23f);
    vf power = v_mul(v_mul(x, x), v_set(-0.7213475204f));
    vf n = v_sub(v_add(power, whole), whole), r = v_sub(power, n);
    vf p = v_fma(v_set(9.582853105e-3f), r, v_set(5.59064253e-2f));
    p = v_fma(p, r, v_set(2.402409861e-1f));
    p = v_fma(p, r, v_set(6.931241935e-1f));
    return (belled){v_fma(p, r, v_set(1)), n};
}

/* v_tail_by_bell, p to 2.6e-5 (minimax). */
INLINE vf tail_by_bell(vf x)
{
    vf t = _mm512_rcp14_ps(v_fma(x, v_set(0.3535533906f), v_set(1)));
    vf p = v_fma(v_set(-0.02895886679f), t, v_set(-0.004846412367f));
    p = v_fma(p, t, v_set(0.1520750945f));
    p = v_fma(p, t, v_set(0.09432951418f));
    p = v_fma(p, t, v_set(0.1467418923f));
    p = v_fma(p, t, v_set(0.1406457644f));
    return v_mul(p, t);
}

/* v_gelu_erf and v_gelu_erf_slope. */
INLINE vf gelu_erf_of(vf x)
{
    vf size = v_min(v_set(14.75f), v_size(x));
    belled e = bell_of(size);
    vf tail = v_times_power(v_mul(e.part, tail_by_bell(size)), e.n);
    return v_mul(x, v_choose(v_less(x, v_zero()), tail, v_sub(v_set(1), tail)));
}

INLINE vf slope_erf_of(vf x)
{
    vf size = v_min(v_set(14.75f), v_size(x));
    belled e = bell_of(size);
    vf part = v_mul(e.part, v_fnma(size, v_set(0.3989422804f), tail_by_bell(size)));
    part = v_times_power(part, e.n);
    part = v_choose(v_less(x, v_zero()), part, v_sub(v_set(1), part));
    return v_fma(x, v_zero(), part);
}

/* As v_store_two_bf16: 32 numbers, those for even places and those for odd ones. */
INLINE void store_two(uint16_t *p, const vf *x)
{
    const vi places = _mm512_set_epi32(0x1F000F, 0x1E000E, 0x1D000D, 0x1C000C, 0x1B000B, 0x1A000A,
                                       0x190009, 0x180008, 0x170007, 0x160006, 0x150005, 0x140004,
                                       0x130003, 0x120002, 0x110001, 0x100000);
    vi y = (vi)_mm512_cvtne2ps_pbh(x[1], x[0]);

    if (__builtin_expect(_mm512_testn_epi16_mask(y, _mm512_set1_epi16(0x7FFF)) != 0, 0))
        v_store_two_bf16(p, x);
    else
        store_words(p, _mm512_permutexvar_epi16(places, y));
}

/* n is a multiple of 32, here and below. */
INLINE void gelu(bool erf, int64_t n, uint16_t *y, const uint16_t *x)
{
    const bool far = n > FAR;

    for (int64_t i = 0; i < n; i += WORDS) {
        vf v[2];
        if (far) {
            reads_soon(x + i, VECTOR);
            writes_soon(y + i, VECTOR);
        }
        v_load_two_bf16(x + i, v);
        v[0] = erf ? gelu_erf_of(v[0]) : gelu_of(v[0]);
        v[1] = erf ? gelu_erf_of(v[1]) : gelu_of(v[1]);
        store_two(y + i, v);
    }
}

INLINE void gelu_grad(bool erf, int64_t n, uint16_t *dx, const uint16_t *x, const uint16_t *dy)
{
    const bool far = n > FAR;

    for (int64_t i = 0; i < n; i += WORDS) {
        vf v[2], g[2];
        if (far) {
            reads_soon(x + i, VECTOR);
            reads_soon(dy + i, VECTOR);
            writes_soon(dx + i, VECTOR);
        }
        v_load_two_bf16(x + i, v);
        v_load_two_bf16(dy + i, g);
        v[0] = v_mul(g[0], erf ? slope_erf_of(v[0]) : slope_of(v[0]));
        v[1] = v_mul(g[1], erf ? slope_erf_of(v[1]) : slope_of(v[1]));
        store_two(dx + i, v);
    }
}

/* So many numbers are done here. Other functions, and up to 32 numbers behind these, are not. */
static int64_t whole(sherd__unary_kind kind, int64_t n)
{
    return kind == SHERD__GELU || kind == SHERD__GELU_ERF ? n - n % WORDS : 0;
}

static void unary(sherd__unary_kind kind, int64_t n, void *dst, const void *src,
                  const double *parameter)
{
    int64_t here = whole(kind, n);

    if (kind == SHERD__GELU)
        gelu(false, here, dst, src);
    else
        gelu(true, here, dst, src);
    if (here < n)
        sherd__bf16_by_f32.unary(kind, n - here, (uint16_t *)dst + here,
                                 (const uint16_t *)src + here, parameter);
}

static void unary_grad(sherd__unary_kind kind, int64_t n, void *dx, const void *at, const void *dy,
                       const double *parameter)
{
    int64_t here = whole(kind, n);

    if (kind == SHERD__GELU)
        gelu_grad(false, here, dx, at, dy);
    else
        gelu_grad(true, here, dx, at, dy);
    if (here < n)
        sherd__bf16_by_f32.unary_grad(kind, n - here, (uint16_t *)dx + here,
                                      at ? (const uint16_t *)at + here : NULL,
                                      (const uint16_t *)dy + here, parameter);
}

void sherd__install_elements_bf16(sherd__kernels *bf16)
{
    bf16->unary = unary;
    bf16->unary_grad = unary_grad;
}

#endif
