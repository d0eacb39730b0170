/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What takes numbers apart: exponents, significands, fractions, powers of two; and the estimate of
 * an inverse (see immintrin.h). Lane by lane, with the special cases of the manual's tables.
 */
#ifndef SHERD_EMULATED_PARTS_H
#define SHERD_EMULATED_PARTS_H

EMULATED uint32_t emulated_bits_of(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    return bits;
}

EMULATED float emulated_of_bits(uint32_t bits)
{
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* 2^n, -1022 <= n <= 1023. */
EMULATED double emulated_power(int n)
{
    uint64_t bits = (uint64_t)(n + 1023) << 52;
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A signalling NaN becomes quiet; others as they are. */
EMULATED float emulated_quiet(float nan)
{
    return emulated_of_bits(emulated_bits_of(nan) | 0x400000u);
}

/* The exponent of a number that is neither 0 nor infinite nor NaN; subnormal ones have theirs. */
EMULATED int emulated_exponent(float x)
{
    double wide = fabs((double)x); /* normal in f64 */
    uint64_t bits;

    memcpy(&bits, &wide, sizeof bits);
    return (int)(bits >> 52) - 1023;
}

EMULATED_LANES __m512 emulated_getexp_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    for (int i = 0; i < 16; i++) {
        float y = a.f32[i];
        a.f32[i] = isnan(y)   ? emulated_quiet(y)
                   : isinf(y) ? INFINITY
                   : y == 0   ? -INFINITY
                              : (float)emulated_exponent(y);
    }
    return a.f;
}
#define _mm512_getexp_ps emulated_getexp_ps

/* The significand in [0.75, 1.5), with the sign of the number. 0 and infinity have 1. */
EMULATED_LANES __m512 emulated_getmant_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    for (int i = 0; i < 16; i++) {
        float y = a.f32[i];
        if (isnan(y)) {
            a.f32[i] = emulated_quiet(y);
            continue;
        }
        double m = 1;
        if (y != 0 && !isinf(y))
            m = fabs((double)y) * emulated_power(-emulated_exponent(y));
        a.f32[i] = copysignf((float)(m >= 1.5 ? m / 2 : m), y);
    }
    return a.f;
}
#define _mm512_getmant_ps(x, interval, sign)                                                      \
    (emulated_fault((int)(interval) != _MM_MANT_NORM_p75_1p5 || (int)(sign) != _MM_MANT_SIGN_src, \
                    "vgetmantps: an interval or sign that is not emulated"),                      \
     emulated_getmant_ps(x))

/* x - floor(x), rounded down. Of an infinite number +0; 0 is -0, as rounding down says. */
EMULATED_LANES __m512 emulated_reduce_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    for (int i = 0; i < 16; i++) {
        float y = a.f32[i], floor = floorf(y), rest = y - floor;
        if ((double)rest + floor > y) /* exact: it was rounded up */
            rest = nextafterf(rest, 0);
        rest = isinf(y) ? 0 : rest == 0 ? -0.0f : rest;
        a.f32[i] = isnan(y) ? emulated_quiet(y) : rest;
    }
    return a.f;
}
#define _mm512_reduce_ps(x, how)                                          \
    (emulated_fault((how) != (_MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC), \
                    "vreduceps: a rounding that is not emulated"),        \
     emulated_reduce_ps(x))

/* x 2^floor(y), rounded once. f64 holds all that becomes a f32 that is neither 0 nor infinite. */
EMULATED float emulated_scale(float x, float y)
{
    enum { FAR = 300 };

    if (isnan(y) && !isnan(x))
        return emulated_quiet(y);
    if (isnan(x) && !isinf(y))
        return emulated_quiet(x);
    if (isnan(x)) /* a quiet one is forgotten */
        return emulated_bits_of(x) & 0x400000u ? y > 0 ? INFINITY : 0 : emulated_quiet(x);
    if (isinf(y) && (y > 0 ? x == 0 : isinf(x)))
        return emulated_of_bits(0xFFC00000u);
    return (float)((double)x * emulated_power((int)floorf(fminf(fmaxf(y, -FAR), FAR))));
}

EMULATED_LANES __m512 emulated_scalef_ps(__m512 x, __m512 y)
{
    emulated_bits a = {.f = x}, b = {.f = y};

    for (int i = 0; i < 16; i++)
        a.f32[i] = emulated_scale(a.f32[i], b.f32[i]);
    return a.f;
}
#define _mm512_scalef_ps emulated_scalef_ps
#define _mm512_maskz_scalef_ps(m, x, y) \
    emulated_mask_blend_ps(m, emulated_set1_ps(0), emulated_scalef_ps(x, y))

/* Of f64, whose y is whole. */
EMULATED_LANES __m512d emulated_scalef_pd(__m512d x, __m512d y)
{
    enum { FAR = 3000 };
    emulated_bits a = {.d = x}, b = {.d = y};

    for (int i = 0; i < 8; i++) {
        double by = fmin(fmax(b.f64[i], -FAR), FAR);
        emulated_fault(by != rint(by), "vscalefpd: a fraction is not emulated");
        a.f64[i] = isnan(b.f64[i]) ? b.f64[i] : ldexp(a.f64[i], (int)by);
    }
    return a.d;
}
#define _mm512_scalef_pd emulated_scalef_pd

/*
 * 1 / x. The manual allows a relative error below 2^-14, except for powers of two, which are exact;
 * here it is nine tenths of that, up or down. CPUs are better as a rule, and differ from each other.
 */
EMULATED float emulated_estimate(float x)
{
    uint32_t bits = emulated_bits_of(x), fraction = bits & 0x7FFFFFu;
    double off = 0.9 / 16384;

    if (isnan(x))
        return emulated_quiet(x);
    if (fabsf(x) <= 0x1p-128f)
        return copysignf(INFINITY, x);
    if (fraction == 0 || isinf(x) || fabsf(x) < 0x1p-126f)
        return 1 / x;
    return (float)((1 + ((bits ^ bits >> 9) & 0x800u ? off : -off)) / (double)x);
}

EMULATED_LANES __m512 emulated_rcp14_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    for (int i = 0; i < 16; i++)
        a.f32[i] = emulated_estimate(a.f32[i]);
    return a.f;
}
#define _mm512_rcp14_ps emulated_rcp14_ps
#define _mm512_maskz_rcp14_ps(m, x) \
    emulated_mask_blend_ps(m, emulated_set1_ps(0), emulated_rcp14_ps(x))

/* The same of 1 / sqrt(x); exact of powers of 4. */
EMULATED float emulated_estimate_root(float x)
{
    uint32_t bits = emulated_bits_of(x);
    double off = 0.9 / 16384;

    if (isnan(x) || x < 0)
        return isnan(x) ? emulated_quiet(x) : -NAN;
    if (x == 0)
        return copysignf(INFINITY, x);
    if ((bits & 0xFFFFFFu) == 0x800000u || isinf(x))
        return (float)(1 / sqrt((double)x));
    return (float)((1 + ((bits ^ bits >> 9) & 0x800u ? off : -off)) / sqrt((double)x));
}

EMULATED_LANES __m512 emulated_rsqrt14_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    for (int i = 0; i < 16; i++)
        a.f32[i] = emulated_estimate_root(a.f32[i]);
    return a.f;
}
#define _mm512_rsqrt14_ps emulated_rsqrt14_ps

/* Of f64, likewise; up or down by its upper half. */
EMULATED_LANES __m512d emulated_rsqrt14_pd(__m512d x)
{
    emulated_bits a = {.d = x};

    for (int i = 0; i < 8; i++) {
        double off = a.u64[i] >> 44 & 1 ? 0.9 / 16384 : -0.9 / 16384, root = sqrt(a.f64[i]);
        bool exact = (a.u64[i] & 0x1FFFFFFFFFFFFF) == 0x10000000000000 || isinf(root);
        a.f64[i] = (exact || root == 0 ? 1 : 1 + off) / root;
    }
    return a.d;
}
#define _mm512_rsqrt14_pd emulated_rsqrt14_pd

#endif
