/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Subjects (bounds.h) that are functions of no table: elements by index, order, points, draws,
 * casts, copies.
 */
#ifndef SHERD_TESTS_BOUNDS_PIECES_H
#define SHERD_TESTS_BOUNDS_PIECES_H

#include "bounds_boxes.h"
#include "kernels/draw.h"
#include "kernels/pick.h"
#include "kernels/points.h"
#include "kernels/stream.h"

static sherd_dtype dtype_now(const trial *t)
{
    return t->on_paper ? t->paper_dtype : t->dtype;
}

static size_t bytes_now(const trial *t)
{
    return sherd_dtype_bytes(dtype_now(t));
}

/* ---- by index -------------------------------------------------------------------------------- */

static sherd__pick draw_pick(trial *t)
{
    sherd__pick p = {.outer = short_length(t, "outer"),
                     .n = length(t, "n"),
                     .inner = draw(t, "one", 3) ? short_length(t, "inner") : 1,
                     .entries = short_length(t, "entries"),
                     .first = draw(t, "first", 50),
                     .flat = draw(t, "flat", 2)};

    whole_range(t, p.first - 2, p.first + p.entries + 2);
    p.index = part_of(t, "index", READ, I32S, p.flat ? p.n : p.outer * p.n * p.inner);
    range(t, -3, 3, 1);
    return p;
}

static void try_gather(trial *t)
{
    sherd__pick p = draw_pick(t);
    const void *src = in(t, "src", p.outer * p.entries * p.inner);
    void *dst = out(t, "dst", p.outer * p.n * p.inner);

    ready(t);
    sherd__gather(bytes_now(t), &p, dst, src);
}

static void try_gather_last(trial *t)
{
    sherd__pick p = draw_pick(t);
    const void *src = in(t, "src", p.outer * p.entries * p.inner);
    void *dst = out(t, "dst", p.outer * p.n * p.inner);
    int32_t *winner = part_of(t, "winner", SPACE, I32S, p.entries * p.inner);

    ready(t);
    sherd__gather_last(bytes_now(t), &p, dst, src, winner);
}

static void try_scatter(trial *t)
{
    sherd__pick p = draw_pick(t);
    bool value = draw(t, "value", 2);
    const void *src = in(t, "src", value ? 1 : p.outer * p.n * p.inner);
    void *dst = in_out(t, "dst", p.outer * p.entries * p.inner);

    ready(t);
    sherd__scatter(bytes_now(t), &p, dst, value ? NULL : src, value ? src : NULL);
}

static void try_scatter_add(trial *t)
{
    sherd__pick p = draw_pick(t);
    const void *src = in(t, "src", p.outer * p.n * p.inner);
    void *dst = in_out(t, "dst", p.outer * p.entries * p.inner);
    static const sherd_reduce_op hows[] = {SHERD_SUM, SHERD_MAX, SHERD_PRODUCT};
    sherd_reduce_op how = hows[draw(t, "how", 3)];
    int64_t bytes = sherd__scatter_scratch(dtype_now(t), how, &p);
    void *scratch = part_of(t, "scratch", SPACE, BYTES, bytes);

    ready(t);
    sherd__scatter_reduce(dtype_now(t), how, &p, dst, src, scratch);
}

static void try_order(trial *t)
{
    int64_t size[3] = {short_length(t, "outer"), length(t, "n"), short_length(t, "inner")};
    int64_t k = size[1] ? draw(t, "k", (int)size[1] + 1) : 0;
    bool descending = draw(t, "descending", 2);
    const void *src = in(t, "src", size[0] * size[1] * size[2]);
    int32_t *index = part_of(t, "index", WRITTEN, I32S, size[0] * k * size[2]);
    void *scratch = part_of(t, "scratch", SPACE, BYTES, sherd__order_scratch(size[1]));

    ready(t);
    sherd__order(dtype_now(t), size, k, descending, index, src, scratch);
}

static void try_running_sum(trial *t)
{
    int64_t size[3] = {short_length(t, "outer"), length(t, "n"), short_length(t, "inner")};
    int64_t n = size[0] * size[1] * size[2];
    bool reverse = draw(t, "reverse", 2);
    const void *src = in(t, "src", n);
    void *dst = out(t, "dst", n);

    t->slack = 8;
    ready(t);
    sherd__running_sum(dtype_now(t), size, reverse, dst, src);
}

/* ---- points ---------------------------------------------------------------------------------- */

static sherd__cloud draw_cloud(trial *t, const char *x, const char *id, const char *boxes, int d)
{
    sherd__cloud c = {.n = length(t, x), .d = d};

    range(t, -2, 2, 1.0 / 64);
    c.x = part_of(t, x, CHANGED, F64S, c.n * d);
    c.id = part_of(t, id, CHANGED, I32S, c.n);
    c.box = part_of(t, boxes, SPACE, F64S, sherd__cloud_boxes(c.n, d));
    for (int64_t i = 0; i < c.n; i++)
        c.id[i] = (int32_t)i;
    return c;
}

static void try_find(trial *t)
{
    int d = 1 + (int)draw(t, "d", 9);
    sherd__cloud cloud = draw_cloud(t, "x", "id", "box", d);
    sherd__cloud queries = draw_cloud(t, "q", "q id", "q box", d);
    sherd__found found = {.m = queries.n, .k = 1 + draw(t, "k", 9)};
    bool periodic = draw(t, "periodic", 2) != 0;

    found.square = part_of(t, "square", WRITTEN, F64S, found.m * found.k);
    found.id = part_of(t, "found", WRITTEN, I32S, found.m * found.k);
    range(t, 0, 3, 0.5);
    const double *period = part_of(t, "period", READ, F64S, d);
    ready(t);
    sherd__cloud_arrange(&cloud);
    sherd__cloud_arrange(&queries);
    sherd__found_clear(&found);
    sherd__find(&found, &cloud, &queries, 4, periodic ? period : NULL);
}

static void try_find_among(trial *t)
{
    int64_t parts = 1 + draw(t, "parts", 4);
    sherd__found found = {.m = length(t, "m"), .k = 1 + draw(t, "k", 9)};
    int64_t n = found.m * found.k;

    range(t, 0, 4, 0.125);
    const double *square = part_of(t, "square", READ, F64S, parts * n);
    whole_range(t, 0, 1000);
    const int32_t *id = part_of(t, "id", READ, I32S, parts * n);
    found.square = part_of(t, "found square", WRITTEN, F64S, n);
    found.id = part_of(t, "found id", WRITTEN, I32S, n);
    ready(t);
    sherd__found_clear(&found);
    sherd__find_among(&found, parts, square, id);
}

/* ---- draws and casts ------------------------------------------------------------------------- */

static void try_draw(trial *t)
{
    int64_t n = long_length(t, "n"), first = draw(t, "first", 9), how = draw(t, "how", 3);
    sherd__key key = sherd__philox_key(3, 4, 5);
    double *x = part_of(t, "out", WRITTEN, F64S, n);

    ready(t);
    if (how == 0)
        sherd__draw_integers(n, x, -3, 10, key, first);
    else if (how == 1)
        sherd__draw_bernoulli(n, x, 0.25, key, first);
    else
        sherd__draw_truncated(n, x, (const double[]){0.5, 2}, -1, 3, key, first);
}

/* Between any two types; numbers that all of them hold. */
static void try_cast(trial *t)
{
    static const part_type types[] = {OWN, F32S, F64S, I32S, I64S, FLAGS, BYTES};
    part_type from = types[draw(t, "from", LEN(types))], to = types[draw(t, "to", LEN(types))];
    int64_t n = long_length(t, "n");

    whole_range(t, 0, 3);
    const void *src = part_of(t, "src", READ, from, n);
    void *dst = part_of(t, "dst", WRITTEN, to, n);
    sherd_dtype own = dtype_now(t);
    ready(t);
    sherd__cast(dtype_of_part(to, own), dtype_of_part(from, own), n, dst, src);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void try_stream(trial *t)
{
    int64_t n = 16 * long_length(t, "n") + draw(t, "more", 64), how = draw(t, "far", 4);

    n += how == 0 ? 40000 : 0; /* pages side by side */
    const void *src = part_of(t, "src", READ, BYTES, n);
    void *dst = part_of(t, "dst", WRITTEN, BYTES, n);
    ready(t);
    sherd__stream(dst, src, (size_t)n);
    sherd__stream_end();
}

static void try_stream_rows(trial *t)
{
    int64_t rows = length(t, "rows"), bytes = long_length(t, "bytes");
    int64_t dst_row = bytes + draw(t, "dst gap", 70), src_row = bytes + draw(t, "src gap", 70);
    bool some = rows > 0 && bytes > 0;
    const char *src = part_of(t, "src", READ, BYTES, some ? (rows - 1) * src_row + bytes : 0);
    char *dst = part_of(t, "dst", CHANGED, BYTES, some ? (rows - 1) * dst_row + bytes : 0);

    ready(t);
    sherd__stream_rows(dst, dst_row, src, src_row, rows, (size_t)bytes);
    sherd__stream_end();
}

static void try_copy_box(trial *t)
{
    box b = draw_box(t);
    int64_t dst_stride[BOX_DIMS], src_stride[BOX_DIMS], how = draw(t, "past", 3);
    const void *src = strided_in(t, "src", &b, src_stride);
    void *dst = in_out(t, "dst", lay_out(t, &b, dst_stride, 0, draw(t, "gaps", 2)));

    ready(t);
    if (how)
        sherd__copy_box(bytes_now(t), b.ndim, b.size, dst, dst_stride, src, src_stride);
    else
        sherd__copy_part(bytes_now(t), b.ndim, b.size, dst, dst_stride, src, src_stride, 1 << 30);
}

static void try_pick_box(trial *t)
{
    box b = draw_box(t);
    int64_t mask_stride[BOX_DIMS], a_stride[BOX_DIMS], b_stride[BOX_DIMS];
    const void *x = strided_in(t, "a", &b, a_stride), *y = strided_in(t, "b", &b, b_stride);
    unsigned folded = (unsigned)draw(t, "folded", 1 << BOX_DIMS);

    whole_range(t, 0, 1);
    const uint8_t *mask =
        part_of(t, "mask", READ, FLAGS, lay_out(t, &b, mask_stride, folded, draw(t, "gaps", 2)));
    void *dst = out(t, "dst", b.n);
    ready(t);
    sherd__pick_box(bytes_now(t), b.ndim, b.size, dst, mask, mask_stride, x, a_stride, y, b_stride);
}

#endif
