/* SPDX-License-Identifier: Apache-2.0 */
/* Products of small matrices: the bits of terms that are added one after the other; and of two
 * vectors. */
#define CHECK_PURE
#include <math.h>

#include "check.h"
#include "kernels/small.h"

enum { TIMES = 3, SIDE = SHERD__SMALL, ALL = TIMES * SIDE * SIDE };

static double number(int64_t i)
{
    return (double)(i * 7919 % 1009 - 500) / 37;
}

/* Element i of an operand or a result. */
static double get(sherd_dtype dtype, const void *data, int64_t i)
{
    return dtype == SHERD_F32 ? (double)((const float *)data)[i] : ((const double *)data)[i];
}

static void put(sherd_dtype dtype, void *data, int64_t i, double x)
{
    if (dtype == SHERD_F32)
        ((float *)data)[i] = (float)x;
    else
        ((double *)data)[i] = x;
}

/* Of two f32 a product is exact in f64, and their sum, rounded once more, is theirs. */
static double rounded(sherd_dtype dtype, double x)
{
    return dtype == SHERD_F32 ? (double)(float)x : x;
}

static double expected(const sherd__product *p, const void *a, const void *b, double before,
                       int64_t at)
{
    int64_t item = at / (p->m * p->n), i = at / p->n % p->m, j = at % p->n;
    double sum = 0;

    for (int64_t t = 0; t < p->k; t++) {
        double x = get(p->dtype, a, item * p->m * p->k + (p->ta ? t * p->m + i : i * p->k + t));
        double y = get(p->dtype, b, item * p->k * p->n + (p->tb ? j * p->k + t : t * p->n + j));
        double term = rounded(p->dtype, x * y);
        sum = rounded(p->dtype, sum + term);
    }
    return p->adds ? rounded(p->dtype, before + sum) : sum;
}

static int wrong_of(const sherd__product *p)
{
    static double a[ALL], b[ALL], c[ALL + 1], before[ALL + 1];
    int64_t n = TIMES * p->m * p->n;
    int wrong = !sherd__is_small_product(p);

    for (int64_t i = 0; i < ALL; i++) {
        put(p->dtype, a, i, number(i));
        put(p->dtype, b, i, number(3 * i + 1));
        put(p->dtype, c, i, number(5 * i + 2));
    }
    memcpy(before, c, sizeof c);
    sherd__small_products(p, TIMES, c, a, b);
    for (int64_t i = 0; i < n; i++)
        wrong += get(p->dtype, c, i) != expected(p, a, b, get(p->dtype, before, i), i);
    wrong += get(p->dtype, c, n) != get(p->dtype, before, n);
    return wrong;
}

static void terms_are_added_in_order(void)
{
    static const int64_t sides[] = {1, 2, 3, 4, 5, 7, 8};
    enum { SIDES = LEN(sides) };

    for (int i = 0; i < SIDES * SIDES * SIDES; i++)
        for (int way = 0; way < 16; way++) {
            sherd_dtype dtype = way & 8 ? SHERD_F64 : SHERD_F32;
            const sherd__product p = {.dtype = dtype,
                                      .result = dtype,
                                      .ta = way & 1,
                                      .tb = way & 2,
                                      .adds = way & 4,
                                      .m = sides[i % SIDES],
                                      .n = sides[i / SIDES % SIDES],
                                      .k = sides[i / SIDES / SIDES]};
            CHECK_EQ(wrong_of(&p), 0);
        }
}

static void others_are_not_small(void)
{
    sherd__product p = {.dtype = SHERD_F32, .result = SHERD_F32, .m = 8, .n = 8, .k = 8};

    CHECK(sherd__is_small_product(&p));
    p.m = 9;
    CHECK(!sherd__is_small_product(&p));
    p = (sherd__product){.dtype = SHERD_BF16, .result = SHERD_BF16, .m = 1, .n = 1, .k = 1};
    CHECK(!sherd__is_small_product(&p));
}

/* Sums of one element: as exact as lanes of f32 are, and those of one do not depend on others. */
static void dots_are_sums(void)
{
    enum { LONGEST = 4096, SOME = 3 };
    static const int64_t lengths[] = {1, 15, 16, 17, 64, 100, LONGEST};
    static double a[SOME * LONGEST], b[SOME * LONGEST];

    for (int i = 0; i < LEN(lengths); i++)
        for (int way = 0; way < 4; way++) {
            sherd_dtype dtype = way & 1 ? SHERD_F64 : SHERD_F32;
            const sherd__product p = {
                .dtype = dtype, .result = dtype, .adds = way & 2, .m = 1, .n = 1, .k = lengths[i]};
            double c[SOME + 1] = {0}, alone[1] = {0};
            CHECK(sherd__is_dot(&p));
            for (int64_t j = 0; j < SOME * p.k; j++) {
                put(dtype, a, j, number(j));
                put(dtype, b, j, number(3 * j + 1));
            }
            for (int j = 0; j <= SOME; j++)
                put(dtype, c, j, j + 1);
            put(dtype, alone, 0, 1);
            sherd__dots(&p, SOME, c, a, b);
            sherd__dots(&p, 1, alone, a, b);
            CHECK(get(dtype, c, 0) == get(dtype, alone, 0));
            CHECK(get(dtype, c, SOME) == SOME + 1);
            for (int j = 0; j < SOME; j++) {
                double sum = p.adds ? j + 1 : 0, size = fabs(sum);
                for (int64_t t = j * p.k; t < (j + 1) * p.k; t++) {
                    sum += get(dtype, a, t) * get(dtype, b, t);
                    size += fabs(get(dtype, a, t) * get(dtype, b, t));
                }
                CHECK(fabs(get(dtype, c, j) - sum) <= (way & 1 ? 1e-14 : 2e-6) * size);
            }
        }
}

static const check_test tests[] = {
    {TEST(terms_are_added_in_order)},
    {TEST(others_are_not_small)},
    {TEST(dots_are_sums)},
};
CHECK_MAIN(tests)
