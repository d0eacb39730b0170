/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of functions of two operands by vectors, of f32 and f64, against the plain ones: odd
 * numbers beside ordinary ones, strides, rows, and where the gradient is written over dy; and
 * square roots of f32, which have the bits of the plain ones, whatever instructions make them.
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
    return dtype == SHERD_F32 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static void compare(sherd_dtype dtype, const char *name, int kind, int which, const void *got,
                    const void *want)
{
    double most = dtype == SHERD_F32 ? 1e-6 : 1e-14;

    for (int i = 0; i < N; i++) {
        double x = number_at(dtype, got, i), y = number_at(dtype, want, i);
        bool same = x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= most * fabs(y);
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

static const check_test tests[] = {
    {TEST(slopes_of_two_are_as_plain)},
    {TEST(roots_have_the_bits_of_plain_ones)},
};
CHECK_MAIN(tests)
