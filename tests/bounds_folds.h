/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects (bounds.h): sums, folds and what is largest, softmax. */
#ifndef SHERD_TESTS_BOUNDS_FOLDS_H
#define SHERD_TESTS_BOUNDS_FOLDS_H

#include "bounds_boxes.h"
#include "bounds_elements.h" /* draw_op */

static void try_sum(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t outer = short_length(t, "outer"), mid = length(t, "mid");
    int64_t inner = draw(t, "one", 3) ? length(t, "inner") : 1;
    bool add = draw(t, "add", 2);
    const void *src = in(t, "src", outer * mid * inner);
    void *dst = part_of(t, "dst", add ? CHANGED : WRITTEN, OWN, outer * inner);

    t->slack = 4;
    ready(t);
    k->sum(dst, src, outer, mid, inner, add);
}

static void try_sum_squares(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n");
    const void *src = in(t, "src", n);
    double *sum = part_of(t, "sum", WRITTEN, F64S, 1);

    ready(t);
    *sum = k->sum_squares(src, n);
}

/* Numbers whose sums and products any type holds. */
static void try_fold(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd_reduce_op op = draw_op(t);
    box b = draw_box(t);
    int64_t stride[BOX_DIMS];
    unsigned folded = (unsigned)draw(t, "folded", 1 << BOX_DIMS);

    whole_range(t, -1, 1);
    void *dst = in_out(t, "dst", lay_out(t, &b, stride, folded, draw(t, "gaps", 2)));
    const void *src = in(t, "src", b.n);
    ready(t);
    k->fold(op, b.ndim, b.size, dst, stride, src);
}

static void try_extreme(trial *t)
{
    const sherd__kernels *k = t->table;
    bool least = draw(t, "least", 2);
    box b = draw_box(t);
    int64_t stride[BOX_DIMS], index_stride[BOX_DIMS], first = draw(t, "first", 100);
    unsigned folded = (unsigned)draw(t, "folded", 1 << BOX_DIMS);
    int64_t extent = lay_out(t, &b, stride, folded, draw(t, "gaps", 2));
    void *best = in_out(t, "best", extent);
    const void *src = in(t, "src", b.n);

    lay_out(t, &b, index_stride, 0, false);
    whole_range(t, -1, 0); /* not all have one yet */
    int64_t *index = part_of(t, "index", CHANGED, I64S, extent);
    ready(t);
    k->extreme(least, b.ndim, b.size, best, stride, index, index_stride, first, src);
}

static void try_extreme_join(trial *t)
{
    const sherd__kernels *k = t->table;
    bool least = draw(t, "least", 2);
    int64_t parts = 1 + draw(t, "parts", 5), n = length(t, "n");
    const void *best = in(t, "best", parts * n);

    whole_range(t, -1, 40);
    const int64_t *index = part_of(t, "index", READ, I64S, parts * n);
    int32_t *dst = part_of(t, "dst", WRITTEN, I32S, n);
    ready(t);
    k->extreme_join(least, parts, n, dst, best, index);
}

/* ---- softmax --------------------------------------------------------------------------------- */

typedef struct soft_shape {
    int64_t outer, mid, inner, all, lines;
} soft_shape;

static soft_shape draw_soft(trial *t)
{
    soft_shape s = {.outer = short_length(t, "outer"), .mid = length(t, "mid")};

    s.inner = draw(t, "one", 3) ? length(t, "inner") : 1;
    s.lines = s.outer * s.inner;
    s.all = s.lines * s.mid;
    return s;
}

static void try_soft_stats(trial *t)
{
    const sherd__kernels *k = t->table;
    soft_shape s = draw_soft(t);
    const void *src = in(t, "src", s.all);
    void *most = part_of(t, "most", WRITTEN, STATISTIC, s.lines);
    void *total = part_of(t, "total", WRITTEN, STATISTIC, s.lines);

    t->slack = 4;
    ready(t);
    k->soft_stats(s.outer, s.mid, s.inner, most, total, src);
}

static void try_soft_join(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t parts = 1 + draw(t, "parts", 5), n = length(t, "n");

    range(t, 0.5, 3, 0.125);
    const void *stats = part_of(t, "stats", READ, STATISTIC, parts * 2 * n);
    void *most = part_of(t, "most", WRITTEN, STATISTIC, n);
    void *total = part_of(t, "total", WRITTEN, STATISTIC, n);
    ready(t);
    k->soft_join(parts, n, most, total, stats);
}

static void try_soft(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__soft_kind kind = draw(t, "log", 2) ? SHERD__LOG_SOFTMAX : SHERD__SOFTMAX;
    soft_shape s = draw_soft(t);
    const void *src = in(t, "src", s.all);

    range(t, 1, 3, 0.125);
    const void *most = part_of(t, "most", READ, STATISTIC, s.lines);
    const void *total = part_of(t, "total", READ, STATISTIC, s.lines);
    void *dst = out(t, "dst", s.all);
    ready(t);
    k->soft(kind, s.outer, s.mid, s.inner, dst, src, most, total);
}

static void try_soft_grad_sum(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__soft_kind kind = draw(t, "log", 2) ? SHERD__LOG_SOFTMAX : SHERD__SOFTMAX;
    soft_shape s = draw_soft(t);
    const void *dy = in(t, "dy", s.all), *y = in(t, "y", s.all);
    void *total = part_of(t, "total", WRITTEN, STATISTIC, s.lines);

    t->slack = 8;
    ready(t);
    k->soft_grad_sum(kind, s.outer, s.mid, s.inner, total, dy, y);
}

static void try_soft_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__soft_kind kind = draw(t, "log", 2) ? SHERD__LOG_SOFTMAX : SHERD__SOFTMAX;
    soft_shape s = draw_soft(t);
    const void *dy = in(t, "dy", s.all), *y = in(t, "y", s.all);
    const void *total = part_of(t, "total", READ, STATISTIC, s.lines);
    void *dx = out(t, "dx", s.all);

    ready(t);
    k->soft_grad(kind, s.outer, s.mid, s.inner, dx, dy, y, total);
}

static void try_soft_spread(trial *t)
{
    const sherd__kernels *k = t->table;
    soft_shape s = draw_soft(t);
    const void *src = in(t, "src", s.all), *dy = in(t, "dy", s.lines);
    const void *log_sum = part_of(t, "log_sum", READ, STATISTIC, s.lines);
    void *dx = out(t, "dx", s.all);

    ready(t);
    k->soft_spread(s.outer, s.mid, s.inner, dx, src, log_sum, dy);
}

#endif
