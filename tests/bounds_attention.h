/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects (bounds.h): products of matrices, attention, the gradient of a convolution's weight. */
#ifndef SHERD_TESTS_BOUNDS_ATTENTION_H
#define SHERD_TESTS_BOUNDS_ATTENTION_H

#include "bounds.h"
#include "kernels/conv.h"
#include "kernels/ref.h"

#include <math.h>

static int64_t matrix(int64_t rows, int64_t cols, int64_t row)
{
    return rows && cols ? (rows - 1) * row + cols : 0;
}

static void try_gemm(trial *t)
{
    const sherd__kernels *k = t->table;
    bool ta = draw(t, "ta", 2), tb = draw(t, "tb", 2), gaps = draw(t, "gaps", 2);
    int64_t m = length(t, "m"), n = length(t, "n"), d = length(t, "k");
    double alpha = (double)draw(t, "alpha", 3) / 2, beta = (double)draw(t, "beta", 3) / 2;
    int64_t lda = (ta ? m : d) + gaps * draw(t, "lda", 9);
    int64_t ldb = (tb ? d : n) + gaps * draw(t, "ldb", 9), ldc = n + gaps * draw(t, "ldc", 9);
    const void *a = in(t, "a", ta ? matrix(d, m, lda) : matrix(m, d, lda));
    const void *b = in(t, "b", tb ? matrix(n, d, ldb) : matrix(d, n, ldb));
    bool changed = beta != 0 || gaps;
    void *c = part_of(t, "c", changed ? CHANGED : WRITTEN, OWN, matrix(m, n, ldc));

    t->slack = 8;
    ready(t);
    k->gemm(ta, tb, m, n, d, alpha, a, lda, b, ldb, beta, c, ldc);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* A whole problem, or a piece of one. */
static sherd__attending draw_attending(trial *t)
{
    sherd__attending s = {.batch = draw(t, "batch", 3),
                          .groups = 1 + draw(t, "groups", 3),
                          .repeat = 1 + draw(t, "repeat", 3),
                          .queries = length(t, "queries") / 2,
                          .keys = length(t, "keys") / 2,
                          .width = 1 + draw(t, "width", 40),
                          .scale = 0.25,
                          .causal = draw(t, "causal", 2)};
    bool piece = draw(t, "piece", 2);

    s.first_query = piece ? draw(t, "first_query", 30) : 0;
    s.first_key = piece ? draw(t, "first_key", 30) : 0;
    s.first[0] = piece ? draw(t, "first_batch", 3) : 0;
    s.all_queries = s.first_query + s.queries + (piece ? 2 : 0);
    s.all_keys = s.first_key + s.keys + (piece ? 3 : 0);
    s.all_repeat = s.repeat;
    s.all_heads = s.groups * s.repeat;
    s.p = draw(t, "p", 3) == 0 ? 0.25 : 0;
    s.key = sherd__philox_key(7, 1, 2);
    s.window = s.causal && draw(t, "window", 2) ? 1 + draw(t, "in the window", 40) : 0;
    s.softcap = draw(t, "softcap", 4) ? 0 : 1.5;
    return s;
}

/*
 * A mask of bools, f32 or the type itself, of all keys, stretched over some dims. Elements of it.
 */
static int64_t draw_mask(trial *t, sherd__attending *s)
{
    const int64_t size[] = {s->batch, s->groups, s->repeat, s->queries, s->all_keys};
    int64_t how = draw(t, "mask", 4), n = 1;

    if (how == 0)
        return 0;
    for (int d = 4; d >= 0; d--) {
        bool stretched = d < 4 && draw(t, "stretched", 3) == 0;
        s->mask_stride[d] = stretched ? 0 : n;
        n *= stretched ? 1 : size[d];
    }
    whole_range(t, 0, 1);
    s->mask = part_of(t, "mask", READ, how == 1 ? FLAGS : how == 2 ? F32S : OWN, n);
    s->mask_dtype = how == 1 ? SHERD_BOOL : how == 2 ? SHERD_F32 : t->dtype;
    if (how == 3 && t->on_paper)
        s->mask_dtype = t->paper_dtype;
    range(t, -1, 1, 0.125);
    return n;
}

typedef struct attending_sizes {
    int64_t q, k, rows, space;
} attending_sizes;

static attending_sizes sizes_of(const sherd__kernels *k, const sherd__attending *s)
{
    int64_t heads = s->batch * s->groups;

    return (attending_sizes){.q = heads * s->repeat * s->queries * s->width,
                             .k = heads * s->keys * s->width,
                             .rows = heads * s->repeat * s->queries,
                             .space = k->attention_workspace(s)};
}

static void try_attention(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__attending s = draw_attending(t);

    range(t, -1, 1, 0.125);
    draw_mask(t, &s);
    attending_sizes n = sizes_of(k, &s);
    const void *q = in(t, "q", n.q), *keys = in(t, "k", n.k), *values = in(t, "v", n.k);
    void *sums = part_of(t, "log_sum", WRITTEN, STATISTIC, n.rows), *result = out(t, "out", n.q);
    void *space = part_of(t, "workspace", SPACE, OWN, n.space);
    t->slack = 8;
    ready(t);
    k->attention(&s, result, sums, q, keys, values, space);
}

static void try_attention_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__attending s = draw_attending(t);

    range(t, -1, 1, 0.125);
    int64_t mask = draw_mask(t, &s);
    attending_sizes n = sizes_of(k, &s);
    const void *q = in(t, "q", n.q), *keys = in(t, "k", n.k), *values = in(t, "v", n.k);
    const void *made = in(t, "out", n.q);
    const void *dout = draw(t, "dout", 5) ? in(t, "dout", n.q) : NULL;
    bool slopes = draw(t, "dlog_sum", 2), adds = s.mask && draw(t, "dmask", 2);
    const void *dsums = slopes ? part_of(t, "dlog_sum", READ, STATISTIC, n.rows) : NULL;
    double *dmask = adds ? part_of(t, "dmask", CHANGED, F64S, mask) : NULL;
    range(t, 3, 4, 0.125);
    const void *sums = part_of(t, "log_sum", READ, STATISTIC, n.rows);
    void *dq = out(t, "dq", n.q), *dk = out(t, "dk", n.k), *dv = out(t, "dv", n.k);
    void *space = part_of(t, "workspace", SPACE, OWN, n.space);
    t->slack = 30;
    ready(t);
    k->attention_grad(&s, dq, dk, dv, dmask, dout, dsums, q, keys, values, made, sums, space);
}

/*
 * Attention of bf16 whose table is sherd__attention_tiles: whole sequences, nothing between scores
 * and products. Both tables ask for workspace in their own way, and so many bytes do for paper.
 */
static sherd__attending draw_whole(trial *t)
{
    sherd__attending s = {.batch = 1 + draw(t, "batch", 2),
                          .groups = 1 + draw(t, "groups", 3),
                          .repeat = 1 + draw(t, "repeat", 3),
                          .queries = 1 + length(t, "queries"),
                          .keys = 1 + length(t, "keys"),
                          .width = 1 + draw(t, "width", 70),
                          .scale = draw(t, "negative", 3) ? 0.25 : -0.25,
                          .causal = draw(t, "causal", 2)};

    s.window = s.causal && draw(t, "window", 2) ? 1 + draw(t, "in the window", 90) : 0;
    return s;
}

static int64_t tiles_space(const trial *t, const sherd__attending *s)
{
    const sherd__attention_tiles *tiles = t->table;

    return t->on_paper ? 8 * sherd__ref_f64.attention_workspace(s) : tiles->bytes(s);
}

static void try_tiles(trial *t)
{
    const sherd__attention_tiles *tiles = t->table;
    sherd__attending s = draw_whole(t);

    range(t, -1, 1, 0.125);
    attending_sizes n = sizes_of(&sherd__ref_f64, &s);
    const void *q = in(t, "q", n.q), *keys = in(t, "k", n.k), *values = in(t, "v", n.k);
    void *sums = part_of(t, "log_sum", WRITTEN, STATISTIC, n.rows), *result = out(t, "out", n.q);
    void *space = part_of(t, "workspace", SPACE, BYTES, tiles_space(t, &s));
    t->slack = 8;
    ready(t);
    if (t->on_paper)
        sherd__ref_f64.attention(&s, result, sums, q, keys, values, space);
    else
        CHECK_EQ(tiles->attention(&s, result, sums, q, keys, values, space), SHERD__DONE);
}

static void try_tiles_grad(trial *t)
{
    const sherd__attention_tiles *tiles = t->table;
    sherd__attending s = draw_whole(t);

    range(t, -1, 1, 0.125);
    attending_sizes n = sizes_of(&sherd__ref_f64, &s);
    const void *q = in(t, "q", n.q), *keys = in(t, "k", n.k), *values = in(t, "v", n.k);
    const void *made = in(t, "out", n.q), *dout = in(t, "dout", n.q);
    range(t, 3, 4, 0.125);
    const void *sums = part_of(t, "log_sum", READ, STATISTIC, n.rows);
    void *dq = out(t, "dq", n.q), *dk = out(t, "dk", n.k), *dv = out(t, "dv", n.k);
    void *space = part_of(t, "workspace", SPACE, BYTES, tiles_space(t, &s));
    t->slack = 30;
    ready(t);
    if (t->on_paper)
        sherd__ref_f64.attention_grad(&s, dq, dk, dv, NULL, dout, NULL, q, keys, values, made, sums,
                                      space);
    else
        CHECK_EQ(tiles->attention_grad(&s, dq, dk, dv, dout, q, keys, values, made, sums, space),
                 SHERD__DONE);
}

static void try_attention_join(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__attending s = draw_attending(t);
    attending_sizes n = sizes_of(k, &s);
    void *first = in_out(t, "out", n.q), *sums = part_of(t, "log_sum", CHANGED, STATISTIC, n.rows);
    const void *more = in(t, "more", n.q);
    const void *more_sums = part_of(t, "more_log_sum", READ, STATISTIC, n.rows);

    t->slack = 4;
    ready(t);
    k->attention_join(&s, first, sums, more, more_sums);
}

/* Each query sees some of the keys, or none; rows of keys may have gaps. */
static void try_attention_cached(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__cached s = {.queries = draw(t, "queries", 5),
                       .groups = 1 + draw(t, "groups", 3),
                       .repeat = 1 + draw(t, "repeat", 5),
                       .width = 1 + draw(t, "width", 70),
                       .keys = length(t, "keys"),
                       .scale = 0.25};
    int64_t rows = s.queries * s.groups * s.repeat, key = s.groups * s.width;

    s.key_row = key + (draw(t, "gaps", 2) ? draw(t, "gap", 20) : 0);
    whole_range(t, 0, s.keys);
    s.seen = part_of(t, "seen", READ, I64S, s.queries);
    if (draw(t, "window", 2))
        s.before = part_of(t, "before", READ, I64S, s.queries);
    s.softcap = draw(t, "softcap", 4) ? 0 : 1.5;
    s.together = draw(t, "together", 2) ? 1 + draw(t, "keys of a block", 20) : 0;
    int64_t blocks = s.together ? (s.keys + s.together - 1) / s.together : 0;
    range(t, 0, (double)(blocks ? (blocks - 1) * s.together : 0),
          s.together ? (double)s.together : 1);
    int64_t *block = part_of(t, "block", READ, I64S, blocks);
    s.block = s.together ? block : NULL;
    range(t, -1, 1, 0.125);
    int64_t last = s.together ? blocks * s.together : s.keys;
    int64_t all = last ? (last - 1) * s.key_row + key : 0;
    const void *q = in(t, "q", rows * s.width), *keys = in(t, "k", all), *v = in(t, "v", all);
    void *to = part_of(t, "out", WRITTEN, STATISTIC, rows * s.width);
    void *sums = part_of(t, "log_sum", WRITTEN, STATISTIC, rows);
    void *space = part_of(t, "workspace", SPACE, BYTES, k->attention_cached_workspace(&s));
    t->slack = 8;
    ready(t);
    k->attention_cached(&s, to, sums, q, keys, v, space);
}

/* ---- convolutions ---------------------------------------------------------------------------- */

/*
 * What lies in blocks: [batch, channels / block, space, block] to [batch, channels, space], in f64.
 */
static double *plain_of(const float *x, int64_t batch, int64_t channels, int64_t space,
                        int64_t block)
{
    double *plain = malloc((size_t)(batch * channels * space) * sizeof(double) + 1);

    for (int64_t b = 0; plain && b < batch; b++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t s = 0; s < space; s++)
                plain[(b * channels + c) * space + s] = (double)
                    x[((b * (channels / block) + c / block) * space + s) * block + c % block];
    return plain;
}

static void conv_on_paper(const sherd__conv *c, float *dw, const float *x, const float *dy,
                          int64_t block)
{
    int64_t in_space = c->in[0] * c->in[1] * c->in[2],
            out_space = c->out[0] * c->out[1] * c->out[2];
    int64_t n = c->out_channels * c->in_channels * c->kernel[0] * c->kernel[1] * c->kernel[2];
    double *xs = plain_of(x, c->batch, c->in_channels, in_space, block);
    double *dys = plain_of(dy, c->batch, c->out_channels, out_space, block);
    double *sums = calloc((size_t)n + 1, sizeof(double));

    if (CHECK(xs && dys && sums)) {
        sherd__conv_f64.backward_w(c, sums, xs, dys);
        sherd__cast(SHERD_F32, SHERD_F64, n, dw, sums);
    }
    free(xs);
    free(dys);
    free(sums);
}

static void try_conv_weight(trial *t)
{
    enum { BLOCK = 16 }; /* of the only such kernel; checked below */
    const sherd__kernels *k = t->table;
    sherd__conv c = {.batch = draw(t, "batch", 3),
                     .groups = 1,
                     .in_channels = BLOCK * (1 + draw(t, "in", 3)),
                     .out_channels = BLOCK * (1 + draw(t, "out", 3))};
    int64_t in_space = 1, out_space = 1, taps = 1;

    for (int d = 0; d < SHERD__CONV_DIMS; d++) {
        c.kernel[d] = 1 + (d ? draw(t, "kernel", 3) : 0);
        c.stride[d] = 1 + (d ? draw(t, "stride", 2) : 0);
        c.dilation[d] = 1 + (d ? draw(t, "dilation", 2) : 0);
        c.before[d] = d ? draw(t, "before", 2) : 0;
        c.out[d] = d ? 1 + draw(t, "out", 8) : 1;
        c.in[d] = (c.out[d] - 1) * c.stride[d] + (c.kernel[d] - 1) * c.dilation[d] + 1 -
                  c.before[d] - (d ? draw(t, "behind", 2) : 0);
        c.in[d] = c.in[d] > 1 ? c.in[d] : 1;
        in_space *= c.in[d];
        out_space *= c.out[d];
        taps *= c.kernel[d];
    }
    int64_t n = c.out_channels * c.in_channels * taps;
    const float *x = part_of(t, "x", READ, F32S, c.batch * c.in_channels * in_space);
    const float *dy = part_of(t, "dy", READ, F32S, c.batch * c.out_channels * out_space);
    float *dw = part_of(t, "dw", WRITTEN, F32S, n), *sums = part_of(t, "sums", SPACE, F32S, n);
    t->slack = 16;
    if (!t->on_paper && !CHECK_EQ(k->conv_block, BLOCK))
        return;
    ready(t);
    if (t->on_paper)
        conv_on_paper(&c, dw, x, dy, BLOCK);
    else
        k->conv_weight(&c, dw, x, dy, sums);
}

#endif
