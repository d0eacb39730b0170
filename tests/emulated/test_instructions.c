/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The emulated instructions (immintrin.h), lane by lane, against what they must give, written in
 * another way: so that a fault of theirs is not taken for a fault of kernels. Built for real
 * instructions too, and run where the CPU has them (CMakeLists.txt).
 */
#define CHECK_PURE
#include "check.h"
#include "emulated/instructions.h"

static void compare(const char *what, vector got, const float *want, int i)
{
    if (!CHECK(same(got.f32[i], want[i])))
        printf("%s: %a, must be %a\n", what, (double)got.f32[i], (double)want[i]);
}

static void arithmetic_is_that_of_c(void)
{
    uint64_t dice = 1;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), b = numbers(&dice), c = numbers(&dice);
        for (int i = 0; i < LANES; i++) {
            float x = a.f32[i], y = b.f32[i], z = c.f32[i];
            const float want[] = {x + y,         x - y,          x * y,    x / y,
                                  fmaf(x, y, z), fmaf(-x, y, z), sqrtf(x), x < y ? x : y,
                                  x > y ? x : y, nearbyintf(x)};
            const __m512 got[] = {
                _mm512_add_ps(a.f, b.f),
                _mm512_sub_ps(a.f, b.f),
                _mm512_mul_ps(a.f, b.f),
                _mm512_div_ps(a.f, b.f),
                _mm512_fmadd_ps(a.f, b.f, c.f),
                _mm512_fnmadd_ps(a.f, b.f, c.f),
                _mm512_sqrt_ps(a.f),
                _mm512_min_ps(a.f, b.f),
                _mm512_max_ps(a.f, b.f),
                _mm512_roundscale_ps(a.f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
            for (int k = 0; k < LEN(want); k++)
                CHECK(same(((vector){.f = got[k]}).f32[i], want[k]));
        }
    }
}

static bool same_f64(double a, double b)
{
    return isnan(a) ? isnan(b) : memcmp(&a, &b, sizeof a) == 0;
}

/* Numbers of f64 that f32 has not, too: some subnormal, some huge. */
static vector numbers_f64(uint64_t *dice)
{
    vector x;

    for (int i = 0; i < 8; i++)
        x.f64[i] = (double)number(dice) * (roll(dice, 2) ? 1 : ldexp(1.1, 1800 - roll(dice, 3600)));
    return x;
}

static void arithmetic_of_f64_is_that_of_c(void)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC };
    uint64_t dice = 11;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers_f64(&dice), b = numbers_f64(&dice), c = numbers_f64(&dice);
        __mmask8 less = _mm512_cmp_pd_mask(a.d, b.d, _CMP_LT_OQ);
        __mmask8 most = _mm512_cmp_pd_mask(a.d, b.d, _CMP_LE_OQ);
        __mmask8 none = _mm512_cmp_pd_mask(a.d, b.d, _CMP_UNORD_Q), m = (__mmask8)roll(&dice, 256);
        vector chosen = {.d = _mm512_mask_blend_pd(m, a.d, b.d)};
        const int scale = (int)roll(&dice, 4000) - 2000;
        for (int i = 0; i < 8; i++) {
            double x = a.f64[i], y = b.f64[i], z = c.f64[i];
            const double want[] = {fma(x, y, z),  fma(-x, y, z), fma(x, y, -z), sqrt(x),
                                   x < y ? x : y, x > y ? x : y, nearbyint(x),  ldexp(x, scale)};
            const __m512d got[] = {_mm512_fmadd_pd(a.d, b.d, c.d),
                                   _mm512_fnmadd_pd(a.d, b.d, c.d),
                                   _mm512_fmsub_pd(a.d, b.d, c.d),
                                   _mm512_sqrt_pd(a.d),
                                   _mm512_min_pd(a.d, b.d),
                                   _mm512_max_pd(a.d, b.d),
                                   _mm512_roundscale_pd(a.d, NEAREST),
                                   _mm512_scalef_pd(a.d, _mm512_set1_pd(scale))};
            double inverse = ((vector){.d = _mm512_rsqrt14_pd(a.d)}).f64[i];
            if (isnormal(x) && x > 0)
                CHECK(fabs(inverse * sqrt(x) - 1) < 0x1p-14);
            for (int k = 0; k < LEN(want); k++)
                CHECK(same_f64(((vector){.d = got[k]}).f64[i], want[k]));
            CHECK_EQ(less >> i & 1, x < y);
            CHECK_EQ(most >> i & 1, x <= y);
            CHECK_EQ(none >> i & 1, isnan(x) || isnan(y));
            CHECK(same_f64(chosen.f64[i], m >> i & 1 ? y : x));
        }
    }
}

static void masks_choose_lanes(void)
{
    uint64_t dice = 2;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), b = numbers(&dice), w = words(&dice), v = words(&dice);
        uint32_t m = (uint32_t)roll(&dice, 1 << 16) | (uint32_t)roll(&dice, 1 << 16) << 16;
        uint32_t less = 0, most = 0, none = 0, zero = 0;
        for (int i = 0; i < LANES; i++) {
            less |= (uint32_t)(a.f32[i] < b.f32[i]) << i;
            most |= (uint32_t)(a.f32[i] <= b.f32[i]) << i;
            none |= (uint32_t)(isnan(a.f32[i]) || isnan(b.f32[i])) << i;
        }
        for (int i = 0; i < 32; i++)
            zero |= (uint32_t)((w.u16[i] & v.u16[i] & 0x9021) == 0) << i;
        CHECK_EQ(_mm512_cmp_ps_mask(a.f, b.f, _CMP_LT_OQ), less);
        CHECK_EQ(_mm512_cmp_ps_mask(a.f, b.f, _CMP_LE_OQ), most);
        CHECK_EQ(_mm512_cmp_ps_mask(a.f, b.f, _CMP_UNORD_Q), none);
        v.i = _mm512_and_si512(v.i, _mm512_set1_epi16((short)0x9021));
        CHECK_EQ(_mm512_testn_epi16_mask(w.i, v.i), zero);
        vector f = {.f = _mm512_mask_blend_ps((__mmask16)m, a.f, b.f)};
        vector i32 = {.i = _mm512_mask_blend_epi32((__mmask16)m, w.i, v.i)};
        vector i16 = {.i = _mm512_mask_blend_epi16(m, w.i, v.i)};
        vector either = {.i = _mm512_mask_or_epi32(a.i, (__mmask16)m, w.i, v.i)};
        vector sum = {.f = _mm512_mask_add_ps(a.f, (__mmask16)m, b.f, b.f)};
        vector product = {.f = _mm512_maskz_fmadd_ps((__mmask16)m, a.f, b.f, a.f)};
        for (int i = 0; i < 32; i++)
            CHECK_EQ(i16.u16[i], m >> i & 1 ? v.u16[i] : w.u16[i]);
        for (int i = 0; i < LANES; i++) {
            bool yes = m >> i & 1;
            CHECK_EQ(f.u32[i], yes ? b.u32[i] : a.u32[i]);
            CHECK_EQ(i32.u32[i], yes ? v.u32[i] : w.u32[i]);
            CHECK_EQ(either.u32[i], yes ? w.u32[i] | v.u32[i] : a.u32[i]);
            CHECK(same(sum.f32[i], yes ? b.f32[i] + b.f32[i] : a.f32[i]));
            CHECK(same(product.f32[i], yes ? fmaf(a.f32[i], b.f32[i], a.f32[i]) : 0));
        }
    }
}

/* x 2^floor(y) by the C library, except for what the manual lists. */
static float scaled(float x, float y)
{
    if (isnan(x) && isinf(y)) /* numbers here are quiet */
        return y > 0 ? INFINITY : 0;
    if (isnan(x) || isnan(y))
        return NAN;
    if (isinf(y))
        return y > 0 ? x * INFINITY : isinf(x) ? NAN : copysignf(0, x);
    return ldexpf(x, (int)fmaxf(-1000, fminf(1000, floorf(y))));
}

static void numbers_are_taken_apart(void)
{
    enum { DOWN = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC };
    uint64_t dice = 3;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), b = numbers(&dice);
        vector power = {.f = _mm512_scalef_ps(a.f, b.f)}, e = {.f = _mm512_getexp_ps(a.f)};
        vector some = {.f = _mm512_maskz_scalef_ps(0x5A5A, a.f, b.f)};
        vector m = {.f = _mm512_getmant_ps(a.f, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src)};
        vector rest = {.f = _mm512_reduce_ps(a.f, DOWN)};
        float want[LANES];
        for (int i = 0; i < LANES; i++) {
            volatile float x = a.f32[i];
            if (!isnan(x) || (a.u32[i] & 0x400000)) {
                want[i] = scaled(x, b.f32[i]);
                compare("scalef", power, want, i);
                want[i] = 0x5A5A >> i & 1 ? want[i] : 0;
                compare("maskz_scalef", some, want, i);
            }
            want[i] = logbf(x);
            compare("getexp", e, want, i);
            int n = 0;
            want[i] = x == 0 || isinf(x) ? copysignf(1, x) : 2 * frexpf(x, &n);
            want[i] = fabsf(want[i]) >= 1.5f ? want[i] / 2 : want[i];
            compare("getmant", m, want, i);
            volatile float whole = floorf(x);
            fesetround(FE_DOWNWARD);
            want[i] = isinf(x) ? 0 : x - whole;
            fesetround(FE_TONEAREST);
            compare("reduce", rest, want, i);
        }
    }
}

static void inverses_are_estimates(void)
{
    uint64_t dice = 4;
    double worst = 0;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), y = {.f = _mm512_rcp14_ps(a.f)};
        vector some = {.f = _mm512_maskz_rcp14_ps(0x33CC, a.f)};
        for (int i = 0; i < LANES; i++) {
            double x = (double)a.f32[i];
            int n;
            CHECK(same(some.f32[i], 0x33CC >> i & 1 ? y.f32[i] : 0));
            if (isnan(x) || isinf(x) || fabs(x) <= 0x1p-128) {
                CHECK(same(y.f32[i], isnan(x)   ? NAN
                                     : isinf(x) ? copysignf(0, a.f32[i])
                                                : copysignf(INFINITY, a.f32[i])));
            } else if (fabs(frexp(x, &n)) == 0.5) {
                CHECK(same(y.f32[i], (float)(1 / x)));
            } else if (fabs(x) < 0x1p126) {
                double off = fabs((double)y.f32[i] * x - 1);
                worst = off > worst ? off : worst;
            }
        }
    }
    CHECK(worst < 1.0 / 16384);
}

static void inverse_roots_are_estimates(void)
{
    uint64_t dice = 5;
    double worst = 0;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), y = {.f = _mm512_rsqrt14_ps(a.f)};
        for (int i = 0; i < LANES; i++) {
            double x = (double)a.f32[i];
            if (isnan(x) || x < 0)
                CHECK(isnan(y.f32[i]));
            else if (x == 0 || isinf(x))
                CHECK(same(y.f32[i], isinf(x) ? 0 : copysignf(INFINITY, a.f32[i])));
            else if (x >= 0x1p-126)
                worst = fmax(worst, fabs((double)y.f32[i] * sqrt(x) - 1));
        }
    }
    CHECK(worst > 0 && worst < 1.0 / 16384);
}

static void conversions_round_to_nearest(void)
{
    uint64_t dice = 5;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), w = words(&dice), d;
        for (int i = 0; i < 8; i++)
            d.f64[i] = (double)a.f32[i] * 1.000000123;
        vector wide = {.d = _mm512_cvtps_pd(_mm512_castps512_ps256(a.f))};
        vector back = {.f = _mm512_insertf32x8(a.f, _mm512_cvtpd_ps(d.d), 1)};
        vector whole = {.f = _mm512_cvtepi32_ps(w.i)};
        vector longer = {
            .i = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)&w))};
        vector bytes = {
            .i = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)&w))};
        vector plain = {
            .i = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)&w))};
        vector halves = {
            .i = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)&w))};
        uint16_t narrow[16];
        _mm256_storeu_si256((__m256i *)(void *)narrow, _mm512_cvtepi32_epi16(w.i));
        vector f = {.f = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)&w))};
        uint16_t h[16];
        _mm256_storeu_si256((__m256i *)(void *)h,
                            _mm512_cvtps_ph(f.f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        for (int i = 0; i < LANES; i++) {
            if (i < 8)
                CHECK(isnan(a.f32[i]) || wide.f64[i] == (double)a.f32[i]);
            CHECK(same(back.f32[i], i < 8 ? a.f32[i] : (float)d.f64[i - 8]));
            CHECK(whole.f32[i] == (float)(int32_t)w.u32[i]);
            CHECK_EQ(longer.u32[i], w.u16[i]);
            CHECK_EQ((int32_t)bytes.u32[i], (int8_t)w.u8[i]);
            CHECK_EQ(plain.u32[i], w.u8[i]);
            CHECK_EQ(halves.u16[i], w.u8[i]);
            CHECK_EQ(halves.u16[16 + i], w.u8[16 + i]);
            CHECK_EQ(narrow[i], w.u32[i] & 0xFFFF);
            CHECK(isnan(f.f32[i]) || h[i] == w.u16[i]);
            CHECK(isnan(f.f32[i]) || (w.u16[i] >> 10 & 31) == 0 || (w.u16[i] >> 10 & 31) == 31 ||
                  fabsf(f.f32[i]) ==
                      ldexpf((float)(1024 + (w.u16[i] & 1023)), (w.u16[i] >> 10 & 31) - 25));
        }
    }
}

/* Every lane holds its own number: where each went is what it says. */
static void words_change_their_lanes(void)
{
    vector a, b;
    uint64_t dice = 6;

    for (int i = 0; i < 32; i++) {
        a.u16[i] = (uint16_t)i;
        b.u16[i] = (uint16_t)(32 + i);
    }
    vector low = {.i = _mm512_unpacklo_epi16(a.i, b.i)},
           high = {.i = _mm512_unpackhi_epi16(a.i, b.i)};
    vector low32 = {.i = _mm512_unpacklo_epi32(a.i, b.i)},
           high32 = {.i = _mm512_unpackhi_epi32(a.i, b.i)};
    vector lowf = {.f = _mm512_unpacklo_ps(a.f, b.f)}, highf = {.f = _mm512_unpackhi_ps(a.f, b.f)};
    vector low64 = {.i = _mm512_unpacklo_epi64(a.i, b.i)},
           high64 = {.i = _mm512_unpackhi_epi64(a.i, b.i)};
    vector shuffled = {.f = _mm512_shuffle_ps(a.f, b.f, 0x44)};
    vector other = {.f = _mm512_shuffle_ps(a.f, b.f, 0xEE)};
    vector odd = {.f = _mm512_shuffle_ps(a.f, b.f, 0xDD)};
    vector quarters = {.i = _mm512_shuffle_i32x4(a.i, b.i, 0x88)};
    vector others = {.i = _mm512_shuffle_i32x4(a.i, b.i, 0xDD)};
    for (int i = 0; i < 32; i++) {
        int part = i / 8 * 8, at = i % 8;
        CHECK_EQ(low.u16[i], part + at / 2 + (at % 2 ? 32 : 0));
        CHECK_EQ(high.u16[i], part + 4 + at / 2 + (at % 2 ? 32 : 0));
        CHECK_EQ(low32.u16[i], part + at / 4 * 2 + at % 2 + (at / 2 % 2 ? 32 : 0));
        CHECK_EQ(high32.u16[i], part + 4 + at / 4 * 2 + at % 2 + (at / 2 % 2 ? 32 : 0));
        CHECK_EQ(lowf.u16[i], low32.u16[i]);
        CHECK_EQ(highf.u16[i], high32.u16[i]);
        CHECK_EQ(low64.u16[i], part + at % 4 + (at >= 4 ? 32 : 0));
        CHECK_EQ(high64.u16[i], part + 4 + at % 4 + (at >= 4 ? 32 : 0));
        CHECK_EQ(shuffled.u16[i], low64.u16[i]);
        CHECK_EQ(other.u16[i], high64.u16[i]);
        CHECK_EQ(odd.u16[i], part + (at / 2 % 2 ? 6 : 2) + at % 2 + (at >= 4 ? 32 : 0));
        CHECK_EQ(quarters.u16[i], i / 8 % 2 * 16 + at + (i >= 16 ? 32 : 0));
        CHECK_EQ(others.u16[i], 8 + i / 8 % 2 * 16 + at + (i >= 16 ? 32 : 0));
    }
    for (int round = 0; round < ROUNDS / 10; round++) {
        vector index = words(&dice);
        vector one = {.i = _mm512_permutexvar_epi16(index.i, b.i)};
        vector two = {.i = _mm512_permutex2var_epi16(a.i, index.i, b.i)};
        vector wide = {.i = _mm512_permutex2var_epi64(a.i, index.i, b.i)};
        vector table = {.f = _mm512_permutexvar_ps(index.i, b.f)};
        vector both = {.f = _mm512_permutex2var_ps(a.f, index.i, b.f)};
        for (int i = 0; i < LANES; i++) {
            CHECK_EQ(table.u32[i], b.u32[index.u32[i] % 16]);
            CHECK_EQ(both.u32[i], (index.u32[i] & 16 ? b : a).u32[index.u32[i] % 16]);
        }
        for (int i = 0; i < 32; i++) {
            CHECK_EQ(one.u16[i], 32 + index.u16[i] % 32);
            CHECK_EQ(two.u16[i], index.u16[i] % 64);
            CHECK_EQ(wide.u16[i], index.u64[i / 4] % 16 * 4 + (uint64_t)i % 4);
        }
    }
    vector spread = {.i = _mm512_mask_broadcast_i32x4(
                         b.i, 0x0F30, _mm_loadu_si128((const __m128i *)(const void *)&a))};
    for (int i = 0; i < LANES; i++)
        CHECK_EQ(spread.u32[i], 0x0F30 >> i & 1 ? a.u32[i % 4] : b.u32[i]);
    vector down = {.i = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)};
    vector up = {.i = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7)};
    vector lanes = {.i = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
    vector floats = {.f = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
    for (int i = 0; i < LANES; i++) {
        CHECK_EQ(lanes.u32[i], i);
        CHECK(floats.f32[i] == (float)i);
        CHECK_EQ(down.u32[i], i);
        CHECK_EQ(up.u64[i / 2], i / 2);
    }
}

static void integers_are_those_of_c(void)
{
    uint64_t dice = 7;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = words(&dice), b = words(&dice);
        vector sum = {.i = _mm512_add_epi32(a.i, b.i)}, both = {.i = _mm512_and_si512(a.i, b.i)};
        vector one = {.i = _mm512_xor_si512(a.i, b.i)}, low = {.i = _mm512_mullo_epi32(a.i, b.i)};
        vector product = {.i = _mm512_mul_epu32(a.i, b.i)},
               left = {.i = _mm512_slli_epi32(a.i, 23)};
        vector any = {.i = _mm512_or_si512(a.i, b.i)}, most = {.i = _mm512_max_epu32(a.i, b.i)};
        uint32_t largest = 0;
        vector right = {.i = _mm512_srli_epi32(a.i, 8)}, wide = {.i = _mm512_srli_epi64(a.i, 32)};
        for (int i = 0; i < LANES; i++) {
            CHECK_EQ(sum.u32[i], (uint32_t)(a.u32[i] + b.u32[i]));
            CHECK_EQ(any.u32[i], a.u32[i] | b.u32[i]);
            CHECK_EQ(most.u32[i], a.u32[i] > b.u32[i] ? a.u32[i] : b.u32[i]);
            largest = a.u32[i] > largest ? a.u32[i] : largest;
            CHECK_EQ(both.u32[i], a.u32[i] & b.u32[i]);
            CHECK_EQ(one.u32[i], a.u32[i] ^ b.u32[i]);
            CHECK_EQ(low.u32[i], (uint32_t)(a.u32[i] * b.u32[i]));
            CHECK_EQ(left.u32[i], (uint32_t)(a.u32[i] << 23));
            CHECK_EQ(right.u32[i], a.u32[i] >> 8);
            CHECK(product.u64[i / 2] == (uint64_t)a.u32[i / 2 * 2] * b.u32[i / 2 * 2]);
            CHECK(wide.u64[i / 2] == a.u64[i / 2] >> 32);
        }
        CHECK_EQ(_mm512_reduce_max_epu32(a.i), largest);
    }
}

static void sums_over_lanes_have_all_of_them(void)
{
    vector x, d;

    for (int i = 0; i < LANES; i++)
        x.f32[i] = (float)(1 << i);
    for (int i = 0; i < 8; i++)
        d.f64[i] = 1 << i;
    CHECK(_mm512_reduce_add_ps(x.f) == 65535);
    CHECK(_mm512_reduce_add_pd(d.d) == 255);
    for (int i = 0; i < LANES; i++) {
        x.f32[i] = 1e6f;
        CHECK(_mm512_reduce_max_ps(x.f) == 1e6f);
        x.f32[i] = -1;
    }
    for (int i = 0; i < 8; i++) {
        vector high = {.d = _mm512_set1_pd(-1)};
        high.f64[i] = 1e60;
        CHECK(_mm512_reduce_max_pd(high.d) == 1e60);
    }
    d.d = _mm512_fmadd_pd(_mm512_add_pd(d.d, d.d), _mm512_set1_pd(3), _mm512_mul_pd(d.d, d.d));
    for (int i = 0; i < 8; i++)
        CHECK(d.f64[i] == 6 * (1 << i) + (1 << 2 * i));
}

/* A page, and behind it one that nobody may touch. */
static char *guarded(size_t *page)
{
    *page = (size_t)sysconf(_SC_PAGESIZE);
    char *p = mmap(NULL, 2 * *page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED || mprotect(p + *page, *page, PROT_NONE) ? NULL : p;
}

static void what_no_mask_chooses_is_not_touched(void)
{
    size_t page;
    char *p = guarded(&page);

    if (!CHECK(p))
        return;
    for (int n = 0; n <= 32; n++) {
        uint32_t m = n == 32 ? ~0u : (1u << n) - 1;
        vector x, y;
        memset(&x, 0x41 + n, sizeof x);
        memset(p + page - 128, 0x11, 128);
        char *at = p + page - 2 * n;
        _mm512_mask_storeu_epi16(at, m, x.i);
        CHECK(at[-1] == 0x11 && (n == 0 || at[0] == 0x41 + n));
        y.i = _mm512_maskz_loadu_epi16(m, at);
        for (int i = 0; i < 32; i++)
            CHECK_EQ(y.u16[i], i < n ? x.u16[i] : 0);
        if (n > 16)
            continue;
        memset(p + page - 128, 0x11, 128);
        at = p + page - 4 * n;
        _mm512_mask_storeu_ps((float *)(void *)at, (__mmask16)m, x.f);
        CHECK(at[-1] == 0x11 && (n == 0 || at[0] == 0x41 + n));
        y.f = _mm512_maskz_loadu_ps((__mmask16)m, (const float *)(void *)at);
        for (int i = 0; i < 16; i++)
            CHECK_EQ(y.u32[i], i < n ? x.u32[i] : 0);
        if (n <= 8) {
            memset(p + page - 128, 0x11, 128);
            at = p + page - 8 * n;
            _mm512_mask_storeu_pd(at, (__mmask8)m, x.d);
            CHECK(at[-1] == 0x11 && (n == 0 || at[0] == 0x41 + n));
            y.d = _mm512_maskz_loadu_pd((__mmask8)m, at);
            for (int i = 0; i < 8; i++)
                CHECK(y.u64[i] == (i < n ? x.u64[i] : 0));
        }
        _mm512_storeu_si512(p + page - 64, x.i);
        y.i = _mm512_loadu_si512(p + page - 64);
        CHECK(memcmp(&x, &y, sizeof x) == 0);
    }
    munmap(p, 2 * page);
}

static void streams_want_an_alignment(void)
{
    static _Alignas(64) float to[48];
    int status = 0;

    _mm512_stream_ps(to, _mm512_set1_ps(3));
    CHECK(to[0] == 3 && to[15] == 3 && to[16] == 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        close(2);
        _mm512_stream_ps(to + 1, _mm512_set1_ps(3));
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static const check_test tests[] = {
    {TEST(arithmetic_is_that_of_c)},
    {TEST(arithmetic_of_f64_is_that_of_c)},
    {TEST(masks_choose_lanes)},
    {TEST(numbers_are_taken_apart)},
    {TEST(inverses_are_estimates)},
    {TEST(inverse_roots_are_estimates)},
    {TEST(conversions_round_to_nearest)},
    {TEST(words_change_their_lanes)},
    {TEST(integers_are_those_of_c)},
    {TEST(sums_over_lanes_have_all_of_them)},
    {TEST(what_no_mask_chooses_is_not_touched)},
    {TEST(streams_want_an_alignment)},
};
CHECK_MAIN(tests)
