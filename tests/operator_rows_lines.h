/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of operator_rows.h: diagonals, what runs along a dim, places in order,
 * vectors, windows, pixels. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_LINES_H
#define SHERD_TESTS_OPERATOR_ROWS_LINES_H

#include "operator_rows_shape.h"

#include "sherd/ops_diagonal.h"
#include "sherd/ops_running.h"
#include "sherd/ops_sorted.h"
#include "sherd/ops_stencil.h"
#include "sherd/ops_vectors.h"

/* ---- diagonals ------------------------------------------------------------------------------- */

RUN(run_diagonal, sherd_diagonal(in[0], n[2], (int)n[0], (int)n[1]))
RUN(run_trace, sherd_trace(in[0], n[2], (int)n[0], (int)n[1]))
RUN(run_diag_embed, sherd_diag_embed(in[0], n[2], (int)n[0], (int)n[1]))

/* number: two dims of `ndim`, and an offset. */
static inline bool draw_two_of(call_plan *p, int ndim, uint64_t *dice)
{
    p->operands = 1;
    p->number[0] = roll(dice, ndim);
    p->number[1] = (p->number[0] + 1 + roll(dice, ndim - 1)) % ndim;
    p->number[2] = roll(dice, 7) - 3;
    return true;
}

static inline bool draw_of_square(call_plan *p, uint64_t *dice)
{
    return draw_two_of(p, p->in[0].ndim, dice);
}

static inline bool draw_to_square(call_plan *p, uint64_t *dice)
{
    return draw_two_of(p, p->in[0].ndim + 1, dice);
}

/* ---- along a dim ----------------------------------------------------------------------------- */

RUN(run_cumprod, sherd_cumprod(in[0], (int)n[0]))
RUN(run_cummax, sherd_cummax(in[0], (int)n[0], &a->more))
RUN(run_cummin, sherd_cummin(in[0], (int)n[0], &a->more))
RUN(run_logcumsumexp, sherd_logcumsumexp(in[0], (int)n[0]))
RUN(run_recurrence, sherd_recurrence(in[0], in[1], (int)n[0], n[1]))

static inline bool draw_recurrence(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    p->number[1] = roll(dice, 2);
    want_same(p, 1, 'x');
    return true;
}

RUN(run_kthvalue, sherd_kthvalue(in[0], n[2], (int)n[0], n[1], &a->more))
RUN(run_median, sherd_median(in[0], (int)n[0], n[1], &a->more))
RUN(run_quantile,
    sherd_quantile(in[0], (double)(n[2] % 8) / 7, (int)n[0], (sherd_quantile_way)n[3], n[1]))

/* number: the dim, keepdim, a number in order or sevenths, a way. */
static inline bool draw_ranked(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice) || p->in[0].shape[p->number[0]] == 0)
        return false;
    p->number[1] = roll(dice, 2);
    p->number[2] = 1 + roll(dice, (int)p->in[0].shape[p->number[0]]);
    p->number[3] = roll(dice, 5);
    return true;
}

/* ---- vectors and pixels ---------------------------------------------------------------------- */

RUN(run_cross, sherd_cross(in[0], in[1], (int)n[0]))
RUN(run_normalize, sherd_normalize(in[0], (double)(1 + n[1]), (int)n[0], 1e-12))
RUN(run_cosine_similarity, sherd_cosine_similarity(in[0], in[1], (int)n[0], 1e-8))
RUN(run_glu, sherd_glu(in[0], (int)n[0]))
RUN(run_prelu, sherd_prelu(in[0], in[1]))
RUN(run_isclose, sherd_isclose(in[0], in[1], 0.5, 0.1, true))
RUN(run_pixel_shuffle, sherd_pixel_shuffle(in[0], n[0]))
RUN(run_pixel_unshuffle, sherd_pixel_unshuffle(in[0], n[0]))

/* A dim, which the second operand has too. */
static inline bool draw_vectors(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    int64_t size = p->in[0].shape[p->number[0]];
    p->number[0] -= p->in[0].ndim;
    need *w = want_broadcast(p, 1, 'd', false, dice);
    if (-p->number[0] > w->ndim)
        return false;
    w->shape[w->ndim + p->number[0]] = size;
    return true;
}

static inline bool draw_length(call_plan *p, uint64_t *dice)
{
    p->number[1] = roll(dice, 2);
    return draw_dim(p, dice);
}

static inline bool draw_cross(call_plan *p, uint64_t *dice)
{
    return draw_vectors(p, dice) && p->in[0].shape[p->in[0].ndim + p->number[0]] == 3;
}

static inline bool draw_glu(call_plan *p, uint64_t *dice)
{
    return draw_dim(p, dice) && p->in[0].shape[p->number[0]] % 2 == 0;
}

static inline bool draw_prelu(call_plan *p, uint64_t *dice)
{
    int64_t channels = p->in[0].ndim > 1 && roll(dice, 3) ? p->in[0].shape[1] : 1;

    want(p, 1, 'x', 1, &channels);
    return true;
}

static inline bool draw_shuffle(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    p->number[0] = 1 + roll(dice, 2);
    return p->in[0].shape[p->in[0].ndim - 3] % (p->number[0] * p->number[0]) == 0;
}

static inline bool draw_unshuffle(call_plan *p, uint64_t *dice)
{
    const int64_t *size = p->in[0].shape + p->in[0].ndim;

    p->operands = 1;
    p->number[0] = 1 + roll(dice, 3);
    return size[-1] % p->number[0] == 0 && size[-2] % p->number[0] == 0;
}

RUN(run_unfold, sherd_unfold(in[0], (int)n[0], n[1], n[2]))

static inline bool draw_unfold(call_plan *p, uint64_t *dice)
{
    p->number[1] = 1 + roll(dice, 3);
    p->number[2] = 1 + roll(dice, 4);
    return draw_dim(p, dice) && p->number[1] <= p->in[0].shape[p->number[0]];
}

#endif
