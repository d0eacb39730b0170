/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The k-th element of a dim in order, the median, and quantiles, which lie between two elements.
 * Each makes one search for a few places in order, which sorts nothing and moves a sharded dim
 * once, or only the first ones of each shard, if the places are near the front. If a NaN must show
 * in the result, the end where NaN stands is one of the places.
 */
#include "order.h"
#include "pick.h"
#include "shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_sorted.h"

#include <math.h>

#include "base/num.h"
#include "device/order.h"
#include "kernels/pick.h"

/* ---- places in order ------------------------------------------------------------------------- */

enum { PLACES = 3 };

typedef struct places {
    int64_t place[PLACES];
    int count, dim;
    bool largest; /* first */
} places;

static const char *describe_places(sherd_call *call)
{
    const places *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (a->shape[dim] > INT32_MAX)
        return "the dim has more indices than an i32 holds";
    for (int j = 0; j < 2; j++) {
        sherd_call_shape(call, j, a->ndim, a->shape);
        call->shape[j][dim] = at->count;
    }
    return NULL;
}

/* How many elements in order the last place needs. */
static int64_t most_of(const places *at)
{
    int64_t most = 0;

    for (int j = 0; j < at->count; j++)
        most = sherd__max(most, at->place[j] + 1);
    return most;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const places *at = call->attributes;

    return sherd__candidates_ways(call, ways, sherd__dim_of(at->dim, call->in[0]->ndim),
                                  most_of(at));
}

/* On the GPU the dim is sorted up to the last place, and the places are copied. */
static bool find_there(sherd_call *call, const sherd__candidates *c, int32_t *found)
{
    const places *at = call->attributes;
    const int64_t *size = c->size, most = most_of(at);
    const size_t bytes[] = {sherd_dtype_bytes(call->in[0]->dtype), sizeof(int32_t)};
    char *const to[] = {call->to[0], (char *)(void *)found};
    char *first[2];

    for (int r = 0; r < 2; r++) {
        first[r] = sherd__device_scratch(call, size[0] * most * size[2] * (int64_t)bytes[r]);
        if (!first[r])
            return false;
    }
    sherd__device_order(sherd__device_in(call), call->in[0]->dtype, size, most, at->largest,
                        first[0], (int32_t *)(void *)first[1], c->values);
    for (int r = 0; r < 2; r++)
        for (int j = 0; j < at->count; j++) {
            const int64_t box[] = {size[0], size[2]}, from[] = {most * size[2], 1};
            const int64_t stride[] = {at->count * size[2], 1};
            sherd__copy_in(call, bytes[r], 2, box, to[r] + (size_t)(j * size[2]) * bytes[r], stride,
                           first[r] + (size_t)(at->place[j] * size[2]) * bytes[r], from);
        }
    return true;
}

static bool find_here(sherd_call *call, const sherd__candidates *c, int32_t *found)
{
    const places *at = call->attributes;
    const int64_t *size = c->size;
    sherd_dtype dtype;
    const void *keys = sherd__keys_of(call, size[0] * size[1] * size[2], c->values, &dtype);
    void *scratch = keys ? sherd_call_scratch(call, sherd__order_scratch(size[1])) : NULL;

    if (!scratch || sherd__is_dry(call->world))
        return scratch != NULL;
    sherd__order_places(dtype, size, at->count, at->place, at->largest, found, keys, scratch);
    sherd__pick p = {size[0], at->count, size[2], size[1], 0, found, false};
    sherd__gather(sherd_dtype_bytes(call->in[0]->dtype), &p, call->to[0], c->values);
    return true;
}

static bool find(sherd_call *call)
{
    const places *at = call->attributes;
    int dim = sherd__dim_of(at->dim, call->in[0]->ndim);
    sherd__candidates c;

    if (sherd_tensor_count(call->out[0]) == 0)
        return true;
    if (!sherd__candidates_in(call, dim, most_of(at), at->largest, &c))
        return false;
    if (call->out[0]->count == 0)
        return true;
    int32_t *found = sherd__candidates_found(call, &c);
    if (!found ||
        !(sherd__device_in(call) ? find_there(call, &c, found) : find_here(call, &c, found)))
        return false;
    sherd__candidates_named(call, &c, at->count, found);
    return true;
}

static void find_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const places *at = sherd_node_attributes(node);

    sherd__taken_back(node, grad_out, grad_in, at->dim);
}

/* A part of each operator below, by its name. */
#define PLACES_OF(label)                                                                        \
    {                                                                                           \
        .name = label " places", .operand = {{"a", 0}},                                         \
        .result = {{"values", 0}, {"indices", SHERD_OP_INDEX}},                                 \
        .field = {SHERD_FIELDS(places, place, INT64, PLACES), SHERD_FIELD(places, count, INT),  \
                  SHERD_FIELD(places, dim, INT), SHERD_FIELD(places, largest, BOOL)},           \
        .attributes = sizeof(places), .numbers = SHERD_EVERYTHING, .describe = describe_places, \
        .ways = lie, .forward = find, .dry = find, .on_device = sherd__copies_there,            \
        .backward = find_back, .needs = {                                                       \
            SHERD_NEEDS_RESULT(1)                                                               \
        }                                                                                       \
    }

static const sherd_op kth_places = PLACES_OF("sherd_kthvalue");
static const sherd_op median_places = PLACES_OF("sherd_median");
static const sherd_op quantile_places = PLACES_OF("sherd_quantile");

/* ---- what operators ask ---------------------------------------------------------------------- */

typedef struct rank {
    int64_t k;
    double q;
    int dim, way;
    bool keepdim;
} rank;

#define FIELDS                                                                  \
    .field = {SHERD_FIELD(rank, k, INT64), SHERD_FIELD(rank, q, DOUBLE),        \
              SHERD_FIELD(rank, dim, INT),                                      \
              SHERD__CHOICE(rank, way, "linear|lower|higher|nearest|midpoint"), \
              SHERD_FIELD(rank, keepdim, BOOL)},                                \
    .attributes = sizeof(rank)
#define MOVED "the dim is gathered, or its shards move to another dim"
#define FIRST "the dim is gathered, its shards move to another dim, or each sends its first ones"

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

/* One of the places that were found. */
static sherd_tensor *place_of(sherd_tensor *found, const rank *at, int64_t j)
{
    sherd_tensor *one = sherd_narrow(found, at->dim, j, 1);

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
    const places one = {.place = {at->k - 1}, .count = 1, .dim = at->dim};
    sherd_tensor *indices;
    sherd_tensor *found = sherd__apply_indexed(&kth_places, call->in, 1, &one, &indices);

    call->out[0] = place_of(found, at, 0);
    call->out[1] = place_of(indices, at, 0);
    return true;
}

/* Counted from the largest, so that place 0 is NaN if there is one. */
static bool median(sherd_call *call)
{
    const rank *at = call->attributes;
    int64_t n = size_along(call);
    bool may_be_none = sherd__has_fractions(call->in[0]->dtype);
    const places both = {{n - 1 - (n - 1) / 2, 0}, 1 + may_be_none, at->dim, true};
    sherd_tensor *indices;
    sherd_tensor *found = sherd__apply_indexed(&median_places, call->in, 1, &both, &indices);
    sherd_tensor *y = place_of(found, at, 0), *where = place_of(indices, at, 0);

    if (may_be_none) {
        sherd_tensor *most = place_of(found, at, 1), *none = sherd_isnan(most);
        y = sherd_where(none, most, y);
        where = sherd_where(none, place_of(indices, at, 1), where);
    }
    call->out[0] = y;
    call->out[1] = where;
    return true;
}

#define RANKED(label, text, how, describes, composed)                           \
    {                                                                           \
        .name = label, .summary = text, .layouts = how, .operand = {{"a", 0}},  \
        .result = {{"values", 0}, {"indices", SHERD_OP_INDEX}}, FIELDS,         \
        .numbers = SHERD_EVERYTHING, .describe = describes, .compose = composed \
    }

const sherd_op sherd__kthvalue_op = RANKED(
    "sherd_kthvalue", "the k-th smallest of a dim, with its index", FIRST, describe_kth, kth);
const sherd_op sherd__median_op =
    RANKED("sherd_median", "the median of a dim, with its index", MOVED, describe_dim, median);

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

/* From the nearer one, as PyTorch does; in f32 for 16 bits, whose difference f16 may not hold. */
static sherd_tensor *between(sherd_tensor *low, sherd_tensor *high, double weight)
{
    sherd_dtype dtype = low->dtype, wide = sherd__statistics_dtype(dtype);
    sherd_tensor *from = sherd_cast(low, wide), *to = sherd_cast(high, wide);
    sherd_tensor *step = sherd_sub(to, from);

    return sherd_cast(weight < 0.5 ? sherd_add(from, sherd_scale(step, weight))
                                   : sherd_sub(to, sherd_scale(step, 1 - weight)),
                      dtype);
}

static bool quantile(sherd_call *call)
{
    const rank *at = call->attributes;
    int64_t n = size_along(call);
    double weight;
    int64_t low = split_rank(at, n, &weight), high = low + (weight > 0);
    bool is_between = weight > 0 && weight < 1;
    const places some = {{0, n - 1 - high, n - 1 - low}, 2 + is_between, at->dim, true};
    sherd_tensor *found = sherd__apply_indexed(&quantile_places, call->in, 1, &some, NULL);
    sherd_tensor *most = place_of(found, at, 0), *y = place_of(found, at, 1);

    if (is_between)
        y = between(place_of(found, at, 2), y, weight);
    call->out[0] = sherd_where(sherd_isnan(most), most, y);
    return true;
}

const sherd_op sherd__quantile_op = {.name = "sherd_quantile",
                                     .summary = "a quantile of a dim",
                                     .layouts = FIRST,
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
