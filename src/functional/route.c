/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows sent to named shards (sherd/ops_routes.h). Ranks exchange how many rows go from each shard
 * to each, so all know the layout of the result and the lengths of all lists (ops/lists.h); then
 * rows move in one call, in either direction, and each direction is the gradient of the other.
 * Costs a pass over the shard numbers for each tensor that is sent, and a copy of the rows that
 * leave.
 */
#include "route.h"
#include "runs.h"
#include "ops/shared.h"
#include "sherd/ops_routes.h"

#include <string.h>

#include "base/num.h"

/* ---- counting -------------------------------------------------------------------------------- */

static const char *describe_counts(sherd_call *call)
{
    const sherd_tensor *shard = call->in[0];

    if (shard->ndim != 1)
        return "shard numbers must be [rows]";
    const int64_t shards = sherd__row_shards(shard), shape[] = {shards, shards};
    int64_t longest = shard->shape[0];
    if (shard->layout)
        longest =
            sherd__dim_longest(shard->layout->spec.mesh, &shard->layout->spec.dim[0], longest);
    if (longest > INT32_MAX)
        return sherd_call_reason(call, "%lld rows in a shard: an i32 counts fewer",
                                 (long long)longest);
    sherd_call_shape(call, 0, 2, shape);
    call->dtype[0] = SHERD_I64;
    return NULL;
}

/* In a dry world: each shard sends equally many rows to all. */
static void suppose(const sherd_tensor *shard, int64_t shards, int64_t *count)
{
    for (int64_t home = 0; home < shards; home++) {
        int64_t n = sherd__rows_of_shard(shard, home), lo, hi;
        for (int64_t away = 0; away < shards; away++) {
            sherd__chunk(n, shards, away, &lo, &hi);
            count[home * shards + away] = hi - lo;
        }
    }
}

static bool count_rows(sherd_call *call)
{
    const int32_t *to = call->from[0];
    int64_t shards = sherd__row_shards(call->in[0]), parts;
    bool dry = sherd__is_dry(call->world);

    if (!sherd__check_indices(call, 0, shards))
        return false;
    sherd_tensor *mine = sherd__new_parts(call, 1, SHERD_I64, shards);
    if (!mine)
        return false;
    int64_t *count = mine->count ? sherd__fresh(mine) : NULL;
    if (count)
        memset(count, 0, sherd__bytes(shards) * sizeof *count);
    for (int64_t i = 0; count && i < call->in[0]->count && !dry; i++)
        count[to[i]]++;
    const int64_t *all = sherd__all_parts(call, 1, mine, shards, &parts);
    if (!call->out[0]->count)
        return true;
    if (all && dry)
        suppose(call->in[0], shards, call->to[0]);
    else if (all)
        memcpy(call->to[0], all, sherd__bytes(shards * shards) * sizeof *all);
    return all != NULL;
}

const sherd_op sherd__route_rows_op = {.name = "sherd_route_rows",
                                       .summary = "how many rows go from shard to shard",
                                       .layouts = "shard numbers stay; the result is on all ranks",
                                       .operand = {{"shard", SHERD_OP_INDEX}},
                                       .result = {{"count", 0}},
                                       .numbers = SHERD_EVERYTHING,
                                       .describe = describe_counts,
                                       .ways = sherd__counts_ways,
                                       .forward = count_rows,
                                       .dry = count_rows};

/* ---- layouts --------------------------------------------------------------------------------- */

/* A digest of the counts: a layout follows from them. */
typedef struct sending {
    int64_t digest;
} sending;

static const char *describe(sherd_call *call)
{
    const sherd_tensor *rows = call->in[SHERD__ROUTE_ROWS], *shard = call->in[SHERD__ROUTE_SHARD],
                       *count = call->in[SHERD__ROUTE_COUNT];
    int64_t shards = sherd__row_shards(shard);

    if (shard->ndim != 1 || count->ndim != 2 || count->dtype != SHERD_I64 ||
        count->shape[0] != shards || count->shape[1] != shards)
        return "this is no route (sherd_route_rows)";
    if (rows->ndim < 1 || rows->shape[0] != shard->shape[0])
        return sherd_call_reason(call, "the route is of %lld rows", (long long)shard->shape[0]);
    sherd_call_shape(call, 0, rows->ndim, rows->shape);
    return NULL;
}

static sherd_status lie_sent(const sherd_call *call, sherd_ways *ways, bool back)
{
    const sherd_layout *given = sherd__way_given(ways, SHERD__ROUTE_ROWS), *after, *result;
    const sherd_layout *operand[3];
    sherd_tensor *count = call->in[SHERD__ROUTE_COUNT];
    const int64_t *counts = sherd__counts_of(count);
    int64_t rows = call->shape[0][0], shards = count->shape[0];
    sherd_status status = sherd__layout_settle(&operand[SHERD__ROUTE_SHARD],
                                               sherd__way_given(ways, SHERD__ROUTE_SHARD));

    if (counts && !sherd__counts_add_up(counts, shards * shards, rows))
        return sherd__fail(sherd__world_diag(call->world), SHERD_EINVAL,
                           "%s: the route's counts are not of %lld rows", call->op->name,
                           (long long)rows);
    if (!status)
        status = sherd__lay_counts(&after, operand[SHERD__ROUTE_SHARD], rows, counts, shards,
                                   call->op->name);
    if (!status)
        status = sherd__lay_rows(&operand[SHERD__ROUTE_ROWS], given,
                                 back ? after : operand[SHERD__ROUTE_SHARD]);
    if (!status)
        status = sherd__lay_rows(&result, given, back ? operand[SHERD__ROUTE_SHARD] : after);
    if (!status)
        status = sherd__replicated(&operand[SHERD__ROUTE_COUNT], given->spec.mesh, 2, count->shape);
    return status ? status : sherd_way_add(ways, operand, &result);
}

static sherd_status lie_there(const sherd_call *call, sherd_ways *ways)
{
    return lie_sent(call, ways, false);
}

static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    return lie_sent(call, ways, true);
}

static bool send(sherd_call *call)
{
    return sherd__travel(call, false);
}

static bool bring(sherd_call *call)
{
    return sherd__travel(call, true);
}

/* ---- the operators --------------------------------------------------------------------------- */

static sherd_tensor *route_by(const sherd_op *op, sherd_tensor *rows, sherd_tensor *shard,
                              sherd_tensor *count)
{
    sherd_tensor *in[] = {rows, shard, count};
    const sending how = {sherd__known_digest(&count, 1)};

    return sherd_apply(op, in, 3, &how);
}

static void send_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[SHERD__ROUTE_ROWS] =
        route_by(&sherd__return_rows_op, grad_out[0], sherd_node_operand(node, SHERD__ROUTE_SHARD),
                 sherd_node_operand(node, SHERD__ROUTE_COUNT));
}

static void bring_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[SHERD__ROUTE_ROWS] =
        route_by(&sherd__send_rows_op, grad_out[0], sherd_node_operand(node, SHERD__ROUTE_SHARD),
                 sherd_node_operand(node, SHERD__ROUTE_COUNT));
}

#define ROUTED(label, text, ways_of, run, gradient)                                               \
    {                                                                                             \
        .name = label, .summary = text, .layouts = "rows are sent; other dims as the operand",    \
        .operand = {{"rows", 0}, {"shard", SHERD_OP_INDEX}, {"count", SHERD_OP_ANY}},             \
        .result = {{"y", 0}}, .field = {SHERD_FIELD(sending, digest, INT64)},                     \
        .attributes = sizeof(sending), .linearity = SHERD_LINEAR, .numbers = SHERD_EVERYTHING,    \
        .describe = describe, .ways = ways_of, .forward = run, .dry = run, .backward = gradient,  \
        .takes_pending = true, .needs = {                                                         \
            [SHERD__ROUTE_ROWS] =                                                                 \
                SHERD_NEEDS_OPERAND(SHERD__ROUTE_SHARD) | SHERD_NEEDS_OPERAND(SHERD__ROUTE_COUNT) \
        }                                                                                         \
    }

const sherd_op sherd__send_rows_op =
    ROUTED("sherd_send_rows", "rows at the shards of a route", lie_there, send, send_back);
const sherd_op sherd__return_rows_op =
    ROUTED("sherd_return_rows", "rows back where a route began", lie_back, bring, bring_back);

/* ---- the functions --------------------------------------------------------------------------- */

bool sherd_route_rows(sherd_route *out, sherd_tensor *shard)
{
    sherd_world *world = sherd_tensor_world(shard);
    const sherd__argument need[] = {{"out", out}, {"shard", shard}, {NULL, NULL}};
    sherd_route nowhere, *to = out ? out : &nowhere;

    if (!sherd__given(world, "sherd_route_rows", need, &to->count)) {
        to->shard = to->count;
        return false;
    }
    to->count = sherd_apply(&sherd__route_rows_op, &shard, 1, NULL);
    to->shard = sherd_tensor_failed(to->count) ? to->count : shard;
    to->written = sherd_tensor_failed(shard) ? 0 : shard->storage->version;
    return !sherd_tensor_failed(to->count);
}

static sherd_tensor *take_route(const sherd_op *op, sherd_tensor *rows, const sherd_route *route)
{
    static const sherd_route none;
    const sherd_route *r = route ? route : &none;

    if (r->shard && !sherd_tensor_failed(r->shard) && r->shard->storage->version != r->written)
        return sherd__fail_tensor(r->shard->world, r->shard->layout != NULL, SHERD_EINVAL,
                                  "%s: shard numbers were written after their route was made: make "
                                  "another",
                                  op->name);
    return route_by(op, rows, r->shard, r->count);
}

sherd_tensor *sherd_send_rows(sherd_tensor *x, const sherd_route *route)
{
    return take_route(&sherd__send_rows_op, x, route);
}

sherd_tensor *sherd_return_rows(sherd_tensor *y, const sherd_route *route)
{
    return take_route(&sherd__return_rows_op, y, route);
}
