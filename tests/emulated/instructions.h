/* SPDX-License-Identifier: Apache-2.0 */
/* What both tests of emulated instructions share: vectors lane by lane, and numbers of many kinds. */
#ifndef SHERD_TESTS_INSTRUCTIONS_H
#define SHERD_TESTS_INSTRUCTIONS_H

#include <fenv.h>
#include <float.h>
#include <immintrin.h>
#include <math.h>

enum { LANES = 16, ROUNDS = 3000 };

typedef union vector {
    __m512 f;
    __m512d d;
    __m512i i;
    __m512bh b;
    float f32[16];
    double f64[8];
    uint8_t u8[64];
    uint16_t u16[32];
    uint32_t u32[16];
    uint64_t u64[8];
} vector;

static const float special[] = {
    0.0f,           -0.0f,      1,          -1,        0.5f,       -0.5f,       0.75f,
    1.5f,           1.4999999f, 2,          3,         -2.5f,      126.5f,      -126.25f,
    127.9f,         -149.5f,    200,        -300,      8388609,    1e30f,       FLT_MAX,
    -FLT_MAX,       FLT_MIN,    -FLT_MIN,   0x1p-149f, -0x1p-149f, 0x1.8p-127f, 0x1p-128f,
    0x1.0002p-128f, 0x1p126f,   0x1.8p127f, -1e-30f,   INFINITY,   -INFINITY,   NAN};

/* A number of many kinds, by turns. */
static inline float number(uint64_t *dice)
{
    uint32_t bits = (uint32_t)roll(dice, 1 << 16) << 16 | (uint32_t)roll(dice, 1 << 16);
    float x;

    if (roll(dice, 3) == 0)
        return special[roll(dice, LEN(special))];
    if (roll(dice, 2) == 0)
        return (float)((double)(int32_t)bits / (1 << 24));
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline vector numbers(uint64_t *dice)
{
    vector x;

    for (int i = 0; i < LANES; i++)
        x.f32[i] = number(dice);
    return x;
}

static inline vector words(uint64_t *dice)
{
    vector x;

    for (int i = 0; i < 64; i++)
        x.u8[i] = (uint8_t)roll(dice, 256);
    return x;
}

/* The same bits, or both NaN. */
static inline bool same(float a, float b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

#endif
