/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The softmax of 16-bit types and its gradients, fast against plain: rows and columns of any
 * length, around blocks, and rows with infinities, NaN and nothing. What is behind results stays as
 * it was.
 */
#define CHECK_PURE
#include "check.h"
#include "fast_sets.h"

enum { MOST_ROW = 1100, SIZE = 3 * MOST_ROW + 1, MARK = 0x4242 };

typedef struct results {
    float most[64], total[64], sum[64];
    uint16_t y[SIZE], dx[SIZE], spread[SIZE];
} results;

static uint16_t x[SIZE], dy[SIZE];
static results fast, plain;

static void run(const sherd__kernels *k, sherd__soft_kind kind, const int64_t size[3], results *out)
{
    int64_t n = size[0] * size[1] * size[2];

    out->y[n] = out->dx[n] = out->spread[n] = MARK;
    k->soft_stats(size[0], size[1], size[2], out->most, out->total, x);
    k->soft(kind, size[0], size[1], size[2], out->y, x, out->most, out->total);
    /* gradients of the same results, so that one rounding is not taken for two */
    k->soft_grad_sum(kind, size[0], size[1], size[2], out->sum, dy, plain.y);
    k->soft_grad(kind, size[0], size[1], size[2], out->dx, dy, plain.y, plain.sum);
    k->soft_spread(size[0], size[1], size[2], out->spread, x, plain.most, dy);
    CHECK(out->y[n] == MARK && out->dx[n] == MARK && out->spread[n] == MARK);
}

/* Both no numbers, or the same infinity, or near. */
static bool agree(float a, float b, double within)
{
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b)
                                : a == b || fabs((double)a - (double)b) <= within;
}

static int64_t differing(const sherd__kernels *k, const uint16_t *a, const uint16_t *b, int64_t n,
                         double rounded)
{
    int64_t wrong = 0;

    for (int64_t i = 0; i < n; i++) {
        float u, v;
        k->widen(1, &u, a + i);
        k->widen(1, &v, b + i);
        wrong += !agree(u, v, rounded * fabs((double)v) + 1e-6);
    }
    return wrong;
}

static void try_size(const sherd__kernels *k, const sherd__kernels *ref, double rounding,
                     const int64_t size[3])
{
    int64_t n = size[0] * size[1] * size[2], wrong = 0;

    for (int kind = 0; kind < 2; kind++) {
        run(ref, (sherd__soft_kind)kind, size, &plain);
        run(k, (sherd__soft_kind)kind, size, &fast);
        for (int64_t i = 0; i < size[0] * size[2]; i++) {
            wrong += !agree(fast.most[i], plain.most[i], 0);
            wrong += !agree(fast.total[i], plain.total[i], 1e-5 * fabs((double)plain.total[i]));
            wrong += !agree(fast.sum[i], plain.sum[i], 1e-5 * (double)size[1]);
        }
        wrong += differing(k, fast.y, plain.y, n, rounding);
        wrong += differing(k, fast.dx, plain.dx, n, rounding);
        wrong += differing(k, fast.spread, plain.spread, n, rounding);
    }
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s to %g: %d x %d x %d\n", k->name, rounding, (int)size[0], (int)size[1],
                (int)size[2]);
}

/* special: 0 = numbers only; else some elements of the second row are -inf, +inf or NaN. */
static void draw(const sherd__kernels *k, int64_t mid, int special)
{
    static float wide[SIZE];
    const float odd[] = {-INFINITY, INFINITY, NAN};

    sherd__ref_f32.uniform(SIZE, wide, -4, 4, sherd__philox_key(7, 1, 1), 0);
    for (int64_t i = mid; special && i < 2 * mid; i++)
        wide[i] = special < 4 && i % 3 ? wide[i] : odd[(special - 1) % 3];
    k->narrow(SIZE, x, wide);
    sherd__ref_f32.uniform(SIZE, wide, -1, 1, sherd__philox_key(7, 1, 2), 0);
    k->narrow(SIZE, dy, wide);
}

static void try_table(const sherd__kernels *k, const sherd__kernels *ref, double rounding)
{
    static const int64_t length[] = {0, 1, 2, 15, 16, 17, 40, 511, 512, 513, MOST_ROW};

    CHECK(k->soft != ref->soft);
    for (int l = 0; l < LEN(length); l++)
        for (int special = 0; special <= 6; special++) {
            draw(k, length[l], special);
            try_size(k, ref, rounding, (int64_t[]){3, length[l], 1});
            try_size(k, ref, rounding, (int64_t[]){1, sherd__min(length[l], 60), 19});
        }
}

static void fast_softmax_is_the_plain_one(void)
{
    sherd__kernels bf16, f16, ref_bf16, ref_f16;
    fast_set sets[FAST_SETS];

    sherd__install_half_ref(&ref_bf16, &ref_f16);
    for (int i = fast_sets(sets) - 1; i >= 0; i--) {
        sets[i].half(&bf16, &f16);
        try_table(&bf16, &ref_bf16, 1.0 / 128);
        try_table(&f16, &ref_f16, 1.0 / 1024);
    }
}

static const check_test tests[] = {
    {TEST(fast_softmax_is_the_plain_one)},
};
CHECK_MAIN(tests)
