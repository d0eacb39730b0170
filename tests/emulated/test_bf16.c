/* SPDX-License-Identifier: Apache-2.0 */
/* As test_instructions.c: pairs of bf16, and tiles. */
#define CHECK_PURE
#include "check.h"
#include "emulated/instructions.h"

static float of_bf16(uint16_t h)
{
    uint32_t bits = (uint32_t)h << 16;
    float x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

/* By the distance to both neighbours. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof bits);
    uint16_t low = (uint16_t)(bits >> 16);
    if (isnan(x))
        return (uint16_t)(low | 0x40);
    if (!isnormal(x))
        return isinf(x) ? low : low & 0x8000;
    double size = fabs((double)x), under = fabs((double)of_bf16(low));
    double over = under + ldexp(1, ilogb(size) - 7);
    bool up = over - size < size - under || (over - size == size - under && (low & 1));
    return (uint16_t)(low + up);
}

static void pairs_are_rounded_to_bf16(void)
{
    uint64_t dice = 8;

    for (int round = 0; round < ROUNDS; round++) {
        vector a = numbers(&dice), b = numbers(&dice), y = {.b = _mm512_cvtne2ps_pbh(b.f, a.f)};
        for (int i = 0; i < 32; i++)
            CHECK_EQ(y.u16[i], to_bf16(i < 16 ? a.f32[i] : b.f32[i - 16]));
    }
}

static vector all_of(uint16_t first, uint16_t second)
{
    vector x;

    for (int i = 0; i < 32; i++)
        x.u16[i] = i % 2 ? second : first;
    return x;
}

static float added(float sum, uint16_t a0, uint16_t a1, uint16_t b0, uint16_t b1)
{
    return ((vector){.f =
                         _mm512_dpbf16_ps(_mm512_set1_ps(sum), all_of(a0, a1).b, all_of(b0, b1).b)})
        .f32[5];
}

static void products_of_pairs_are_added_one_by_one(void)
{
    enum {
        ONE = 0x3F80,
        TWO = 0x4000,
        MINUS_ONE = 0xBF80,
        LARGE = 0x4B80 /* 2^24 */,
        SMALL = 0x0001,
        LEAST = 0x0080 /* 2^-126 */,
        HALF = 0x3F00,
        NOT = 0x7FC0
    };
    uint64_t dice = 9;

    CHECK(added(0x1p24f, ONE, ONE, ONE, ONE) == 0x1p24f);   /* each is rounded away */
    CHECK(added(0x1p24f, ONE, LARGE, ONE, MINUS_ONE) == 1); /* the second one is first */
    CHECK(added(0x1p24f, LARGE, ONE, MINUS_ONE, ONE) == 0);
    CHECK(same(added(0, SMALL, 0x8001, LARGE, LARGE), 0)); /* operands that are 0 */
    CHECK(same(added(0x1p-130f, 0, 0, 0, 0), 0));          /* so is a sum */
    CHECK(added(0x1p-130f, 0, LEAST, 0, ONE) == 0x1p-126f);
    CHECK(same(added(0, LEAST, 0, HALF, 0), 0)); /* a result */
    CHECK(added(0, LEAST, 0, TWO, 0) == 0x1p-125f);
    CHECK(isnan(added(0, NOT, ONE, ONE, ONE)) && isnan(added(NAN, ONE, ONE, ONE, ONE)));
    for (int round = 0; round < ROUNDS; round++) {
        vector a, b, sum;
        for (int i = 0; i < 32; i++) { /* exact as f64: 1 to 2 times 2^-3 to 2^3 */
            a.u16[i] = (uint16_t)(0x3E00 + roll(&dice, 0x380) + roll(&dice, 2) * 0x8000);
            b.u16[i] = (uint16_t)(0x3E00 + roll(&dice, 0x380) + roll(&dice, 2) * 0x8000);
        }
        for (int i = 0; i < LANES; i++)
            sum.f32[i] = (float)(roll(&dice, 1 << 24) - (1 << 23)) / (1 << 19);
        vector y = {.f = _mm512_dpbf16_ps(sum.f, a.b, b.b)};
        for (int i = 0; i < LANES; i++) {
            double one = (double)of_bf16(a.u16[2 * i + 1]) * (double)of_bf16(b.u16[2 * i + 1]);
            double two = (double)of_bf16(a.u16[2 * i]) * (double)of_bf16(b.u16[2 * i]);
            CHECK(y.f32[i] == (float)((double)(float)((double)sum.f32[i] + one) + two));
        }
    }
}

/* ---- tiles ---- */

#ifdef SHERD_EMULATED_H

typedef struct shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} shapes;

/* Small whole numbers: c[m,n] += a[m,k] b[k,n], with pairs in rows of a and of b. */
static void try_tiles(int m, int n, int k, uint64_t *dice)
{
    shapes s = {.palette = 1};
    uint16_t a[16][32], b[16][40];
    float c[16][20], was[16][20];

    s.rows[0] = s.rows[1] = (uint8_t)m;
    s.rows[2] = (uint8_t)(k / 2);
    s.bytes[0] = s.bytes[2] = (uint16_t)(4 * n);
    s.bytes[1] = (uint16_t)(2 * k);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 40; j++) {
            b[i][j] = to_bf16((float)(roll(dice, 17) - 8));
            if (j < 32)
                a[i][j] = to_bf16((float)(roll(dice, 17) - 8));
            if (j < 20)
                was[i][j] = c[i][j] = (float)roll(dice, 100);
        }
    _tile_loadconfig(&s);
    _tile_loadd(0, c, sizeof c[0]);
    _tile_loadd(1, a, sizeof a[0]);
    _tile_loadd(2, b, sizeof b[0]);
    _tile_dpbf16ps(0, 1, 2);
    _tile_stored(0, c, sizeof c[0]);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 20; j++) {
            float want = was[i][j];
            for (int p = 0; p < k && i < m && j < n; p++)
                want += of_bf16(a[i][p]) * of_bf16(b[p / 2][2 * j + p % 2]);
            CHECK(c[i][j] == want);
        }
    _tile_zero(0);
    _tile_stored(0, c, sizeof c[0]);
    CHECK(c[m - 1][n - 1] == 0 && c[0][0] == 0);
    _tile_release();
}

static void tiles_are_products(void)
{
    uint64_t dice = 10;

    try_tiles(16, 16, 32, &dice);
    try_tiles(16, 3, 32, &dice);
    try_tiles(5, 16, 32, &dice);
    try_tiles(7, 9, 2, &dice);
    try_tiles(1, 1, 20, &dice);
}

static void use_without_shapes(void)
{
    _tile_zero(0);
}

static void multiply_other_shapes(void)
{
    shapes s = {.palette = 1, .rows = {16, 16, 8}, .bytes = {64, 64, 64}};

    _tile_loadconfig(&s);
    _tile_dpbf16ps(0, 1, 2);
}

static void configure_too_many_rows(void)
{
    shapes s = {.palette = 1, .rows = {17}, .bytes = {64}};

    _tile_loadconfig(&s);
}

static void tiles_that_do_not_fit_are_faults(void)
{
    void (*const wrong[])(void) = {use_without_shapes, multiply_other_shapes,
                                   configure_too_many_rows};

    for (int i = 0; i < LEN(wrong); i++) {
        int status = 0;
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            close(2);
            wrong[i]();
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    }
}

#endif

static const check_test tests[] = {
    {TEST(pairs_are_rounded_to_bf16)},
    {TEST(products_of_pairs_are_added_one_by_one)},
#ifdef SHERD_EMULATED_H
    {TEST(tiles_are_products)},
    {TEST(tiles_that_do_not_fit_are_faults)},
#endif
};
CHECK_MAIN(tests)
