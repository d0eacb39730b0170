/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic of f32 and f64 (see immintrin.h). What AVX2 has is done by it, half by half: sums,
 * products, minima and roundings are its own.
 */
#ifndef SHERD_EMULATED_FLOATS_H
#define SHERD_EMULATED_FLOATS_H

/* An instruction of two operands that AVX2 has for half as many lanes. */
#define EMULATED_HALVES(name, type, in, half)            \
    EMULATED type emulated_##name(type x, type y)        \
    {                                                    \
        emulated_bits a = {.in = x}, b = {.in = y};      \
        a.half[0] = _mm256_##name(a.half[0], b.half[0]); \
        a.half[1] = _mm256_##name(a.half[1], b.half[1]); \
        return a.in;                                     \
    }
EMULATED_HALVES(min_ps, __m512, f, half)
EMULATED_HALVES(max_ps, __m512, f, half)
EMULATED_HALVES(unpacklo_ps, __m512, f, half)
EMULATED_HALVES(unpackhi_ps, __m512, f, half)
EMULATED_HALVES(min_pd, __m512d, d, half_d)
EMULATED_HALVES(max_pd, __m512d, d, half_d)
#define _mm512_min_pd       emulated_min_pd
#define _mm512_max_pd       emulated_max_pd
#define _mm512_add_ps(x, y) ((__m512)((x) + (y)))
#define _mm512_sub_ps(x, y) ((__m512)((x) - (y)))
#define _mm512_mul_ps(x, y) ((__m512)((x) * (y)))
#define _mm512_div_ps(x, y) ((__m512)((x) / (y)))
#define _mm512_min_ps       emulated_min_ps
#define _mm512_max_ps       emulated_max_ps
#define _mm512_unpacklo_ps  emulated_unpacklo_ps
#define _mm512_unpackhi_ps  emulated_unpackhi_ps
#define _mm512_add_pd(x, y) ((__m512d)((x) + (y)))
#define _mm512_mul_pd(x, y) ((__m512d)((x) * (y)))

EMULATED __m512 emulated_fmadd_ps(__m512 x, __m512 y, __m512 z)
{
    emulated_bits a = {.f = x}, b = {.f = y}, c = {.f = z};

    c.half[0] = _mm256_fmadd_ps(a.half[0], b.half[0], c.half[0]);
    c.half[1] = _mm256_fmadd_ps(a.half[1], b.half[1], c.half[1]);
    return c.f;
}
#define _mm512_fmadd_ps emulated_fmadd_ps

EMULATED __m512 emulated_fnmadd_ps(__m512 x, __m512 y, __m512 z)
{
    emulated_bits a = {.f = x}, b = {.f = y}, c = {.f = z};

    c.half[0] = _mm256_fnmadd_ps(a.half[0], b.half[0], c.half[0]);
    c.half[1] = _mm256_fnmadd_ps(a.half[1], b.half[1], c.half[1]);
    return c.f;
}
#define _mm512_fnmadd_ps emulated_fnmadd_ps

EMULATED __m512 emulated_fmsub_ps(__m512 x, __m512 y, __m512 z)
{
    emulated_bits a = {.f = x}, b = {.f = y}, c = {.f = z};

    c.half[0] = _mm256_fmsub_ps(a.half[0], b.half[0], c.half[0]);
    c.half[1] = _mm256_fmsub_ps(a.half[1], b.half[1], c.half[1]);
    return c.f;
}
#define _mm512_fmsub_ps emulated_fmsub_ps

EMULATED __m512d emulated_fmadd_pd(__m512d x, __m512d y, __m512d z)
{
    emulated_bits a = {.d = x}, b = {.d = y}, c = {.d = z};

    c.half_d[0] = _mm256_fmadd_pd(a.half_d[0], b.half_d[0], c.half_d[0]);
    c.half_d[1] = _mm256_fmadd_pd(a.half_d[1], b.half_d[1], c.half_d[1]);
    return c.d;
}
#define _mm512_fmadd_pd emulated_fmadd_pd

EMULATED __m512d emulated_fnmadd_pd(__m512d x, __m512d y, __m512d z)
{
    emulated_bits a = {.d = x}, b = {.d = y}, c = {.d = z};

    c.half_d[0] = _mm256_fnmadd_pd(a.half_d[0], b.half_d[0], c.half_d[0]);
    c.half_d[1] = _mm256_fnmadd_pd(a.half_d[1], b.half_d[1], c.half_d[1]);
    return c.d;
}
#define _mm512_fnmadd_pd emulated_fnmadd_pd

EMULATED __m512d emulated_fmsub_pd(__m512d x, __m512d y, __m512d z)
{
    emulated_bits a = {.d = x}, b = {.d = y}, c = {.d = z};

    c.half_d[0] = _mm256_fmsub_pd(a.half_d[0], b.half_d[0], c.half_d[0]);
    c.half_d[1] = _mm256_fmsub_pd(a.half_d[1], b.half_d[1], c.half_d[1]);
    return c.d;
}
#define _mm512_fmsub_pd emulated_fmsub_pd

EMULATED __m512d emulated_sqrt_pd(__m512d x)
{
    emulated_bits a = {.d = x};

    a.half_d[0] = _mm256_sqrt_pd(a.half_d[0]);
    a.half_d[1] = _mm256_sqrt_pd(a.half_d[1]);
    return a.d;
}
#define _mm512_sqrt_pd emulated_sqrt_pd

EMULATED __m512 emulated_sqrt_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    a.half[0] = _mm256_sqrt_ps(a.half[0]);
    a.half[1] = _mm256_sqrt_ps(a.half[1]);
    return a.f;
}
#define _mm512_sqrt_ps emulated_sqrt_ps

/* ---- masks ---- */

EMULATED __mmask16 emulated_cmp_ps_mask(__m512 x, __m512 y, int how)
{
    emulated_bits a = {.f = x}, b = {.f = y};
    unsigned mask = 0;

    emulated_fault(how != _CMP_LT_OQ && how != _CMP_LE_OQ && how != _CMP_UNORD_Q,
                   "vcmpps: a comparison that is not emulated");
    for (int i = 0; i < 2; i++) {
        __m256 l = a.half[i], r = b.half[i];
        __m256 is = how == _CMP_LT_OQ   ? _mm256_cmp_ps(l, r, _CMP_LT_OQ)
                    : how == _CMP_LE_OQ ? _mm256_cmp_ps(l, r, _CMP_LE_OQ)
                                        : _mm256_cmp_ps(l, r, _CMP_UNORD_Q);
        mask |= (unsigned)_mm256_movemask_ps(is) << 8 * i;
    }
    return (__mmask16)mask;
}
#define _mm512_cmp_ps_mask emulated_cmp_ps_mask

EMULATED __mmask8 emulated_cmp_pd_mask(__m512d x, __m512d y, int how)
{
    emulated_bits a = {.d = x}, b = {.d = y};
    unsigned mask = 0;

    emulated_fault(how != _CMP_LT_OQ && how != _CMP_LE_OQ && how != _CMP_UNORD_Q,
                   "vcmppd: a comparison that is not emulated");
    for (int i = 0; i < 2; i++) {
        __m256d l = a.half_d[i], r = b.half_d[i];
        __m256d is = how == _CMP_LT_OQ   ? _mm256_cmp_pd(l, r, _CMP_LT_OQ)
                     : how == _CMP_LE_OQ ? _mm256_cmp_pd(l, r, _CMP_LE_OQ)
                                         : _mm256_cmp_pd(l, r, _CMP_UNORD_Q);
        mask |= (unsigned)_mm256_movemask_pd(is) << 4 * i;
    }
    return (__mmask8)mask;
}
#define _mm512_cmp_pd_mask emulated_cmp_pd_mask

EMULATED_LANES __m512d emulated_mask_blend_pd(__mmask8 m, __m512d x, __m512d y)
{
    const __m256i bit = _mm256_setr_epi64x(1, 2, 4, 8);
    emulated_bits a = {.d = x}, b = {.d = y};

    for (int i = 0; i < 2; i++) {
        __m256i chosen = _mm256_and_si256(_mm256_set1_epi64x(m >> 4 * i), bit);
        a.half_d[i] = _mm256_blendv_pd(a.half_d[i], b.half_d[i],
                                       _mm256_castsi256_pd(_mm256_cmpeq_epi64(chosen, bit)));
    }
    return a.d;
}
#define _mm512_mask_blend_pd emulated_mask_blend_pd

/* m ? y : x, lane by lane. */
EMULATED_LANES __m512 emulated_mask_blend_ps(__mmask16 m, __m512 x, __m512 y)
{
    const __m256i bit = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    emulated_bits a = {.f = x}, b = {.f = y};

    for (int i = 0; i < 2; i++) {
        __m256i chosen = _mm256_and_si256(_mm256_set1_epi32(m >> 8 * i), bit);
        a.half[i] = _mm256_blendv_ps(a.half[i], b.half[i],
                                     _mm256_castsi256_ps(_mm256_cmpeq_epi32(chosen, bit)));
    }
    return a.f;
}
#define _mm512_mask_blend_ps           emulated_mask_blend_ps
#define _mm512_mask_add_ps(z, m, x, y) emulated_mask_blend_ps(m, z, _mm512_add_ps(x, y))
#define _mm512_maskz_fmadd_ps(m, x, y, z) \
    emulated_mask_blend_ps(m, emulated_set1_ps(0), emulated_fmadd_ps(x, y, z))

/* ---- conversions ---- */

EMULATED __m512d emulated_cvtps_pd(__m256 x)
{
    emulated_bits a;

    a.half_d[0] = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    a.half_d[1] = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    return a.d;
}
#define _mm512_cvtps_pd emulated_cvtps_pd

EMULATED __m256 emulated_cvtpd_ps(__m512d x)
{
    emulated_bits a = {.d = x};

    return _mm256_set_m128(_mm256_cvtpd_ps(a.half_d[1]), _mm256_cvtpd_ps(a.half_d[0]));
}
#define _mm512_cvtpd_ps emulated_cvtpd_ps

EMULATED __m512 emulated_cvtph_ps(__m256i x)
{
    emulated_bits a;

    a.half[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(x));
    a.half[1] = _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1));
    return a.f;
}
#define _mm512_cvtph_ps emulated_cvtph_ps

EMULATED __m256i emulated_cvtps_ph(__m512 x)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    emulated_bits a = {.f = x};

    return _mm256_set_m128i(_mm256_cvtps_ph(a.half[1], NEAREST),
                            _mm256_cvtps_ph(a.half[0], NEAREST));
}
#define _mm512_cvtps_ph(x, how)                                                                  \
    (emulated_fault((how) != (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), "vcvtps2ph: how"), \
     emulated_cvtps_ph(x))

EMULATED __m512 emulated_cvtepi32_ps(__m512i x)
{
    emulated_bits a = {.i = x};

    a.half[0] = _mm256_cvtepi32_ps(a.half_i[0]);
    a.half[1] = _mm256_cvtepi32_ps(a.half_i[1]);
    return a.f;
}
#define _mm512_cvtepi32_ps emulated_cvtepi32_ps

EMULATED __m512i emulated_cvtepi8_epi32(__m128i x)
{
    emulated_bits a;

    a.half_i[0] = _mm256_cvtepi8_epi32(x);
    a.half_i[1] = _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8));
    return a.i;
}
#define _mm512_cvtepi8_epi32 emulated_cvtepi8_epi32

EMULATED __m512i emulated_cvtepu8_epi32(__m128i x)
{
    emulated_bits a;

    a.half_i[0] = _mm256_cvtepu8_epi32(x);
    a.half_i[1] = _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8));
    return a.i;
}
#define _mm512_cvtepu8_epi32 emulated_cvtepu8_epi32

EMULATED __m512i emulated_cvtepu8_epi16(__m256i x)
{
    emulated_bits a;

    a.half_i[0] = _mm256_cvtepu8_epi16(_mm256_castsi256_si128(x));
    a.half_i[1] = _mm256_cvtepu8_epi16(_mm256_extracti128_si256(x, 1));
    return a.i;
}
#define _mm512_cvtepu8_epi16 emulated_cvtepu8_epi16

EMULATED_LANES __m512 emulated_permutexvar_ps(__m512i index, __m512 x)
{
    emulated_bits a = {.f = x}, at = {.i = index}, to;

    for (int i = 0; i < 16; i++)
        to.i32[i] = a.i32[at.i32[i] & 15];
    return to.f;
}
#define _mm512_permutexvar_ps emulated_permutexvar_ps

EMULATED_LANES __m512 emulated_permutex2var_ps(__m512 x, __m512i index, __m512 y)
{
    emulated_bits a = {.f = x}, at = {.i = index}, b = {.f = y}, to;

    for (int i = 0; i < 16; i++)
        to.i32[i] = (at.i32[i] & 16 ? b.i32 : a.i32)[at.i32[i] & 15];
    return to.f;
}
#define _mm512_permutex2var_ps emulated_permutex2var_ps

EMULATED __m512 emulated_roundscale_ps(__m512 x, int how)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    emulated_bits a = {.f = x};

    emulated_fault(how != NEAREST, "vrndscaleps: a rounding that is not emulated");
    a.half[0] = _mm256_round_ps(a.half[0], NEAREST);
    a.half[1] = _mm256_round_ps(a.half[1], NEAREST);
    return a.f;
}
#define _mm512_roundscale_ps emulated_roundscale_ps

EMULATED __m512d emulated_roundscale_pd(__m512d x, int how)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    emulated_bits a = {.d = x};

    emulated_fault(how != NEAREST, "vrndscalepd: a rounding that is not emulated");
    a.half_d[0] = _mm256_round_pd(a.half_d[0], NEAREST);
    a.half_d[1] = _mm256_round_pd(a.half_d[1], NEAREST);
    return a.d;
}
#define _mm512_roundscale_pd emulated_roundscale_pd

/* ---- across lanes ---- */

#define _mm512_extractf32x8_ps(x, i) ((emulated_bits){.f = (x)}.half[i])

EMULATED __m512 emulated_insertf32x8(__m512 x, __m256 y, int i)
{
    emulated_bits a = {.f = x};

    a.half[i] = y;
    return a.f;
}
#define _mm512_insertf32x8 emulated_insertf32x8

/* Of each 128 bits of the result: two words of x, and two of y. */
EMULATED_LANES __m512 emulated_shuffle_ps(__m512 x, __m512 y, int how)
{
    emulated_bits a = {.f = x}, b = {.f = y}, to;

    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 4; j++)
            to.f32[i + j] = (j < 2 ? a.f32 : b.f32)[i + (how >> 2 * j & 3)];
    return to.f;
}
#define _mm512_shuffle_ps emulated_shuffle_ps

/* No instructions: the order of additions is the compiler's, halves onto each other (gcc's). */
EMULATED_LANES float emulated_reduce_add_ps(__m512 x)
{
    emulated_bits a = {.f = x};

    for (int n = 8; n; n /= 2)
        for (int i = 0; i < n; i++)
            a.f32[i] += a.f32[i + n];
    return a.f32[0];
}
#define _mm512_reduce_add_ps emulated_reduce_add_ps

EMULATED_LANES double emulated_reduce_add_pd(__m512d x)
{
    emulated_bits a = {.d = x};

    for (int n = 4; n; n /= 2)
        for (int i = 0; i < n; i++)
            a.f64[i] += a.f64[i + n];
    return a.f64[0];
}
#define _mm512_reduce_add_pd emulated_reduce_add_pd

EMULATED_LANES float emulated_reduce_max_ps(__m512 x)
{
    emulated_bits a = {.f = x};
    __m256 y = _mm256_max_ps(a.half[1], a.half[0]);
    __m128 z = _mm_max_ps(_mm256_extractf128_ps(y, 1), _mm256_castps256_ps128(y));

    z = _mm_max_ps(z, _mm_shuffle_ps(z, z, 0x4E));
    z = _mm_max_ps(z, _mm_shuffle_ps(z, z, 0xB1));
    return _mm_cvtss_f32(z);
}
#define _mm512_reduce_max_ps emulated_reduce_max_ps

EMULATED_LANES double emulated_reduce_max_pd(__m512d x)
{
    emulated_bits a = {.d = x};
    __m256d y = _mm256_max_pd(a.half_d[1], a.half_d[0]);
    __m128d z = _mm_max_pd(_mm256_extractf128_pd(y, 1), _mm256_castpd256_pd128(y));

    return _mm_cvtsd_f64(_mm_max_sd(_mm_unpackhi_pd(z, z), z));
}
#define _mm512_reduce_max_pd emulated_reduce_max_pd

#endif
