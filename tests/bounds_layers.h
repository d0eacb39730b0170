/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subjects (bounds.h) with tables of their own: norms, layers, attention to neighbours, pools,
 * taps, convolutions.
 */
#ifndef SHERD_TESTS_BOUNDS_LAYERS_H
#define SHERD_TESTS_BOUNDS_LAYERS_H

#include "bounds.h"
#include "kernels/conv.h"
#include "kernels/layers.h"
#include "kernels/neighbours.h"
#include "kernels/norms.h"
#include "kernels/pool.h"
#include "kernels/taps.h"

#include <stddef.h>

static const double *doubles(trial *t, const char *name, int64_t n)
{
    return part_of(t, name, READ, F64S, n);
}

static double *sums(trial *t, const char *name, int64_t n)
{
    return part_of(t, name, CHANGED, F64S, n);
}

/* Positive ones. */
static const double *totals(trial *t, const char *name, int64_t n)
{
    range(t, 0.5, 2, 0.125);
    const double *x = doubles(t, name, n);

    range(t, -2, 2, 0.125);
    return x;
}

/* ---- norms ----------------------------------------------------------------------------------- */

typedef struct norm_shape {
    sherd__norming n;
    int64_t rows, all;
} norm_shape;

static norm_shape draw_norming(trial *t)
{
    sherd__norming n = {.batch = short_length(t, "batch"),
                        .channels = short_length(t, "channels"),
                        .inner = length(t, "inner"),
                        .whole = draw(t, "whole", 2)};

    t->slack = 8;
    return (norm_shape){n, n.whole ? n.channels : n.batch * n.channels,
                        n.batch * n.channels * n.inner};
}

static void try_add_up(trial *t)
{
    const sherd__norm_kernels *k = t->table;
    norm_shape s = draw_norming(t);
    const void *x = in(t, "x", s.all);
    double *sum = sums(t, "sum", s.rows);
    const double *mean = draw(t, "mean", 2) ? doubles(t, "mean", s.rows) : NULL;

    ready(t);
    k->add_up(&s.n, sum, x, mean);
}

static void try_add_products(trial *t)
{
    const sherd__norm_kernels *k = t->table;
    norm_shape s = draw_norming(t);
    const void *dy = in(t, "dy", s.all), *x = in(t, "x", s.all);
    double *sum = sums(t, "sum", s.rows), *by_x = sums(t, "by_x", s.rows);
    const double *mean = doubles(t, "mean", s.rows);

    ready(t);
    k->add_products(&s.n, sum, by_x, dy, x, mean);
}

static void try_spread(trial *t)
{
    const sherd__norm_kernels *k = t->table;
    norm_shape s = draw_norming(t);
    const void *x = in(t, "x", s.all);
    const double *mean = doubles(t, "mean", s.rows), *scale = doubles(t, "scale", s.rows);
    const double *shift = doubles(t, "shift", s.rows);
    void *y = out(t, "y", s.all);

    ready(t);
    k->spread(&s.n, y, x, mean, scale, shift);
}

static void try_gradient(trial *t)
{
    const sherd__norm_kernels *k = t->table;
    norm_shape s = draw_norming(t);
    bool both = draw(t, "both", 2);
    const void *dy = in(t, "dy", s.all), *x = in(t, "x", s.all);
    const double *mean = doubles(t, "mean", s.rows), *scale = doubles(t, "scale", s.rows);
    const double *shift = both ? doubles(t, "shift", s.rows) : NULL;
    const double *slope = both ? doubles(t, "slope", s.rows) : NULL;
    void *dx = out(t, "dx", s.all);

    ready(t);
    k->gradient(&s.n, dx, dy, x, mean, scale, shift, slope);
}

static void try_spread_along(trial *t)
{
    const sherd__along_kernels *k = t->table;
    int64_t rows = length(t, "rows"), inner = length(t, "inner");
    const void *x = in(t, "x", rows * inner);
    const double *mean = doubles(t, "mean", rows), *scale = doubles(t, "scale", rows);
    const double *weight = doubles(t, "weight", inner), *bias = doubles(t, "bias", inner);
    void *y = out(t, "y", rows * inner);

    ready(t);
    k->spread_along(rows, inner, y, x, mean, scale, weight, bias);
}

static void try_add_along(trial *t)
{
    const sherd__along_kernels *k = t->table;
    int64_t rows = length(t, "rows"), inner = length(t, "inner");
    const void *dy = in(t, "dy", rows * inner), *x = in(t, "x", rows * inner);
    double *sum = sums(t, "sum", rows), *by_x = sums(t, "by_x", rows);
    const double *mean = doubles(t, "mean", rows), *weight = doubles(t, "weight", inner);

    ready(t);
    k->add_along(rows, inner, sum, by_x, dy, x, mean, weight);
}

static void try_gradient_along(trial *t)
{
    const sherd__along_kernels *k = t->table;
    int64_t rows = length(t, "rows"), inner = length(t, "inner");
    const void *dy = in(t, "dy", rows * inner), *x = in(t, "x", rows * inner);
    const double *mean = doubles(t, "mean", rows), *scale = doubles(t, "scale", rows);
    const double *shift = doubles(t, "shift", rows), *slope = doubles(t, "slope", rows);
    const double *weight = doubles(t, "weight", inner);
    double *dweight = sums(t, "dweight", inner), *dbias = sums(t, "dbias", inner);
    void *dx = out(t, "dx", rows * inner);

    t->slack = 8;
    ready(t);
    k->gradient_along(rows, inner, dx, dweight, dbias, dy, x, mean, scale, shift, slope, weight);
}

/* ---- cross-entropy with all its options, and rotation ---------------------------------------- */

static sherd__entropy draw_entropy(trial *t, bool targets)
{
    sherd__entropy e = {.rows = length(t, "rows"),
                        .cols = length(t, "cols"),
                        .first = draw(t, "first", 50),
                        .keep = 0.75,
                        .spread = draw(t, "smooth", 2) ? 0.125 : 0};

    e.ignored = (int32_t)e.first + 1;
    e.weight = draw(t, "weight", 2) ? in(t, "weight", e.cols) : NULL;
    if (!targets) {
        e.probability = in(t, "probability", e.rows * e.cols);
        return e;
    }
    whole_range(t, e.first - 2, e.first + e.cols + 2);
    e.target = part_of(t, "target", READ, I32S, e.rows);
    range(t, -2, 2, 0.125);
    return e;
}

static void try_entropy(trial *t)
{
    const sherd__layer_kernels *k = t->table;
    sherd__entropy e = draw_entropy(t, draw(t, "targets", 2));
    const void *logits = in(t, "logits", e.rows * e.cols);
    void *stats = part_of(t, "stats", CHANGED, STATISTIC, SHERD__ENTROPY_NUMBERS * e.rows);

    t->slack = 8;
    ready(t);
    k->entropy(&e, stats, logits);
}

static void try_entropy_join(trial *t)
{
    const sherd__layer_kernels *k = t->table;
    sherd__entropy e = draw_entropy(t, true);
    int64_t parts = 1 + draw(t, "parts", 5);

    range(t, 0.5, 2, 0.125);
    const void *stats =
        part_of(t, "stats", READ, STATISTIC, parts * SHERD__ENTROPY_NUMBERS * e.rows);
    double *row_sums = part_of(t, "sums", WRITTEN, F64S, 2 * e.rows);
    void *amount = part_of(t, "amount", WRITTEN, STATISTIC, e.rows);
    double *loss = part_of(t, "loss", WRITTEN, F64S, e.rows);
    double *counted = part_of(t, "counted", WRITTEN, F64S, 1);
    t->slack = 8;
    ready(t);
    *counted = k->entropy_join(&e, parts, row_sums, amount, loss, stats);
}

static void try_entropy_grad(trial *t)
{
    const sherd__layer_kernels *k = t->table;
    sherd__entropy e = draw_entropy(t, draw(t, "targets", 2));
    const void *logits = in(t, "logits", e.rows * e.cols);
    const double *row_sums = totals(t, "sums", 2 * e.rows);
    const void *amount = part_of(t, "amount", READ, STATISTIC, e.rows);
    const double *scale = doubles(t, "scale", e.rows);
    void *dlogits = out(t, "dlogits", e.rows * e.cols);

    t->slack = 4;
    ready(t);
    k->entropy_grad(&e, dlogits, logits, row_sums, amount, scale);
}

static void try_entropy_subtract(trial *t)
{
    const sherd__layer_kernels *k = t->table;
    sherd__entropy e = draw_entropy(t, draw(t, "targets", 2));
    void *dlogits = in_out(t, "dlogits", e.rows * e.cols);
    const double *scale = doubles(t, "scale", e.rows);

    ready(t);
    k->entropy_subtract(&e, dlogits, scale);
}

static void try_entropy_target_grad(trial *t)
{
    const sherd__layer_kernels *k = t->table;
    sherd__entropy e = draw_entropy(t, false);
    const void *logits = in(t, "logits", e.rows * e.cols);
    const double *row_sums = totals(t, "sums", 2 * e.rows);
    const double *scale = doubles(t, "scale", e.rows);
    void *dtarget = out(t, "dtarget", e.rows * e.cols);

    ready(t);
    k->entropy_target_grad(&e, dtarget, logits, row_sums, scale);
}

static void try_rotate(trial *t)
{
    const sherd__layer_kernels *k = t->table;
    sherd__rotation r = {.batch = short_length(t, "batch"),
                         .positions = short_length(t, "positions"),
                         .heads = short_length(t, "heads"),
                         .interleaved = draw(t, "interleaved", 2)};
    bool own = draw(t, "own", 2);

    r.rotated = 2 * draw(t, "pairs", 10);
    r.width = r.rotated + draw(t, "rest", 6);
    r.turn_step = own ? r.positions * r.rotated : 0;
    r.turn = doubles(t, "turn", (own ? r.batch : 1) * r.positions * r.rotated);
    int64_t n = r.batch * r.positions * r.heads * r.width;
    const void *src = in(t, "src", n);
    void *dst = out(t, "dst", n);
    ready(t);
    k->rotate(&r, dst, src);
}

/* ---- attention to neighbours, whole fields --------------------------------------------------- */

typedef struct field {
    sherd__neighbours n;
    int64_t places, all;
} field;

static field draw_field(trial *t)
{
    field f = {.n = {.width = 1 + draw(t, "width", 9), .scale = 0.25}};
    int64_t size[SHERD__PATCH_DIMS] = {draw(t, "batch", 3), 1, 1, 1, 1 + draw(t, "heads", 2)};

    f.places = 1;
    for (int d = 0; d < SHERD__NEIGHBOUR_DIMS; d++) {
        f.n.kernel[d] = 1 + 2 * draw(t, "kernel", 2);
        f.n.dilation[d] = 1 + draw(t, "dilation", 2);
        f.n.whole[d] = f.n.kernel[d] * f.n.dilation[d] + draw(t, "more", 4);
        size[d + 1] = f.n.whole[d];
    }
    for (int d = 0; d < SHERD__PATCH_DIMS; d++) {
        f.n.q.size[d] = size[d];
        f.places *= size[d];
    }
    f.n.k = f.n.v = f.n.mine = f.n.q;
    f.all = f.places * f.n.width;
    t->slack = 30;
    return f;
}

static void try_neighbours_forward(trial *t)
{
    const sherd__neighbours_kernels *k = t->table;
    field f = draw_field(t);
    const void *q = in(t, "q", f.all), *keys = in(t, "k", f.all), *values = in(t, "v", f.all);
    void *result = out(t, "out", f.all), *log_sum = out(t, "log_sum", f.places);
    void *space = part_of(t, "workspace", SPACE, BYTES, sherd__neighbours_workspace(&f.n));

    ready(t);
    k->forward(&f.n, result, log_sum, q, keys, values, space);
}

static void try_neighbours_backward(trial *t)
{
    const sherd__neighbours_kernels *k = t->table;
    field f = draw_field(t);
    const void *q = in(t, "q", f.all), *keys = in(t, "k", f.all), *values = in(t, "v", f.all);
    const void *dout = in(t, "dout", f.all), *delta = in(t, "delta", f.places);
    range(t, 3, 4, 0.125);
    const void *log_sum = in(t, "log_sum", f.places);
    void *dq = out(t, "dq", f.all), *dk = out(t, "dk", f.all), *dv = out(t, "dv", f.all);
    void *space = part_of(t, "workspace", SPACE, BYTES, sherd__neighbours_workspace(&f.n));

    ready(t);
    k->backward(&f.n, dq, dk, dv, dout, q, keys, values, log_sum, delta, space);
}

static void try_neighbours_products(trial *t)
{
    const sherd__neighbours_kernels *k = t->table;
    int64_t n = length(t, "n"), width = length(t, "width");
    const void *a = in(t, "a", n * width), *b = in(t, "b", n * width);
    void *delta = out(t, "delta", n);

    t->slack = 8;
    ready(t);
    k->products(n, width, delta, a, b);
}

/* ---- windows --------------------------------------------------------------------------------- */

enum { WINDOW_DIMS = 3 };

typedef struct window {
    int64_t in[WINDOW_DIMS], out[WINDOW_DIMS], kernel[WINDOW_DIMS];
    int64_t stride[WINDOW_DIMS], dilation[WINDOW_DIMS], before[WINDOW_DIMS];
    int64_t in_space, out_space, taps;
} window;

/* Windows that may look beside what there is, on either side. */
static window draw_window(trial *t)
{
    window w = {.in_space = 1, .out_space = 1, .taps = 1};

    for (int d = 0; d < WINDOW_DIMS; d++) {
        w.in[d] = d < 2 ? draw(t, "in", 6) + (draw(t, "some", 8) > 0) : length(t, "in") / 3;
        w.out[d] = draw(t, "out", d < 2 ? 5 : 20);
        w.kernel[d] = 1 + draw(t, "kernel", 4);
        w.stride[d] = 1 + draw(t, "stride", 3);
        w.dilation[d] = 1 + draw(t, "dilation", 3);
        w.before[d] = draw(t, "before", 9) - 4;
        w.in_space *= w.in[d];
        w.out_space *= w.out[d];
        w.taps *= w.kernel[d];
    }
    return w;
}

static sherd__pool draw_pool(trial *t, window *w)
{
    sherd__pool p = {.outer = draw(t, "outer", 4)};

    *w = draw_window(t);
    for (int d = 0; d < WINDOW_DIMS; d++) {
        p.in[d] = w->in[d];
        p.out[d] = w->out[d];
        p.kernel[d] = w->kernel[d];
        p.stride[d] = w->stride[d];
        p.dilation[d] = w->dilation[d];
        p.before[d] = w->before[d];
        p.offset[d] = draw(t, "offset", 4);
        p.whole[d] = p.offset[d] + p.in[d] + draw(t, "behind", 4) + 1;
    }
    return p;
}

static void try_pool_forward(trial *t)
{
    const sherd__pool_kernels *k = t->table;
    window w;
    sherd__pool p = draw_pool(t, &w);
    const void *x = in(t, "x", p.outer * w.in_space);
    void *y = out(t, "y", p.outer * w.out_space);
    int64_t *at = part_of(t, "at", WRITTEN, I64S, p.outer * w.out_space);

    ready(t);
    k->forward(&p, y, at, x);
}

static void try_pool_backward(trial *t)
{
    const sherd__pool_kernels *k = t->table;
    window w;
    sherd__pool p = draw_pool(t, &w);
    const void *dy = in(t, "dy", p.outer * w.out_space);
    void *dx = out(t, "dx", p.outer * w.in_space);

    whole_range(t, -1, p.whole[0] * p.whole[1] * p.whole[2] - 1);
    const int64_t *at = part_of(t, "at", READ, I64S, p.outer * w.out_space);
    t->slack = 8;
    ready(t);
    k->backward(&p, dx, dy, at);
}

static sherd__conv draw_conv(trial *t, window *w)
{
    sherd__conv c = {.batch = draw(t, "batch", 3), .groups = 1 + draw(t, "groups", 3)};

    c.in_channels = c.groups * draw(t, "in_channels", 4);
    c.out_channels = c.groups * draw(t, "out_channels", 4);
    *w = draw_window(t);
    for (int d = 0; d < WINDOW_DIMS; d++) {
        c.in[d] = w->in[d];
        c.out[d] = w->out[d];
        c.kernel[d] = w->kernel[d];
        c.stride[d] = w->stride[d];
        c.dilation[d] = w->dilation[d];
        c.before[d] = w->before[d];
    }
    t->slack = 16;
    return c;
}

static void try_conv(trial *t, sherd__conv_kind kind)
{
    const sherd__conv_kernels *k = t->table;
    window w;
    sherd__conv c = draw_conv(t, &w);
    const part_role written = WRITTEN;
    void *x = part_of(t, "x", kind == SHERD__CONV_BACKWARD_X ? written : READ, OWN,
                      c.batch * c.in_channels * w.in_space);
    void *weight = part_of(t, "w", kind == SHERD__CONV_BACKWARD_W ? written : READ, OWN,
                           c.out_channels * (c.in_channels / c.groups) * w.taps);
    void *y = part_of(t, "y", kind == SHERD__CONV_FORWARD ? written : READ, OWN,
                      c.batch * c.out_channels * w.out_space);

    ready(t);
    if (kind == SHERD__CONV_FORWARD)
        k->forward(&c, y, x, weight);
    else if (kind == SHERD__CONV_BACKWARD_X)
        k->backward_x(&c, x, y, weight);
    else
        k->backward_w(&c, weight, x, y);
}

static void try_conv_forward(trial *t)
{
    try_conv(t, SHERD__CONV_FORWARD);
}

static void try_conv_backward_x(trial *t)
{
    try_conv(t, SHERD__CONV_BACKWARD_X);
}

static void try_conv_backward_w(trial *t)
{
    try_conv(t, SHERD__CONV_BACKWARD_W);
}

/* ---- taps ------------------------------------------------------------------------------------ */

enum { TAP_ROWS = 12 };

/* Of backward some lie outside. */
static sherd__taps_pass draw_pass(trial *t, sherd__tap *tap, int64_t beyond)
{
    sherd__taps_pass p = {.outer = draw(t, "outer", 4),
                          .in = SHERD__TAPS + draw(t, "in", 8),
                          .rows = draw(t, "rows", TAP_ROWS),
                          .inner = draw(t, "one", 3) ? length(t, "inner") : 1,
                          .tap = tap};

    for (int64_t o = 0; o < p.rows; o++) {
        int64_t count = 1 + draw(t, "count", SHERD__TAPS), room = p.in - count + 2 * beyond + 1;
        tap[o] = (sherd__tap){.first = draw(t, "first", (int)room) - beyond,
                              .count = count,
                              .even = draw(t, "even", 2),
                              .weight = {0.5, 0.25, -0.5, 1},
                              .divisor = 1 + (double)draw(t, "divisor", 3)};
    }
    t->slack = 8;
    return p;
}

static void try_taps_forward(trial *t)
{
    const sherd__taps_kernels *k = t->table;
    sherd__tap tap[TAP_ROWS];
    sherd__taps_pass p = draw_pass(t, tap, 0);
    const void *x = in(t, "x", p.outer * p.in * p.inner);
    void *y = out(t, "y", p.outer * p.rows * p.inner);

    ready(t);
    k->forward(&p, y, x);
}

static void try_taps_backward(trial *t)
{
    const sherd__taps_kernels *k = t->table;
    sherd__tap tap[TAP_ROWS];
    sherd__taps_pass p = draw_pass(t, tap, 6);
    const void *dy = in(t, "dy", p.outer * p.rows * p.inner);
    void *dx = out(t, "dx", p.outer * p.in * p.inner);

    ready(t);
    k->backward(&p, dx, dy);
}

#endif
