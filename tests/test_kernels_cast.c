/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions: every 16-bit number there is, the borders between neighbours where rounding turns,
 * the vector versions against the plain one bit for bit, and casts between all pairs of dtypes with
 * the values that do not fit.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"
#include "kernels/cast.h"
#include "kernels/half.h"
#include "vector/choose.h"

enum { ALL = 1 << 16, MANY = 1 << 20 };

typedef struct format {
    const char *name;
    sherd_dtype dtype;
    int exponent_bits, fraction_bits;
    float (*widen)(uint16_t h);
    uint16_t (*narrow)(float x);
    uint16_t (*narrow_double)(double x);
} format;

static const format formats[] = {
    {"bf16", SHERD_BF16, 8, 7, sherd__from_bf16, sherd__to_bf16, sherd__double_to_bf16},
    {"f16", SHERD_F16, 5, 10, sherd__from_f16, sherd__to_f16, sherd__double_to_f16},
};

/* What the bits mean, by the definition of the format. */
static double meaning(const format *f, uint16_t h)
{
    int top = (1 << f->exponent_bits) - 1, bias = top / 2, ones = 1 << f->fraction_bits;
    int exponent = h >> f->fraction_bits & top, fraction = h & (ones - 1);
    double size;

    if (exponent == top)
        size = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        size = ldexp(fraction, 1 - bias - f->fraction_bits);
    else
        size = ldexp(ones + fraction, exponent - bias - f->fraction_bits);
    return h >> 15 ? -size : size;
}

static uint16_t infinity_of(const format *f)
{
    return (uint16_t)(((1 << f->exponent_bits) - 1) << f->fraction_bits);
}

static bool is_nan(const format *f, uint16_t h)
{
    return (h & 0x7FFF) > infinity_of(f);
}

static void every_half_means_what_its_bits_say(void)
{
    for (int k = 0; k < LEN(formats); k++) {
        const format *f = &formats[k];
        int wrong = 0;
        for (int h = 0; h < ALL; h++) {
            float x = f->widen((uint16_t)h);
            double expected = meaning(f, (uint16_t)h);
            if (is_nan(f, (uint16_t)h))
                wrong += !isnan(x) || !is_nan(f, f->narrow(x)) || (signbit(x) == 0) == h >> 15;
            else
                wrong += (double)x != expected || (signbit(x) == 0) == h >> 15 ||
                         f->narrow(x) != h || f->narrow_double(expected) != h;
        }
        CHECK_EQ(wrong, 0);
    }
}

/* Between neighbours the nearer one, in the middle the even one; beyond the last one infinity
 * begins half a step off. */
static void between_neighbours_the_nearer_one(void)
{
    for (int k = 0; k < LEN(formats); k++) {
        const format *f = &formats[k];
        int wrong = 0;
        for (int h = 0; h < infinity_of(f); h++) {
            double low = meaning(f, (uint16_t)h),
                   step = low - meaning(f, (uint16_t)(h ? h - 1 : 1));
            double high = h + 1 < infinity_of(f) ? meaning(f, (uint16_t)(h + 1)) : low + fabs(step);
            double middle = (low + high) / 2;
            uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
            for (int sign = 0; sign < 2; sign++) {
                double s = sign ? -1 : 1;
                float m = (float)(s * middle);
                uint16_t minus = (uint16_t)(sign ? 0x8000 : 0);
                wrong += f->narrow(m) != (even | minus);
                wrong +=
                    f->narrow(nextafterf(m, (float)(s * (double)INFINITY))) != ((h + 1) | minus);
                wrong += f->narrow(nextafterf(m, 0)) != (h | minus);
                wrong +=
                    f->narrow_double(s * nextafter(middle, (double)INFINITY)) != ((h + 1) | minus);
                wrong += f->narrow_double(s * nextafter(middle, 0)) != (h | minus);
            }
        }
        CHECK_EQ(wrong, 0);
        CHECK_EQ(f->narrow(3.4e38f), infinity_of(f));
        CHECK_EQ(f->narrow_double(-1e300), infinity_of(f) | 0x8000);
        CHECK_EQ(f->narrow_double(1e-300), 0);
        CHECK_EQ(f->narrow_double(-1e-300), 0x8000);
        CHECK(is_nan(f, f->narrow_double((double)NAN)));
    }
}

/* ---- the vector versions ---- */

typedef struct version {
    const char *name;
    sherd__kernels half[2]; /* as in formats */
} version;

static int versions(version *out)
{
    fast_set sets[FAST_SETS];
    int n = fast_sets(sets);

    for (int i = 0; i < n; i++) {
        sets[i].half(&out[i].half[0], &out[i].half[1]);
        out[i].name = sets[i].name;
    }
    sherd__install_half_ref(&out[n].half[0], &out[n].half[1]);
    out[n++].name = "reference";
    return n;
}

/* All halves as floats, the middles between them and their neighbours, NaNs of all kinds, and a
 * walk over all floats. */
static int64_t make_floats(const format *f, float *x)
{
    int64_t n = 0;

    for (int h = 0; h < ALL; h++) {
        uint32_t bits = sherd__float_bits(f->widen((uint16_t)h));
        uint32_t half = f->dtype == SHERD_BF16 ? 0x8000u : 0x1000u;
        x[n++] = sherd__float_of(bits);
        x[n++] = sherd__float_of(bits + half);
        x[n++] = sherd__float_of(bits + half - 1);
        x[n++] = sherd__float_of(bits + half + 1);
        x[n++] = sherd__float_of(bits ^ 1u);
    }
    for (uint32_t i = 0; n < MANY; i++)
        x[n++] = sherd__float_of(i * 5683u);
    return n;
}

static bool same(const void *a, const void *b, size_t bytes, const char *who, const char *what)
{
    bool equal = memcmp(a, b, bytes) == 0;

    if (!CHECK(equal))
        fprintf(stderr, "  %s of %s\n", what, who);
    return equal;
}

static void vectors_convert_as_the_plain_code(void)
{
    float *x = malloc(MANY * sizeof *x), *wide = malloc(ALL * sizeof *wide);
    uint16_t *half = malloc(MANY * sizeof *half), *got = malloc(MANY * sizeof *got);
    float *got_wide = malloc(ALL * sizeof *got_wide);
    version all[1 + FAST_SETS];
    int n = versions(all);

    for (int k = 0; k < LEN(formats); k++) {
        const format *f = &formats[k];
        int64_t many = make_floats(f, x);
        for (int64_t i = 0; i < many; i++)
            half[i] = f->narrow(x[i]);
        for (int v = 0; v < n; v++) {
            all[v].half[k].narrow(many, got, x);
            same(got, half, (size_t)many * sizeof *got, all[v].name, "narrow");
        }
        for (int h = 0; h < ALL; h++) {
            half[h] = (uint16_t)h;
            wide[h] = f->widen((uint16_t)h);
        }
        for (int v = 0; v < n; v++) {
            all[v].half[k].widen(ALL, got_wide, half);
            same(got_wide, wide, ALL * sizeof *wide, all[v].name, "widen");
        }
    }
    free(x);
    free(wide);
    free(half);
    free(got);
    free(got_wide);
}

/* Short runs at any alignment: nothing beside them is touched. */
static void conversions_stay_in_their_run(void)
{
    enum { ROOM = 64 };
    version all[1 + FAST_SETS];
    int count = versions(all);

    for (int v = 0; v < count; v++)
        for (int k = 0; k < LEN(formats); k++)
            for (int64_t n = 0; n < 3 * 16 + 2; n++)
                for (int shift = 0; shift < 3; shift++) {
                    uint16_t half[ROOM], back[ROOM];
                    float wide[ROOM];
                    for (int i = 0; i < ROOM; i++) {
                        half[i] = back[i] = formats[k].narrow((float)i);
                        wide[i] = -1;
                    }
                    all[v].half[k].widen(n, wide + shift, half + 1);
                    for (int i = 0; i < ROOM; i++) {
                        bool inside = i >= shift && i < shift + n;
                        CHECK(wide[i] == (float)(inside ? i - shift + 1 : -1));
                    }
                    all[v].half[k].narrow(n, back + 1, wide + shift);
                    CHECK_EQ(memcmp(back, half, sizeof half), 0);
                }
}

/* ---- casts ---- */

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                     SHERD_I64, SHERD_U8,  SHERD_BOOL, SHERD_I8};

/* Numbers that every dtype but bool holds, in longer runs than a block. */
static void small_numbers_survive_every_cast(void)
{
    enum { N = 600 };
    unsigned char from[N * 8], to[N * 8];
    double x[N], y[N];

    for (int i = 0; i < N; i++)
        x[i] = i % 128;
    for (int a = 0; a < LEN(dtypes); a++)
        for (int b = 0; b < LEN(dtypes); b++) {
            int wrong = 0;
            bool is_bool = dtypes[a] == SHERD_BOOL || dtypes[b] == SHERD_BOOL;
            sherd__cast(dtypes[a], SHERD_F64, N, from, x);
            sherd__cast(dtypes[b], dtypes[a], N, to, from);
            sherd__cast(SHERD_F64, dtypes[b], N, y, to);
            for (int i = 0; i < N; i++)
                wrong += y[i] != (is_bool ? (double)(x[i] != 0) : x[i]);
            if (!CHECK_EQ(wrong, 0))
                fprintf(stderr, "  %s to %s\n", sherd_dtype_name(dtypes[a]),
                        sherd_dtype_name(dtypes[b]));
        }
}

static int64_t as_integer(sherd_dtype dtype, double x)
{
    unsigned char data[8];
    int64_t value;

    sherd__cast(dtype, SHERD_F64, 1, data, &x);
    sherd__cast(SHERD_I64, dtype, 1, &value, data);
    return value;
}

static void fractions_are_cut_off_and_held_in_range(void)
{
    static const struct {
        double x;
        int64_t i32, i64, u8, i8, boolean;
    } cases[] = {
        {2.75, 2, 2, 2, 2, 1},
        {-2.75, -2, -2, 0, -2, 1},
        {0.5, 0, 0, 0, 0, 1},
        {-0.0, 0, 0, 0, 0, 0},
        {127.9, 127, 127, 127, 127, 1},
        {-128.9, -128, -128, 0, -128, 1},
        {-129, -129, -129, 0, -128, 1},
        {255.9, 255, 255, 255, 127, 1},
        {256, 256, 256, 255, 127, 1},
        {3e9, INT32_MAX, 3000000000, 255, 127, 1},
        {-3e9, INT32_MIN, -3000000000, 0, -128, 1},
        {9223372036854775808.0, INT32_MAX, INT64_MAX, 255, 127, 1},
        {-9223372036854775808.0, INT32_MIN, INT64_MIN, 0, -128, 1},
        {1e300, INT32_MAX, INT64_MAX, 255, 127, 1},
        {(double)INFINITY, INT32_MAX, INT64_MAX, 255, 127, 1},
        {-(double)INFINITY, INT32_MIN, INT64_MIN, 0, -128, 1},
        {(double)NAN, 0, 0, 0, 0, 1},
    };

    for (int i = 0; i < LEN(cases); i++) {
        CHECK_EQ(as_integer(SHERD_I32, cases[i].x), cases[i].i32);
        CHECK_EQ(as_integer(SHERD_I64, cases[i].x), cases[i].i64);
        CHECK_EQ(as_integer(SHERD_U8, cases[i].x), cases[i].u8);
        CHECK_EQ(as_integer(SHERD_I8, cases[i].x), cases[i].i8);
        float narrow = (float)cases[i].x;
        int8_t byte = 99;
        sherd__cast(SHERD_I8, SHERD_F32, 1, &byte, &narrow);
        CHECK_EQ(byte, cases[i].i8);
        CHECK_EQ(as_integer(SHERD_BOOL, cases[i].x), cases[i].boolean);
    }
}

static void narrow_integers_keep_the_low_bits(void)
{
    static const int64_t x[] = {-1, 256, 257, (1LL << 32) + 5, INT64_MIN, INT64_MAX};
    static const int32_t i32[] = {-1, 256, 257, 5, 0, -1};
    static const uint8_t u8[] = {255, 0, 1, 5, 0, 255}, boolean[] = {1, 1, 1, 1, 1, 1};
    int32_t got[LEN(x)];
    uint8_t bytes[LEN(x)];

    sherd__cast(SHERD_I32, SHERD_I64, LEN(x), got, x);
    CHECK_EQ(memcmp(got, i32, sizeof i32), 0);
    sherd__cast(SHERD_U8, SHERD_I64, LEN(x), bytes, x);
    CHECK_EQ(memcmp(bytes, u8, sizeof u8), 0);
    sherd__cast(SHERD_I8, SHERD_I64, LEN(x), bytes, x);
    CHECK_EQ(memcmp(bytes, u8, sizeof u8), 0);
    sherd__cast(SHERD_BOOL, SHERD_I64, LEN(x), bytes, x);
    CHECK_EQ(memcmp(bytes, boolean, sizeof boolean), 0);
}

/* A number just above the middle between two bf16: rounded to f64 or f32 first it would be the
 * middle. */
static void large_integers_are_rounded_once(void)
{
    static const struct {
        int64_t x;
        double bf16, f16;
    } cases[] = {
        {(1LL << 62) + (1LL << 54), 0x1p62, (double)INFINITY},        /* the middle: to even */
        {(1LL << 62) + (1LL << 54) + 1, 0x1.02p62, (double)INFINITY}, /* one more */
        {-(1LL << 62) - (1LL << 54) - 1, -0x1.02p62, -(double)INFINITY},
        {(1LL << 40) + (1LL << 32) + 1, 0x1.02p40, (double)INFINITY},
        {INT64_MIN, -0x1p63, -(double)INFINITY},
        {INT64_MAX, 0x1p63, (double)INFINITY},
        {65519, 65536, 65504},
        {65520, 65536, (double)INFINITY},
        {2049, 2048, 2048},
        {2051, 2048, 2052},
    };

    for (int i = 0; i < LEN(cases); i++) {
        uint16_t half;
        sherd__cast(SHERD_BF16, SHERD_I64, 1, &half, &cases[i].x);
        CHECK((double)sherd__from_bf16(half) == cases[i].bf16);
        sherd__cast(SHERD_F16, SHERD_I64, 1, &half, &cases[i].x);
        CHECK((double)sherd__from_f16(half) == cases[i].f16);
    }
}

/* The machine's best gives the same bits. */
static void conversion_is_the_cast(void)
{
    enum { N = 1000 };
    static unsigned char from[N * 8], a[N * 8], b[N * 8];
    sherd__kernel_set set;
    double x[N];

    sherd__kernels_choose(&set);
    sherd__ref_f64.uniform(N, x, -300, 300, sherd__philox_key(1, 2, 3), 0);
    x[3] = (double)NAN;
    x[5] = 1e30;
    for (int s = 0; s < LEN(dtypes); s++) {
        sherd__cast(dtypes[s], SHERD_F64, N, from, x);
        for (int d = 0; d < LEN(dtypes); d++) {
            memset(a, 7, sizeof a);
            memset(b, 7, sizeof b);
            sherd__cast(dtypes[d], dtypes[s], N, a, from);
            sherd__convert(&set, dtypes[d], dtypes[s], N, b, from);
            same(b, a, sizeof a, sherd_dtype_name(dtypes[s]), sherd_dtype_name(dtypes[d]));
        }
    }
}

static const check_test tests[] = {
    {TEST(every_half_means_what_its_bits_say)},
    {TEST(between_neighbours_the_nearer_one)},
    {TEST(vectors_convert_as_the_plain_code)},
    {TEST(conversions_stay_in_their_run)},
    {TEST(small_numbers_survive_every_cast)},
    {TEST(fractions_are_cut_off_and_held_in_range)},
    {TEST(narrow_integers_keep_the_low_bits)},
    {TEST(large_integers_are_rounded_once)},
    {TEST(conversion_is_the_cast)},
};
CHECK_MAIN(tests)
