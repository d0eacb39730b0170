/* SPDX-License-Identifier: Apache-2.0 */
/* Subjects (bounds.h): kernels that work element by element, also of operands with strides. */
#ifndef SHERD_TESTS_BOUNDS_ELEMENTS_H
#define SHERD_TESTS_BOUNDS_ELEMENTS_H

#include "bounds_boxes.h"
#include "kernels/kernels.h"

/* ---- one operand ----------------------------------------------------------------------------- */

static void try_widen(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n");
    const void *src = in(t, "src", n);
    float *dst = part_of(t, "dst", WRITTEN, F32S, n);

    ready(t);
    k->widen(n, dst, src);
}

static void try_narrow(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n");
    const float *src = part_of(t, "src", READ, F32S, n);
    void *dst = out(t, "dst", n);

    ready(t);
    k->narrow(n, dst, src);
}

static void try_copy(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "bytes") + draw(t, "more", 64);
    const void *src = part_of(t, "src", READ, BYTES, n);
    void *dst = part_of(t, "dst", WRITTEN, BYTES, n);

    ready(t);
    if (t->on_paper)
        memcpy(dst, src, (size_t)n);
    else
        k->copy(dst, src, (size_t)n);
}

static void try_fill(trial *t)
{
    const sherd__kernels *k = t->table;
    int64_t n = long_length(t, "n");
    double value = (double)draw(t, "value", 5);
    void *dst = out(t, "dst", n);

    ready(t);
    k->fill(dst, n, value);
}

typedef enum function_at { NOTHING, X, Y } function_at;

/* Of each function: whether integers have it, and what its slope reads. */
typedef struct function_row {
    bool integers;
    function_at at;
} function_row;

enum { FRACTIONS = 0, LINEAR_FRACTIONS = 0, NUMBERS = 1, LINEAR = 1 };

static function_row unary_row(int64_t kind)
{
    static const function_row rows[] = {
        {false, NOTHING},
        {true, NOTHING},
#define UNARY0(name, NAME, text, numbers, at, ...)       {numbers, at},
#define UNARY1(name, NAME, p, text, numbers, at, ...)    {numbers, at},
#define UNARY2(name, NAME, p, q, text, numbers, at, ...) {numbers, at},
#define HIDDEN1(name, NAME, p, text, numbers, at, ...)   {numbers, at},
#include "kernels/functions.inc"
    };
    return rows[kind];
}

/* Whole ones, of integers; those that the type has. */
static void draw_parameters(trial *t, double parameter[SHERD__PARAMETERS])
{
    parameter[0] = (double)(1 + draw(t, "p", 4)) / (sherd__has_fractions(t->dtype) ? 2 : 1);
    if (t->dtype == SHERD_BOOL)
        parameter[0] = 1;
    parameter[1] = parameter[0] + (double)draw(t, "q", 3) - 1; /* bounds may cross */
}

static void try_unary(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__unary_kind kind = (sherd__unary_kind)draw(t, "kind", SHERD__UNARY_KINDS);
    int64_t n = long_length(t, "n"), same = draw(t, "same", 3);
    double parameter[SHERD__PARAMETERS];

    if (!unary_row(kind).integers && !sherd__has_fractions(t->dtype))
        return;
    draw_parameters(t, parameter);
    void *src = part_of(t, "src", same == 0 ? CHANGED : READ, OWN, n);
    void *dst = same == 0 ? src : out(t, "dst", n);
    t->slack = 4;
    ready(t);
    k->unary(kind, n, dst, src, parameter);
}

static void try_unary_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__unary_kind kind = (sherd__unary_kind)draw(t, "kind", SHERD__UNARY_KINDS);
    int64_t n = long_length(t, "n"), same = draw(t, "same", 3);
    double parameter[SHERD__PARAMETERS];

    if (kind == SHERD__SCALE || kind == SHERD__SHIFT) /* their gradients are made by `unary` */
        return;
    draw_parameters(t, parameter);
    const void *at = unary_row(kind).at == NOTHING ? NULL : in(t, "at", n);
    void *dy = part_of(t, "dy", same == 0 ? CHANGED : READ, OWN, n);
    void *dx = same == 0 ? dy : out(t, "dx", n);
    t->slack = 8;
    ready(t);
    k->unary_grad(kind, n, dx, at, dy, parameter);
}

/* ---- two operands ---------------------------------------------------------------------------- */

static bool binary_is_whole(int64_t kind)
{
    static const bool rows[] = {
        true,
        true,
        true,
#define BINARY(name, NAME, text, numbers, ...) numbers,
#include "kernels/functions.inc"
    };
    return rows[kind];
}

static void try_binary(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__binary_kind kind = (sherd__binary_kind)draw(t, "kind", SHERD__BINARY_KINDS);
    box b = draw_box(t);
    int64_t a_stride[BOX_DIMS], b_stride[BOX_DIMS];
    bool same = draw(t, "same", 4) == 0;

    if (!binary_is_whole(kind) && !sherd__has_fractions(t->dtype))
        return;
    void *dst = NULL;
    const void *x = NULL;
    if (same)
        x = dst = in_out(t, "a", lay_out(t, &b, a_stride, 0, false));
    else
        x = strided_in(t, "a", &b, a_stride);
    const void *y = strided_in(t, "b", &b, b_stride);
    if (!same)
        dst = out(t, "dst", b.n);
    t->slack = 4;
    ready(t);
    k->binary(kind, b.ndim, b.size, dst, x, a_stride, y, b_stride);
}

static void try_binary_grad(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__binary_kind kind = (sherd__binary_kind)draw(t, "kind", SHERD__BINARY_KINDS);
    int which = (int)draw(t, "which", 2);
    box b = draw_box(t);
    int64_t a_stride[BOX_DIMS], b_stride[BOX_DIMS], same = draw(t, "same", 3);

    if (kind <= SHERD__MUL) /* their gradients are products */
        return;
    void *dy = part_of(t, "dy", same == 0 ? CHANGED : READ, OWN, b.n);
    const void *x = strided_in(t, "a", &b, a_stride), *y = strided_in(t, "b", &b, b_stride);
    void *dst = same == 0 ? dy : out(t, "dst", b.n);
    t->slack = 8;
    ready(t);
    k->binary_grad(kind, which, b.ndim, b.size, dst, dy, x, a_stride, y, b_stride);
}

static void try_compare(trial *t)
{
    const sherd__kernels *k = t->table;
    sherd__compare_kind kind = (sherd__compare_kind)draw(t, "kind", SHERD__COMPARE_KINDS);
    box b = draw_box(t);
    int64_t a_stride[BOX_DIMS], b_stride[BOX_DIMS];
    const void *x = strided_in(t, "a", &b, a_stride), *y = strided_in(t, "b", &b, b_stride);
    uint8_t *dst = part_of(t, "dst", WRITTEN, FLAGS, b.n);

    ready(t);
    k->compare(kind, b.ndim, b.size, dst, x, a_stride, y, b_stride);
}

/* ---- several operands ------------------------------------------------------------------------ */

enum { ADDENDS = 5, SPREAD = 4 };

/* Integers have no average; products of many do not fit into f16. */
static sherd_reduce_op draw_op(trial *t)
{
    static const sherd_reduce_op ops[] = {SHERD_SUM, SHERD_MIN, SHERD_MAX, SHERD_PRODUCT,
                                          SHERD_AVG};

    return ops[draw(t, "op", sherd__has_fractions(t->dtype) ? 5 : 4)];
}

static sherd__reduction draw_reduction(trial *t, const void **src, bool *changed)
{
    static const char *const names[ADDENDS] = {"src[0]", "src[1]", "src[2]", "src[3]", "src[4]"};
    sherd__reduction r = {.op = draw_op(t),
                          .count = 1 + (int)draw(t, "count", ADDENDS),
                          .n = long_length(t, "n"),
                          .src = src};

    *changed = draw(t, "same", 3) == 0; /* the first one is a result too */
    r.divisor = r.count;
    for (int i = 0; i < r.count; i++)
        src[i] = part_of(t, names[i], i == 0 && *changed ? CHANGED : READ, OWN, r.n);
    return r;
}

static void try_reduce(trial *t)
{
    const sherd__kernels *k = t->table;
    const void *src[ADDENDS];
    bool same;
    sherd__reduction r = draw_reduction(t, src, &same);
    void *dst =
        same ? t->on_paper ? t->part[0].on_paper : t->part[0].fence.given : out(t, "dst", r.n);

    ready(t);
    k->reduce(r.op, dst, r.src, r.count, r.n, r.divisor);
}

/*
 * What reduce_spread and reduce_past have in common; on paper it is `reduce` for each copy, that
 * over an addend last.
 */
static void spread(trial *t, void (*kernel)(const sherd__reduction *, void *const *, int))
{
    static const char *const names[SPREAD] = {"dst[0]", "dst[1]", "dst[2]", "dst[3]"};
    const sherd__kernels *k = t->table;
    const void *src[ADDENDS];
    void *dst[SPREAD];
    bool same;
    sherd__reduction r = draw_reduction(t, src, &same);
    int copies = 1 + (int)draw(t, "copies", SPREAD);

    for (int i = 0; i < copies; i++)
        dst[i] = i == 0 && same ? t->on_paper ? t->part[0].on_paper : t->part[0].fence.given
                                : out(t, names[i], r.n);
    ready(t);
    for (int i = copies; i-- > 0 && t->on_paper;)
        k->reduce(r.op, dst[i], r.src, r.count, r.n, r.divisor);
    if (!t->on_paper)
        kernel(&r, dst, copies);
}

static void try_reduce_spread(trial *t)
{
    spread(t, ((const sherd__kernels *)t->table)->reduce_spread);
}

static void try_reduce_past(trial *t)
{
    spread(t, ((const sherd__kernels *)t->table)->reduce_past);
}

#endif
