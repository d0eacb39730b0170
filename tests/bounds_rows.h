/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects (bounds.h): norms, tables, cross-entropy, random numbers, optimizers. */
#ifndef SHERD_TESTS_BOUNDS_ROWS_H
#define SHERD_TESTS_BOUNDS_ROWS_H

#include "bounds.h"
#include "kernels/kernels.h"
#include "kernels/places.h"

static sherd__key draw_key(trial *t)
{
    return sherd__philox_key((uint64_t)draw(t, "seed", 1000), 1, 2);
}

/* ---- norms ----------------------------------------------------------------------------------- */

static void try_layer_norm(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = short_length(t, "rows"), cols = long_length(t, "cols");
    const void *x = in(t, "x", rows * cols);
    const void *weight = draw(t, "weight", 2) ? in(t, "weight", cols) : NULL;
    const void *bias = draw(t, "bias", 2) ? in(t, "bias", cols) : NULL;
    void *y = out(t, "y", rows * cols);
    void *mean = part_of(t, "mean", WRITTEN, STATISTIC, rows);
    void *rstd = part_of(t, "rstd", WRITTEN, STATISTIC, rows);

    t->slack = 8;
    ready(t);
    k->layer_norm(rows, cols, y, mean, rstd, x, weight, bias, 1e-3);
}

/* In f64, which has no such kernel: the sum stays f32. */
static void add_norm_on_paper(int64_t rows, int64_t cols, const sherd__added_norm *p)
{
    const double *delta = p->delta;
    double *mean = (double *)(void *)p->mean, *rstd = (double *)(void *)p->rstd, *norm = p->norm;

    for (int64_t r = 0; r < rows; r++) {
        double m = 0, squares = 0;
        for (int64_t i = r * cols; i < (r + 1) * cols; i++) {
            p->sum[i] = p->x[i] + (float)delta[i];
            m += mean ? (double)p->sum[i] / (double)cols : 0;
        }
        for (int64_t i = r * cols; i < (r + 1) * cols; i++)
            squares += ((double)p->sum[i] - m) * ((double)p->sum[i] - m);
        rstd[r] = 1 / sqrt(squares / (double)(cols ? cols : 1) + p->eps);
        for (int64_t c = 0; c < cols; c++)
            norm[r * cols + c] = ((double)p->sum[r * cols + c] - m) * rstd[r] *
                                     (p->weight ? (double)p->weight[c] : 1) +
                                 (p->bias ? (double)p->bias[c] : 0);
        if (mean)
            mean[r] = m;
    }
}

static void try_add_norm(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = short_length(t, "rows"), cols = long_length(t, "cols");
    bool centred = draw(t, "centred", 2);
    sherd__added_norm p = {.delta = in(t, "delta", rows * cols), .eps = 1e-3};

    p.x = part_of(t, "x", READ, F32S, rows * cols);
    p.weight = draw(t, "weight", 2) ? part_of(t, "weight", READ, F32S, cols) : NULL;
    p.bias = centred && draw(t, "bias", 2) ? part_of(t, "bias", READ, F32S, cols) : NULL;
    p.sum = part_of(t, "sum", WRITTEN, F32S, rows * cols);
    p.norm = out(t, "norm", rows * cols);
    p.mean = centred ? part_of(t, "mean", WRITTEN, STATISTIC, rows) : NULL;
    p.rstd = part_of(t, "rstd", WRITTEN, STATISTIC, rows);
    t->slack = 8;
    ready(t);
    (k->add_norm ? k->add_norm : add_norm_on_paper)(rows, cols, &p);
}

static void try_layer_norm_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = length(t, "rows"), cols = length(t, "cols");
    bool wanted = draw(t, "wanted", 2), add = draw(t, "add", 2);
    const void *dy = in(t, "dy", rows * cols), *x = in(t, "x", rows * cols);
    const void *weight = draw(t, "weight", 2) ? in(t, "weight", cols) : NULL;
    const void *mean = part_of(t, "mean", READ, STATISTIC, rows);
    void *dx = out(t, "dx", rows * cols);
    part_role role = add ? CHANGED : WRITTEN;
    void *dweight = wanted ? part_of(t, "dweight", role, OWN, cols) : NULL;
    void *dbias = wanted ? part_of(t, "dbias", role, OWN, cols) : NULL;

    range(t, 0.5, 2, 0.125);
    const void *rstd = part_of(t, "rstd", READ, STATISTIC, rows);
    t->slack = 16;
    ready(t);
    k->layer_norm_grad(rows, cols, dx, dweight, dbias, dy, x, weight, mean, rstd, add);
}

static void try_rms_norm(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = short_length(t, "rows"), cols = long_length(t, "cols");
    const void *x = in(t, "x", rows * cols);
    const void *weight = draw(t, "weight", 2) ? in(t, "weight", cols) : NULL;
    void *y = out(t, "y", rows * cols);
    void *rstd = part_of(t, "rstd", WRITTEN, STATISTIC, rows);

    t->slack = 8;
    ready(t);
    k->rms_norm(rows, cols, y, rstd, x, weight, 1e-3);
}

static void try_rms_norm_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = length(t, "rows"), cols = length(t, "cols");
    bool wanted = draw(t, "wanted", 2), add = draw(t, "add", 2);
    const void *dy = in(t, "dy", rows * cols), *x = in(t, "x", rows * cols);
    const void *weight = draw(t, "weight", 2) ? in(t, "weight", cols) : NULL;
    void *dx = out(t, "dx", rows * cols);
    void *dweight = wanted ? part_of(t, "dweight", add ? CHANGED : WRITTEN, OWN, cols) : NULL;

    range(t, 0.5, 2, 0.125);
    const void *rstd = part_of(t, "rstd", READ, STATISTIC, rows);
    t->slack = 16;
    ready(t);
    k->rms_norm_grad(rows, cols, dx, dweight, dy, x, weight, rstd, add);
}

/* In f64, which stands for 16 bits too, that of delta is a copy. */
static void try_add_norm_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = length(t, "rows"), cols = length(t, "cols"), n = rows * cols;
    bool centred = draw(t, "centred", 2), wanted = draw(t, "wanted", 2);
    sherd__added_grad p = {.add = draw(t, "add", 2)};
    part_role role = p.add ? CHANGED : WRITTEN;

    p.dy = part_of(t, "dy", READ, STATISTIC, n);
    p.sum = part_of(t, "sum", READ, STATISTIC, n);
    p.dsum = draw(t, "dsum", 2) ? part_of(t, "dsum", READ, STATISTIC, n) : NULL;
    p.weight = draw(t, "weight", 2) ? part_of(t, "weight", READ, STATISTIC, cols) : NULL;
    p.mean = centred ? part_of(t, "mean", READ, STATISTIC, rows) : NULL;
    p.dx = part_of(t, "dx", WRITTEN, STATISTIC, n);
    p.ddelta = sherd__is_half(t->dtype) ? out(t, "ddelta", n) : NULL;
    p.dweight = wanted ? part_of(t, "dweight", role, STATISTIC, cols) : NULL;
    p.dbias = wanted && centred ? part_of(t, "dbias", role, STATISTIC, cols) : NULL;
    range(t, 0.5, 2, 0.125);
    p.rstd = part_of(t, "rstd", READ, STATISTIC, rows);
    t->slack = 16;
    ready(t);
    k->add_norm_grad(rows, cols, &p);
    if (p.ddelta && t->on_paper)
        memcpy(p.ddelta, p.dx, (size_t)n * sherd_dtype_bytes(t->paper_dtype));
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Indices of entries, and of some that are not here. */
static const int32_t *some_ids(trial *t, const char *name, int64_t n, int64_t first,
                               int64_t entries)
{
    whole_range(t, first - 2, first + entries + 2);
    return part_of(t, name, READ, I32S, n);
}

static void try_embedding(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = length(t, "n"), width = length(t, "width");
    int64_t first = draw(t, "first", 50), entries = short_length(t, "entries");
    const void *weight = in(t, "weight", entries * width);
    const int32_t *ids = some_ids(t, "ids", n, first, entries);
    void *y = out(t, "y", n * width);

    ready(t);
    k->embedding(n, width, y, weight, ids, first, entries);
}

static void try_embedding_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = length(t, "n"), width = length(t, "width");
    int64_t first = draw(t, "first", 50), entries = short_length(t, "entries");
    const void *dy = in(t, "dy", n * width);
    const int32_t *ids = some_ids(t, "ids", n, first, entries);
    void *dweight = out(t, "dweight", entries * width);
    size_t bytes = sherd_dtype_bytes(t->dtype);
    int64_t *scratch = part_of(t, "scratch", SPACE, BYTES,
                               bytes == 2             ? (entries + n) * 8
                               : bytes == 4 && n > 64 ? sherd__places_bytes(n, width, entries)
                                                      : 0);

    t->slack = 4;
    ready(t);
    k->embedding_grad(n, width, dweight, dy, ids, first, entries, scratch);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static void try_cross_entropy(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = length(t, "rows"), cols = length(t, "cols"), first = draw(t, "first", 50);
    const void *logits = in(t, "logits", rows * cols);
    const int32_t *targets = some_ids(t, "targets", rows, first, cols);
    void *stats = part_of(t, "stats", WRITTEN, STATISTIC, 3 * rows);

    t->slack = 4;
    ready(t);
    k->cross_entropy(rows, cols, stats, logits, targets, first);
}

static void try_cross_entropy_join(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t parts = 1 + draw(t, "parts", 5), rows = length(t, "rows");

    range(t, 0.5, 2, 0.125);
    const void *stats = part_of(t, "stats", READ, STATISTIC, parts * 3 * rows);
    double *row_sums = part_of(t, "sums", WRITTEN, F64S, 2 * rows);
    double *loss = part_of(t, "loss", WRITTEN, F64S, 1);
    t->slack = 4;
    ready(t);
    *loss = k->cross_entropy_join(parts, rows, row_sums, stats);
}

static void try_cross_entropy_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t rows = length(t, "rows"), cols = length(t, "cols"), first = draw(t, "first", 50);
    const void *logits = in(t, "logits", rows * cols);
    range(t, 0.5, 2, 0.125);
    const double *row_sums = part_of(t, "sums", READ, F64S, 2 * rows);
    range(t, -2, 2, 0.125);
    const int32_t *targets = some_ids(t, "targets", rows, first, cols);
    void *dlogits = out(t, "dlogits", rows * cols);

    t->slack = 4;
    ready(t);
    k->cross_entropy_grad(rows, cols, dlogits, logits, targets, first, row_sums, 0.25);
}

/* ---- random numbers -------------------------------------------------------------------------- */

static void try_dropout(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n"), first = draw(t, "first", 100), same = draw(t, "same", 3);
    double p = (double)draw(t, "p", 4) / 4;
    void *src = part_of(t, "src", same == 0 ? CHANGED : READ, OWN, n);
    void *dst = same == 0 ? src : out(t, "dst", n);

    ready(t);
    k->dropout(n, dst, src, p, draw_key(t), first);
}

static void try_uniform(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n"), first = draw(t, "first", 100);
    void *dst = out(t, "dst", n);

    ready(t);
    k->uniform(n, dst, -1, 3, draw_key(t), first);
}

static void try_normal(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n"), first = draw(t, "first", 100);
    void *dst = out(t, "dst", n);

    ready(t);
    k->normal(n, dst, 1, 2, draw_key(t), first);
}

/* ---- optimizers ------------------------------------------------------------------------------ */

static void try_adamw(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n");
    const sherd__adamw_step step = {.rate = 0.1,
                                    .beta1 = 0.75,
                                    .beta2 = 0.5,
                                    .eps = 0.125,
                                    .decay = (double)draw(t, "decay", 2) / 8,
                                    .correction1 = 0.25,
                                    .correction2 = 0.5,
                                    .grad_scale = 0.5,
                                    .l2 = (double)draw(t, "l2", 2) / 4};
    void *p = part_of(t, "p", CHANGED, STATISTIC, n), *m = part_of(t, "m", CHANGED, STATISTIC, n);
    const void *grad = in(t, "grad", n);

    range(t, 0, 2, 0.125);
    void *v = part_of(t, "v", CHANGED, STATISTIC, n);
    t->slack = 4;
    ready(t);
    k->adamw(n, p, m, v, grad, &step);
}

static void try_sgd(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n");
    const sherd__sgd_step step = {.rate = 0.1,
                                  .decay = (double)draw(t, "decay", 2) / 8,
                                  .grad_scale = 0.5,
                                  .keep = 0.75,
                                  .add = 0.5,
                                  .momentum = 0.75,
                                  .nesterov = draw(t, "nesterov", 2)};
    void *p = part_of(t, "p", CHANGED, STATISTIC, n);
    void *m = draw(t, "m", 3) ? part_of(t, "m", CHANGED, STATISTIC, n) : NULL;
    const void *grad = in(t, "grad", n);

    ready(t);
    k->sgd(n, p, m, grad, &step);
}

#endif
