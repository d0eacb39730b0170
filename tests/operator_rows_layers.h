/* SPDX-License-Identifier: Apache-2.0 */
/* Rows (operator_rows.h) of layers as functions, and of losses. */
#ifndef SHERD_TESTS_OPERATOR_ROWS_LAYERS_H
#define SHERD_TESTS_OPERATOR_ROWS_LAYERS_H

#include "operator_rows.h"

/* ---- layers ---------------------------------------------------------------------------------- */

/* Those that are not there are NULL. */
static inline sherd_tensor *operand(const act *a, int i)
{
    return i < a->p->operands ? a->in[i] : NULL;
}

RUN(run_layer_norm, sherd_layer_norm_over(in[0], (int)n[0], operand(a, 1), operand(a, 2), 0.01))
RUN(run_rms_norm, sherd_rms_norm_over(in[0], (int)n[0], operand(a, 1), 0.01))

static inline sherd_add_norm_options add_norm_options(act *a)
{
    return (sherd_add_norm_options){.weight = operand(a, 2),
                                    .bias = operand(a, 3),
                                    .eps = 0.01,
                                    .dims = (int)a->p->number[0],
                                    .p = a->p->number[1] ? 0.3 : 0,
                                    .generator = a->generator};
}

static inline sherd_tensor *run_add_layer_norm(act *a)
{
    const sherd_add_norm_options o = add_norm_options(a);
    sherd_tensor *norm;

    sherd_add_layer_norm(&norm, &a->more, a->in[0], a->in[1], &o);
    return norm;
}

static inline sherd_tensor *run_add_rms_norm(act *a)
{
    const sherd_add_norm_options o = add_norm_options(a);
    sherd_tensor *norm;

    sherd_add_rms_norm(&norm, &a->more, a->in[0], a->in[1], &o);
    return norm;
}

RUN(run_embedding, sherd_embedding(in[0], in[1]))
RUN(run_dropout, sherd_dropout(in[0], 0.4, a->generator))
RUN(run_attention,
    sherd_attention(in[0], in[1], in[2], &(sherd_attention_options){.causal = n[0], .scale = 0.9}))
RUN(run_attention_cached, sherd_attention_cached(in[0], in[1], in[2], in[3], 0.7))

/* A pool that is sharded by blocks has those of the sequences there: test_ops_attend_paged.c. */
static inline sherd_tensor *run_attention_paged(act *a)
{
    sherd_tensor *pool = sherd_full(a->in[1]);

    return sherd_attention_paged(a->in[0], pool, pool, a->in[2], a->in[3], 0.7);
}

/* Sequences by one table: rows of two are drawn. */
static inline sherd_tensor *run_attention_paged_rows(act *a)
{
    sherd_tensor *pool = sherd_full(a->in[1]), *two = sherd_narrow(a->in[3], 0, 0, 1);
    sherd_tensor *where = sherd_select(a->in[3], 0, 1);

    return sherd_attention_paged_rows(a->in[0], pool, pool, a->in[2], sherd_squeeze(two, 0), where,
                                      NULL);
}

RUN(run_rotary, sherd_rotary(in[0], operand(a, 1),
                             &(sherd_rotary_options){.base = 50,
                                                     .rotated = a->p->in[0].shape[3] / 2 * 2,
                                                     .interleaved = n[0],
                                                     .offset = a->p->operands > 1 ? 0 : n[1]}))

static inline sherd_tensor *run_attention_with(act *a)
{
    sherd_tensor *out;

    sherd_attention_with(&out, &a->more, a->in[0], a->in[1], a->in[2],
                         &(sherd_attention_options){.causal = a->p->number[0]});
    return out;
}

static inline sherd_tensor *run_attention_general(act *a)
{
    const sherd_attention_options options = {.causal = a->p->number[0],
                                             .mask = operand(a, 3),
                                             .dropout = a->p->number[1] ? 0.3 : 0,
                                             .generator = a->generator,
                                             .window = a->p->number[2],
                                             .softcap = a->p->number[3] ? 0.8 : 0};
    sherd_tensor *out;

    sherd_attention_with(&out, &a->more, a->in[0], a->in[1], a->in[2], &options);
    return out;
}

/* number: dims that are normalised. */
static inline bool draw_norm_layer(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    int more = roll(dice, p->row->run == run_rms_norm ? 2 : 3);

    int dims = 1 + roll(dice, x->ndim);

    p->operands = 1;
    p->number[0] = dims;
    for (int i = 1; i <= more; i++)
        want(p, i, 'x', dims, &x->shape[x->ndim - dims]);
    return true;
}

/* number: dims that are normalised, whether there is dropout. */
static inline bool draw_add_norm(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    int more = roll(dice, p->row->run == run_add_rms_norm ? 2 : 3), dims = 1 + roll(dice, x->ndim);

    want_same(p, 1, 'x');
    p->number[0] = dims;
    p->number[1] = roll(dice, 2);
    for (int i = 2; i < 2 + more; i++)
        want(p, i, 'x', dims, &x->shape[x->ndim - dims]);
    return true;
}

static inline bool draw_ids(call_plan *p, uint64_t *dice)
{
    int64_t shape[] = {1 + roll(dice, 4), 3};

    if (p->in[0].shape[0] == 0)
        return false;
    want(p, 1, 'i', 1 + roll(dice, 2), shape)->limit = p->in[0].shape[0];
    return true;
}

/* Keys and values of so many positions and heads. */
static inline void want_keys(call_plan *p, int64_t positions, int64_t heads)
{
    for (int i = 1; i < 3; i++) {
        need *w = want_same(p, i, 'x');
        w->shape[w->ndim - 3] = positions;
        w->shape[w->ndim - 2] = heads;
    }
}

static inline bool draw_attention(call_plan *p, uint64_t *dice)
{
    const int64_t *last = p->in[0].shape + p->in[0].ndim - 3;

    p->number[0] = roll(dice, 2);
    want_keys(p, p->number[0] ? last[0] : 1 + roll(dice, 4), last[1]);
    return true;
}

/* A window, a cap, heads that share keys, dropout, or a mask: of numbers or of bools, of some shape
 * that broadcasts. */
static inline bool draw_general(call_plan *p, uint64_t *dice)
{
    int batches = p->in[0].ndim - 3;
    const int64_t *q = p->in[0].shape, *last = q + batches;
    int64_t heads = last[1], t = 1 + roll(dice, 4);
    int way = roll(dice, 5), skipped = roll(dice, batches + 2);

    if (way == 4) {
        p->number[0] = roll(dice, 2);
        p->number[2] = p->number[0] ? 1 + roll(dice, 3) : 0;
        p->number[3] = !p->number[0] || roll(dice, 2);
        want_keys(p, p->number[0] ? last[0] : t, heads);
        return true;
    }

    if (way == 0 && heads < 2)
        return false;
    if (way == 0)
        heads = heads % 2 ? 1 : heads / 2;
    want_keys(p, t, heads);
    p->number[1] = way == 1;
    if (way < 2)
        return true;
    int64_t shape[SHERD_MAX_DIMS];
    for (int d = 0; d < batches; d++)
        shape[d] = roll(dice, 2) ? q[d] : 1;
    for (int d = 0; d < 2; d++)
        shape[batches + d] = roll(dice, 2) ? last[1 - d] : 1;
    shape[batches + 2] = t;
    want(p, 3, way == 2 ? 'x' : 'b', batches + 3 - skipped, shape + skipped);
    return true;
}

/* Positions in the cache, in any order. */
static inline bool draw_cached(call_plan *p, uint64_t *dice)
{
    const int64_t *q = p->in[0].shape;
    int64_t heads = q[2], t = 1 + roll(dice, 5);

    want_keys(p, t, roll(dice, 2) && heads % 2 == 0 ? heads / 2 : heads);
    want(p, 3, 'i', 2, q)->limit = t;
    return heads > 0;
}

/* Any blocks of a pool, some of them twice. */
static inline bool draw_paged(call_plan *p, uint64_t *dice)
{
    const int64_t *q = p->in[0].shape;
    int64_t heads = q[2], blocks = 1 + roll(dice, 3), n = 1 + roll(dice, 2), m = 1 + roll(dice, 2);
    int64_t keys = roll(dice, 2) && heads % 2 == 0 ? heads / 2 : heads;
    const int64_t pool[] = {blocks, n, keys, q[3]}, table[] = {q[0], m};

    want(p, 1, 'x', 4, pool);
    want(p, 2, 'i', 2, table)->limit = blocks;
    want(p, 3, 'i', 2, q)->limit = m * n;
    return heads > 0;
}

static inline bool draw_paged_rows(call_plan *p, uint64_t *dice)
{
    const int64_t *q = p->in[0].shape;
    int64_t heads = q[1], blocks = 1 + roll(dice, 3), n = 1 + roll(dice, 2);
    int64_t keys = roll(dice, 2) && heads % 2 == 0 ? heads / 2 : heads;
    const int64_t pool[] = {blocks, n, keys, q[2]}, table[] = {2, 2}, both[] = {2, q[0]};

    want(p, 1, 'x', 4, pool);
    want(p, 2, 'i', 2, table)->limit = blocks;
    want(p, 3, 'i', 2, both)->limit = 2;
    return heads > 0;
}

static inline bool draw_rotary(call_plan *p, uint64_t *dice)
{
    const int64_t *shape = p->in[0].shape;
    int way = roll(dice, 3);

    p->operands = 1;
    p->number[0] = roll(dice, 2);
    p->number[1] = roll(dice, 4);
    if (way)
        want(p, 1, 'i', way, way == 1 ? shape + 1 : shape)->limit = 90;
    return shape[3] > 1;
}

/* ---- losses ---------------------------------------------------------------------------------- */

#define LOSS(name, expression)                                          \
    static inline sherd_tensor *name(act *a)                            \
    {                                                                   \
        sherd_tensor *x = a->in[0], *t = a->in[1];                      \
        sherd_loss_reduction r = (sherd_loss_reduction)a->p->number[0]; \
        const int64_t *n = a->p->number;                                \
        (void)n;                                                        \
        return expression;                                              \
    }

LOSS(run_mse, sherd_mse_loss(x, t, r))
LOSS(run_l1, sherd_l1_loss(x, t, r))
LOSS(run_huber, sherd_huber_loss(x, t, 0.4, r))
LOSS(run_smooth_l1, sherd_smooth_l1_loss(x, t, 0.6, r))
LOSS(run_bce, sherd_bce_with_logits(x, t, operand(a, 2), operand(a, 3), r))
LOSS(run_kl_div, sherd_kl_div(x, t, n[1], r))
LOSS(run_nll, sherd_nll_loss(x, t, r))

static inline sherd_tensor *run_cross_entropy(act *a)
{
    return sherd_cross_entropy(a->in[0], a->in[1]);
}

static inline sherd_tensor *run_cross_entropy_with(act *a)
{
    const int64_t *n = a->p->number;
    bool indices = a->p->in[1].kind == 'i';
    const sherd_cross_entropy_options options = {.reduction = (sherd_loss_reduction)n[0],
                                                 .weight = operand(a, 2),
                                                 .label_smoothing = n[1] ? 0.2 : 0,
                                                 .has_ignored = indices && n[2],
                                                 .ignored = 1};

    return sherd_cross_entropy_with(a->in[0], a->in[1], &options);
}

static inline bool draw_loss(call_plan *p, uint64_t *dice)
{
    p->number[0] = roll(dice, 3);
    want_broadcast(p, 1, p->row->kind, false, dice);
    return product_of(p->in[0].shape, p->in[0].ndim) > 0;
}

static inline bool draw_bce(call_plan *p, uint64_t *dice)
{
    p->number[0] = roll(dice, 3);
    want_same(p, 1, 'p');
    if (roll(dice, 2)) {
        want_broadcast(p, 2, 'p', false, dice);
        want_broadcast(p, 3, 'p', false, dice);
    }
    return product_of(p->in[0].shape, p->in[0].ndim) > 0;
}

static inline bool draw_kl(call_plan *p, uint64_t *dice)
{
    p->number[0] = roll(dice, 3);
    p->number[1] = roll(dice, 2);
    want_same(p, 1, p->number[1] ? 'x' : 'p');
    return product_of(p->in[0].shape, p->in[0].ndim) > 0;
}

/* Indices of classes, the last dim. */
static inline bool draw_classes(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];

    p->number[0] = roll(dice, 3);
    want(p, 1, 'i', x->ndim - 1, x->shape)->limit = x->shape[x->ndim - 1];
    return product_of(x->shape, x->ndim) > 0;
}

/* The rest of the options. */
static inline void draw_options(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];

    p->number[1] = roll(dice, 2);
    p->number[2] = roll(dice, 2);
    if (roll(dice, 2))
        want(p, 2, 'p', 1, &x->shape[x->ndim - 1]);
}

/* Indices or probabilities, but for the mean of indices. */
static inline bool draw_entropy(call_plan *p, uint64_t *dice)
{
    bool good = draw_classes(p, dice);

    p->number[0] = 1 + roll(dice, 2);
    if (roll(dice, 2)) {
        p->number[0] = roll(dice, 3);
        want_same(p, 1, 'p');
    }
    draw_options(p, dice);
    return good;
}

static inline bool draw_entropy_mean(call_plan *p, uint64_t *dice)
{
    bool good = draw_classes(p, dice);

    p->number[0] = SHERD_LOSS_MEAN;
    draw_options(p, dice);
    return good;
}

#endif
