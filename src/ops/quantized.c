/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with weights of 8 or 4 bits (include/sherd/ops_quantized.h) as an operator: its layouts,
 * its bias, its gradients. What is computed, and what that costs, is in quantized_product.c.
 * docs/decisions/210, 223
 */
#include "quantize.h"

#include <string.h>

#include "base/num.h"
#include "sherd/ops_quantized.h"
#include "vector/choose.h"

enum { X, VALUE, SCALE, BIAS };

typedef struct quantized {
    int64_t group;
} quantized;

#define QUANTIZED .field = {SHERD_FIELD(quantized, group, INT64)}, .attributes = sizeof(quantized)

/* The bias in the dtype of sums. NULL: no memory. */
static const void *taken_bias(sherd_call *call)
{
    const sherd_tensor *bias = call->in[BIAS];
    sherd_dtype sum = sherd__quantized_sums(call->in[X]->dtype);

    if (bias->dtype == sum)
        return call->from[BIAS];
    void *to =
        sherd_call_scratch(call, sherd__max(bias->count, 1) * (int64_t)sherd_dtype_bytes(sum));
    if (to && !sherd__is_dry(call->world))
        sherd__convert(sherd__world_kernels(call->world), sum, bias->dtype, bias->count, to,
                       call->from[BIAS]);
    return to;
}

static sherd__quantized_product product_of(const sherd_call *call, bool back)
{
    const sherd_tensor *of = call->in[X];
    bool in_pairs = !back && sherd__is_pairs(call->in[VALUE]);
    int64_t group = ((const quantized *)call->attributes)->group;

    return (sherd__quantized_product){.q = sherd__quantized_piece(call, VALUE, SCALE, group),
                                      .m = sherd__local_count(of, 0, of->ndim - 1 - in_pairs),
                                      .dtype = of->dtype,
                                      .x = call->from[X],
                                      .y = call->to[0]};
}

static bool linear(sherd_call *call)
{
    sherd__quantized_product p = product_of(call, false);
    sherd__quantized_rooms rooms = {{NULL}, {0}};

    p.rooms = &rooms;
    if (call->out[0]->count == 0)
        return true;
    if (call->in[BIAS] && !(call->once >> BIAS & 1) && !(p.bias = taken_bias(call)))
        return false;
    return sherd__quantized_multiply(call, &p);
}

/* Rules of a product, for scales of rows and of groups; of 8 bits, and of 4. */
typedef struct rules {
    const char *rows, *groups, *rows_of_pairs, *groups_of_pairs;
} rules;

static const char *describe_with(sherd_call *call, const rules *by)
{
    const quantized *how = call->attributes;
    bool pairs = sherd__is_pairs(call->in[VALUE]);

    if (call->in[VALUE]->ndim != 2)
        return "value must have two dims";
    strcpy(call->rule, how->group ? pairs ? by->groups_of_pairs : by->groups
                       : pairs    ? by->rows_of_pairs
                                  : by->rows);
    call->linearity = sherd__quantized_linearity(call->in[VALUE], call->in[SCALE]);
    return sherd__quantized_fault(call, VALUE, SCALE, how->group);
}

static const char *describe(sherd_call *call)
{
    static const rules by = {"...k,nk,n,n->...n", "...k,nk,n*,n->...n", "...kt,nk,n,n->...n",
                             "...kt,nk,n*,n->...n"};
    const sherd_tensor *x = call->in[X], *value = call->in[VALUE];
    const char *reason = describe_with(call, &by);

    if (!reason && sherd__is_pairs(value) && (x->ndim < 2 || x->shape[x->ndim - 1] != 2))
        reason = sherd_call_reason(call, "of 4 bits x must have %lld columns, two for each byte",
                                   (long long)value->shape[1] * 2);
    return reason;
}

/* Two for each element of the result and each term. */
static double operations(const sherd_call *call)
{
    const sherd_tensor *x = call->in[X];
    int last = x->ndim - 1 - sherd__is_pairs(call->in[VALUE]);

    return 2.0 * (double)call->out[0]->count * (double)sherd__local_count(x, last, x->ndim);
}

/* ---- backward -------------------------------------------------------------------------------- */

static bool linear_dx(sherd_call *call)
{
    sherd__quantized_product p = product_of(call, true);
    sherd__quantized_rooms rooms = {{NULL}, {0}};

    p.rooms = &rooms;
    return call->out[0]->count == 0 || sherd__quantized_back(call, &p);
}

static const char *describe_dx(sherd_call *call)
{
    static const rules by = {"...n,nk,n->...k", "...n,nk,n*->...k", "...n,nk,n->...kt",
                             "...n,nk,n*->...kt"};

    if (sherd__is_pairs(call->in[VALUE]))
        call->shape[0][call->in[X]->ndim] = 2;
    return describe_with(call, &by);
}

static double operations_dx(const sherd_call *call)
{
    const sherd_tensor *dy = call->in[X];

    return 2.0 * (double)call->out[0]->count * (double)dy->local[dy->ndim - 1];
}

/* The gradient of dx is [..., k, 2], where dx is. */
static void linear_dx_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *with[] = {grad_out[0], sherd_node_operand(node, VALUE),
                            sherd_node_operand(node, SCALE), NULL};

    grad_in[X] = sherd_apply(&sherd__linear_quantized_op, with, 4, sherd_node_attributes(node));
}

#define NEEDS_WEIGHT (SHERD_NEEDS_OPERAND(VALUE) | SHERD_NEEDS_OPERAND(SCALE))

static const sherd_op linear_dx_op = {
    .name = "sherd_linear_quantized backward",
    .operand = {{"dy", 0}, {"value", SHERD_OP_ANY}, {"scale", SHERD_OP_ANY}},
    .result = {{"dx", 0}},
    QUANTIZED,
    .whole = "t",
    .describe = describe_dx,
    .forward = linear_dx,
    .dry = linear_dx,
    .operations = operations_dx,
    .backward = linear_dx_back,
    .needs = {[X] = NEEDS_WEIGHT}};

static void linear_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *dy = grad_out[0];

    if (sherd_node_wants(node, X))
        grad_in[X] = sherd_apply(&linear_dx_op,
                                 (sherd_tensor *[]){dy, sherd_node_operand(node, VALUE),
                                                    sherd_node_operand(node, SCALE)},
                                 3, sherd_node_attributes(node));
    if (sherd_node_wants(node, BIAS))
        grad_in[BIAS] = sherd__sum_to_operand(node, BIAS, dy);
}

const sherd_op sherd__linear_quantized_op = {
    .name = "sherd_linear_quantized",
    .autocast = SHERD_AUTOCAST_LOW,
    .summary = "x W^T + b, W of 8 or 4 bits with scales",
    .layouts = "`...k,nk,n,n->...n`; sums k; groups of scales are whole",
    .operand = {{"x", 0},
                {"value", SHERD_OP_ANY},
                {"scale", SHERD_OP_ANY},
                {"bias", SHERD_OP_OPTIONAL | SHERD_OP_TERM}},
    .result = {{"y", 0}},
    .linearity = SHERD_LINEAR,
    QUANTIZED,
    .whole = "t",
    .describe = describe,
    .forward = linear,
    .dry = linear,
    .operations = operations,
    .backward = linear_back,
    .in_parts = true,
    .needs = {[X] = NEEDS_WEIGHT}};

sherd_tensor *sherd_linear_quantized(sherd_tensor *x, sherd_tensor *value, sherd_tensor *scale,
                                     int64_t group, sherd_tensor *bias)
{
    bool pairs = value && !sherd_tensor_failed(value) && sherd__is_pairs(value);

    if (pairs && value->ndim == 2 && x && !sherd_tensor_failed(x) && x->ndim > 0 &&
        x->shape[x->ndim - 1] != 2 * value->shape[1])
        return sherd__fail_tensor(x->world, x->layout || value->layout, SHERD_EINVAL,
                                  "sherd_linear_quantized: x is %.120s, value %.120s: of 4 bits x "
                                  "must have two columns for each byte of a row",
                                  sherd_tensor_text(x), sherd_tensor_text(value));
    if (pairs && group % 2 == 0)
        x = sherd__in_pairs(x, "sherd_linear_quantized");
    return sherd_apply(&sherd__linear_quantized_op, (sherd_tensor *[]){x, value, scale, bias}, 4,
                       &(quantized){group});
}
