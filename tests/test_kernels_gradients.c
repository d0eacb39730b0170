/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every backward kernel against central differences of its forward, in f64: the loss is a fixed
 * weighting of the outputs, so dout is that weighting. Step 1e-5 leaves an error of about 1e-9 in
 * the difference.
 */
#define CHECK_PURE
#include "check.h"
#include "kernels/ref.h"
#include "vector/choose.h"

#include <math.h>

enum { MOST = 512 };
static const double step = 1e-5, tolerance = 1e-7;

/* The numbers of one case. What is not an input of a kernel stays 0. */
typedef struct problem {
    sherd__kernels k;
    double x[3][MOST];  /* inputs */
    double dx[3][MOST]; /* what the backward kernel says */
    double y[MOST];
    double w[MOST]; /* the weighting, dloss / dy */
    double extra[2][MOST];
    double space[MOST];
    int64_t rows, cols;
    sherd__attending shape;
    int32_t targets[16];
} problem;

typedef double (*loss_of)(problem *p);

/* Pseudo-random numbers in [-1, 1), different for each stream. */
static void mix(double *x, int64_t n, uint64_t stream)
{
    sherd__kernel_set set;
    sherd__kernels_choose(&set);
    set.f64.uniform(n, x, -1, 1, sherd__philox_key(7, stream, 0), 0);
}

static double weigh(const problem *p, int64_t n)
{
    double loss = 0;
    for (int64_t i = 0; i < n; i++)
        loss += p->w[i] * p->y[i];
    return loss;
}

static problem *start(void)
{
    problem *p = calloc(1, sizeof *p);
    sherd__kernel_set set;
    if (!p)
        abort();
    sherd__kernels_choose(&set);
    p->k = set.f64;
    for (uint64_t i = 0; i < 3; i++)
        mix(p->x[i], MOST, i);
    mix(p->w, MOST, 3);
    return p;
}

/* Compare dx[input][0..n) with differences of `loss`. */
static void compare(problem *p, loss_of loss, int input, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double was = p->x[input][i];
        p->x[input][i] = was + step;
        double up = loss(p);
        p->x[input][i] = was - step;
        double down = loss(p);
        p->x[input][i] = was;
        CHECK_NEAR(p->dx[input][i], (up - down) / (2 * step), tolerance);
    }
}

static double gelu_loss(problem *p)
{
    p->k.unary(SHERD__GELU, p->cols, p->y, p->x[0], NULL);
    return weigh(p, p->cols);
}

static void gelu_grad_is_the_slope(void)
{
    problem *p = start();

    p->cols = 100;
    for (int64_t i = 0; i < p->cols; i++)
        p->x[0][i] *= 6;
    p->k.unary_grad(SHERD__GELU, p->cols, p->dx[0], p->x[0], p->w, NULL);
    compare(p, gelu_loss, 0, p->cols);
    free(p);
}

static double relu_loss(problem *p)
{
    p->k.unary(SHERD__RELU, p->cols, p->y, p->x[0], NULL);
    return weigh(p, p->cols);
}

static void relu_grad_is_the_slope(void)
{
    problem *p = start();

    p->cols = 100;
    p->k.unary_grad(SHERD__RELU, p->cols, p->dx[0], p->x[0], p->w, NULL);
    compare(p, relu_loss, 0, p->cols);
    free(p);
}

static double norm_loss(problem *p)
{
    p->k.layer_norm(p->rows, p->cols, p->y, p->extra[0], p->extra[1], p->x[0], p->x[1], p->x[2],
                    1e-5);
    return weigh(p, p->rows * p->cols);
}

static void layer_norm_grad_is_the_slope(void)
{
    static const int64_t shapes[][2] = {{3, 7}, {1, 2}, {5, 33}, {4, 1}};
    problem *p = start();

    for (int s = 0; s < LEN(shapes); s++) {
        p->rows = shapes[s][0];
        p->cols = shapes[s][1];
        norm_loss(p);
        p->k.layer_norm_grad(p->rows, p->cols, p->dx[0], p->dx[1], p->dx[2], p->w, p->x[0], p->x[1],
                             p->extra[0], p->extra[1], false);
        compare(p, norm_loss, 0, p->rows * p->cols);
        compare(p, norm_loss, 1, p->cols);
        compare(p, norm_loss, 2, p->cols);
    }
    free(p);
}

static double attention_loss(problem *p)
{
    const sherd__attending *s = &p->shape;
    p->k.attention(s, p->y, p->extra[0], p->x[0], p->x[1], p->x[2], p->space);
    return weigh(p, s->batch * s->queries * sherd__query_stride(s));
}

static void attention_grad_is_the_slope(void)
{
    static const sherd__attending shapes[] = {
        {2, 2, 1, 5, 5, 3, .scale = 0.5, .causal = true},
        {2, 2, 1, 5, 5, 3, .scale = 0.5},
        {1, 3, 1, 4, 7, 2, .scale = 0.7},
        {1, 1, 1, 7, 4, 2, .scale = 0.7, .causal = true}, /* later queries see all keys */
        {1, 1, 1, 1, 1, 4, .scale = 0.7, .causal = true},
        {1, 2, 3, 3, 4, 2, .scale = 0.7}, /* shared heads */
    };
    problem *p = start();

    for (int i = 0; i < LEN(shapes); i++) {
        const sherd__attending *s = &shapes[i];
        p->shape = *s;
        CHECK(p->k.attention_workspace(s) <= MOST);
        attention_loss(p);
        p->k.attention_grad(s, p->dx[0], p->dx[1], p->dx[2], NULL, p->w, NULL, p->x[0], p->x[1],
                            p->x[2], p->y, p->extra[0], p->space);
        compare(p, attention_loss, 0, s->batch * s->queries * sherd__query_stride(s));
        compare(p, attention_loss, 1, s->batch * s->keys * sherd__key_stride(s));
        compare(p, attention_loss, 2, s->batch * s->keys * sherd__key_stride(s));
    }
    free(p);
}

/* The classes lie in two ranges, as on two ranks; the logits of a range are contiguous. */
static double cross_entropy_loss(problem *p)
{
    int64_t left = 3, right = p->cols - left;
    double *stats = p->extra[0];

    p->k.cross_entropy(p->rows, left, stats, p->x[0], p->targets, 0);
    p->k.cross_entropy(p->rows, right, stats + 3 * p->rows, p->x[0] + p->rows * left, p->targets,
                       left);
    return p->k.cross_entropy_join(2, p->rows, p->extra[1], stats);
}

static void cross_entropy_grad_is_the_slope(void)
{
    problem *p = start();
    int64_t left = 3;

    p->rows = 6;
    p->cols = 10;
    for (int r = 0; r < 6; r++)
        p->targets[r] = r * 9 / 5;
    cross_entropy_loss(p);
    p->k.cross_entropy_grad(p->rows, left, p->dx[0], p->x[0], p->targets, 0, p->extra[1], 1);
    p->k.cross_entropy_grad(p->rows, p->cols - left, p->dx[0] + p->rows * left,
                            p->x[0] + p->rows * left, p->targets, left, p->extra[1], 1);
    compare(p, cross_entropy_loss, 0, p->rows * p->cols);
    free(p);
}

static double embedding_loss(problem *p)
{
    p->k.embedding(8, p->cols, p->y, p->x[0], p->targets, 2, p->rows);
    return weigh(p, 8 * p->cols);
}

/* Ids 0..7, rows 2..6: some ids lie outside, some twice. */
static void embedding_grad_is_the_slope(void)
{
    static const int32_t ids[8] = {0, 2, 6, 6, 3, 7, 2, 6};
    problem *p = start();

    memcpy(p->targets, ids, sizeof ids);
    p->rows = 5;
    p->cols = 3;
    p->k.embedding_grad(8, p->cols, p->dx[0], p->w, p->targets, 2, p->rows, NULL);
    compare(p, embedding_loss, 0, p->rows * p->cols);
    free(p);
}

static const check_test tests[] = {
    {TEST(gelu_grad_is_the_slope)},          {TEST(relu_grad_is_the_slope)},
    {TEST(layer_norm_grad_is_the_slope)},    {TEST(attention_grad_is_the_slope)},
    {TEST(cross_entropy_grad_is_the_slope)}, {TEST(embedding_grad_is_the_slope)},
};
CHECK_MAIN(tests)
