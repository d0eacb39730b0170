/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Selecting one of two elements by a mask. A fill with 0 is a product with ones and zeros, so a
 * pending sum passes through; the gradients work the same way.
 */
#include "shared.h"
#include "sherd/ops_elements.h"

#include "device/compare.h"
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

/* dst = mask ? a : b, where the call runs; strides along the dims of the result. */
static void choose(const sherd_call *call, const void *mask, const int64_t *mask_stride,
                   sherd__picked a, sherd__picked b)
{
    static const int64_t none[SHERD_MAX_DIMS];
    const sherd_tensor *out = call->out[0];
    size_t element = sherd_dtype_bytes(out->dtype);

    if (out->count == 0)
        return;
    if (sherd__device_in(call))
        sherd__device_pick(sherd__device_in(call), element, out->ndim, out->local, call->to[0],
                           mask, mask_stride, a, b);
    else
        sherd__pick_box(element, out->ndim, out->local, call->to[0], mask, mask_stride,
                        a.data ? a.data : &a.value, a.data ? a.stride : none,
                        b.data ? b.data : &b.value, b.data ? b.stride : none);
}

static bool fill(sherd_call *call)
{
    const fill_attributes *attributes = call->attributes;
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], mask[SHERD_MAX_DIMS];
    uint64_t element = 0;

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, mask);
    sherd__cast(out->dtype, SHERD_F64, 1, &element, &attributes->value);
    const sherd__picked from[2] = {{.value = element}, {call->from[0], a, 0}};
    choose(call, call->from[1], mask, from[attributes->outside], from[!attributes->outside]);
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
                                        .on_device = sherd__numbers_there,
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
    int64_t stride[3][SHERD_MAX_DIMS];

    for (int i = 0; i < 3; i++)
        sherd__broadcast_strides(call, i, stride[i]);
    choose(call, call->from[0], stride[0], (sherd__picked){call->from[1], stride[1], 0},
           (sherd__picked){call->from[2], stride[2], 0});
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
                                  .on_device = sherd__numbers_there,
                                  .backward = pick_back,
                                  .takes_pending = true,
                                  .needs = {0, SHERD_NEEDS_OPERAND(0), SHERD_NEEDS_OPERAND(0)}};

sherd_tensor *sherd_where(sherd_tensor *condition, sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__where_op, (sherd_tensor *[]){condition, a, b}, 3, NULL);
}
