/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention with all its scores in memory, made of operators: a recorded backward differentiates
 * this, whatever is sharded. Not with dropout, whose pattern only the kernels know: then gradients
 * are computed as usual, and have no gradients themselves.
 */
#include "attend.h"

#include <math.h>
#include <string.h>

#include "base/dtype.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "sherd/values.h"

enum { OUT, LOG_SUM };

static sherd_tensor *product_of(const char *text, sherd_tensor *a, sherd_tensor *b)
{
    return sherd_einsum(text, (sherd_tensor *[]){a, b}, 2);
}

/* True where a query must not see a key: those that are later, or too early for a window. */
static sherd_tensor *hidden(sherd_tensor *scores, int64_t n, int64_t window)
{
    sherd_tensor *all = sherd_constant(scores->world, SHERD_BOOL, (int64_t[]){n, n}, 2, 1);

    return sherd__known_beside(scores, window ? sherd_tril(all, -window) : sherd_triu(all, 1),
                               "sherd_attention");
}

/* True outside of spans, [batch or 1..,1,1,queries,keys]. */
static sherd_tensor *outside_of(sherd_tensor *spans, int64_t keys)
{
    int batches = spans->ndim - 2;
    int64_t shape[SHERD_MAX_DIMS];
    sherd_tensor *at = sherd_arange(spans->world, SHERD_I32, 0, (double)keys, 1), *side[2];

    at = sherd__known_beside(spans, at, "sherd_attention");
    memcpy(shape, spans->shape, (size_t)batches * sizeof *shape);
    shape[batches] = shape[batches + 1] = shape[batches + 3] = 1;
    shape[batches + 2] = spans->shape[batches];
    for (int i = 0; i < 2; i++)
        side[i] = sherd_view(sherd_narrow(spans, batches + 1, i, 1), shape, batches + 4);
    return sherd_logical_or(sherd_lt(at, side[0]), sherd_ge(at, side[1]));
}

static sherd_tensor *masked(sherd_tensor *scores, sherd_tensor *mask)
{
    if (!mask)
        return scores;
    if (sherd__attend_are_spans(mask))
        return sherd_masked_fill(scores, outside_of(mask, scores->shape[scores->ndim - 1]),
                                 -(double)INFINITY);
    return mask->dtype == SHERD_BOOL
               ? sherd_masked_fill(scores, sherd_logical_not(mask), -(double)INFINITY)
               : sherd_add(scores, sherd_cast(mask, scores->dtype));
}

/* [...,groups,heads of a group,queries,keys] */
static sherd_tensor *scores_of(sherd_tensor *const *in, const sherd__attend_attributes *a)
{
    sherd_dtype dtype = sherd__statistics_dtype(in[SHERD__Q]->dtype);
    sherd_tensor *q = sherd_cast(in[SHERD__Q], dtype), *k = sherd_cast(in[SHERD__K], dtype);
    int64_t n = in[SHERD__Q]->shape[sherd__attend_batches(in[SHERD__Q])];
    sherd_tensor *scores = sherd_scale(product_of("...sgrw,...tgw->...grst", q, k), a->scale);

    if (a->softcap != 0)
        scores = sherd_scale(sherd_tanh(sherd_scale(scores, 1 / a->softcap)), a->softcap);
    if (a->causal)
        scores = sherd_masked_fill(scores, hidden(scores, n, 0), -(double)INFINITY);
    if (a->window && a->window < n)
        scores = sherd_masked_fill(scores, hidden(scores, n, a->window), -(double)INFINITY);
    return masked(scores, in[SHERD__ATTEND_MASK]);
}

/* A query from which all keys are hidden has the result 0, and no gradient. */
static sherd_tensor *attended(sherd_tensor *const *in, const sherd__attend_attributes *a,
                              int result)
{
    sherd_tensor *scores = scores_of(in, a);
    sherd_tensor *blind =
        sherd_eq_scalar(sherd_logsumexp(sherd_detach(scores), -1, true), -(double)INFINITY);

    scores = sherd_masked_fill(scores, blind, 0);
    if (result == LOG_SUM)
        return sherd_logsumexp(scores, -1, false);
    return product_of("...grst,...tgw->...sgrw",
                      sherd_masked_fill(sherd_softmax(scores, -1), blind, 0),
                      sherd_cast(in[SHERD__V], scores->dtype));
}

void sherd__attend_in_order(sherd_tensor **out, sherd_tensor *const *in, int64_t zigzag)
{
    const sherd_tensor *mask = in[SHERD__ATTEND_MASK];
    int batches = sherd__attend_batches(in[SHERD__Q]);

    for (int i = SHERD__Q; i <= SHERD__V; i++)
        out[i] = sherd_unzigzag(in[i], batches, zigzag);
    out[SHERD__ATTEND_MASK] = in[SHERD__ATTEND_MASK];
    if (sherd__attend_are_spans(mask) && mask->ndim == batches + 2)
        out[SHERD__ATTEND_MASK] = sherd_unzigzag(in[SHERD__ATTEND_MASK], batches, zigzag);
    else if (mask && mask->ndim == batches + 4)
        for (int d = batches + 2; d < batches + 4; d++)
            if (mask->shape[d] != 1)
                out[SHERD__ATTEND_MASK] = sherd_unzigzag(out[SHERD__ATTEND_MASK], d, zigzag);
}

/* In zigzag order: of rows in order, and put back. */
sherd_tensor *sherd__attend_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    const sherd__attend_attributes *a = sherd_node_attributes(node);
    sherd_tensor *ordered[SHERD__ATTEND_OPERANDS];

    if (a->zigzag <= 1)
        return attended(in, a, result);
    sherd__attend_in_order(ordered, in, a->zigzag);
    return sherd_zigzag(attended(ordered, a, result),
                        result == LOG_SUM ? -1 : sherd__attend_batches(in[SHERD__Q]), a->zigzag);
}

sherd_tensor *sherd__attend_heads_formula(sherd_tensor *const *in, double scale, bool causal,
                                          int result)
{
    const sherd__attend_attributes a = {.scale = scale, .causal = causal};
    const sherd_tensor *q = in[SHERD__Q];
    int ndim = q->ndim;
    int64_t groups[SHERD_MAX_DIMS];

    memcpy(groups, q->shape, (size_t)ndim * sizeof *groups);
    groups[ndim] = groups[ndim - 1];
    groups[ndim - 1] = 1;
    sherd_tensor *y = attended((sherd_tensor *[]){sherd_view(in[SHERD__Q], groups, ndim + 1),
                                                  in[SHERD__K], in[SHERD__V], NULL},
                               &a, result);
    return result == LOG_SUM ? sherd_squeeze(y, -2) : sherd_view(y, q->shape, ndim);
}
