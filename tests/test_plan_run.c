/* SPDX-License-Identifier: Apache-2.0 */
/* One region with very many addends: the order of additions, and how often 16-bit types are
 * rounded. */
#define CHECK_PURE
#include "check.h"
#include "kernels/cast.h"
#include "search/planners.h"
#include "vector/choose.h"

enum { MOST = 2500, WIDTH = 7 };

static const sherd__kernel_set *kernels(void)
{
    static sherd__kernel_set set;

    if (!set.f64.name)
        sherd__kernels_choose(&set);
    return &set;
}

/* Adds `count` rows of WIDTH elements; every other one lies with gaps. */
static void add(sherd_dtype dtype, sherd_reduce_op op, double divisor, int count, const void *rows,
                void *result)
{
    static sherd__pull pull[MOST];
    static sherd__source source[MOST];
    size_t bytes = sherd_dtype_bytes(dtype);
    sherd__region region = {.size = {WIDTH}, .count = count};
    sherd__schedule s = {.ndim = 1,
                         .source_size = {WIDTH},
                         .target_size = {WIDTH},
                         .op = op,
                         .divisor = divisor,
                         .regions = 1,
                         .pulls = count,
                         .region = &region,
                         .pull = pull};

    for (int i = 0; i < count; i++) {
        pull[i].rank = i;
        source[i].data = (const char *)rows + (size_t)i * 2 * WIDTH * bytes;
        source[i].stride[0] = 1 + i % 2;
    }
    sherd__schedule_lay(&s);
    sherd__region_run(&s, &region, result, source, bytes, sherd__kernels_of(kernels(), dtype));
}

/* Rows of numbers that a bf16 holds exactly, at the strides that `add` reads. */
static double value(int row, int k)
{
    return (double)((row * 37 + k * 11) % 61 - 20) / 4;
}

static void fill(sherd_dtype dtype, void *rows)
{
    size_t bytes = sherd_dtype_bytes(dtype);

    for (int i = 0; i < MOST; i++)
        for (int k = 0; k < WIDTH; k++) {
            double v = value(i, k);
            char *row = (char *)rows + (size_t)i * 2 * WIDTH * bytes;
            sherd__cast(dtype, SHERD_F64, 1, row + (size_t)(k * (1 + i % 2)) * bytes, &v);
        }
}

static const int counts[] = {2, 63, 64, 65, 100, 1000, 1023, 1024};

/* In f32, in the order given, and one rounding at the end. */
static void sixteen_bits_are_rounded_once(void)
{
    static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16};
    static uint16_t rows[MOST * 2 * WIDTH];

    for (int t = 0; t < LEN(dtypes); t++) {
        fill(dtypes[t], rows);
        for (int c = 0; c < LEN(counts); c++)
            for (int avg = 0; avg < 2; avg++) {
                uint16_t result[WIDTH], want;
                add(dtypes[t], avg ? SHERD_AVG : SHERD_SUM, avg ? counts[c] : 1, counts[c], rows,
                    result);
                for (int k = 0; k < WIDTH; k++) {
                    float sum = 0;
                    for (int i = 0; i < counts[c]; i++)
                        sum += (float)value(i, k);
                    sum = avg ? sum / (float)counts[c] : sum;
                    sherd__cast(dtypes[t], SHERD_F32, 1, &want, &sum);
                    CHECK_EQ(result[k], want);
                }
            }
    }
}

/* More than are added at once: quarters of small integers are exact in any order. */
static void any_number_of_addends_is_exact(void)
{
    static const int many[] = {1, 2, 64, 65, 1024, 1025, 2047, 2048, 2500};
    static double rows[MOST * 2 * WIDTH];

    fill(SHERD_F64, rows);
    for (int c = 0; c < LEN(many); c++) {
        double sums[WIDTH], means[WIDTH], most[WIDTH];
        add(SHERD_F64, SHERD_SUM, 1, many[c], rows, sums);
        add(SHERD_F64, SHERD_AVG, 4, many[c], rows, means);
        add(SHERD_F64, SHERD_MAX, 1, many[c], rows, most);
        for (int k = 0; k < WIDTH; k++) {
            double sum = 0, max = value(0, k);
            for (int i = 0; i < many[c]; i++) {
                sum += value(i, k);
                max = value(i, k) > max ? value(i, k) : max;
            }
            CHECK(sums[k] == sum);
            CHECK(means[k] == (many[c] > 1 ? sum / 4 : sum)); /* one addend is copied */
            CHECK(most[k] == max);
        }
    }
}

/* Boxes of every form in a larger target: sources that lie close, with gaps, or turned. */
static void boxes_that_are_short_or_have_gaps_are_exact(void)
{
    enum { LARGEST = 1500, ADDED = 9 };
    static const int64_t sizes[][3] = {{3, 5, 1},   {2, 300, 2}, {2, 3, 7},
                                       {1, 2, 700}, {2, 40, 9},  {7, 1, 8}};
    static double data[ADDED][2 * LARGEST], result[3 * LARGEST];

    for (int i = 0; i < ADDED; i++)
        for (int k = 0; k < 2 * LARGEST; k++)
            data[i][k] = value(i, k);
    for (int b = 0; b < LEN(sizes); b++)
        for (int count = 2; count <= ADDED; count++) {
            const int64_t *n = sizes[b];
            sherd__pull pull[ADDED] = {{.rank = 0}};
            sherd__source source[ADDED];
            sherd__region region = {.size = {n[0], n[1], n[2]}, .count = count};
            const sherd__schedule made = {.ndim = 3,
                                          .source_size = {n[0], n[1], n[2]},
                                          .target_size = {n[0], n[1], n[2] + 1},
                                          .op = SHERD_SUM,
                                          .divisor = 1,
                                          .regions = 1,
                                          .pulls = count,
                                          .region = &region,
                                          .pull = pull};
            sherd__schedule s = made;
            int wrong = 0;
            for (int i = 0; i < count; i++) {
                const int64_t lies[][3] = {
                    {n[1] * n[2], n[2], 1}, {2 * n[1] * n[2], 2 * n[2], 2}, {n[1] * n[2], 1, n[1]}};
                pull[i].rank = i;
                source[i].data = data[i];
                memcpy(source[i].stride, lies[(i + b) % 3], sizeof lies[0]);
            }
            memset(result, 0, sizeof result);
            sherd__schedule_lay(&s);
            sherd__region_run(&s, &region, result, source, sizeof(double), &kernels()->f64);
            for (int64_t at = 0; at < n[0] * n[1] * (n[2] + 1); at++) {
                int64_t z = at % (n[2] + 1), y = at / (n[2] + 1) % n[1];
                int64_t x = at / (n[2] + 1) / n[1];
                double sum = 0;
                for (int i = 0; i < count && z < n[2]; i++) {
                    const int64_t *step = source[i].stride;
                    sum += data[i][x * step[0] + y * step[1] + z * step[2]];
                }
                wrong += result[at] != sum;
            }
            CHECK_EQ(wrong, 0);
        }
}

static const check_test tests[] = {
    {TEST(sixteen_bits_are_rounded_once)},
    {TEST(any_number_of_addends_is_exact)},
    {TEST(boxes_that_are_short_or_have_gaps_are_exact)},
};
CHECK_MAIN(tests)
