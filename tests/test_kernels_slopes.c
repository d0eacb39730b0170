/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of functions of two operands by vectors, against the plain ones, and those of 16 bits
 * against f32's: odd numbers beside ordinary ones, strides, rows, and where the gradient is written
 * over dy; products of narrow rows; and square roots, which have the bits of the plain ones,
 * whatever instructions make them.
 */
#define CHECK_PURE
#include <math.h>
#include <string.h>

#include "check.h"
#include "kernel_versions.h"
#include "kernels/cast.h"

enum { N = 203, ROOM = 1000 };

static const double odd[] = {
    0,     -0.0, (double)INFINITY, -(double)INFINITY, (double)NAN, 1e-30, -2.5, 2.5, 3, 1e30, -1e-3,
    0.125, 7};

/* Of dtype: every pair of odd numbers, and then ordinary ones. */
static void draw(sherd_dtype dtype, void *x, bool second)
{
    double number[ROOM];

    sherd__ref_f64.uniform(ROOM, number, -4, 4, sherd__philox_key(5, second, 0), 0);
    for (int i = 0; i < LEN(odd) * LEN(odd); i++)
        number[i] = odd[second ? i / LEN(odd) : i % LEN(odd)];
    sherd__cast(dtype, SHERD_F64, ROOM, x, number);
}

static double number_at(sherd_dtype dtype, const void *x, int64_t i)
{
    double y;

    sherd__cast(SHERD_F64, dtype, 1, &y, (const char *)x + (size_t)i * sherd_dtype_bytes(dtype));
    return y;
}

static void compare(sherd_dtype dtype, const char *name, int kind, int which, const void *got,
                    const void *want)
{
    double most = dtype == SHERD_F64   ? 1e-14
                  : dtype == SHERD_F32 ? 1e-6
                  : dtype == SHERD_F16 ? 0x1p-10
                                       : 0x1p-7; /* a last bit, where f32 rounds otherwise */

    for (int i = 0; i < N; i++) {
        double x = number_at(dtype, got, i), y = number_at(dtype, want, i);
        double least = dtype == SHERD_F16 ? 0x1p-24 : 0; /* one subnormal step */
        bool same = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= fmax(most * fabs(y), least);
        if (!CHECK(same))
            fprintf(stderr, "  %s: function %d, operand %d: [%d] is %.9g, not %.9g\n", name, kind,
                    which, i, x, y);
    }
}

static void try_slopes(sherd_dtype dtype, const sherd__kernels *fast, const sherd__kernels *plain)
{
    static const int64_t strides[][2] = {{1, 1}, {0, 1}, {1, 0}, {3, 2}, {-1, 1}};
    static double a[ROOM], b[ROOM], dy[ROOM], got[ROOM], want[ROOM];
    const int64_t rows[] = {7, N / 7}, n = N;
    size_t bytes = sherd_dtype_bytes(dtype);

    draw(dtype, a, false);
    draw(dtype, b, true);
    draw(dtype, dy, true);
    for (int kind = SHERD__MUL + 1; kind < SHERD__BINARY_KINDS; kind++)
        for (int which = 0; which < 2; which++)
            for (int s = 0; s <= LEN(strides); s++) {
                bool whole = s < LEN(strides); /* or rows, one of which b is for all */
                const int64_t a_row[] = {N / 7, 1}, b_row[] = {0, 1};
                const int64_t *as = whole ? &strides[s][0] : a_row;
                const int64_t *bs = whole ? &strides[s][1] : b_row;
                const char *x = (const char *)a + (as[0] < 0 ? N - 1 : 0) * (int64_t)bytes;
                plain->binary_grad((sherd__binary_kind)kind, which, whole ? 1 : 2,
                                   whole ? &n : rows, want, (char *)dy + 300 * bytes, x, as, b, bs);
                memcpy(got, (char *)dy + 300 * bytes, N * bytes);
                fast->binary_grad((sherd__binary_kind)kind, which, whole ? 1 : 2, whole ? &n : rows,
                                  got, got, x, as, b, bs);
                compare(dtype, fast->name, kind, which, got, want);
            }
}

static void slopes_of_two_are_as_plain(void)
{
    sherd__kernels list[FAST_SETS];

    for (int v = versions(list) - 1; v >= 0; v--)
        try_slopes(SHERD_F32, &list[v], &sherd__ref_f32);
    for (int v = versions_f64(list) - 1; v >= 0; v--)
        try_slopes(SHERD_F64, &list[v], &sherd__ref_f64);
}

/* Rows of few elements, some of which are the same one, or one element each. */
static void narrow_rows_are_as_plain(void)
{
    enum { ROWS = 600, MOST = 17 };
    static float a[ROWS * MOST], b[ROWS * MOST], got[ROWS * MOST], want[ROWS * MOST];
    sherd__kernels list[FAST_SETS];

    sherd__ref_f32.uniform(ROWS * MOST, a, -4, 4, sherd__philox_key(8, 0, 0), 0);
    sherd__ref_f32.uniform(ROWS * MOST, b, -4, 4, sherd__philox_key(8, 1, 0), 0);
    for (int v = versions(list) - 1; v >= 0; v--)
        for (int64_t n = 1; n <= MOST; n++)
            for (int way = 0; way < 16; way++) {
                const int64_t strides[][2] = {{n, 1}, {0, 1}, {1, 0}, {1, ROWS}};
                const int64_t *as = strides[way % 4], *bs = strides[way / 4], size[] = {ROWS, n};
                sherd__ref_f32.binary(SHERD__MUL, 2, size, want, a, as, b, bs);
                list[v].binary(SHERD__MUL, 2, size, got, a, as, b, bs);
                CHECK(memcmp(got, want, (size_t)(ROWS * n) * sizeof *got) == 0);
            }
}

/* Of every table of 16 bits against the plain one, whose numbers go through f32. */
static void slopes_of_16_bits_are_as_plain(void)
{
    fast_set sets[FAST_SETS];
    sherd__kernels plain[2], fast[2];

    sherd__install_half_ref(&plain[0], &plain[1]);
    for (int v = fast_sets(sets) - 1; v >= 0; v--) {
        sets[v].half(&fast[0], &fast[1]);
        try_slopes(SHERD_BF16, &fast[0], &plain[0]);
        try_slopes(SHERD_F16, &fast[1], &plain[1]);
    }
}

/* Of all powers of two there are, and of fractions, of which some lie in each block. */
static void roots_have_the_bits_of_plain_ones(void)
{
    enum { BLOCK = 4096, STEP = 7919 };
    static float x[BLOCK], got[BLOCK], want[BLOCK];
    sherd__kernels list[FAST_SETS];

    for (int v = versions(list) - 1; v >= 0; v--)
        for (uint64_t bits = 0; bits >> 32 == 0;) {
            for (int i = 0; i < BLOCK; i++, bits += STEP) {
                uint32_t word = (uint32_t)bits;
                memcpy(&x[i], &word, sizeof word);
            }
            sherd__ref_f32.unary(SHERD__SQRT, BLOCK, want, x, NULL);
            list[v].unary(SHERD__SQRT, BLOCK, got, x, NULL);
            for (int i = 0; i < BLOCK; i++)
                CHECK(memcmp(&got[i], &want[i], sizeof *got) == 0 ||
                      (isnan(got[i]) && isnan(want[i])));
        }
}

/* The odd roots of j of the numbers below 2^bits: m^2 = j modulo 2^bits. j is 1 modulo 8. */
static void roots_of(int64_t j, int bits, uint64_t root[4])
{
    uint64_t m = 1, all = (UINT64_C(1) << bits) - 1;

    for (int k = 3; k < bits; k++)
        if ((m * m - (uint64_t)j) >> k & 1)
            m += UINT64_C(1) << (k - 1);
    for (int i = 0; i < 4; i++)
        root[i] = ((i & 1 ? -m : m) + (i & 2 ? UINT64_C(1) << (bits - 1) : 0)) & all;
}

/*
 * The numbers from 1 to 4 whose roots are next to the middle between two f64: with m that middle,
 * in units of 2^-53 and odd, x is m^2 - j in units of 2^-106. Returns how many there are.
 */
static int hardest_roots(double *x, int most)
{
    enum { FAR = 1024 };
    int n = 0;

    for (int bits = 54; bits <= 55; bits++)
        for (int64_t j = 1 - FAR; j < FAR; j += 8) {
            uint64_t root[4];
            roots_of(j, bits, root);
            for (int i = 0; i < 4; i++) {
                __extension__ typedef unsigned __int128 wide;
                wide square = ((wide)root[i] * root[i] - (wide)j) >> bits;
                bool is_one = root[i] >> 53 == 1 && square >> 52 == 1;
                if (is_one && n < most)
                    x[n++] = ldexp((double)(uint64_t)square, bits - 106);
            }
        }
    return n;
}

static void hardest_roots_of_f64_are_rounded_right(void)
{
    enum { MOST = 2048 };
    static double x[MOST], got[MOST], want[MOST];
    sherd__kernels list[FAST_SETS];
    int n = hardest_roots(x, MOST), some = n;

    CHECK(n > 200);
    sherd__ref_f64.uniform(MOST - some, x + some, 1, 4, sherd__philox_key(7, 0, 0), 0);
    for (int v = versions_f64(list) - 1; v >= 0; v--)
        for (int power = -1074; power < 1024; power += 34) {
            double scale = ldexp(1, power);
            for (int i = 0; i < MOST; i++)
                want[i] = x[i] * scale;
            list[v].unary(SHERD__SQRT, MOST, got, want, NULL);
            sherd__ref_f64.unary(SHERD__SQRT, MOST, want, want, NULL);
            CHECK(memcmp(got, want, sizeof got) == 0);
        }
}

static const check_test tests[] = {
    {TEST(slopes_of_two_are_as_plain)},        {TEST(slopes_of_16_bits_are_as_plain)},
    {TEST(narrow_rows_are_as_plain)},          {TEST(hardest_roots_of_f64_are_rounded_right)},
    {TEST(roots_have_the_bits_of_plain_ones)},
};
CHECK_MAIN(tests)
