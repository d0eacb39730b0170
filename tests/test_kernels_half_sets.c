/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over sets of 16 bits by every instruction set: sums beside the plain ones, elements beside
 * f64, rounded once but for the last bits of f32. Rows of any length, many channels without inner
 * dims, items that share coefficients or not, numbers that are nearly equal, coefficients that f32
 * does not hold, infinities and NaN. What is behind results stays as it was.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"
#include "kernels/half.h"
#include "vector/bodies.h"

enum { MOST = 6000, MARK = 0x4242 };

typedef struct numbers {
    uint16_t x[MOST], dy[MOST];
    double mean[MOST], scale[MOST], shift[MOST], slope[MOST];
} numbers;

static numbers given;
static uint16_t y[MOST + 1], dx[MOST + 1], plain_y[MOST];
static double sum[2][MOST], by_x[2][MOST], squares[2][MOST];

static const sherd_dtype dtypes[] = {SHERD_BF16, SHERD_F16};

static double value(sherd_dtype dtype, uint16_t h)
{
    return (double)(dtype == SHERD_BF16 ? sherd__from_bf16(h) : sherd__from_f16(h));
}

static uint16_t half(sherd_dtype dtype, double x)
{
    return dtype == SHERD_BF16 ? sherd__double_to_bf16(x) : sherd__double_to_f16(x);
}

typedef enum kind { ORDINARY, NEARLY_EQUAL, STRANGE, FAR, KINDS } kind;

static void draw(kind what, sherd_dtype dtype)
{
    static const double strange[] = {0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 65504};

    for (int i = 0; i < MOST; i++) {
        double x = what == NEARLY_EQUAL ? 100 + (i % 97 == 5) : sin(i * 0.7) * (1 + i % 5);
        x = what == STRANGE && i % 41 == 7 ? strange[i / 41 % 7] : x;
        given.x[i] = half(dtype, x);
        given.dy[i] = half(dtype, cos(i * 1.3));
        given.mean[i] = what == NEARLY_EQUAL ? 100 + 1.0 / (97 + i % 3) : 0.1 * sin(i);
        given.scale[i] = what == NEARLY_EQUAL ? 10 : 1 + cos(i);
        given.shift[i] = cos(3 * i);
        given.slope[i] = sin(5 * i);
        if (what == FAR && i % 3 == 1) {
            given.mean[i] = 3e38;
            given.scale[i] = i % 2 ? 1e-35 : 1e35;
            given.slope[i] = 1e-60;
        }
    }
}

/* Of so large addends. */
static bool is_rounded(sherd_dtype dtype, uint16_t got, double want, double addends)
{
    double rounding = dtype == SHERD_BF16 ? 0x1p-8 : 0x1p-11, least = 0x1p-25 + 0x1p-40;
    double is = value(dtype, got), once = value(dtype, half(dtype, want));

    if (isnan(is) || isnan(once))
        return isnan(is) && isnan(once);
    return is == once || fabs(is - want) <= rounding * fabs(want) * (1 + 0x1p-10) +
                                                0x1p-21 * addends +
                                                (dtype == SHERD_F16 ? least : 0x1p-133);
}

static int64_t row_at(const sherd__norming *n, int64_t i)
{
    return n->whole ? i / n->inner % n->channels : i / n->inner;
}

static int64_t wrong_elements(const sherd__norm_kernels *k, sherd_dtype dtype,
                              const sherd__norming *n, bool sloped)
{
    int64_t count = n->batch * n->channels * n->inner, wrong = 0;

    y[count] = dx[count] = MARK;
    k->spread(n, y, given.x, given.mean, given.scale, given.shift);
    k->gradient(n, dx, given.dy, given.x, given.mean, given.scale, sloped ? given.shift : NULL,
                sloped ? given.slope : NULL);
    for (int64_t i = 0; i < count; i++) {
        int64_t r = row_at(n, i);
        double left = value(dtype, given.x[i]) - given.mean[r], g = value(dtype, given.dy[i]);
        double by = left * given.scale[r], back = g * given.scale[r];
        double off = sloped ? left * given.slope[r] : 0, shift = given.shift[r];
        wrong += !is_rounded(dtype, y[i], by + shift, fabs(by) + fabs(shift));
        wrong += !is_rounded(dtype, dx[i], sloped ? back - shift - off : back,
                             fabs(back) + fabs(shift) + fabs(off));
    }
    return wrong + (y[count] != MARK) + (dx[count] != MARK);
}

static void add(const sherd__norm_kernels *k, const sherd__norming *n, int to)
{
    for (int i = 0; i < MOST; i++)
        sum[to][i] = by_x[to][i] = squares[to][i] = i;
    k->add_up(n, sum[to], given.x, NULL);
    k->add_up(n, squares[to], given.x, given.mean);
    k->add_products(n, sum[to], by_x[to], given.dy, given.x, given.mean);
}

static int64_t wrong_sums(double list[2][MOST])
{
    int64_t wrong = 0;

    for (int i = 0; i < MOST; i++) {
        double a = list[0][i], b = list[1][i];
        wrong += isnan(b) ? !isnan(a) : !(a == b || fabs(a - b) <= 1e-11 * (1000 + fabs(b)));
    }
    return wrong;
}

static void try_shape(const sherd__kernels *set, sherd_dtype dtype, const sherd__norming *n)
{
    const sherd__norm_kernels *k = sherd__norms_by(set, dtype);
    int64_t wrong = wrong_elements(k, dtype, n, true) + wrong_elements(k, dtype, n, false);

    add(k, n, 0);
    add(sherd__norm_kernels_of(dtype), n, 1);
    wrong += wrong_sums(sum) + wrong_sums(squares) + wrong_sums(by_x);
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s, dtype %d: [%d,%d,%d]%s\n", set->name, (int)dtype, (int)n->batch,
                (int)n->channels, (int)n->inner, n->whole ? " whole" : "");
}

static void every_set_has_what_f64_has(void)
{
    static const int64_t shapes[][3] = {{3, 5, 49},  {2, 3, 7},   {1, 1, 1001}, {1, 2, 2048},
                                        {17, 67, 1}, {5, 600, 1}, {2, 1100, 1}, {4, 3, 16},
                                        {0, 4, 3},   {2, 0, 3},   {2, 3, 0},    {1, 1, 1}};
    fast_set sets[FAST_SETS];
    int count = fast_sets(sets);

    for (int s = 0; s < count; s++) {
        sherd__kernels half_of[2];
        sets[s].half(&half_of[0], &half_of[1]);
        for (int d = 0; d < 2; d++)
            for (int what = 0; what < KINDS; what++) {
                draw((kind)what, dtypes[d]);
                for (int i = 0; i < 2 * LEN(shapes); i++)
                    try_shape(&half_of[d], dtypes[d],
                              &(sherd__norming){shapes[i / 2][0], shapes[i / 2][1],
                                                shapes[i / 2][2], i % 2});
            }
    }
}

/* Coefficients that f32 does not hold: the bits of the plain kernel. */
static void far_rows_are_plain(void)
{
    const sherd__norming n = {2, 70, 40, false};
    fast_set sets[FAST_SETS];

    for (int s = 0, count = fast_sets(sets); s < count; s++)
        for (int d = 0; d < 2; d++) {
            sherd__kernels half_of[2];
            sets[s].half(&half_of[0], &half_of[1]);
            draw(FAR, dtypes[d]);
            sherd__norms_by(&half_of[d], dtypes[d])
                ->spread(&n, y, given.x, given.mean, given.scale, given.shift);
            sherd__norm_kernels_of(dtypes[d])->spread(&n, plain_y, given.x, given.mean, given.scale,
                                                      given.shift);
            for (int64_t r = 1; r < 140; r += 3)
                CHECK_EQ(memcmp(y + r * 40, plain_y + r * 40, 40 * sizeof *y), 0);
        }
}

static const check_test tests[] = {
    {TEST(every_set_has_what_f64_has)},
    {TEST(far_rows_are_plain)},
};
CHECK_MAIN(tests)
