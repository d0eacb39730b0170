/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fast kernels of all dtypes at the ends of what a type can hold, where vectors that are longer
 * than a row compute with zeroes behind it, and where zero has a sign.
 */
#define CHECK_PURE
#include <math.h>

#include "check.h"
#include "fast_sets.h"
#include "kernels/cast.h"

enum { MOST_COLS = 40, TYPES = 3 };

static const sherd_dtype dtypes[TYPES] = {SHERD_F32, SHERD_BF16, SHERD_F16};

typedef struct version {
    const char *name;
    sherd__kernels k[TYPES];
} version;

static int versions(version out[FAST_SETS])
{
    fast_set sets[FAST_SETS];
    int n = fast_sets(sets);

    for (int i = 0; i < n; i++) {
        sherd__kernels *k = out[i].k;
        out[i].name = sets[i].name;
        k[0] = sherd__ref_f32;
        sets[i].f32(&k[0]);
        sets[i].half(&k[1], &k[2]);
    }
    return n;
}

/* n elements of a dtype. */
typedef struct numbers {
    uint64_t at[MOST_COLS];
} numbers;

static numbers narrowed(sherd_dtype dtype, int64_t n, const float *x)
{
    numbers y = {0};

    sherd__cast(dtype, SHERD_F32, n, y.at, x);
    return y;
}

static void widened(sherd_dtype dtype, int64_t n, float *x, const numbers *y)
{
    sherd__cast(SHERD_F32, dtype, n, x, y->at);
}

/* Every x is its row's mean, so what is normed is 0, and dx is rstd (dy - mean of dy). But behind
 * the row a mean times rstd is more than f32 holds. */
static void try_norm_grad(const version *v, int type, int64_t cols)
{
    const float mean = 0x1p123f, rstd = 256;
    const sherd__kernels *k = &v->k[type];
    float x[MOST_COLS], dy[MOST_COLS], dx[MOST_COLS];

    for (int64_t i = 0; i < cols; i++) {
        x[i] = mean;
        dy[i] = i % 2 ? -1 : 1;
    }
    numbers in = narrowed(dtypes[type], cols, x), grad = narrowed(dtypes[type], cols, dy), out;
    k->layer_norm_grad(1, cols, out.at, NULL, NULL, grad.at, in.at, NULL, &mean, &rstd, false);
    widened(dtypes[type], cols, dx, &out);
    for (int64_t i = 0; i < cols; i++) {
        float from = cols % 2 ? 1 / (float)cols : 0;
        float room = dtypes[type] == SHERD_F32 ? 1e-3f : 2;
        if (!CHECK(fabsf(dx[i] - rstd * (dy[i] - from)) <= room)) {
            fprintf(stderr, "  %s %s, %d columns: dx[%d] is %g\n", v->name,
                    sherd_dtype_name(dtypes[type]), (int)cols, (int)i, (double)dx[i]);
            return;
        }
    }
}

static void what_is_behind_a_row_does_not_count(void)
{
    version list[FAST_SETS];

    for (int v = versions(list) - 1; v >= 0; v--)
        for (int type = 0; type < TYPES; type++)
            for (int64_t cols = 1; cols <= MOST_COLS && dtypes[type] != SHERD_F16; cols++)
                try_norm_grad(&list[v], type, cols);
}

/* Of functions that pass through 0. */
static void zero_keeps_its_sign(void)
{
    static const sherd__unary_kind kinds[] = {SHERD__TANH, SHERD__SILU, SHERD__GELU,
                                              SHERD__GELU_ERF, SHERD__SCALE};
    const float zeroes[] = {0.0f, -0.0f};
    const double factor[SHERD__PARAMETERS] = {2};
    version list[FAST_SETS];
    float y[MOST_COLS];

    for (int v = versions(list) - 1; v >= 0; v--)
        for (int type = 0; type < TYPES; type++)
            for (int kind = 0; kind < LEN(kinds); kind++) {
                float x[MOST_COLS];
                int wrong = 0;
                for (int i = 0; i < MOST_COLS; i++)
                    x[i] = zeroes[i % 2];
                numbers in = narrowed(dtypes[type], MOST_COLS, x), out;
                list[v].k[type].unary(kinds[kind], MOST_COLS, out.at, in.at, factor);
                widened(dtypes[type], MOST_COLS, y, &out);
                for (int i = 0; i < MOST_COLS; i++)
                    wrong += y[i] != 0 || !signbit(y[i]) != !signbit(x[i]);
                if (!CHECK_EQ(wrong, 0))
                    fprintf(stderr, "  %s %s, function %d\n", list[v].name,
                            sherd_dtype_name(dtypes[type]), (int)kinds[kind]);
            }
}

static const check_test tests[] = {
    {TEST(what_is_behind_a_row_does_not_count)},
    {TEST(zero_keeps_its_sign)},
};
CHECK_MAIN(tests)
