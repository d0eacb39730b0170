/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of many numbers of one sign, by the plain kernels and those of every instruction set: the
 * error does not grow with how many there are (kernels/sums.h). Columns have the same bits in all
 * of them.
 */
#define CHECK_PURE
#include "check.h"
#include "kernel_versions.h"
#include "vector/choose.h"

enum { MANY = 1000000, COLUMNS = 2100 };

static float x[MANY], y[MANY], rows[2][COLUMNS];
static uint16_t half[MANY];

static const double exact = 1e-6; /* relative, of f32 */

/* The plain table and those of all instruction sets. */
static int tables(sherd__kernels out[1 + FAST_SETS])
{
    out[0] = sherd__ref_f32;
    return 1 + versions(out + 1);
}

static void check_sum(const char *name, double sum, double wanted, double tolerance)
{
    if (!CHECK_NEAR(sum / wanted, 1, tolerance))
        fprintf(stderr, "%s: %.9g instead of %.9g\n", name, sum, wanted);
}

static void many_equal_numbers_add_up(void)
{
    static const int64_t inner[] = {1, 2, 7, 100, 1000, 25000};
    sherd__kernels list[1 + FAST_SETS];

    for (int i = 0; i < MANY; i++)
        x[i] = 1.1f;
    for (int v = tables(list) - 1; v >= 0; v--)
        for (int i = 0; i < LEN(inner); i++)
            for (int add = 0; add < 2; add++) {
                int64_t mid = MANY / inner[i], last = inner[i] - 1;
                y[0] = y[last] = 1000;
                list[v].sum(y, x, 1, mid, inner[i], add);
                double wanted = (double)mid * (double)1.1f + (add ? 1000 : 0);
                check_sum(list[v].name, (double)y[0], wanted, exact);
                check_sum(list[v].name, (double)y[last], wanted, exact);
            }
}

/* What is rounded last is rounded to 16 bits. */
static void try_halves(const sherd__kernels *k)
{
    static const int64_t inner[] = {1, 7, 1000};

    for (int i = 0; i < MANY; i++)
        x[i] = 0.0625f;
    k->narrow(MANY, half, x);
    for (int i = 0; i < LEN(inner); i++) {
        int64_t mid = MANY / inner[i];
        float sum;
        k->sum(y, half, 1, mid, inner[i], false);
        k->widen(1, &sum, (const uint16_t *)y + inner[i] - 1);
        check_sum(k->name, (double)sum, (double)mid / 16, 0x1p-8);
    }
}

static void many_halves_add_up(void)
{
    fast_set sets[FAST_SETS];
    sherd__kernels bf16, f16;

    sherd__install_half_ref(&bf16, &f16);
    try_halves(&bf16);
    for (int v = fast_sets(sets) - 1; v >= 0; v--) {
        sets[v].half(&bf16, &f16);
        try_halves(&bf16);
    }
}

static void columns_have_the_same_bits(void)
{
    static const int64_t mid[] = {31, 63, 64, 65, 72, 129, 200, 512, 1100},
                         inner[] = {2, 3, 4, 7, 8, 13, 16, 33, 1024, COLUMNS};
    sherd__kernels list[1 + FAST_SETS];

    sherd__ref_f32.uniform(MANY, x, -1, 1, sherd__philox_key(2, 1, 0), 0);
    for (int v = tables(list) - 1; v > 0; v--)
        for (int m = 0; m < LEN(mid); m++)
            for (int i = 0; i < LEN(inner); i++)
                for (int add = 0; add < 2; add++) {
                    int64_t outer = inner[i] < COLUMNS ? 2 : 1;
                    if (outer * mid[m] * inner[i] >= MANY)
                        continue;
                    for (int64_t j = 0; j < COLUMNS; j++)
                        rows[0][j] = rows[1][j] = x[j];
                    list[0].sum(rows[0], x + 1, outer, mid[m], inner[i], add);
                    list[v].sum(rows[1], x + 1, outer, mid[m], inner[i], add);
                    CHECK(memcmp(rows[0], rows[1], sizeof rows[0]) == 0);
                }
}

/* Means, squares and exponentials of one long row. */
static void long_rows_have_exact_statistics(void)
{
    sherd__kernels list[1 + FAST_SETS];
    float mean, rstd, total;

    for (int v = tables(list) - 1; v >= 0; v--) {
        for (int i = 0; i < MANY; i++)
            x[i] = i % 2 ? 1.1f : 3.3f;
        list[v].layer_norm(1, MANY, y, &mean, &rstd, x, NULL, NULL, 0);
        check_sum(list[v].name, (double)mean, 2.2, exact);
        check_sum(list[v].name, (double)rstd, 1 / 1.1, exact);
        list[v].rms_norm(1, MANY, y, &rstd, x, NULL, 0);
        check_sum(list[v].name, (double)rstd, 1 / sqrt((1.21 + 10.89) / 2), exact);
        for (int i = 0; i < MANY; i++)
            x[i] = i ? 0.3f : 1.1f;
        list[v].soft_stats(1, MANY, 1, &mean, &total, x);
        check_sum(list[v].name, (double)total, 1 + (MANY - 1) * exp((double)0.3f - (double)1.1f),
                  2 * exact);
        for (int i = 0; i < MANY; i++)
            y[i] = 1.1f;
        list[v].soft_grad_sum(SHERD__SOFTMAX, 1, MANY, 1, &total, y, y);
        check_sum(list[v].name, (double)total, MANY * 1.21, exact);
    }
}

/* Exponentials and weighed gradients of long columns, of f32 and 16 bits. */
static void try_columns(const sherd__kernels *k, const float *list, void *elements)
{
    enum { INNER = 3, MID = MANY / INNER };
    float most[INNER], total[INNER], one[1], first, rest, weight;

    k->narrow(MID * INNER, elements, list);
    k->widen(1, &first, elements);
    k->narrow(1, one, &list[INNER]);
    k->widen(1, &rest, one);
    weight = rest * rest;
    k->soft_stats(1, MID, INNER, most, total, elements);
    check_sum(k->name, (double)total[INNER - 1], 1 + (MID - 1) * exp((double)rest - (double)first),
              2 * exact);
    k->soft_grad_sum(SHERD__SOFTMAX, 1, MID, INNER, total, elements, elements);
    check_sum(k->name, (double)total[INNER - 1],
              (double)(first * first) + (MID - 1) * (double)weight, 2 * exact);
    k->soft_grad_sum(SHERD__LOG_SOFTMAX, 1, MID, INNER, total, elements, elements);
    check_sum(k->name, (double)total[INNER - 1], (double)first + (MID - 1) * (double)rest,
              2 * exact);
}

static void long_columns_have_exact_statistics(void)
{
    sherd__kernels list[1 + FAST_SETS], bf16, f16;
    fast_set sets[FAST_SETS];

    for (int i = 0; i < MANY; i++)
        x[i] = i < 3 ? 1.6f : 1.1f;
    for (int v = tables(list) - 1; v >= 0; v--)
        try_columns(&list[v], x, y);
    sherd__install_half_ref(&bf16, &f16);
    try_columns(&bf16, x, y);
    for (int v = fast_sets(sets) - 1; v >= 0; v--) {
        sets[v].half(&bf16, &f16);
        try_columns(&bf16, x, y);
        try_columns(&f16, x, y);
    }
}

/* a and b as they lie and turned, with gaps between rows; scaled, and added to what is there. */
static void long_products_add_up(void)
{
    enum { M = 2, N = 3, K = 100001, ROW = K + 5, C_ROW = 4 };
    sherd__kernels list[1 + FAST_SETS];

    for (int i = 0; i < MANY; i++)
        x[i] = 1.1f;
    for (int v = tables(list) - 1; v >= 0; v--)
        for (int way = 0; way < 8; way++) {
            bool ta = way & 1, tb = way & 2, add = way & 4;
            float c[M * C_ROW];
            for (int i = 0; i < M * C_ROW; i++)
                c[i] = 1000;
            list[v].gemm(ta, tb, M, N, K, 0.5, x, ta ? M + 1 : ROW, x, tb ? ROW : N + 2,
                         add ? 2 : 0, c, C_ROW);
            for (int i = 0; i < M * C_ROW; i++) {
                double wanted = (double)1.1f * (double)1.1f * K / 2 + (add ? 2000 : 0);
                check_sum(list[v].name, (double)c[i], i % C_ROW < N ? wanted : 1000, 2 * exact);
            }
        }
}

/* An addend counts modulo the range: of numbers without a sign -1 is the largest. */
static void addends_of_integers_wrap_around(void)
{
    static const double addend[] = {-1, -2, -255, 1, 255};
    static const uint8_t from[] = {0, 1, 200, 255};
    sherd__kernel_set set;
    uint8_t to[LEN(from)];

    sherd__kernels_choose(&set);
    for (int i = 0; i < LEN(addend); i++) {
        sherd__kernels_of_any(&set, SHERD_U8)->unary(SHERD__SHIFT, LEN(from), to, from, &addend[i]);
        for (int j = 0; j < LEN(from); j++)
            CHECK_EQ(to[j], (uint8_t)(from[j] + (int)addend[i]));
    }
}

static const check_test tests[] = {
    {TEST(many_equal_numbers_add_up)},
    {TEST(many_halves_add_up)},
    {TEST(columns_have_the_same_bits)},
    {TEST(long_rows_have_exact_statistics)},
    {TEST(long_products_add_up)},
    {TEST(long_columns_have_exact_statistics)},
    {TEST(addends_of_integers_wrap_around)},
};
CHECK_MAIN(tests)
