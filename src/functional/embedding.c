/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of a table. A rank that holds only some rows of the table gives zeros for the others, so the
 * result is pending if the entries are sharded. Ids are checked against the whole table.
 */
#include "ops/shared.h"

#include <string.h>

#include "base/num.h"
#include "kernels/places.h"

enum { WEIGHT, IDS };

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct table {
    int64_t entries, width;
} table;

static const char *describe_grad(sherd_call *call)
{
    const table *shape = call->attributes;

    call->shape[0][0] = shape->entries;
    call->shape[0][1] = shape->width;
    return NULL;
}

/* -1: more than can be counted. */
static int64_t scratch_bytes(const sherd_tensor *out, int64_t n)
{
    int64_t bytes;

    if (sherd__is_half(out->dtype))
        return sherd__mul(out->local[0] + n, (int64_t)sizeof(int64_t), &bytes) ? bytes : -1;
    return out->dtype == SHERD_F32 ? sherd__places_bytes(n, out->local[1], out->local[0]) : 0;
}

static bool embedding_grad(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int64_t n = call->in[0]->count, *scratch = NULL;

    if (out->count == 0)
        return true;
    if (sherd__device_in(call)) {
        sherd__device_embedding_grad(sherd__device_in(call), out->dtype, n, out->local[1],
                                     call->to[0], call->from[1], call->from[0],
                                     sherd_tensor_box(out).offset[0], out->local[0]);
        return true;
    }
    int64_t bytes = scratch_bytes(out, n);
    if (bytes && !(scratch = sherd_call_scratch(call, bytes)))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    sherd__kernels_in(call)->embedding_grad(n, out->local[1], call->to[0], call->from[1],
                                            call->from[0], sherd_tensor_box(out).offset[0],
                                            out->local[0], scratch);
    return true;
}

static void look_up_again(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[1] = sherd_embedding(grad_out[0], sherd_node_operand(node, 0));
}

/*
 * The last operand is its layout alone: the gradient lies as the table does, and is pending where
 * the ids are sharded.
 */
static const sherd_op embedding_grad_op = {
    .name = "sherd_embedding backward",
    .operand = {{"ids", SHERD_OP_INDEX}, {"dy", 0}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"dweight", 0}},
    .field = {SHERD_FIELD(table, entries, INT64), SHERD_FIELD(table, width, INT64)},
    .attributes = sizeof(table),
    .rule = "...,...d,vd->vd",
    .describe = describe_grad,
    .forward = embedding_grad,
    .dry = embedding_grad,
    .on_device = sherd__fractions_there,
    .backward = look_up_again,
    .needs = {[1] = SHERD_NEEDS_OPERAND(0)}};

static void embedding_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *in[] = {sherd_node_operand(node, IDS), grad_out[0], NULL};
    const sherd_layout *like[] = {NULL, NULL, sherd_node_layout(node, WEIGHT)};
    const int64_t *shape;

    sherd_node_shape(node, WEIGHT, &shape);
    sherd__apply_like(&grad_in[WEIGHT], &embedding_grad_op, in, 3, &(table){shape[0], shape[1]},
                      like);
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool embedding(sherd_call *call)
{
    const sherd_tensor *weight = call->in[WEIGHT], *out = call->out[0];

    if (!sherd__check_indices(call, IDS, weight->shape[0]))
        return false;
    if (out->count && sherd__device_in(call))
        sherd__device_embedding(sherd__device_in(call), out->dtype, call->in[IDS]->count,
                                out->local[out->ndim - 1], call->to[0], call->from[WEIGHT],
                                call->from[IDS], sherd_tensor_box(weight).offset[0],
                                weight->local[0]);
    else if (out->count)
        sherd__kernels_in(call)->embedding(call->in[IDS]->count, out->local[out->ndim - 1],
                                           call->to[0], call->from[WEIGHT], call->from[IDS],
                                           sherd_tensor_box(weight).offset[0], weight->local[0]);
    return true;
}

const sherd_op sherd__embedding_op = {.name = "sherd_embedding",
                                      .summary = "rows of a table",
                                      .operand = {{"weight", 0}, {"ids", SHERD_OP_INDEX}},
                                      .result = {{"y", 0}},
                                      .rule = "vd,...->...d",
                                      .linearity = SHERD_LINEAR,
                                      .forward = embedding,
                                      .on_device = sherd__fractions_there,
                                      .backward = embedding_back,
                                      .needs = {[WEIGHT] = SHERD_NEEDS_OPERAND(IDS)}};

sherd_tensor *sherd_embedding(sherd_tensor *weight, sherd_tensor *ids)
{
    return sherd_apply(&sherd__embedding_op, (sherd_tensor *[]){weight, ids}, 2, NULL);
}
