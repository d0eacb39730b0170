/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The elementwise operators through which a pending sum passes: sums and products of two tensors,
 * and with a number. One kernel call on the local pieces. Shapes broadcast as in NumPy: a broadcast
 * dim has stride 0, and its gradient is summed.
 */
#include "shared.h"
#include "sherd/ops_elements.h"

#include "kernels/cast.h"

/* ---- of two operands ------------------------------------------------------------------------- */

/* dst = one term, while another rank adds the other term. */
static void copy_term(const sherd_call *call, int i, bool negative)
{
    sherd__copy_broadcast(call, i);
    if (negative)
        sherd__unary_in(call, SHERD__NEG, call->to[0], NULL);
}

static bool compute(sherd_call *call, sherd__binary_kind kind)
{
    const sherd_tensor *out = call->out[0];

    if (out->count == 0)
        return true;
    if (call->once == 3) {
        sherd__fill_in(call, 0, 0);
    } else if (call->once) {
        int left = call->once == 1 ? 1 : 0;
        copy_term(call, left, left == 1 && kind == SHERD__SUB);
    } else {
        sherd__binary_in(call, kind);
    }
    return true;
}

static bool add(sherd_call *call)
{
    return compute(call, SHERD__ADD);
}

static bool sub(sherd_call *call)
{
    return compute(call, SHERD__SUB);
}

static bool mul(sherd_call *call)
{
    return compute(call, SHERD__MUL);
}

/* A sum passes its gradient on, pending or not. */
static void add_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    for (int i = 0; i < 2; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = sherd__sum_to_operand(node, i, grad_out[0]);
}

static void sub_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    add_back(node, grad_out, grad_in);
    if (sherd_node_wants(node, 1))
        grad_in[1] = sherd_scale(grad_in[1], -1);
}

static void mul_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    for (int i = 0; i < 2; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = sherd__sum_to_operand(
                node, i, sherd_mul(grad_out[0], sherd_node_operand(node, 1 - i)));
}

const sherd_op sherd__add_op = {.name = "sherd_add",
                                .summary = "a + b",
                                .numbers = SHERD_NUMBERS,
                                .operand = {{"a", SHERD_OP_TERM}, {"b", SHERD_OP_TERM}},
                                .result = {{"y", 0}},
                                .rule = "...,...->...",
                                .linearity = SHERD_LINEAR,
                                .broadcasts = true,
                                .strided = true,
                                .forward = add,
                                .on_device = sherd__numbers_there,
                                .backward = add_back,
                                .takes_pending = true};

const sherd_op sherd__sub_op = {.name = "sherd_sub",
                                .summary = "a - b",
                                .numbers = SHERD_NUMBERS,
                                .operand = {{"a", SHERD_OP_TERM}, {"b", SHERD_OP_TERM}},
                                .result = {{"y", 0}},
                                .rule = "...,...->...",
                                .linearity = SHERD_LINEAR,
                                .broadcasts = true,
                                .strided = true,
                                .forward = sub,
                                .on_device = sherd__numbers_there,
                                .backward = sub_back,
                                .takes_pending = true};

/* The gradient of each factor needs the other one. */
const sherd_op sherd__mul_op = {.name = "sherd_mul",
                                .summary = "a * b",
                                .numbers = SHERD_NUMBERS,
                                .operand = {{"a", 0}, {"b", 0}},
                                .result = {{"y", 0}},
                                .rule = "...,...->...",
                                .linearity = SHERD_LINEAR,
                                .broadcasts = true,
                                .strided = true,
                                .forward = mul,
                                .on_device = sherd__numbers_there,
                                .backward = mul_back,
                                .needs = {SHERD_NEEDS_OPERAND(1), SHERD_NEEDS_OPERAND(0)}};

sherd_tensor *sherd_add(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__add_op, (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_sub(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__sub_op, (sherd_tensor *[]){a, b}, 2, NULL);
}

sherd_tensor *sherd_mul(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_apply(&sherd__mul_op, (sherd_tensor *[]){a, b}, 2, NULL);
}

/* ---- of one operand -------------------------------------------------------------------------- */

typedef struct scale_attributes {
    double factor;
} scale_attributes;

static bool scale(sherd_call *call)
{
    const scale_attributes *attributes = call->attributes;

    sherd__unary_in(call, SHERD__SCALE, sherd__in_order(call), &attributes->factor);
    return true;
}

static void scale_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const scale_attributes *attributes = sherd_node_attributes(node);

    grad_in[0] = sherd_scale(grad_out[0], attributes->factor);
}

const sherd_op sherd__scale_op = {.name = "sherd_scale",
                                  .summary = "a * factor",
                                  .operand = {{"a", 0}},
                                  .result = {{"y", 0}},
                                  .field = {SHERD_FIELD(scale_attributes, factor, DOUBLE)},
                                  .attributes = sizeof(scale_attributes),
                                  .rule = "...->...",
                                  .strided = true,
                                  .linearity = SHERD_LINEAR,
                                  .forward = scale,
                                  .on_device = sherd__fractions_there,
                                  .backward = scale_back,
                                  .takes_pending = true};

sherd_tensor *sherd_scale(sherd_tensor *a, double factor)
{
    return sherd_apply(&sherd__scale_op, &a, 1, &(scale_attributes){factor});
}

/* ---- a number added -------------------------------------------------------------------------- */

typedef struct shift_attributes {
    double addend;
} shift_attributes;

const char *sherd__value_fault(sherd_call *call, sherd_dtype dtype, double value)
{
    return sherd__holds(dtype, value)
               ? NULL
               : sherd_call_reason(call, "%.15g is no %s", value, sherd_dtype_name(dtype));
}

/* Only an integer can be added to integers; also one whose negative they hold: of those without a
 * sign a negative one, and the number after the largest of those with one. */
static const char *describe_shift(sherd_call *call)
{
    const shift_attributes *attributes = call->attributes;
    sherd_dtype dtype = call->in[0]->dtype;

    return sherd__holds(dtype, -attributes->addend)
               ? NULL
               : sherd__value_fault(call, dtype, attributes->addend);
}

static bool shift(sherd_call *call)
{
    const shift_attributes *attributes = call->attributes;
    double addend = call->once >> SHERD_ONCE_ADDED ? 0 : attributes->addend;

    /* The low bits of that are those of its negative, which i64 holds. */
    if (addend == 0x1p63 && !sherd__has_fractions(call->in[0]->dtype))
        addend = -addend;
    sherd__unary_in(call, SHERD__SHIFT, sherd__in_order(call), &addend);
    return true;
}

static void shift_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = grad_out[0];
}

const sherd_op sherd__add_scalar_op = {.name = "sherd_add_scalar",
                                       .summary = "a + addend",
                                       .operand = {{"a", 0}},
                                       .result = {{"y", 0}},
                                       .field = {SHERD_FIELD(shift_attributes, addend, DOUBLE)},
                                       .attributes = sizeof(shift_attributes),
                                       .rule = "...->...",
                                       .strided = true,
                                       .linearity = SHERD_LINEAR,
                                       .numbers = SHERD_NUMBERS,
                                       .adds = true,
                                       .describe = describe_shift,
                                       .forward = shift,
                                       .on_device = sherd__numbers_there,
                                       .backward = shift_back,
                                       .takes_pending = true};

sherd_tensor *sherd_add_scalar(sherd_tensor *a, double addend)
{
    return sherd_apply(&sherd__add_scalar_op, &a, 1, &(shift_attributes){addend});
}
