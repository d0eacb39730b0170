/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What random kernels promise whatever the version: a number depends on key and global index only,
 * so any cut of a tensor draws the same; both types draw the same; and the numbers have the moments
 * that they should.
 */
#define CHECK_PURE
#include "check.h"
#include "vector/choose.h"
#include "vector/fast.h"

enum { N = 1 << 17 };

static float whole[N], part[N], ones[N];
static double wide[N];

static sherd__kernels chosen(void)
{
    sherd__kernel_set set;
    sherd__kernels_choose(&set);
    return set.f32;
}

/* Draw [0, 2000) at once, and again in pieces of every length from 1 to 40. */
static void pieces_draw_what_the_whole_draws(void)
{
    const sherd__kernels tables[] = {sherd__ref_f32, chosen()};
    const sherd__key key = sherd__philox_key(1, 2, 3);
    const int64_t n = 2000;

    for (int t = 0; t < LEN(tables); t++)
        for (int kind = 0; kind < 3; kind++) {
            for (int64_t i = 0; i < n; i++)
                ones[i] = 1;
            for (int64_t at = 0, take = n, again = 0; again < 2; at = 0, take = 1, again++)
                for (; at < n; at += take, take = again ? take % 40 + 1 : n) {
                    float *to = (again ? part : whole) + at;
                    int64_t length = take < n - at ? take : n - at;
                    if (kind == 0)
                        tables[t].uniform(length, to, 0, 1, key, at);
                    else if (kind == 1)
                        tables[t].normal(length, to, 0, 1, key, at);
                    else
                        tables[t].dropout(length, to, ones + at, 0.5, key, at);
                }
            CHECK_EQ(memcmp(whole, part, sizeof(float) * (size_t)n), 0);
        }
}

static void both_types_draw_the_same(void)
{
    const sherd__kernels k = chosen();
    const sherd__key key = sherd__philox_key(4, 5, 6);

    k.uniform(N, whole, 0, 1, key, 7);
    sherd__ref_f64.uniform(N, wide, 0, 1, key, 7);
    for (int i = 0; i < N; i++)
        CHECK(whole[i] == (float)wide[i] && (double)whole[i] == wide[i]);
    k.normal(1000, whole, 0, 1, key, 7);
    sherd__ref_f64.normal(1000, wide, 0, 1, key, 7);
    for (int i = 0; i < 1000; i++)
        CHECK(whole[i] == (float)wide[i]);
}

/*
 * Normal numbers of f32 are found near those of the C library, and have their bits all the same:
 * also beside a large mean, where they are subnormal, zeroes of either sign, infinite, or NaN.
 */
static void normal_numbers_are_those_of_the_c_library(void)
{
    static const double cases[][2] = {
        {0, 1}, {1, 2},    {-3, 1e-3}, {1e6, 1e-3},           {0, 1e-40},      {0, 0}, {-0.0, 0},
        {5, 0}, {0, 1e38}, {0, -2},    {0, (double)INFINITY}, {(double)NAN, 1}};
    static const char *const names[] = {"simd128", "avx2", "avx512"};
    const int64_t n = getenv("SHERD_PROOF") ? N : 4096;
    sherd__kernel_set set;

    for (int i = 0; i < LEN(names); i++) {
        setenv("SHERD_KERNELS", names[i], 1);
        sherd__kernels_choose(&set);
        for (int c = 0; c < LEN(cases); c++) {
            const sherd__key key = sherd__philox_key(6, (uint64_t)i, (uint64_t)c);
            set.f32.normal(n, whole, cases[c][0], cases[c][1], key, 3);
            sherd__ref_f32.normal(n, part, cases[c][0], cases[c][1], key, 3);
            CHECK_EQ(memcmp(whole, part, sizeof(float) * (size_t)n), 0);
        }
    }
    unsetenv("SHERD_KERNELS");
}

/* The standard error of a mean of N numbers is deviation / 360; the limits are five of those. */
static void the_moments_are_right(void)
{
    const sherd__kernels k = chosen();
    double mean = 0, square = 0, beside = 0, least = 1, most = 0;

    k.uniform(N, whole, 0, 1, sherd__philox_key(8, 9, 10), 0);
    for (int i = 0; i < N; i++) {
        mean += (double)whole[i] / N;
        least = fmin(least, (double)whole[i]);
        most = fmax(most, (double)whole[i]);
    }
    CHECK_NEAR(mean, 0.5, 5 * 0.2887 / 360);
    CHECK(least >= 0 && least < 1e-4 && most < 1 && most > 1 - 1e-4);

    k.normal(N, whole, 1, 2, sherd__philox_key(8, 9, 11), 0);
    mean = 0;
    for (int i = 0; i < N; i++)
        mean += (double)whole[i] / N;
    for (int i = 0; i < N; i++) {
        square += ((double)whole[i] - 1) * ((double)whole[i] - 1) / N;
        beside += ((double)whole[i] - 1) * ((double)whole[(i + 1) % N] - 1) / N;
    }
    CHECK_NEAR(mean, 1, 5 * 2.0 / 360);
    CHECK_NEAR(square, 4, 5 * 4 * 1.42 / 360);
    CHECK_NEAR(beside, 0, 5 * 4.0 / 360); /* neighbours, which share a radius, do not go together */
}

static void dropout_keeps_the_share_and_the_scale(void)
{
    static const double share[] = {0, 0.1, 0.5, 0.999};
    const sherd__kernels k = chosen();

    for (int i = 0; i < N; i++)
        ones[i] = 1;
    for (int s = 0; s < LEN(share); s++) {
        int64_t kept = 0, odd = 0;
        double p = share[s], sigma = sqrt(p * (1 - p) * N);
        k.dropout(N, whole, ones, p, sherd__philox_key(1, 1, (uint64_t)s), 3);
        for (int i = 0; i < N; i++) {
            kept += whole[i] != 0;
            odd += whole[i] != 0 && whole[i] != (float)(1 / (1 - p));
        }
        CHECK_EQ(odd, 0);
        CHECK_NEAR((double)kept, (1 - p) * N, 5 * sigma + 1e-9);
    }
}

/* keep(j) is uniform(j) >= p, whoever asks. */
static void dropout_is_what_uniform_says(void)
{
    const sherd__kernels k = chosen();
    const sherd__key key = sherd__philox_key(2, 2, 2);

    for (int i = 0; i < 5000; i++)
        ones[i] = 3;
    k.dropout(5000, whole, ones, 0.37, key, 11);
    k.uniform(5000, part, 0, 1, key, 11);
    for (int i = 0; i < 5000; i++)
        CHECK_EQ(whole[i] != 0, (double)part[i] >= 0.37);
}

static void an_empty_range_of_classes_says_nothing(void)
{
    const sherd__kernels tables[] = {sherd__ref_f32, chosen()};
    const float logits[] = {1, 2, 3, 4};
    const int32_t targets[] = {0, 1};

    for (int t = 0; t < LEN(tables); t++) {
        float stats[2][6];
        double alone[4], both[4];
        tables[t].cross_entropy(2, 2, stats[0], logits, targets, 0);
        tables[t].cross_entropy(2, 0, stats[1], logits, targets, 2);
        for (int r = 0; r < 2; r++) {
            CHECK(stats[1][r] == -INFINITY);
            CHECK(stats[1][2 + r] == 0 && stats[1][4 + r] == 0);
        }
        double one = tables[t].cross_entropy_join(1, 2, alone, stats[0]);
        double two = tables[t].cross_entropy_join(2, 2, both, stats[0]);
        CHECK(one == two && memcmp(alone, both, sizeof alone) == 0);
        CHECK_NEAR(one, 2 * log(1 + exp(1)) - 1, 1e-6);
    }
}

static const check_test tests[] = {
    {TEST(pieces_draw_what_the_whole_draws)},          {TEST(both_types_draw_the_same)},
    {TEST(normal_numbers_are_those_of_the_c_library)}, {TEST(the_moments_are_right)},
    {TEST(dropout_keeps_the_share_and_the_scale)},     {TEST(dropout_is_what_uniform_says)},
    {TEST(an_empty_range_of_classes_says_nothing)},
};
CHECK_MAIN(tests)
