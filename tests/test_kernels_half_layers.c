/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of bf16 and f16 beside f32: products, attention, rows, lookups, random numbers, the
 * optimizer. Statistics and the optimizer's state are f32 there. */
#define CHECK_PURE
#include "halves.h"
#include "kernels/ref.h"

static void compare_stats(float stats[2][ROOM], int64_t n, double tolerance)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR((double)stats[0][i], (double)stats[1][i],
                   tolerance * (1 + fabs((double)stats[1][i])));
    CHECK(stats[0][n] == 0);
}

/* ---- matrices ---- */

static void products(const sherd__kernels *k, int type)
{
    static const int64_t shapes[][3] = {{1, 1, 1}, {5, 7, 3}, {70, 65, 40}, {8, 3, 300}, {3, 4, 0}};

    for (int s = 0; s < LEN(shapes); s++)
        for (int how = 0; how < 8; how++) {
            const int64_t m = shapes[s][0], n = shapes[s][1], d = shapes[s][2], ldc = n + 2;
            bool ta = how & 1, tb = how >> 1 & 1;
            int64_t lda = (ta ? m : d) + 1, ldb = (tb ? d : n) + 3;
            double beta = how >> 2 ? 0.5 : 0;
            start(k, -1, 1);
            for (int64_t i = 0; i < m; i++) {
                memcpy(a->out[0] + i * ldc, a->in[2] + i * ldc, (size_t)ldc * 2);
                memcpy(a->wide_out[0] + i * ldc, a->wide_in[2] + i * ldc, (size_t)ldc * 4);
            }
            k->gemm(ta, tb, m, n, d, 1.5, a->in[0], lda, a->in[1], ldb, beta, a->out[0], ldc);
            f32->gemm(ta, tb, m, n, d, 1.5, a->wide_in[0], lda, a->wide_in[1], ldb, beta,
                      a->wide_out[0], ldc);
            compare(k, type, 0, m * ldc, 1e-4, "gemm");
        }
}

static void products_are_those_of_f32(void)
{
    for_all(products);
}

static void attend(const sherd__kernels *k, int type)
{
    static const sherd__attending shapes[] = {
        {2, 3, 1, 5, 5, 8, .scale = 0.5, .causal = true},
        {1, 2, 1, 7, 20, 16, .scale = 0.25},
        {2, 2, 3, 4, 9, 8, .scale = 0.5}, /* shared keys */
        {1, 1, 1, 1, 1, 1, .scale = 1},
    };

    for (int s = 0; s < LEN(shapes); s++) {
        const sherd__attending *shape = &shapes[s];
        int64_t n = shape->batch * shape->queries * sherd__query_stride(shape);
        int64_t keys = shape->batch * shape->keys * sherd__key_stride(shape);
        int64_t sums = shape->batch * shape->groups * shape->repeat * shape->queries;
        void *work = aligned_alloc(64, (size_t)(k->attention_workspace(shape) / 32 + 1) * 64);
        float *wide_work = malloc((size_t)(f32->attention_workspace(shape) + 1) * 4);
        start(k, -1, 1);
        k->attention(shape, a->out[0], a->stats[0], a->in[0], a->in[1], a->in[2], work);
        f32->attention(shape, a->wide_out[0], a->stats[1], a->wide_in[0], a->wide_in[1],
                       a->wide_in[2], wide_work);
        compare(k, type, 0, n, 1e-5, "attention");
        compare_stats(a->stats, sums, 1e-5);
        /* The gradient takes the stored result and log_sum: the same for both. */
        uint16_t *out = a->in[1] + ROOM / 2;
        memcpy(out, a->out[0], (size_t)n * 2);
        k->widen(n, a->more[0], out);
        k->attention_grad(shape, a->out[0], a->out[1], a->out[2], NULL, a->in[3], NULL, a->in[0],
                          a->in[1], a->in[2], out, a->stats[1], work);
        f32->attention_grad(shape, a->wide_out[0], a->wide_out[1], a->wide_out[2], NULL,
                            a->wide_in[3], NULL, a->wide_in[0], a->wide_in[1], a->wide_in[2],
                            a->more[0], a->stats[1], wide_work);
        compare(k, type, 0, n, 1e-5, "dq");
        compare(k, type, 1, keys, 1e-5, "dk");
        compare(k, type, 2, keys, 1e-5, "dv");
        free(work);
        free(wide_work);
    }
}

static void attention_is_that_of_f32(void)
{
    for_all(attend);
}

/* ---- rows ---- */

static void rows(const sherd__kernels *k, int type)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 50}, {2, 700}, {0, 5}, {40, 3}};

    for (int s = 0; s < LEN(shapes); s++) {
        int64_t n = shapes[s][0], cols = shapes[s][1];
        start(k, -2, 2);
        k->layer_norm(n, cols, a->out[0], a->stats[0], a->more[0], a->in[0], a->in[1], a->in[2],
                      1e-5);
        f32->layer_norm(n, cols, a->wide_out[0], a->stats[1], a->more[1], a->wide_in[0],
                        a->wide_in[1], a->wide_in[2], 1e-5);
        compare(k, type, 0, n * cols, 1e-5, "layer_norm");
        compare_stats(a->stats, n, 1e-6);
        compare_stats(a->more, n, 1e-6);
        k->layer_norm_grad(n, cols, a->out[0], a->out[1], a->out[2], a->in[3], a->in[0], a->in[1],
                           a->stats[1], a->more[1], false);
        f32->layer_norm_grad(n, cols, a->wide_out[0], a->wide_out[1], a->wide_out[2], a->wide_in[3],
                             a->wide_in[0], a->wide_in[1], a->stats[1], a->more[1], false);
        compare(k, type, 0, n * cols, 1e-4, "layer_norm dx");
        compare(k, type, 1, cols, 1e-4, "layer_norm dweight");
        compare(k, type, 2, cols, 1e-4, "layer_norm dbias");
    }
}

/* A sum of f32 and 16 bits, and its norm in 16 bits: an RMS norm where it is odd. */
static void added_rows(const sherd__kernels *k, int type)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 50}, {2, 700}, {0, 5}, {40, 3}, {7, 32}};

    for (int s = 0; s < LEN(shapes); s++) {
        int64_t n = shapes[s][0], cols = shapes[s][1], all = n * cols;
        bool rms = s % 2;
        float *sum = a->wide_out[1], *want = a->wide_out[2];
        start(k, -2, 2);
        const sherd__added_norm p = {.x = a->wide_in[0],
                                     .delta = a->in[1],
                                     .weight = a->wide_in[2],
                                     .bias = rms ? NULL : a->wide_in[3],
                                     .sum = sum,
                                     .mean = rms ? NULL : a->stats[0],
                                     .rstd = a->more[0],
                                     .norm = a->out[0],
                                     .eps = 1e-5};
        k->add_norm(n, cols, &p);
        f32->binary(SHERD__ADD, 1, &all, want, a->wide_in[0], (int64_t[]){1}, a->wide_in[1],
                    (int64_t[]){1});
        CHECK_EQ(memcmp(sum, want, sizeof a->wide_out[1]), 0);
        if (rms)
            f32->rms_norm(n, cols, a->wide_out[0], a->more[1], want, p.weight, p.eps);
        else
            f32->layer_norm(n, cols, a->wide_out[0], a->stats[1], a->more[1], want, p.weight,
                            p.bias, p.eps);
        compare(k, type, 0, all, 1e-5, "add_norm");
        compare_stats(a->stats, n, 1e-6);
        compare_stats(a->more, n, 1e-6);
    }
}

/*
 * The gradient of both: that of f32's norm, and what comes to the sum (nothing in every third
 * shape). An RMS norm where it is odd.
 */
static void added_grads(const sherd__kernels *k, int type)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 50}, {2, 700}, {0, 5}, {40, 3}, {7, 32}};

    for (int s = 0; s < LEN(shapes); s++) {
        int64_t n = shapes[s][0], cols = shapes[s][1], all = n * cols;
        bool rms = s % 2;
        float *dx = a->wide_out[1], *dweight = a->wide_out[2], *want = a->more[0];
        start(k, 0.5, 2);
        const sherd__added_grad p = {.dy = a->wide_in[0],
                                     .sum = a->wide_in[1],
                                     .dsum = s % 3 ? a->wide_in[2] : NULL,
                                     .weight = a->wide_in[3],
                                     .mean = rms ? NULL : a->wide_in[2],
                                     .rstd = a->wide_in[3] + cols,
                                     .dx = dx,
                                     .ddelta = a->out[0],
                                     .dweight = dweight,
                                     .dbias = rms ? NULL : dweight + cols};
        k->add_norm_grad(n, cols, &p);
        if (rms)
            f32->rms_norm_grad(n, cols, a->wide_out[0], want, p.dy, p.sum, p.weight, p.rstd, false);
        else
            f32->layer_norm_grad(n, cols, a->wide_out[0], want, want + cols, p.dy, p.sum, p.weight,
                                 p.mean, p.rstd, false);
        for (int64_t i = 0; p.dsum && i < all; i++)
            a->wide_out[0][i] += a->wide_in[2][i];
        for (int64_t i = 0; i < (rms ? 1 : 2) * cols; i++)
            CHECK_NEAR((double)dweight[i], (double)want[i], 1e-4 * (1 + fabs((double)want[i])));
        for (int64_t i = 0; i < all; i++)
            CHECK_NEAR((double)dx[i], (double)a->wide_out[0][i], 1e-4);
        compare(k, type, 0, all, 1e-4, "add_norm_grad");
    }
}

/* Without a weight where it is odd; gradients of weights are added to those that are there in every
 * other shape. */
static void rms_rows(const sherd__kernels *k, int type)
{
    static const int64_t shapes[][2] = {{1, 1}, {3, 50}, {2, 1100}, {0, 5}, {40, 3}, {7, 16}};

    for (int s = 0; s < LEN(shapes); s++) {
        int64_t n = shapes[s][0], cols = shapes[s][1];
        bool add = s % 2;
        start(k, -2, 2);
        memcpy(a->out[1], a->in[2], (size_t)cols * 2);
        memcpy(a->wide_out[1], a->wide_in[2], (size_t)cols * 4);
        k->rms_norm(n, cols, a->out[0], a->stats[0], a->in[0], add ? NULL : a->in[1], 1e-5);
        f32->rms_norm(n, cols, a->wide_out[0], a->stats[1], a->wide_in[0],
                      add ? NULL : a->wide_in[1], 1e-5);
        compare(k, type, 0, n * cols, 1e-5, "rms_norm");
        compare_stats(a->stats, n, 1e-6);
        k->rms_norm_grad(n, cols, a->out[0], a->out[1], a->in[3], a->in[0], add ? NULL : a->in[1],
                         a->stats[1], add);
        f32->rms_norm_grad(n, cols, a->wide_out[0], a->wide_out[1], a->wide_in[3], a->wide_in[0],
                           add ? NULL : a->wide_in[1], a->stats[1], add);
        compare(k, type, 0, n * cols, 1e-4, "rms_norm dx");
        compare(k, type, 1, cols, 1e-4, "rms_norm dweight");
    }
}

static void rows_are_normed_as_in_f32(void)
{
    for_all(rows);
    for_all(added_rows);
    for_all(added_grads);
    for_all(rms_rows);
}

static void losses(const sherd__kernels *k, int type)
{
    static const int32_t targets[] = {4, 0, 1999, 17, 3};
    static const int64_t columns[] = {1, 5, 600, 1100, 0};

    for (int s = 0; s < LEN(columns); s++) {
        int64_t n = 5, cols = columns[s];
        double sums[2][10];
        start(k, -9, 9);
        k->cross_entropy(n, cols, a->stats[0], a->in[0], targets, 3);
        f32->cross_entropy(n, cols, a->stats[1], a->wide_in[0], targets, 3);
        for (int i = 0; i < n && cols == 0; i++)
            CHECK(a->stats[0][i] == -INFINITY && a->stats[1][i] == -INFINITY);
        if (cols > 0)
            compare_stats(a->stats, 3 * n, 1e-5);
        double loss = k->cross_entropy_join(1, n, sums[0], a->stats[1]);
        CHECK(cols == 0 || loss == f32->cross_entropy_join(1, n, sums[1], a->stats[1]));
        k->cross_entropy_grad(n, cols, a->out[0], a->in[0], targets, 3, sums[1], 0.25);
        f32->cross_entropy_grad(n, cols, a->wide_out[0], a->wide_in[0], targets, 3, sums[1], 0.25);
        compare(k, type, 0, n * cols, 1e-6, "cross_entropy dlogits");
    }
}

static void losses_are_those_of_f32(void)
{
    for_all(losses);
}

/* ---- tables, random numbers, the optimizer ---- */

static void lookups(const sherd__kernels *k, int type)
{
    static const int32_t ids[] = {3, 9, 3, 4, 8, 3, 100, 4, 2};
    int64_t scratch[4 + LEN(ids)];

    for (int64_t width = 1; width < 1200; width = width * 4 + 1) {
        int64_t n = width < 600 ? LEN(ids) : 4;
        start(k, -2, 2);
        k->embedding(n, width, a->out[0], a->in[0], ids, 3, 4);
        f32->embedding(n, width, a->wide_out[0], a->wide_in[0], ids, 3, 4);
        compare(k, type, 0, n * width, 0, "embedding");
        k->embedding_grad(n, width, a->out[1], a->in[1], ids, 3, 4, scratch);
        f32->embedding_grad(n, width, a->wide_out[1], a->wide_in[1], ids, 3, 4, NULL);
        compare(k, type, 1, 4 * width, 0, "embedding dweight");
    }
}

static void lookups_are_those_of_f32(void)
{
    for_all(lookups);
}

static void draws(const sherd__kernels *k, int type)
{
    sherd__key key = sherd__philox_key(1, 7, 2);

    for (int i = 0; i < LEN(lengths); i++)
        for (int64_t first = 0; first < 1000; first += 333) {
            int64_t n = lengths[i];
            start(k, -2, 2);
            k->dropout(n, a->out[0], a->in[0], 0.3, key, first);
            f32->dropout(n, a->wide_out[0], a->wide_in[0], 0.3, key, first);
            compare(k, type, 0, n, 0, "dropout");
            k->uniform(n, a->out[1], -1, 3, key, first);
            f32->uniform(n, a->wide_out[1], -1, 3, key, first);
            compare(k, type, 1, n, 0, "uniform");
            k->normal(n, a->out[2], 0.5, 2, key, first);
            f32->normal(n, a->wide_out[2], 0.5, 2, key, first);
            compare(k, type, 2, n, 1e-6, "normal");
        }
}

static void random_numbers_are_those_of_f32(void)
{
    for_all(draws);
}

/* The state is f32: the same steps but for the order of operations. */
static void steps(const sherd__kernels *k, int type)
{
    const sherd__adamw_step step = {0.1, 0.9, 0.99, 1e-8, 0.1, 0.1, 0.01, 0.5, 0.2};
    int64_t n = 1500;
    float *p[2], *m[2], *v[2];

    (void)type;
    for (int i = 0; i < 2; i++) {
        p[i] = a->wide_out[i];
        m[i] = a->stats[i];
        v[i] = a->more[i];
        memcpy(p[i], a->wide_in[1], (size_t)n * 4);
    }
    for (int t = 0; t < 3; t++) {
        k->adamw(n, p[0], m[0], v[0], a->in[0], &step);
        f32->adamw(n, p[1], m[1], v[1], a->wide_in[0], &step);
    }
    const sherd__sgd_step plain = {0.1, 0.1, 0.5, 0.9, 1, 0.9, true};
    for (int t = 0; t < 2; t++) {
        k->sgd(n, p[0], t ? m[0] : NULL, a->in[0], &plain);
        f32->sgd(n, p[1], t ? m[1] : NULL, a->wide_in[0], &plain);
    }
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR((double)p[0][i], (double)p[1][i], 1e-5);
    compare_stats(a->stats, n, 1e-5);
    compare_stats(a->more, n, 1e-5);
}

static void the_optimizer_keeps_its_state_in_f32(void)
{
    for_all(steps);
}

static const check_test tests[] = {
    {TEST(products_are_those_of_f32)},
    {TEST(attention_is_that_of_f32)},
    {TEST(rows_are_normed_as_in_f32)},
    {TEST(losses_are_those_of_f32)},
    {TEST(lookups_are_those_of_f32)},
    {TEST(random_numbers_are_those_of_f32)},
    {TEST(the_optimizer_keeps_its_state_in_f32)},
};
CHECK_MAIN(tests)
