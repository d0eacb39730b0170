/* SPDX-License-Identifier: Apache-2.0 */
/* Rows (operator_rows.h) of operators on shape and index, and of functions that write in place. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_SHAPE_H
#define SHERD_TESTS_OPERATOR_ROWS_SHAPE_H

#include "operator_rows.h"

/* ---- another shape --------------------------------------------------------------------------- */

RUN(run_view, sherd_view(in[0], n + 1, (int)n[0]))
RUN(run_flatten, sherd_flatten(in[0], (int)n[0], (int)n[1]))
RUN(run_unflatten, sherd_unflatten(in[0], (int)n[0], n + 1, 2))
RUN(run_transpose, sherd_transpose(in[0], (int)n[0], (int)n[1]))
RUN(run_squeeze, n[1] ? sherd_squeeze_all(in[0]) : sherd_squeeze(in[0], (int)n[0]))
RUN(run_unsqueeze, sherd_unsqueeze(in[0], (int)n[0]))
RUN(run_expand, sherd_expand(in[0], n + 1, (int)n[0]))
RUN(run_detach, sherd_detach(in[0]))
RUN(run_contiguous, sherd_contiguous(sherd_transpose(in[0], (int)n[0], (int)n[1])))
RUN(run_clone, sherd_clone(sherd_transpose(in[0], (int)n[0], (int)n[1])))

static inline sherd_tensor *run_permute(act *a)
{
    int dims[MOST_DIMS], ndim = a->p->in[0].ndim;

    for (int d = 0; d < ndim; d++)
        dims[d] = (int)((d + a->p->number[0]) % ndim);
    return sherd_permute(a->in[0], dims, ndim);
}

static inline int64_t divisor(int64_t n, uint64_t *dice)
{
    int64_t d = n ? 1 + roll(dice, (int)n) : 1;

    while (n % d)
        d--;
    return d;
}

/* number: how many sizes, and the sizes. */
static inline bool draw_view(call_plan *p, uint64_t *dice)
{
    int64_t n = product_of(p->in[0].shape, p->in[0].ndim), count = 1 + roll(dice, 3);

    p->operands = 1;
    p->number[0] = count;
    for (int64_t i = 1; i < count; i++) {
        p->number[i] = n ? divisor(n, dice) : roll(dice, 3);
        n = n ? n / p->number[i] : 0;
    }
    p->number[count] = n;
    return count != p->in[0].ndim || /* else it is the tensor itself */
           memcmp(p->in[0].shape, p->number + 1, sizeof(int64_t) * (size_t)count) != 0;
}

static inline bool draw_two_dims(call_plan *p, uint64_t *dice)
{
    int p1, p2;

    if (!draw_dim(p, dice))
        return false;
    p1 = roll(dice, p->in[0].ndim);
    p2 = (int)p->number[0];
    p->number[0] = p1 < p2 ? p1 : p2;
    p->number[1] = p1 < p2 ? p2 : p1;
    return true;
}

static inline bool draw_unflatten(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice) || p->in[0].ndim > 3)
        return false;
    int64_t size = p->in[0].shape[p->number[0]];
    p->number[1] = divisor(size, dice);
    p->number[2] = size / p->number[1];
    return true;
}

/* A dim of size 1, if there is one. */
static inline bool draw_squeeze(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    p->number[1] = roll(dice, 3) == 0;
    for (int d = 0; d < p->in[0].ndim; d++)
        if (p->in[0].shape[d] == 1)
            p->number[0] = d;
    return true;
}

static inline bool draw_new_dim(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    p->number[0] = roll(dice, p->in[0].ndim + 1);
    return p->in[0].ndim < MOST_DIMS;
}

static inline bool draw_expand(call_plan *p, uint64_t *dice)
{
    int ndim = p->in[0].ndim, more = ndim < 3 ? roll(dice, 2) : 0;

    p->operands = 1;
    p->number[0] = ndim + more;
    p->number[1] = 2;
    for (int d = 0; d < ndim; d++)
        p->number[1 + more + d] = p->in[0].shape[d] == 1 ? 1 + roll(dice, 3) : -1;
    return true;
}

/* ---- parts ----------------------------------------------------------------------------------- */

RUN(run_slice, sherd_slice(in[0], (int)n[0], n[1], n[2], n[3]))
RUN(run_narrow, sherd_narrow(in[0], (int)n[0], n[1], n[2]))
RUN(run_select, sherd_select(in[0], (int)n[0], n[1]))
RUN(run_pad, sherd_pad(in[0], n, n + MOST_DIMS, (double)n[2 * MOST_DIMS]))
RUN(run_cat, sherd_cat(in, a->p->operands, (int)n[0]))
RUN(run_stack, sherd_stack(in, a->p->operands, (int)n[0]))
RUN(run_roll, sherd_roll(in[0], n[1], (int)n[0]))
RUN(run_zigzag, sherd_zigzag(in[0], (int)n[0], n[1]))
RUN(run_unzigzag, sherd_unzigzag(in[0], (int)n[0], n[1]))
RUN(run_repeat, sherd_repeat(in[0], n + 1, (int)n[0]))

static inline sherd_tensor *run_flip(act *a)
{
    int dims[] = {(int)a->p->number[0]};

    return a->p->number[1] ? sherd_flip(a->in[0], NULL, -1) : sherd_flip(a->in[0], dims, 1);
}

/* Two parts, both results. */
static inline sherd_tensor *run_split(act *a)
{
    const int64_t *n = a->p->number;
    sherd_tensor *part[2];

    sherd_split(part, a->in[0], (int)n[0], n + 1, 2);
    a->more = part[1];
    return part[0];
}

static inline bool draw_split(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    int64_t size = p->in[0].shape[p->number[0]];
    p->number[1] = roll(dice, (int)size + 1);
    p->number[2] = size - p->number[1];
    return true;
}

static inline bool draw_slice(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    int size = (int)p->in[0].shape[p->number[0]];
    p->number[1] = roll(dice, size + 1) - (roll(dice, 2) ? size : 0);
    p->number[2] = roll(dice, 2) ? INT64_MAX : roll(dice, size + 2);
    p->number[3] = 1 + roll(dice, 3);
    return true;
}

static inline bool draw_narrow(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    int size = (int)p->in[0].shape[p->number[0]];
    p->number[1] = roll(dice, size + 1);
    p->number[2] = roll(dice, size + 1 - (int)p->number[1]);
    return true;
}

static inline bool draw_select(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice) || p->in[0].shape[p->number[0]] == 0)
        return false;
    p->number[1] = roll(dice, (int)p->in[0].shape[p->number[0]]);
    return true;
}

static inline bool draw_pad(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    for (int d = 0; d < p->in[0].ndim; d++) {
        bool away = p->in[0].shape[d] > 1 && roll(dice, 4) == 0;
        p->number[d] = roll(dice, 3);
        p->number[MOST_DIMS + d] = away ? -1 : roll(dice, 2);
    }
    p->number[2 * MOST_DIMS] = roll(dice, 2);
    return true;
}

static inline bool draw_cat(call_plan *p, uint64_t *dice)
{
    int more = 1 + roll(dice, 2);

    if (!draw_dim(p, dice))
        return false;
    for (int i = 1; i <= more; i++)
        want_same(p, i, 'x')->shape[p->number[0]] = roll(dice, 4);
    return true;
}

static inline bool draw_stack(call_plan *p, uint64_t *dice)
{
    bool good = draw_new_dim(p, dice);

    want_same(p, 1, 'x');
    return good;
}

static inline bool draw_roll(call_plan *p, uint64_t *dice)
{
    p->number[1] = roll(dice, 9) - 4;
    return draw_dim(p, dice);
}

static inline bool draw_zigzag(call_plan *p, uint64_t *dice)
{
    p->number[1] = 1 + roll(dice, 4);
    return draw_dim(p, dice);
}

static inline bool draw_flip(call_plan *p, uint64_t *dice)
{
    p->number[1] = roll(dice, 3) == 0;
    return draw_dim(p, dice);
}

static inline bool draw_repeat(call_plan *p, uint64_t *dice)
{
    int more = p->in[0].ndim < 3 ? roll(dice, 2) : 0;

    p->operands = 1;
    p->number[0] = p->in[0].ndim + more;
    for (int d = 0; d < p->number[0]; d++)
        p->number[1 + d] = 1 + roll(dice, 2);
    return true;
}

/* ---- by index -------------------------------------------------------------------------------- */

RUN(run_index_select, sherd_index_select(in[0], (int)n[0], in[1]))
RUN(run_gather, sherd_gather(in[0], (int)n[0], in[1]))
RUN(run_scatter, a->p->operands > 2 ? sherd_scatter(in[0], (int)n[0], in[1], in[2])
                                    : sherd_scatter_fill(in[0], (int)n[0], in[1], 1))
RUN(run_scatter_add, sherd_scatter_add(in[0], (int)n[0], in[1], in[2]))
RUN(run_sort, sherd_sort(in[0], (int)n[0], n[1], &a->more))
RUN(run_topk, sherd_topk(in[0], n[2], (int)n[0], n[1], &a->more))
RUN(run_cumsum, sherd_cumsum(in[0], (int)n[0]))
RUN(run_tril, sherd_tril(in[0], n[0]))
RUN(run_triu, sherd_triu(in[0], n[0]))

static inline bool draw_index(call_plan *p, uint64_t *dice)
{
    int64_t size = 1 + roll(dice, 6);

    if (!draw_dim(p, dice) || p->in[0].shape[p->number[0]] == 0)
        return false;
    want(p, 1, 'i', 1, &size)->limit = p->in[0].shape[p->number[0]];
    return true;
}

/* An index that has as many dims; others at most as large where `fewer`. */
static inline bool draw_places(call_plan *p, bool fewer, uint64_t *dice)
{
    if (!draw_dim(p, dice) || p->in[0].shape[p->number[0]] == 0)
        return false;
    need *w = want_same(p, 1, 'i');
    w->limit = w->shape[p->number[0]];
    for (int d = 0; d < w->ndim && fewer; d++)
        w->shape[d] = w->shape[d] > 1 && roll(dice, 3) == 0 ? w->shape[d] - 1 : w->shape[d];
    w->shape[p->number[0]] = 1 + roll(dice, 4);
    return true;
}

static inline bool draw_gather(call_plan *p, uint64_t *dice)
{
    return draw_places(p, true, dice);
}

static inline bool draw_scatter(call_plan *p, uint64_t *dice)
{
    if (!draw_places(p, false, dice))
        return false;
    if (roll(dice, 4))
        want(p, 2, 'x', p->in[1].ndim, p->in[1].shape);
    return true;
}

static inline bool draw_scatter_add(call_plan *p, uint64_t *dice)
{
    if (!draw_places(p, false, dice))
        return false;
    want(p, 2, 'x', p->in[1].ndim, p->in[1].shape);
    return true;
}

RUN(run_scatter_reduce,
    sherd_scatter_reduce(in[0], (int)n[0], in[1], in[2], (sherd_reduce_op)n[5], n[6] != 0))

static inline bool draw_scatter_reduce(call_plan *p, uint64_t *dice)
{
    if (!draw_places(p, false, dice))
        return false;
    want(p, 2, 'd', p->in[1].ndim, p->in[1].shape);
    p->number[5] = SHERD_MIN + roll(dice, 3);
    p->number[6] = roll(dice, 2);
    return true;
}

static inline bool draw_sort(call_plan *p, uint64_t *dice)
{
    p->number[1] = roll(dice, 2);
    if (!draw_dim(p, dice))
        return false;
    p->number[2] = roll(dice, (int)p->in[0].shape[p->number[0]] + 1);
    return true;
}

static inline bool draw_diagonal(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    p->number[0] = roll(dice, 5) - 2;
    return true;
}

/* ---- in place -------------------------------------------------------------------------------- */

/* Only what is pending by a sum can be written. */
static inline sherd_tensor *without_other_reductions(sherd_tensor *t)
{
    const sherd_layout *layout = sherd_tensor_layout(t);
    int axes = layout ? sherd_mesh_axes(sherd_layout_mesh(layout)) : 0;
    bool sums = true;

    for (int a = 0; a < axes; a++) {
        sherd_placement at = sherd_layout_placement(layout, a);
        sums &= at.kind != SHERD_PARTIAL || at.op == SHERD_SUM;
    }
    return sums ? t : sherd_redistribute_to(t, axes == 1 ? "R" : "RR", NULL);
}

/* number[0]: what is written; number[1]: into a part of it, transposed. */
static inline sherd_tensor *run_write(act *a)
{
    const int64_t *n = a->p->number;
    sherd_tensor *b = sherd_detach(a->in[1]), *t, *part;

    t = sherd_detach(a->in[0]);
    t = sherd_clone(n[2] ? sherd_add(sherd_tanh(t), sherd_sum(t)) : t);
    t = without_other_reductions(t);
    if (!sherd_tensor_layout(t)) /* a plain one takes nothing distributed */
        b = sherd_full(b);
    part = n[1] ? sherd_transpose(sherd_slice(t, 0, 1, INT64_MAX, 2), 0, -1) : t;
    b = n[1] ? sherd_transpose(sherd_slice(b, 0, 1, INT64_MAX, 2), 0, -1) : b;
    if (n[0] == 0)
        sherd_add_to(part, b);
    else if (n[0] == 1)
        sherd_mul_by(part, b);
    else if (n[0] == 2)
        sherd_copy_from(part, b);
    else
        sherd_fill(part, 0.25);
    a->more = part;
    return t;
}

static inline bool draw_write(call_plan *p, uint64_t *dice)
{
    p->number[0] = roll(dice, 4);
    p->number[1] = p->in[0].ndim > 0 && roll(dice, 2);
    p->number[2] = roll(dice, 2);
    want_same(p, 1, 'x');
    return true;
}

#endif
