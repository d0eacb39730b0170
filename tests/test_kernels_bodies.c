/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that are one body for all instruction sets (vector/bodies.h): each set computes the bits
 * of the plain one, whatever the dtype, the shape and the numbers; and what is rounded to 16 bits
 * is rounded as if once.
 */
#define CHECK_PURE
#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "check.h"
#include "kernel_versions.h"
#include "kernels/cast.h"
#include "kernels/half.h"
#include "kernels/taps.h"
#include "vector/bodies.h"

enum { MOST = 4096, ROWS = 64 };

static unsigned char x[MOST * 8], dy[MOST * 8];
static double mean[MOST], scale[MOST], shift[MOST];

/* The same numbers each time, some of them strange. */
static void draw(sherd_dtype dtype)
{
    static const double strange[] = {0, -0.0, INFINITY, 1e-40, -3e38, 65504, 1e-8};

    for (int i = 0; i < MOST; i++) {
        double number = i % 61 == 7 ? strange[i / 61 % 7] : sin(i * 0.7) * (1 + i % 5);
        sherd__cast(dtype, SHERD_F64, 1, x + (size_t)i * sherd_dtype_bytes(dtype), &number);
        number = cos(i * 1.3);
        sherd__cast(dtype, SHERD_F64, 1, dy + (size_t)i * sherd_dtype_bytes(dtype), &number);
        mean[i] = sin(i), scale[i] = 1 + cos(i), shift[i] = cos(3 * i);
    }
}

typedef struct made {
    unsigned char y[MOST * 8], dx[MOST * 8], along[MOST * 8];
    double sum[MOST], squares[MOST], one[MOST], by_x[MOST];
} made;

static void make(const sherd__norm_kernels *k, const sherd__along_kernels *along,
                 const sherd__norming *n, made *m)
{
    memset(m, 0, sizeof *m);
    k->add_up(n, m->sum, x, NULL);
    k->add_up(n, m->squares, x, mean);
    k->add_products(n, m->one, m->by_x, dy, x, mean);
    k->spread(n, m->y, x, mean, scale, shift);
    k->gradient(n, m->dx, dy, x, mean, scale, shift, mean);
    along->spread_along(n->batch, n->channels * n->inner, m->along, x, mean, scale, scale, shift);
}

/* Those over sets of 16 bits are no bodies: test_kernels_half_sets.c. */
static const sherd__norm_kernels *norms_of(const sherd__kernels *set, sherd_dtype dtype)
{
    return sherd_dtype_bytes(dtype) == 2 ? sherd__norm_kernels_of(dtype)
                                         : sherd__norms_by(set, dtype);
}

static void every_set_has_the_bits_of_the_plain_one(void)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
    static const sherd__norming shapes[] = {
        {3, 5, 49, true},    {3, 5, 49, false}, {17, 67, 1, true},  {17, 67, 1, false},
        {1, 1, 1001, false}, {2, 3, 8, true},   {1, 4096, 1, true}, {0, 4, 3, true}};
    static made plain, other;
    sherd__kernels sets[FAST_SETS];
    int count = versions(sets);

    for (int d = 0; d < 4; d++) {
        draw(dtypes[d]);
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            make(sherd__norm_kernels_of(dtypes[d]), sherd__along_kernels_of(dtypes[d]), &shapes[s],
                 &plain);
            for (int i = 0; i < count; i++) {
                make(norms_of(&sets[i], dtypes[d]), sherd__along_by(&sets[i], dtypes[d]),
                     &shapes[s], &other);
                if (!CHECK_EQ(memcmp(&plain, &other, sizeof plain), 0))
                    printf("%s, dtype %d, shape %zu\n", sets[i].name, (int)dtypes[d], s);
            }
        }
    }
}

/* Blocks of all dtypes to all others: fractions and integers, near and far, of more than a block. */
static void casts_have_the_bits_of_the_plain_ones(void)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                         SHERD_I64, SHERD_U8,  SHERD_BOOL, SHERD_I8};
    static const double sizes[] = {1, 1e-40, 300, 1e9, 1e12, 1e300};
    static unsigned char plain[MOST * 8], other[MOST * 8];
    static double number[MOST];
    sherd__kernels sets[FAST_SETS];
    int count = versions(sets);

    for (int i = 0; i < MOST; i++) /* six blocks of each size, with odd numbers in some */
        number[i] = i % 512 == 77    ? (double)NAN
                    : i % 1024 == 99 ? (double)INFINITY
                                     : sin(i * 0.7) * sizes[i / 512 % 6];
    for (int a = 0; a < LEN(dtypes); a++) {
        sherd__cast(dtypes[a], SHERD_F64, MOST, x, number);
        for (int b = 0; b < LEN(dtypes); b++)
            for (int i = 0; i < count; i++) {
                size_t bytes = sherd_dtype_bytes(dtypes[b]) * MOST;
                sherd__cast(dtypes[b], dtypes[a], MOST, plain, x);
                sherd__casts_by(&sets[i])->cast(dtypes[b], dtypes[a], MOST, other, x);
                if (!CHECK_EQ(memcmp(plain, other, bytes), 0))
                    printf("%s, dtype %d to %d\n", sets[i].name, (int)dtypes[a], (int)dtypes[b]);
            }
        for (int i = 0; i < count && dtypes[a] != SHERD_F32 && !sherd__is_half(dtypes[a]); i++) {
            sherd__cast_to_odd(dtypes[a], MOST, (float *)(void *)plain, x);
            sherd__casts_by(&sets[i])->to_odd(dtypes[a], MOST, (float *)(void *)other, x);
            CHECK_EQ(memcmp(plain, other, MOST * sizeof(float)), 0);
        }
    }
}

/* Of all ways to sample, at points inside, outside and at odd places; also the gradients. */
static void fields_at_points_have_the_bits_of_the_plain_ones(void)
{
    enum { POINTS = 150, CHANNELS = 2 };
    static double grid[POINTS * 3], number[MOST], sums[MOST], got[2][3][MOST];
    static double grids[POINTS * 3];
    sherd__kernels sets[FAST_SETS];
    int count = versions(sets);

    for (int i = 0; i < MOST; i++)
        number[i] = sin(i * 0.7);
    for (int i = 0; i < POINTS * 3; i++)
        grid[i] = i % 31 == 5    ? (double)NAN
                  : i % 47 == 11 ? (double)INFINITY
                  : i % 13 == 3  ? 1
                                 : 1.3 * sin(i * 1.7);
    for (int way = 0; way < 48; way++) {
        const sherd__sampling s = {1,           CHANNELS,    POINTS,      {7, 5, 3},
                                   way % 3 + 1, way / 3 % 2, way / 6 % 2, way / 12 % 2};
        sherd_dtype dtype = way / 24 ? SHERD_F64 : SHERD_F32;
        sherd__cast(dtype, SHERD_F64, MOST, x, number);
        sherd__cast(dtype, SHERD_F64, MOST, dy, number);
        sherd__cast(dtype, SHERD_F64, POINTS * 3, grids, grid);
        for (int i = -1; i < count; i++) {
            const sherd__sampler *k = i < 0 ? &sherd__sampler_plain : sherd__sampler_by(&sets[i]);
            double(*to)[MOST] = got[i >= 0];
            memset(to, 0, sizeof got[0]);
            k->sample(dtype, &s, to[0], x, grids);
            k->grad(dtype, &s, to[1], dy, grids, sums);
            k->slopes(dtype, &s, to[2], dy, x, grids);
            if (i >= 0 && !CHECK_EQ(memcmp(got[0], got[1], sizeof got[0]), 0))
                printf("%s, way %d\n", sets[i].name, way);
        }
    }
}

/* scale 1 + 2^-40 makes of a number between two of 16 bits one that is nearer to one of them. */
static void numbers_of_16_bits_are_rounded_once(void)
{
    const double up = 1 + 0x1p-40, down = 1 - 0x1p-40, zero = 0;
    const sherd__norming n = {1, 1, 1, true};

    for (int bits = 0; bits < 1000; bits++) {
        uint16_t y, one = sherd__to_bf16(1);
        double low = (double)sherd__from_bf16((uint16_t)(0x3000 + bits * 13));
        double middle = (low + (double)sherd__from_bf16((uint16_t)(0x3001 + bits * 13))) / 2;
        double scales[] = {middle * up, middle * down, middle};
        for (int i = 0; i < 3; i++) {
            sherd__norm_kernels_of(SHERD_BF16)->spread(&n, &y, &one, &zero, &scales[i], &zero);
            CHECK_EQ(y, sherd__double_to_bf16(scales[i]));
        }
    }
}

/* Bits of rows of one element and of several, of each size of elements; a -0 and a NaN stay. */
static void copies_are_bit_for_bit(void)
{
    static const size_t sizes[] = {2, 4, 8};
    static unsigned char y[MOST * 8];
    sherd__tap tap[ROWS];

    for (int i = 0; i < MOST * 8; i++)
        x[i] = (unsigned char)(i * 37 + i / 256);
    for (int s = 0; s < 3; s++)
        for (int64_t inner = 1; inner <= 3; inner += 2) {
            const sherd__taps_pass p = {2, 19, ROWS, inner, tap};
            size_t row = sizes[s] * (size_t)inner;
            bool same = true;
            for (int o = 0; o < ROWS; o++)
                tap[o] = (sherd__tap){.first = o * 19 / ROWS, .count = 1, .even = true};
            sherd__taps_copy(sizes[s], &p, y, x);
            for (size_t i = 0; i < 2 * ROWS; i++)
                same = same &&
                       memcmp(y + i * row, x + (i / ROWS * 19 + (size_t)tap[i % ROWS].first) * row,
                              row) == 0;
            CHECK(same);
        }
}

static const check_test tests[] = {
    {TEST(every_set_has_the_bits_of_the_plain_one)},
    {TEST(casts_have_the_bits_of_the_plain_ones)},
    {TEST(fields_at_points_have_the_bits_of_the_plain_ones)},
    {TEST(numbers_of_16_bits_are_rounded_once)},
    {TEST(copies_are_bit_for_bit)},
};
CHECK_MAIN(tests)
