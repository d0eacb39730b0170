/* SPDX-License-Identifier: Apache-2.0 */
/* Rows (operator_rows.h) of operators on rows in groups, on routes, and behind masks; and of
 * products with weights of 8 bits. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_GROUPS_H
#define SHERD_TESTS_OPERATOR_ROWS_GROUPS_H

#include "operator_rows.h"

#include "sherd/ops_groups.h"
#include "sherd/ops_masks.h"
#include "sherd/ops_sorted.h"
#include "sherd/ops_routes.h"

/* ---- runs: number[0] of them, and their ends; in reverse order of groups if number[6] -------- */

static inline sherd_tensor *numbered_ends(act *a)
{
    int32_t end[MOST_NUMBERS];

    for (int64_t i = 0; i < a->p->number[0]; i++)
        end[i] = (int32_t)a->p->number[1 + i];
    return sherd_mark_equal(
        sherd_from_data(sherd_tensor_world(a->in[0]), SHERD_I32, &a->p->number[0], 1, end));
}

static inline sherd_tensor *numbered_groups(act *a)
{
    int32_t group[MOST_NUMBERS];
    int64_t runs = a->p->number[0];

    for (int64_t i = 0; i < runs; i++)
        group[i] = (int32_t)(runs - 1 - i);
    return a->p->number[6] ? sherd_mark_equal(sherd_from_data(sherd_tensor_world(a->in[0]),
                                                              SHERD_I32, &runs, 1, group))
                           : NULL;
}

RUN(run_grouped_linear, sherd_grouped_linear(in[0], in[1], a->p->operands > 2 ? in[2] : NULL,
                                             numbered_ends(a), numbered_groups(a)))
RUN(run_grouped_matmul, sherd_grouped_matmul(in[0], in[1], numbered_ends(a), numbered_groups(a)))

static inline bool draw_runs(call_plan *p, uint64_t *dice)
{
    int64_t rows = p->in[0].shape[0], runs = 1 + roll(dice, 4), end = 0;

    p->number[0] = runs;
    for (int64_t i = 1; i < runs; i++) {
        end += roll(dice, (int)(rows - end) + 1);
        p->number[i] = end;
    }
    p->number[runs] = rows;
    p->number[6] = roll(dice, 3) == 0;
    return true;
}

static inline bool draw_grouped_linear(call_plan *p, uint64_t *dice)
{
    (void)draw_runs(p, dice);
    const int64_t shape[] = {p->number[0], 1 + roll(dice, 4), p->in[0].shape[1]};
    want(p, 1, 'x', 3, shape);
    if (roll(dice, 2))
        want(p, 2, 'x', 2, shape);
    return true;
}

static inline bool draw_grouped_matmul(call_plan *p, uint64_t *dice)
{
    (void)draw_runs(p, dice);
    const int64_t shape[] = {p->number[0], p->in[0].shape[1], 1 + roll(dice, 4)};
    want(p, 1, 'x', 3, shape);
    return true;
}

/* ---- there and back: columns of x are the groups, as their layout says where rows go --------- */

static inline sherd_tensor *run_there_and_back(act *a)
{
    sherd_groups to;

    sherd_group_rows(&to, a->in[1], sherd_transpose(a->in[0], 0, 1));
    return sherd_combine(sherd_dispatch(a->in[0], &to), &to, a->p->operands > 2 ? a->in[2] : NULL);
}

static inline bool draw_there_and_back(call_plan *p, uint64_t *dice)
{
    const int64_t choice[] = {p->in[0].shape[0], 1 + roll(dice, 3)};

    if (p->in[0].shape[1] == 0)
        return false;
    want(p, 1, 'i', 2, choice)->limit = p->in[0].shape[1];
    if (roll(dice, 2) && p->in[0].dtype != SHERD_BOOL)
        want(p, 2, 'x', 2, choice);
    return true;
}

/* ---- routes: shard 0 is there in every layout, also in none ------------------------------- */

static inline sherd_tensor *run_send_rows(act *a)
{
    sherd_route route;

    sherd_route_rows(&route, a->in[1]);
    return sherd_send_rows(a->in[0], &route);
}

static inline sherd_tensor *run_return_rows(act *a)
{
    sherd_route route;

    sherd_route_rows(&route, a->in[1]);
    return sherd_return_rows(a->in[0], &route);
}

static inline bool draw_route(call_plan *p, uint64_t *dice)
{
    (void)dice;
    want(p, 1, 'i', 1, p->in[0].shape)->limit = 1;
    return true;
}

/* ---- masks: of the first dims of the operand --------------------------------------------------- */

RUN(run_nonzero, sherd_nonzero(in[0]))
RUN(run_masked_select, sherd_masked_select(in[0], in[1]))
RUN(run_masked_scatter, sherd_masked_scatter(in[0], in[1], sherd_masked_select(in[2], in[1])))

/* ---- weights of 8 or 4 bits; numbers: columns of a group, bits ------------------------------ */

static inline sherd_tensor *there_and_back(sherd_tensor *w, int64_t group, int bits)
{
    sherd_tensor *scale, *value = sherd_quantize(w, bits, group, &scale);

    return sherd_dequantize(value, scale, group, sherd_tensor_dtype(w));
}

RUN(run_quantize, there_and_back(in[0], n[0], (int)n[1]))
RUN(run_linear_quantized,
    sherd_linear_quantized(in[0],
                           n[1] == 4 ? sherd_cast(in[1], SHERD_U8)
                                     : sherd_cast(sherd_add_scalar(in[1], -100), SHERD_I8),
                           sherd_scale(sherd_cast(in[2], SHERD_F32), 1.0 / 64), n[0],
                           a->p->operands > 3 ? in[3] : NULL))

/* Numbers behind those of runs: columns of a group, and at 7 bits. */
RUN(run_grouped_linear_quantized,
    sherd_grouped_linear_quantized(in[0],
                                   n[7] == 4 ? sherd_cast(in[1], SHERD_U8)
                                             : sherd_cast(sherd_add_scalar(in[1], -100), SHERD_I8),
                                   sherd_scale(sherd_cast(in[2], SHERD_F32), 1.0 / 64), n[5],
                                   a->p->operands > 3 ? in[3] : NULL, numbered_ends(a),
                                   numbered_groups(a)))

static inline bool draw_quantize(call_plan *p, uint64_t *dice)
{
    bool pairs = p->in[0].shape[p->in[0].ndim - 1] % 2 == 0 && roll(dice, 2);

    p->number[0] = roll(dice, 5) * (pairs + 1);
    p->number[1] = pairs ? 4 : 8;
    return true;
}

static inline bool draw_linear_quantized(call_plan *p, uint64_t *dice)
{
    int64_t in = p->in[0].shape[p->in[0].ndim - 1], group = roll(dice, 5);
    bool pairs = in % 2 == 0 && roll(dice, 2);
    int64_t shape[] = {1 + roll(dice, 4), pairs ? in / 2 : in};

    group *= pairs + 1;
    p->number[0] = group;
    p->number[1] = pairs ? 4 : 8;
    want(p, 1, 'i', 2, shape)->limit = 200;
    shape[1] = group ? (in + group - 1) / group : 0;
    want(p, 2, 'i', group ? 2 : 1, shape)->limit = 50;
    if (roll(dice, 2))
        want(p, 3, 'x', 1, shape);
    return true;
}

static inline bool draw_grouped_linear_quantized(call_plan *p, uint64_t *dice)
{
    (void)draw_runs(p, dice);
    int64_t in = p->in[0].shape[1], columns = roll(dice, 5);
    bool pairs = in % 2 == 0 && roll(dice, 2);
    int64_t shape[] = {p->number[0], 1 + roll(dice, 4), pairs ? in / 2 : in};

    columns *= pairs + 1;
    p->number[5] = columns;
    p->number[7] = pairs ? 4 : 8;
    want(p, 1, 'i', 3, shape)->limit = 200;
    shape[2] = columns ? (in + columns - 1) / columns : 0;
    want(p, 2, 'i', columns ? 3 : 2, shape)->limit = 50;
    if (roll(dice, 2))
        want(p, 3, 'x', 2, shape);
    return true;
}

/* ---- what is sorted ---------------------------------------------------------------------------- */

RUN(run_searchsorted, sherd_searchsorted(sherd_sort(in[1], -1, false, NULL), in[0], n[0],
                                         n[0] ? SHERD_I32 : SHERD_I64))
RUN(run_unique, sherd_unique(in[0], &a->more, NULL))
RUN(run_count_unique, sherd_unique(in[0], NULL, &a->more))

/* number: whether values go behind what is equal to them. */
static inline bool draw_sought(call_plan *p, uint64_t *dice)
{
    int64_t shape[4] = {0};
    int ndim = p->in[0].ndim > 1 && roll(dice, 2) ? p->in[0].ndim : 1;

    memcpy(shape, p->in[0].shape, sizeof(int64_t) * (size_t)ndim);
    shape[ndim - 1] = roll(dice, 6);
    want(p, 1, 'd', ndim, shape);
    p->number[0] = roll(dice, 2);
    return true;
}

static inline bool draw_mask(call_plan *p, uint64_t *dice)
{
    want(p, 1, 'b', 1 + roll(dice, p->in[0].ndim), p->in[0].shape);
    return true;
}

static inline bool draw_masked(call_plan *p, uint64_t *dice)
{
    want_same(p, 2, p->row->kind);
    return draw_mask(p, dice);
}

#endif
