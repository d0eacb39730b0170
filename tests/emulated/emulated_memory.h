/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads, stores, constants and casts (see immintrin.h). A lane that a mask does not choose is not
 * touched in memory.
 */
#ifndef SHERD_EMULATED_MEMORY_H
#define SHERD_EMULATED_MEMORY_H

/* What is undefined. */
EMULATED emulated_bits emulated_garbage(void)
{
    emulated_bits x;

    for (int i = 0; i < 16; i++)
        x.u32[i] = 0xFFA5A5A5u + (uint32_t)i; /* a NaN */
    return x;
}

EMULATED emulated_bits emulated_load(const void *p)
{
    emulated_bits x;

    memcpy(&x, p, sizeof x);
    return x;
}

EMULATED void emulated_store(void *p, emulated_bits x)
{
    memcpy(p, &x, sizeof x);
}

#define _mm512_loadu_ps(p)        (emulated_load(p).f)
#define _mm512_loadu_pd(p)        (emulated_load(p).d)
#define _mm512_loadu_si512(p)     (emulated_load(p).i)
#define _mm512_storeu_ps(p, x)    emulated_store(p, (emulated_bits){.f = (x)})
#define _mm512_storeu_pd(p, x)    emulated_store(p, (emulated_bits){.d = (x)})
#define _mm512_storeu_si512(p, x) emulated_store(p, (emulated_bits){.i = (x)})

EMULATED void emulated_stream_ps(float *p, __m512 x)
{
    emulated_fault((uintptr_t)p % 64 != 0, "vmovntps: the address is no multiple of 64");
    emulated_store(p, (emulated_bits){.f = x});
}
#define _mm512_stream_ps       emulated_stream_ps
#define _mm512_stream_pd(p, x) emulated_stream_ps((float *)(void *)(p), (emulated_bits){.d = (x)}.f)

EMULATED_LANES __m512 emulated_maskz_loadu_ps(__mmask16 m, const void *p)
{
    emulated_bits x = {.f32 = {0}};

    for (int i = 0; i < 16; i++)
        if (m >> i & 1)
            memcpy(&x.f32[i], (const char *)p + sizeof(float) * (size_t)i, sizeof(float));
    return x.f;
}
#define _mm512_maskz_loadu_ps emulated_maskz_loadu_ps

EMULATED_LANES void emulated_mask_storeu_ps(void *p, __mmask16 m, __m512 from)
{
    emulated_bits x = {.f = from};

    for (int i = 0; i < 16; i++)
        if (m >> i & 1)
            memcpy((char *)p + sizeof(float) * (size_t)i, &x.f32[i], sizeof(float));
}
#define _mm512_mask_storeu_ps emulated_mask_storeu_ps

EMULATED_LANES __m512d emulated_maskz_loadu_pd(__mmask8 m, const void *p)
{
    emulated_bits x = {.f64 = {0}};

    for (int i = 0; i < 8; i++)
        if (m >> i & 1)
            memcpy(&x.f64[i], (const char *)p + sizeof(double) * (size_t)i, sizeof(double));
    return x.d;
}
#define _mm512_maskz_loadu_pd emulated_maskz_loadu_pd

EMULATED_LANES void emulated_mask_storeu_pd(void *p, __mmask8 m, __m512d from)
{
    emulated_bits x = {.d = from};

    for (int i = 0; i < 8; i++)
        if (m >> i & 1)
            memcpy((char *)p + sizeof(double) * (size_t)i, &x.f64[i], sizeof(double));
}
#define _mm512_mask_storeu_pd emulated_mask_storeu_pd

EMULATED_LANES __m512i emulated_maskz_loadu_epi16(__mmask32 m, const void *p)
{
    emulated_bits x = {.u16 = {0}};

    for (int i = 0; i < 32; i++)
        if (m >> i & 1)
            memcpy(&x.u16[i], (const char *)p + sizeof(uint16_t) * (size_t)i, sizeof(uint16_t));
    return x.i;
}
#define _mm512_maskz_loadu_epi16 emulated_maskz_loadu_epi16

EMULATED_LANES void emulated_mask_storeu_epi16(void *p, __mmask32 m, __m512i from)
{
    emulated_bits x = {.i = from};

    for (int i = 0; i < 32; i++)
        if (m >> i & 1)
            memcpy((char *)p + sizeof(uint16_t) * (size_t)i, &x.u16[i], sizeof(uint16_t));
}
#define _mm512_mask_storeu_epi16 emulated_mask_storeu_epi16

/* ---- constants ---- */

EMULATED __m512 emulated_set1_ps(float x)
{
    emulated_bits y;

    y.half[0] = y.half[1] = _mm256_set1_ps(x);
    return y.f;
}
#define _mm512_set1_ps      emulated_set1_ps
#define _mm512_setzero_ps() emulated_set1_ps(0)

EMULATED __m512d emulated_set1_pd(double x)
{
    emulated_bits y;

    y.half_d[0] = y.half_d[1] = _mm256_set1_pd(x);
    return y.d;
}
#define _mm512_set1_pd emulated_set1_pd

EMULATED __m512i emulated_set1_epi32(int x)
{
    emulated_bits y;

    y.half_i[0] = y.half_i[1] = _mm256_set1_epi32(x);
    return y.i;
}
#define _mm512_set1_epi32 emulated_set1_epi32

EMULATED __m512i emulated_set1_epi16(short x)
{
    emulated_bits y;

    y.half_i[0] = y.half_i[1] = _mm256_set1_epi16(x);
    return y.i;
}
#define _mm512_set1_epi16 emulated_set1_epi16

/* From the last lane to the first. */
#undef _mm512_set_epi32
#undef _mm512_setr_epi64
#undef _mm512_setr_epi32
#undef _mm512_setr_ps
#define _mm512_set_epi32(P, O, N, M, L, K, J, I, H, G, F, E, D, C, B, A) \
    ((emulated_bits){.i32 = {A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P}}.i)
#define _mm512_setr_epi32(A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P) \
    ((emulated_bits){.i32 = {A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P}}.i)
#define _mm512_setr_ps(A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P) \
    ((emulated_bits){.f32 = {A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P}}.f)
#define _mm512_setr_epi64(A, B, C, D, E, F, G, H) \
    ((emulated_bits){.u64 = {A, B, C, D, E, F, G, H}}.i)

/* ---- casts ---- */

#define _mm512_castps_si512(x)    ((emulated_bits){.f = (x)}.i)
#define _mm512_castsi512_ps(x)    ((emulated_bits){.i = (x)}.f)
#define _mm512_castps512_ps256(x) ((emulated_bits){.f = (x)}.half[0])

EMULATED __m512 emulated_castps256_ps512(__m256 x)
{
    emulated_bits y = emulated_garbage();

    y.half[0] = x;
    return y.f;
}
#define _mm512_castps256_ps512 emulated_castps256_ps512

EMULATED __m512i emulated_castsi128_si512(__m128i x)
{
    emulated_bits y = emulated_garbage();

    y.quarter_i[0] = x;
    return y.i;
}
#define _mm512_castsi128_si512 emulated_castsi128_si512

#endif
