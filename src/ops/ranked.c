/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The element of a dim that has a certain place in order: the k-th, the median, quantiles, which
 * lie between two. Made of one search for the first in order, from the side on which a NaN is, if
 * that is to be seen: so a sharded dim moves once.
 */
#include "apply/sketch.h"
#include "shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_sorted.h"

#include <math.h>

typedef struct rank {
    int64_t k;
    double q;
    int dim, way;
    bool keepdim;
} rank;

#define FIELDS                                                           \
    .field = {SHERD_FIELD(rank, k, INT64), SHERD_FIELD(rank, q, DOUBLE), \
              SHERD_FIELD(rank, dim, INT), SHERD_FIELD(rank, way, INT),  \
              SHERD_FIELD(rank, keepdim, BOOL)},                         \
    .attributes = sizeof(rank)
#define LAYOUTS "the dim is gathered, or its shards move to another dim"

static const char *describe_dim(sherd_call *call)
{
    const rank *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (a->shape[dim] == 0)
        return sherd_call_reason(call, "dim %d has no elements", dim);
    return NULL;
}

static const char *describe_kth(sherd_call *call)
{
    const rank *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (dim >= 0 && (at->k < 1 || at->k > a->shape[dim]))
        return sherd_call_reason(call, "number %lld of the %lld elements of dim %d",
                                 (long long)at->k, (long long)a->shape[dim], dim);
    return describe_dim(call);
}

static const char *describe_quantile(sherd_call *call)
{
    const rank *at = call->attributes;

    if (!(at->q >= 0 && at->q <= 1))
        return sherd_call_reason(call, "q = %g is not in [0, 1]", at->q);
    if (at->way < SHERD_QUANTILE_LINEAR || at->way > SHERD_QUANTILE_MIDPOINT)
        return sherd_call_reason(call, "there is no way %d", at->way);
    return describe_dim(call);
}

/* One place of what was ordered. */
static sherd_tensor *place_of(sherd_tensor *ordered, const rank *at, int64_t place)
{
    sherd_tensor *one = sherd_narrow(ordered, at->dim, place, 1);

    return at->keepdim ? one : sherd_squeeze(one, at->dim);
}

static int64_t size_along(const sherd_call *call)
{
    const rank *at = call->attributes;

    return call->in[0]->shape[sherd__dim_of(at->dim, call->in[0]->ndim)];
}

/* ---- the k-th -------------------------------------------------------------------------------- */

static bool kth(sherd_call *call)
{
    const rank *at = call->attributes;
    sherd_tensor *indices, *first = sherd_topk(call->in[0], at->k, at->dim, false, &indices);

    call->out[0] = place_of(first, at, at->k - 1);
    call->out[1] = place_of(indices, at, at->k - 1);
    return true;
}

/* Of the larger half in order: the first is NaN if there is one, the last the median. */
static bool median(sherd_call *call)
{
    const rank *at = call->attributes;
    int64_t n = size_along(call), k = n - (n - 1) / 2;
    sherd_tensor *indices, *half = sherd_topk(call->in[0], k, at->dim, true, &indices);
    sherd_tensor *y = place_of(half, at, k - 1), *where = place_of(indices, at, k - 1);

    if (sherd__has_fractions(call->in[0]->dtype)) {
        sherd_tensor *most = place_of(half, at, 0), *none = sherd_isnan(most);
        y = sherd_where(none, most, y);
        where = sherd_where(none, place_of(indices, at, 0), where);
    }
    call->out[0] = y;
    call->out[1] = where;
    return true;
}

#define RANKED(label, text, describes, composed)                                   \
    {                                                                              \
        .name = label, .summary = text, .layouts = LAYOUTS, .operand = {{"a", 0}}, \
        .result = {{"values", 0}, {"indices", SHERD_OP_INDEX}}, FIELDS,            \
        .numbers = SHERD_EVERYTHING, .describe = describes, .compose = composed    \
    }

const sherd_op sherd__kthvalue_op =
    RANKED("sherd_kthvalue", "the k-th smallest of a dim, with its index", describe_kth, kth);
const sherd_op sherd__median_op =
    RANKED("sherd_median", "the median of a dim, with its index", describe_dim, median);

sherd_tensor *sherd_kthvalue(sherd_tensor *a, int64_t k, int dim, bool keepdim,
                             sherd_tensor **indices)
{
    return sherd__apply_indexed(&sherd__kthvalue_op, &a, 1,
                                &(rank){.k = k, .dim = dim, .keepdim = keepdim}, indices);
}

sherd_tensor *sherd_median(sherd_tensor *a, int dim, bool keepdim, sherd_tensor **indices)
{
    return sherd__apply_indexed(&sherd__median_op, &a, 1, &(rank){.dim = dim, .keepdim = keepdim},
                                indices);
}

/* ---- between two ----------------------------------------------------------------------------- */

/* The whole number below a rank, and how far from it to the next one the quantile lies. */
static int64_t split_rank(const rank *at, int64_t n, double *weight)
{
    double place = at->q * (double)(n - 1), below = floor(place);

    *weight = place - below;
    if (at->way == SHERD_QUANTILE_NEAREST)
        *weight = rint(place) - below;
    else if (at->way == SHERD_QUANTILE_LOWER)
        *weight = 0;
    else if (at->way == SHERD_QUANTILE_HIGHER)
        *weight = place > below;
    else if (at->way == SHERD_QUANTILE_MIDPOINT)
        *weight = place > below ? 0.5 : 0;
    return (int64_t)below;
}

/* From the nearer one, as PyTorch does. */
static sherd_tensor *between(sherd_tensor *low, sherd_tensor *high, double weight)
{
    sherd_tensor *step = sherd_sub(high, low);

    return weight < 0.5 ? sherd_add(low, sherd_scale(step, weight))
                        : sherd_sub(high, sherd_scale(step, 1 - weight));
}

static bool quantile(sherd_call *call)
{
    const rank *at = call->attributes;
    int64_t n = size_along(call);
    double weight;
    int64_t low = split_rank(at, n, &weight), high = low + (weight > 0), k = n - low;
    sherd_tensor *last = sherd_topk(call->in[0], k, at->dim, true, NULL);
    sherd_tensor *most = place_of(last, at, 0), *y = place_of(last, at, n - 1 - high);

    if (weight > 0 && weight < 1)
        y = between(place_of(last, at, k - 1), y, weight);
    call->out[0] = sherd_where(sherd_isnan(most), most, y);
    return true;
}

const sherd_op sherd__quantile_op = {.name = "sherd_quantile",
                                     .summary = "a quantile of a dim",
                                     .layouts = LAYOUTS,
                                     .operand = {{"a", 0}},
                                     .result = {{"y", 0}},
                                     FIELDS,
                                     .describe = describe_quantile,
                                     .compose = quantile};

sherd_tensor *sherd_quantile(sherd_tensor *a, double q, int dim, sherd_quantile_way way,
                             bool keepdim)
{
    return sherd_apply(&sherd__quantile_op, &a, 1,
                       &(rank){.q = q, .dim = dim, .way = (int)way, .keepdim = keepdim});
}
