/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels of values of 8 and 4 bits, sums of a tensor and a multiple of another, and f64 products of few
 * columns, with all that they are given between pages that nobody may touch: at the end of one, and
 * at the begin, for lengths up to some vectors, with tails.
 */
#define CHECK_PURE
#include "fences.h"

#include "fast_sets.h"
#include "base/num.h"
#include "kernels/quantized.h"
#include "kernels/ref.h"
#include "kernels/scaled.h"
#include "vector/bodies.h"
#include "vector/choose.h"
#include "vector/quantized_tiles.h"

enum { PARTS = 5 };

typedef struct run {
    fence part[PARTS];
    int given;
    bool at_end;
} run;

/* Bytes at a fence, filled with a small number; they stay until the next call. */
static void *give(run *r, int64_t bytes)
{
    void *at = fence_give(&r->part[r->given++], (size_t)bytes, r->at_end);

    memset(at, 1, (size_t)bytes);
    return at;
}

static const int64_t columns[] = {1, 2, 7, 15, 16, 17, 31, 33, 63, 65, 130}, groups[] = {0, 16, 5};

static sherd__quantized matrix(run *r, int64_t rows, int64_t cols, int64_t group, int64_t first,
                               bool pairs)
{
    int64_t scales = group ? sherd__ceil_div(first + cols, group) : 1;
    void *value = give(r, pairs ? rows * cols / 2 : rows * cols);
    const float *scale = give(r, rows * scales * 4);

    return (sherd__quantized){rows,   cols,  pairs ? NULL : value, scale, group,
                              scales, first, pairs ? value : NULL};
}

static void try_matrix(run *r, const sherd__quantized_kernels *k, const sherd__kernel_set *set,
                       const sherd__quantized *q, int64_t n)
{
    int64_t rows = q->rows, cols = q->cols;
    const void *x = give(r, n * cols * 4);

    k->few(q, n, give(r, n * rows * 4), x);
    r->given = 2;
    k->expand(q, 0, rows, q->group > 0, SHERD_BF16, give(r, rows * cols * 2));
    r->given = 2;
    k->expand(q, 0, rows, true, SHERD_F64, give(r, rows * cols * 8));
    if (set && sherd__quantized_fits(set, q)) {
        r->given = 2;
        x = give(r, n * cols * 2);
        float *y = give(r, n * rows * 4);
        sherd__quantized_rows(q, n, y, x, give(r, sherd__quantized_workspace(q, n)));
        r->given = 4;
        sherd__quantized_panel(q, 0, rows, n, y, x,
                               give(r, sherd__quantized_panel_workspace(q, n, rows)));
    }
    if (set && n <= SHERD__PAIRS_ROWS && sherd__pairs_fit(set, q)) {
        r->given = 2;
        x = give(r, n * cols * 2);
        float *y = give(r, n * rows * 4);
        sherd__pairs_rows(q, n, y, x, give(r, sherd__pairs_workspace(q, n)));
    }
    r->given = 0;
    x = give(r, cols * 4);
    void *to = give(r, q->pairs ? cols / 2 : cols);
    if (q->pairs)
        k->quantize_pairs(cols, to, give(r, 4), x);
    else
        k->quantize(cols, to, give(r, 4), x);
}

static void try_quantized(run *r, const sherd__quantized_kernels *k, const sherd__kernel_set *set)
{
    static const int64_t groups_of_pairs[] = {0, 32, 6};

    for (int c = 0; c < LEN(columns); c++)
        for (int g = 0; g < LEN(groups); g++)
            for (int64_t n = 1; n <= 9; n += 2) {
                int64_t cols = columns[c], rows = 1 + (c + n) % 18;
                r->given = 0;
                sherd__quantized q = matrix(r, rows, cols, groups[g], groups[g] ? 32 : 0, false);
                try_matrix(r, k, set, &q, n);
                r->given = 0;
                q = matrix(r, rows, 2 * cols, groups_of_pairs[g], g ? 32 : 0, true);
                try_matrix(r, k, set, &q, n);
            }
}

static void try_add_scaled(run *r, sherd__adds_scaled *add)
{
    static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};

    for (int c = 0; c < LEN(columns); c++)
        for (int d = 0; d < LEN(dtypes); d++)
            for (int step = 0; step < 3; step++) {
                const int64_t n = columns[c], size[] = {2, n}, a[] = {n * step, step}, b[] = {0, 1};
                int64_t bytes = (int64_t)sherd_dtype_bytes(dtypes[d]);
                r->given = 0;
                const void *x = give(r, (1 + (2 * n - 1) * step) * bytes), *y = give(r, n * bytes);
                add(dtypes[d], 0.5, 2, size, give(r, 2 * n * bytes), x, a, y, b);
            }
}

static void try_narrow(run *r, const sherd__kernels *f64)
{
    for (int64_t m = 1; m < 20; m += 9)
        for (int64_t n = 1; n <= 5; n++)
            for (int c = 0; c < LEN(columns); c++)
                for (int turned = 0; turned < 4; turned++) {
                    const int64_t k = columns[c];
                    bool ta = turned & 1, tb = turned & 2;
                    r->given = 0;
                    const double *a = give(r, m * k * 8), *b = give(r, k * n * 8);
                    f64->gemm(ta, tb, m, n, k, 2, a, ta ? m : k, b, tb ? k : n, c % 2,
                              give(r, m * n * 8), n);
                }
}

static void kernels_stay_within_what_they_are_given(void)
{
    static run r;
    fast_set sets[FAST_SETS];
    sherd__kernel_set set;
    struct sigaction was[FENCE_SIGNALS];
    int count = fast_sets(sets), built = 0;

    sherd__kernels_choose(&set);
    while (built < PARTS && fence_build(&r.part[built]))
        built++;
    fences_begin(was);
    for (volatile int i = 0; CHECK_EQ(built, PARTS) && i < 2 * count; i++) {
        const fast_set *s = &sets[i / 2];
        const sherd__kernels named = {.name = s->name};
        sherd__kernels f64 = sherd__ref_f64;
        s->f64(&f64);
        r.at_end = i % 2;
        fence_fault = NULL;
        if (sigsetjmp(fence_caught, 1) == 0) {
            try_quantized(&r, sherd__quantized_by(&named), i / 2 == count - 1 ? &set : NULL);
            try_add_scaled(&r, sherd__adds_scaled_by(&named));
            try_narrow(&r, &f64);
        }
        CHECK(fence_fault == NULL);
        for (int p = 0; p < r.given; p++)
            fence_tell(&r.part[p], s->name);
    }
    fences_end(was);
    for (int p = 0; p < built; p++)
        fence_raze(&r.part[p]);
}

static const check_test tests[] = {
    {TEST(kernels_stay_within_what_they_are_given)},
};
CHECK_MAIN(tests)
