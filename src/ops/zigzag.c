/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a dim in zigzag order, and back. Causal attention gives a position as much work as there
 * are positions before it; a shard of which half comes from the front and half, mirrored, from the
 * end has the mean of that. So shards of equal sizes have equal work, in attention and elsewhere.
 *
 * A sharded dim is gathered first: what is put in order is mostly numbers of tokens, which each
 * rank has read. Costs a copy, by runs of rows.
 */
#include "zigzag.h"

#include "apply/sketch.h"
#include "base/num.h"
#include "ops/shared.h"
#include "sherd/ops_layers.h"

/* ---- which position a row has ---------------------------------------------------------------- */

/* Shard i has rows [i size, ..), the first `front` of which are from the front. */
typedef struct order {
    int64_t n, size, front;
} order;

/* Of more shards than rows, as many as rows have one each. */
static order order_of(int64_t n, int64_t shards)
{
    int64_t size = sherd__ceil_div(n, sherd__max(sherd__min(shards, n), 1));

    return (order){n, size, sherd__ceil_div(size, 2)};
}

int64_t sherd__zigzag_position(int64_t n, int64_t shards, int64_t row, int64_t *run)
{
    const order o = order_of(n, shards);

    if (shards <= 1) {
        *run = n - row;
        return row;
    }
    int64_t shard = row / o.size, first = shard * o.size, at = row - first;
    int64_t mine = sherd__min(o.size, n - first), front = sherd__ceil_div(mine, 2);
    if (at < front) {
        *run = front - at;
        return shard * o.front + at;
    }
    *run = mine - at;
    return n - shard * (o.size - o.front) - mine + at;
}

void sherd__zigzag_rows(int64_t n, int64_t shards, int64_t lo, int64_t hi, int64_t *first,
                        int64_t *end)
{
    const order o = order_of(n, shards);
    int64_t back = o.size - o.front, last = n ? (n - 1) / o.size : 0;
    int64_t fronts = last * o.front + sherd__ceil_div(n - last * o.size, 2);

    *first = shards > 1 && lo < hi ? n : lo;
    *end = shards > 1 && lo < hi ? 0 : sherd__max(lo, hi);
    if (shards <= 1 || lo >= hi)
        return;
    if (lo < fronts) {
        int64_t to = sherd__min(hi, fronts) - 1;
        *first = lo / o.front * o.size + lo % o.front;
        *end = to / o.front * o.size + to % o.front + 1;
    }
    if (hi <= fronts)
        return;
    /* What is from the end goes from there to the front, and by shards; so far it is from there: */
    int64_t near = n - hi, far = n - 1 - sherd__max(lo, fronts);
    int64_t low = near / back, high = far / back;
    far = sherd__min(far - low * back, back - 1);
    near = sherd__max(near - high * back, 0);
    *first = sherd__min(*first, sherd__min((low + 1) * o.size, n) - 1 - far);
    *end = sherd__max(*end, sherd__min((high + 1) * o.size, n) - near);
}

/* ---- the operators --------------------------------------------------------------------------- */

typedef struct zigzag_attributes {
    int64_t shards;
    int dim, back;
} zigzag_attributes;

static const char *describe(sherd_call *call)
{
    const zigzag_attributes *z = call->attributes;
    const sherd_tensor *a = call->in[0];

    if (sherd__dim_of(z->dim, a->ndim) < 0)
        return sherd_call_reason(call, "no dim %d", z->dim);
    if (z->shards < 1)
        return sherd_call_reason(call, "%lld shards: at least one", (long long)z->shards);
    sherd_call_shape(call, 0, a->ndim, a->shape);
    return NULL;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const zigzag_attributes *z = call->attributes;

    return sherd__whole_ways(call, ways, 1u << sherd__dim_of(z->dim, call->in[0]->ndim),
                             SHERD__PASS_ALL);
}

static bool order_rows(sherd_call *call)
{
    const zigzag_attributes *z = call->attributes;
    const sherd_tensor *a = call->in[0], *y = call->out[0];
    int dim = sherd__dim_of(z->dim, a->ndim);
    size_t element = sherd_dtype_bytes(a->dtype);
    int64_t size[SHERD_MAX_DIMS], n = a->local[dim], run;

    for (int d = 0; d < a->ndim; d++)
        size[d] = a->local[d];
    for (int64_t row = 0; row < n && a->count; row += run) {
        int64_t position = sherd__zigzag_position(n, z->shards, row, &run);
        int64_t from = z->back ? row : position, to = z->back ? position : row;
        size[dim] = run;
        sherd__copy_in(call, element, a->ndim, size,
                       (char *)call->to[0] + sherd__bytes(to * y->stride[dim]) * element, y->stride,
                       (const char *)call->from[0] + sherd__bytes(from * a->stride[dim]) * element,
                       a->stride);
    }
    return true;
}

static void order_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const zigzag_attributes *z = sherd_node_attributes(node);

    grad_in[0] = (z->back ? sherd_zigzag : sherd_unzigzag)(grad_out[0], z->dim, z->shards);
}

#define ORDERS                                                                       \
    .operand = {{"a", 0}}, .result = {{"y", 0}},                                     \
    .field = {SHERD_FIELD(zigzag_attributes, shards, INT64),                         \
              SHERD_FIELD(zigzag_attributes, dim, INT),                              \
              SHERD_FIELD(zigzag_attributes, back, INT)},                            \
    .attributes = sizeof(zigzag_attributes), .linearity = SHERD_UNCHANGED,           \
    .numbers = SHERD_EVERYTHING, .strided = true, .describe = describe, .ways = lie, \
    .forward = order_rows, .on_device = sherd__copies_there, .backward = order_back, \
    .takes_pending = true

const sherd_op sherd__zigzag_op = {
    .name = "sherd_zigzag", .summary = "rows in an order of equal causal work", ORDERS};

const sherd_op sherd__unzigzag_op = {
    .name = "sherd_unzigzag", .summary = "rows in order again", ORDERS};

sherd_tensor *sherd_zigzag(sherd_tensor *a, int dim, int64_t shards)
{
    return sherd_apply(&sherd__zigzag_op, &a, 1, &(zigzag_attributes){shards, dim, false});
}

sherd_tensor *sherd_unzigzag(sherd_tensor *a, int dim, int64_t shards)
{
    return sherd_apply(&sherd__unzigzag_op, &a, 1, &(zigzag_attributes){shards, dim, true});
}
