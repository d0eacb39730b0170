/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every operator of the library as a row: how to draw operands and attributes that fit it, and how
 * to call it. A row of no operator ("") is a function that is none, as those that write in place.
 * Here element by element, products, reductions; operator_rows_shape.h and operator_rows_layers.h
 * have the others, operator_list.h the list of all.
 *
 * A row is asked with the shape of its first operand; it says what the others must be.
 */
#ifndef SHERD_TESTS_OPERATOR_ROWS_H
#define SHERD_TESTS_OPERATOR_ROWS_H

#include "operator_leaves.h"

#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_exact.h"
#include "sherd/ops_quantized.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_serving.h"

enum { MOST_NUMBERS = 12 };

typedef struct row row;

/* A call that was drawn. */
typedef struct call_plan {
    const row *row;
    int operands;
    need in[MOST_IN];
    int64_t number[MOST_NUMBERS]; /* attributes, as the row means them */
} call_plan;

/* A call as it is made. */
typedef struct act {
    const call_plan *p;
    sherd_tensor *in[MOST_IN];
    sherd_tensor *more; /* a second result */
    sherd_generator *generator;
} act;

struct row {
    const char *op;                             /* "sherd_add", or "" */
    const char *name;                           /* for messages, of those that are no operator */
    char kind;                                  /* of the first operand, see need */
    int least, most;                            /* dims of it */
    bool (*draw)(call_plan *p, uint64_t *dice); /* false: nothing fits this shape */
    sherd_tensor *(*run)(act *a);
};

#define RUN(name, expression)                \
    static inline sherd_tensor *name(act *a) \
    {                                        \
        const int64_t *n = a->p->number;     \
        sherd_tensor **in = a->in;           \
        (void)n;                             \
        (void)in;                            \
        return expression;                   \
    }

/* ---- drawing --------------------------------------------------------------------------------- */

static inline bool draw_one(call_plan *p, uint64_t *dice)
{
    (void)dice;
    p->operands = 1;
    return true;
}

/* Operand `i` of a shape. */
static inline need *want(call_plan *p, int i, char kind, int ndim, const int64_t *shape)
{
    need *w = &p->in[i];

    *w = (need){.kind = kind, .ndim = ndim, .dtype = p->in[0].dtype};
    memcpy(w->shape, shape, sizeof(int64_t) * (size_t)ndim);
    p->operands = i + 1 > p->operands ? i + 1 : p->operands;
    return w;
}

/* Operand `i` as the first one. */
static inline need *want_same(call_plan *p, int i, char kind)
{
    return want(p, i, kind, p->in[0].ndim, p->in[0].shape);
}

/* Operand `i` of a shape that broadcasts to that of the first, or a bit beyond where `wider`. */
static inline need *want_broadcast(call_plan *p, int i, char kind, bool wider, uint64_t *dice)
{
    need *w = want_same(p, i, kind);
    int way = roll(dice, 6);

    if (way == 1 && w->ndim > 0) /* without the first dim */
        memmove(w->shape, w->shape + 1, sizeof(int64_t) * (size_t)--w->ndim);
    if (way == 2 && w->ndim > 0)
        w->shape[roll(dice, w->ndim)] = 1;
    if (way == 3)
        for (int d = 0; d < w->ndim; d++)
            w->shape[d] = w->shape[d] == 1 && wider ? 3 : w->shape[d];
    if (way == 4 && wider && w->ndim < 3) {
        memmove(w->shape + 1, w->shape, sizeof(int64_t) * (size_t)w->ndim++);
        w->shape[0] = 2;
    }
    return w;
}

static inline bool draw_two(call_plan *p, uint64_t *dice)
{
    want_broadcast(p, 1, p->row->kind, true, dice);
    return true;
}

/* A dim of the first operand, in number[0]. */
static inline bool draw_dim(call_plan *p, uint64_t *dice)
{
    p->operands = 1;
    if (p->in[0].ndim == 0)
        return false;
    p->number[0] = roll(dice, p->in[0].ndim);
    return true;
}

/* number: how many dims, the dims, keepdim. None = all. */
static inline bool draw_dims(call_plan *p, uint64_t *dice)
{
    int64_t count = 0;

    p->operands = 1;
    for (int d = 0; d < p->in[0].ndim; d++)
        if (roll(dice, 2))
            p->number[1 + count++] = roll(dice, 2) ? d : d - p->in[0].ndim;
    p->number[0] = count;
    p->number[5] = roll(dice, 2);
    return true;
}

/* ---- element by element ---------------------------------------------------------------------- */

static inline bool is_whole(const act *a)
{
    return !is_fraction(sherd_tensor_dtype(a->in[0]));
}

#define UNARY0(name, ...) RUN(run_##name, sherd_##name(in[0]))
#define UNARY1(name, ...) RUN(run_##name, sherd_##name(in[0], is_whole(a) ? -2 : 0.7))
#define UNARY2(name, ...) \
    RUN(run_##name, sherd_##name(in[0], is_whole(a) ? -1 : 0.3, is_whole(a) ? 2 : 0.8))
#define BINARY(name, ...) RUN(run_##name, sherd_##name(in[0], in[1]))
#define COMPARE(name, ...)                      \
    RUN(run_##name, sherd_##name(in[0], in[1])) \
    RUN(run_##name##_scalar, sherd_##name##_scalar(in[0], is_whole(a) ? 1 : 0.3))
#define LOGIC(name, ...) RUN(run_##name, sherd_##name(in[0], in[1]))
#include "kernels/functions.inc"

RUN(run_add, sherd_add(in[0], in[1]))
RUN(run_sub, sherd_sub(in[0], in[1]))
RUN(run_mul, sherd_mul(in[0], in[1]))
RUN(run_scale, sherd_scale(in[0], -1.5))
RUN(run_add_scaled, sherd_add_scaled(in[0], in[1], -1.5))
RUN(run_add_scalar, sherd_add_scalar(in[0], 2))
RUN(run_logical_not, sherd_logical_not(in[0]))
/* With some elements infinite, and some NaN. */
static inline sherd_tensor *with_gaps(act *a)
{
    sherd_tensor *x = a->in[0];

    if (is_whole(a))
        return x;
    return sherd_masked_fill(sherd_masked_fill(x, sherd_gt_scalar(x, 0.5), INFINITY),
                             sherd_lt_scalar(x, -0.5), (double)NAN);
}

RUN(run_isnan, sherd_isnan(with_gaps(a)))
RUN(run_isinf, sherd_isinf(with_gaps(a)))
RUN(run_isfinite, sherd_isfinite(with_gaps(a)))
RUN(run_nan_to_num, sherd_nan_to_num(with_gaps(a), 0.25, 2, -3))
RUN(run_one_hot, sherd_one_hot(in[0], 4, SHERD_F32))
RUN(run_bincount, sherd_bincount(in[0], 4))

static inline bool draw_indices(call_plan *p, uint64_t *dice)
{
    (void)dice;
    p->operands = 1;
    p->in[0].limit = 5; /* one of them is no class */
    return true;
}

RUN(run_where, sherd_where(in[1], in[0], in[2]))
RUN(run_masked_fill, sherd_masked_fill(in[0], in[1], (double)n[0]))
RUN(run_cast, sherd_cast(in[0], (sherd_dtype)n[0]))

static inline bool draw_where(call_plan *p, uint64_t *dice)
{
    want_broadcast(p, 1, 'b', true, dice);
    want_broadcast(p, 2, 'x', false, dice);
    return true;
}

static inline bool draw_fill(call_plan *p, uint64_t *dice)
{
    p->number[0] = roll(dice, 2);
    want_broadcast(p, 1, 'b', false, dice);
    return true;
}

/* Of fractions another size of them or bool, of others integers or f64. */
static inline bool draw_cast(call_plan *p, uint64_t *dice)
{
    static const sherd_dtype of_fractions[] = {SHERD_F32, SHERD_F64, SHERD_BOOL},
                             of_others[] = {SHERD_I64, SHERD_BOOL, SHERD_I32, SHERD_F64};

    p->operands = 1;
    p->number[0] =
        is_fraction(p->in[0].dtype) ? of_fractions[roll(dice, 3)] : of_others[roll(dice, 4)];
    return p->number[0] != (int64_t)p->in[0].dtype; /* that is none */
}

/* ---- products -------------------------------------------------------------------------------- */

RUN(run_matmul, sherd_matmul(in[0], in[1]))
RUN(run_linear, sherd_linear(in[0], in[1], a->p->operands > 2 ? in[2] : NULL))

static inline bool draw_matmul(call_plan *p, uint64_t *dice)
{
    const need *x = &p->in[0];
    int64_t shape[MOST_DIMS], k = x->shape[x->ndim - 1];
    int way = roll(dice, 3), ndim = way < 2 || x->ndim < 3 ? 1 + (way > 0) : x->ndim;

    memcpy(shape, x->shape, sizeof shape);
    if (ndim == 3 && roll(dice, 2))
        shape[0] = 1;
    if (ndim > 1) {
        shape[ndim - 2] = k;
        shape[ndim - 1] = 1 + roll(dice, 4);
    } else {
        shape[0] = k;
    }
    want(p, 1, 'x', ndim, shape);
    return true;
}

static inline bool draw_linear(call_plan *p, uint64_t *dice)
{
    int64_t shape[] = {1 + roll(dice, 4), p->in[0].shape[p->in[0].ndim - 1]};

    want(p, 1, 'x', 2, shape);
    if (roll(dice, 2))
        want(p, 2, 'x', 1, shape);
    return true;
}

/* Texts; and the dims of the second and third operand: letters of the first by number, else a size
 * of their own. */
static const struct {
    int ndim;
    const char *text;
    const char *second, *third; /* '0'.. is a dim of the first operand, 'n' a new size */
} products[] = {
    {1, "i,j->ij", "n", NULL},    {1, "i,i->", "0", NULL},          {2, "ij,jk->ik", "1n", NULL},
    {2, "ij,kj->", "n1", NULL},   {2, "ij->j", NULL, NULL},         {2, "ij,i,j->ij", "0", "1"},
    {2, "ij,jk,k->i", "1n", "n"}, {3, "bij,bjk->bik", "02n", NULL}, {3, "abc->cab", NULL, NULL},
    {3, "abc,bc->a", "12", NULL}, {3, "...ij,j->...i", "2", NULL},  {3, "abc,b,ad->dc", "1", "0n"},
    {1, "i,ii->i", "00", NULL},   {2, "ij,jkj->ik", "1n1", NULL},
};

static inline sherd_tensor *run_einsum(act *a)
{
    return sherd_einsum(products[a->p->number[0]].text, a->in, a->p->operands);
}

static inline void want_letters(call_plan *p, int i, const char *letters, int64_t size)
{
    int64_t shape[MOST_DIMS];
    int ndim = 0;

    for (; letters[ndim]; ndim++)
        shape[ndim] = letters[ndim] == 'n' ? size : p->in[0].shape[letters[ndim] - '0'];
    want(p, i, 'x', ndim, shape);
}

static inline bool draw_einsum(call_plan *p, uint64_t *dice)
{
    int i = roll(dice, LEN(products));

    p->operands = 1;
    p->number[0] = i;
    if (products[i].ndim != p->in[0].ndim)
        return false;
    if (products[i].second)
        want_letters(p, 1, products[i].second, 3);
    if (products[i].third)
        want_letters(p, 2, products[i].third, 3);
    return true;
}

/* ---- reductions ------------------------------------------------------------------------------ */

#define OVER(name, expression)                  \
    static inline sherd_tensor *name(act *a)    \
    {                                           \
        const int64_t *n = a->p->number;        \
        int dims[MOST_DIMS], count = (int)n[0]; \
        sherd_tensor *x = a->in[0];             \
        bool keep = n[5];                       \
        for (int i = 0; i < MOST_DIMS; i++)     \
            dims[i] = (int)n[1 + i];            \
        return expression;                      \
    }

RUN(run_sum, sherd_sum(in[0]))
RUN(run_mean, sherd_mean(in[0]))
OVER(run_sum_over, sherd_sum_over(x, dims, count, keep))
RUN(run_sum_exact, sherd_sum_exact(in[0]))
OVER(run_sum_exact_over, sherd_sum_exact_over(x, dims, count, keep))
OVER(run_mean_over, sherd_mean_over(x, dims, count, keep))
OVER(run_var, sherd_var(x, dims, count, (double)n[6], keep))
OVER(run_std, sherd_std(x, dims, count, (double)n[6], keep))
OVER(run_norm, sherd_norm(x, (double)n[6], dims, count, keep))
OVER(run_norm_most, sherd_norm(x, n[6] ? INFINITY : -INFINITY, dims, count, keep))
OVER(run_max, sherd_max(x, dims, count, keep))
OVER(run_min, sherd_min(x, dims, count, keep))
OVER(run_prod, sherd_prod(x, dims, count, keep))
OVER(run_any, sherd_any(x, dims, count, keep))
OVER(run_all, sherd_all(x, dims, count, keep))
OVER(run_argmax, sherd_argmax(x, dims, count, keep))
OVER(run_argmin, sherd_argmin(x, dims, count, keep))
RUN(run_softmax, sherd_softmax(in[0], (int)n[0]))
RUN(run_log_softmax, sherd_log_softmax(in[0], (int)n[0]))
RUN(run_logsumexp, sherd_logsumexp(in[0], (int)n[0], n[1]))

/* How many elements go into one. */
static inline int64_t reduced(const call_plan *p)
{
    int64_t all = 1;

    for (int i = 0; i < p->number[0]; i++)
        all *= p->in[0].shape[(p->number[1 + i] + p->in[0].ndim) % p->in[0].ndim];
    return p->number[0] ? all : product_of(p->in[0].shape, p->in[0].ndim);
}

static inline bool draw_moments(call_plan *p, uint64_t *dice)
{
    draw_dims(p, dice);
    p->number[6] = roll(dice, 2);
    return reduced(p) > 1;
}

/* Of nothing there is none. */
static inline bool draw_some_dims(call_plan *p, uint64_t *dice)
{
    draw_dims(p, dice);
    return reduced(p) > 0;
}

RUN(run_drawn, sherd_multinomial(in[0], 1, false, a->generator))
RUN(run_drawn_repeatedly, sherd_multinomial(in[0], 3, true, a->generator))

static inline bool draw_weights(call_plan *p, uint64_t *dice)
{
    draw_one(p, dice);
    return p->in[0].shape[p->in[0].ndim - 1] > 0;
}

RUN(run_sampled,
    sherd_sample_rows(in[0], in[1], &(sherd_sample_options){.temperature = in[2], .top_k = in[3]}))

static inline bool draw_logits(call_plan *p, uint64_t *dice)
{
    const int words = p->in[0].ndim - 1;
    int64_t shape[MOST_DIMS];

    if (!draw_weights(p, dice))
        return false;
    memcpy(shape, p->in[0].shape, sizeof shape);
    shape[words] = 1 + roll(dice, 3);
    want(p, 1, 'i', words + 1, shape)->limit = 100;
    want(p, 2, 'p', words, shape)->dtype = SHERD_F32;
    want(p, 3, 'i', words, shape)->limit = 4;
    return true;
}

static inline bool draw_norm(call_plan *p, uint64_t *dice)
{
    draw_dims(p, dice);
    p->number[6] = roll(dice, 4);
    return reduced(p) > 0;
}

static inline bool draw_dim_kept(call_plan *p, uint64_t *dice)
{
    p->number[1] = roll(dice, 2);
    return draw_dim(p, dice);
}

#endif
