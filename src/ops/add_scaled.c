/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sum of a tensor and a multiple of another, in one pass over memory: what solvers and
 * optimizers take in each step. A pending sum passes through it, as through sherd_add. On a GPU it
 * is three steps, of which the others fit into its caches.
 */
#include "shared.h"
#include "sherd/ops_elements.h"
#include "vector/bodies.h"

typedef struct scaled_attributes {
    double factor;
} scaled_attributes;

/* b alone, times the factor. */
static void copy_scaled(const sherd_call *call, double factor)
{
    sherd__copy_broadcast(call, 1);
    sherd__unary_in(call, SHERD__SCALE, call->to[0], &factor);
}

static void add_both(const sherd_call *call, double factor)
{
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, b);
    if (sherd__device_in(call)) {
        copy_scaled(call, factor);
        sherd__device_binary(sherd__device_in(call), out->dtype, SHERD__ADD, out->ndim, out->local,
                             call->to[0], call->from[0], a, call->to[0], out->stride);
        return;
    }
    sherd__adds_scaled_by(sherd__kernels_in(call))(out->dtype, factor, out->ndim, out->local,
                                                   call->to[0], call->from[0], a, call->from[1], b);
}

/* A term that another rank adds is left out here. */
static bool add_scaled(sherd_call *call)
{
    const scaled_attributes *attributes = call->attributes;

    if (call->out[0]->count == 0)
        return true;
    if (call->once == 3)
        sherd__fill_in(call, 0, 0);
    else if (call->once == 1)
        copy_scaled(call, attributes->factor);
    else if (call->once)
        sherd__copy_broadcast(call, 0);
    else
        add_both(call, attributes->factor);
    return true;
}

static void add_scaled_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const scaled_attributes *attributes = sherd_node_attributes(node);

    for (int i = 0; i < 2; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = sherd__sum_to_operand(node, i, grad_out[0]);
    if (sherd_node_wants(node, 1))
        grad_in[1] = sherd_scale(grad_in[1], attributes->factor);
}

const sherd_op sherd__add_scaled_op = {.name = "sherd_add_scaled",
                                       .summary = "a + factor b",
                                       .operand = {{"a", SHERD_OP_TERM}, {"b", SHERD_OP_TERM}},
                                       .result = {{"y", 0}},
                                       .field = {SHERD_FIELD(scaled_attributes, factor, DOUBLE)},
                                       .attributes = sizeof(scaled_attributes),
                                       .rule = "...,...->...",
                                       .linearity = SHERD_LINEAR,
                                       .broadcasts = true,
                                       .strided = true,
                                       .forward = add_scaled,
                                       .on_device = sherd__fractions_there,
                                       .backward = add_scaled_back,
                                       .takes_pending = true};

sherd_tensor *sherd_add_scaled(sherd_tensor *a, sherd_tensor *b, double factor)
{
    return sherd_apply(&sherd__add_scaled_op, (sherd_tensor *[]){a, b}, 2,
                       &(scaled_attributes){factor});
}
