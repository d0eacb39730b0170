/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of operator_rows.h: bits, bins, rows by index, several indices, what is repeated. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_INDEX_H
#define SHERD_TESTS_OPERATOR_ROWS_INDEX_H

#include "operator_rows_shape.h"

#include "sherd/ops_bits.h"
#include "sherd/ops_index.h"

/* ---- bits and bins --------------------------------------------------------------------------- */

RUN(run_bitwise_and, sherd_bitwise_and(in[0], in[1]))
RUN(run_bitwise_or, sherd_bitwise_or(in[0], in[1]))
RUN(run_bitwise_xor, sherd_bitwise_xor(in[0], in[1]))
RUN(run_bitwise_left_shift, sherd_bitwise_left_shift(in[0], in[1]))
RUN(run_bitwise_right_shift, sherd_bitwise_right_shift(in[0], in[1]))
RUN(run_bitwise_and_scalar, sherd_bitwise_and_scalar(in[0], 6))
RUN(run_bitwise_or_scalar, sherd_bitwise_or_scalar(in[0], 8))
RUN(run_bitwise_xor_scalar, sherd_bitwise_xor_scalar(in[0], -3))
RUN(run_bitwise_left_shift_scalar, sherd_bitwise_left_shift_scalar(in[0], 2))
RUN(run_bitwise_right_shift_scalar, sherd_bitwise_right_shift_scalar(in[0], 1))
RUN(run_bitwise_not, sherd_bitwise_not(in[0]))
RUN(run_histc, sherd_histc(in[0], 2, -0.5, 0.5))

/* ---- repeated -------------------------------------------------------------------------------- */

RUN(run_repeat_interleave, sherd_repeat_interleave(in[0], (int)n[0], n[1]))

static inline bool draw_times(call_plan *p, uint64_t *dice)
{
    p->number[1] = roll(dice, 4);
    return draw_dim(p, dice);
}

/* Equal counts, so that also a dry world knows their sum; they lie as the operand does. */
RUN(run_repeat_interleave_by,
    sherd_repeat_interleave_by(in[0], (int)n[0],
                               sherd_add_scalar(sherd_bitwise_and_scalar(in[1], 0), (double)n[1]),
                               n[2]))

static inline bool draw_counts(call_plan *p, uint64_t *dice)
{
    if (!draw_times(p, dice))
        return false;
    const int64_t *size = &p->in[0].shape[p->number[0]];
    p->number[2] = *size * p->number[1];
    want(p, 1, 'i', 1, size)->limit = 3;
    return true;
}

/* ---- rows by index --------------------------------------------------------------------------- */

RUN(run_index_add, sherd_index_add(in[0], (int)n[0], in[1], in[2]))
RUN(run_index_copy, sherd_index_copy(in[0], (int)n[0], in[1], in[2]))
RUN(run_index_fill, sherd_index_fill(in[0], (int)n[0], in[1], 1))

static inline bool draw_rows(call_plan *p, uint64_t *dice)
{
    if (!draw_index(p, dice))
        return false;
    int64_t size = p->in[1].shape[0];
    want_same(p, 2, 'x')->shape[p->number[0]] = size;
    return true;
}

RUN(run_index_reduce,
    sherd_index_reduce(in[0], (int)n[0], in[1], in[2], (sherd_reduce_op)n[5], n[6] != 0))
RUN(run_index_softmax, sherd_index_softmax(in[0], (int)n[0], in[1], n[5]))

static inline bool draw_reduced_rows(call_plan *p, uint64_t *dice)
{
    if (!draw_index(p, dice))
        return false;
    int64_t size = p->in[1].shape[0];
    want_same(p, 2, 'd')->shape[p->number[0]] = size;
    p->number[5] = SHERD_MIN + roll(dice, 3);
    p->number[6] = roll(dice, 2);
    return true;
}

static inline bool draw_grouped(call_plan *p, uint64_t *dice)
{
    if (!draw_dim(p, dice))
        return false;
    p->number[5] = 1 + roll(dice, 4);
    want(p, 1, 'i', 1, &p->in[0].shape[p->number[0]])->limit = p->number[5];
    return true;
}

/* ---- several indices ------------------------------------------------------------------------- */

RUN(run_index_at, sherd_index_at(in[0], in + 1, 2))
RUN(run_index_put, sherd_index_put(in[0], in + 1, 2, in[3], n[0]))

/* Of the first two dims, of shapes that broadcast. */
static inline bool draw_indices_of_two(call_plan *p, uint64_t *dice)
{
    const int64_t *shape = p->in[0].shape;
    const int64_t full[] = {1 + roll(dice, 3), 1 + roll(dice, 3)}, thin[] = {full[0], 1};

    if (shape[0] == 0 || shape[1] == 0)
        return false;
    want(p, 1, 'i', 2, roll(dice, 2) ? full : thin)->limit = shape[0];
    want(p, 2, 'i', 1, full + 1)->limit = shape[1];
    return true;
}

/* Adding, if the dtype can be added; values for each place, or one for all. */
static inline bool draw_put(call_plan *p, uint64_t *dice)
{
    if (!draw_indices_of_two(p, dice))
        return false;
    const int64_t *full = p->in[1].shape;
    int64_t shape[] = {full[0], p->in[2].shape[0], p->in[0].shape[2]};
    bool one = roll(dice, 3) == 0;

    p->number[0] = p->in[0].dtype != SHERD_BOOL && roll(dice, 2);
    want(p, 3, 'x', one ? 0 : p->in[0].ndim, shape);
    return true;
}

#endif
