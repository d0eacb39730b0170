/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selecting one of two elements by a mask. A fill with 0 is a product with ones and zeros, so a
 * pending sum passes through; the gradients work the same way.
 */
#include "operator.h"
#include "sherd/ops_elements.h"

#include "kernels/cast.h"

/* ---- a number where the mask is set ---------------------------------------------------------- */

typedef struct fill_attributes {
    double value;
    bool outside; /* or where it is not */
} fill_attributes;

static const char *describe_fill(sherd_call *call)
{
    const fill_attributes *attributes = call->attributes;

    if (attributes->value == 0)
        call->linearity = SHERD_LINEAR;
    return sherd__value_fault(call, call->in[0]->dtype, attributes->value);
}

static bool fill(sherd_call *call)
{
    const fill_attributes *attributes = call->attributes;
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], mask[SHERD_MAX_DIMS];
    static const int64_t none[SHERD_MAX_DIMS];
    uint64_t element;

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, mask);
    sherd__cast(out->dtype, SHERD_F64, 1, &element, &attributes->value);
    const void *from[2] = {&element, call->from[0]};
    const int64_t *stride[2] = {none, a};
    bool swap = attributes->outside;
    if (out->count)
        sherd__pick_box(sherd_dtype_bytes(out->dtype), out->ndim, out->local, call->to[0],
                        call->from[1], mask, from[swap], stride[swap], from[!swap], stride[!swap]);
    return true;
}

static void fill_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);

const sherd_op sherd__masked_fill_op = {.name = "sherd_masked_fill",
                                        .summary = "mask ? value : a",
                                        .operand = {{"a", 0}, {"mask", SHERD_OP_BOOL}},
                                        .result = {{"y", 0}},
                                        .field = {SHERD_FIELD(fill_attributes, value, DOUBLE),
                                                  SHERD_FIELD(fill_attributes, outside, BOOL)},
                                        .attributes = sizeof(fill_attributes),
                                        .rule = "...,...->...",
                                        .numbers = SHERD_EVERYTHING,
                                        .broadcasts = true,
                                        .strided = true,
                                        .describe = describe_fill,
                                        .forward = fill,
                                        .backward = fill_back,
                                        .takes_pending = true,
                                        .needs = {SHERD_NEEDS_OPERAND(1)}};

static sherd_tensor *fill_where(sherd_tensor *a, sherd_tensor *mask, double value, bool outside)
{
    return sherd_apply(&sherd__masked_fill_op, (sherd_tensor *[]){a, mask}, 2,
                       &(fill_attributes){value, outside});
}

static void fill_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const fill_attributes *attributes = sherd_node_attributes(node);

    grad_in[0] = sherd__sum_to_operand(
        node, 0, fill_where(grad_out[0], sherd_node_operand(node, 1), 0, attributes->outside));
}

sherd_tensor *sherd_masked_fill(sherd_tensor *a, sherd_tensor *mask, double value)
{
    return fill_where(a, mask, value, false);
}

/* ---- one or the other ------------------------------------------------------------------------ */

static bool pick(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int64_t stride[3][SHERD_MAX_DIMS];

    for (int i = 0; i < 3; i++)
        sherd__broadcast_strides(call, i, stride[i]);
    if (out->count)
        sherd__pick_box(sherd_dtype_bytes(out->dtype), out->ndim, out->local, call->to[0],
                        call->from[0], stride[0], call->from[1], stride[1], call->from[2],
                        stride[2]);
    return true;
}

static void pick_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    for (int i = 1; i < 3; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = sherd__sum_to_operand(
                node, i, fill_where(grad_out[0], sherd_node_operand(node, 0), 0, i == 1));
}

const sherd_op sherd__where_op = {.name = "sherd_where",
                                  .summary = "condition ? a : b",
                                  .operand = {{"condition", SHERD_OP_BOOL}, {"a", 0}, {"b", 0}},
                                  .result = {{"y", 0}},
                                  .rule = "...,...,...->...",
                                  .numbers = SHERD_EVERYTHING,
                                  .broadcasts = true,
                                  .strided = true,
                                  .forward = pick,
                                  .backward = pick_back,
                                  .takes_pending = true,
                                  .needs = {0, SHERD_NEEDS_OPERAND(0), SHERD_NEEDS_OPERAND(0)}};

sherd_tensor *sherd_where(sherd_tensor *condition, sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__where_op, (sherd_tensor *[]){condition, a, b}, 3, NULL);
}
