/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer normalisation over the last dims. Mean and 1/deviation of each row are kept for backward.
 * The gradients of weight and bias are sums over the local rows: pending if rows are sharded. If a
 * row itself is divided among ranks: norm_rows.c.
 */
#include "norm_sums.h"
#include "sherd/ops_layers.h"

enum { X, WEIGHT, BIAS, OPERANDS };
enum { Y, MEAN, RSTD };

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DY, G_X, G_MEAN, G_RSTD, G_WEIGHT };
enum { G_DX, G_DWEIGHT, G_DBIAS };

static bool layer_norm_grad(sherd_call *call)
{
    static const sherd__row_norm of = {G_WEIGHT, -1, G_MEAN, G_RSTD};

    return sherd__norm_grad(call, &of, G_X,
                            &(sherd__added_grad){.dy = call->from[G_DY],
                                                 .sum = call->from[G_X],
                                                 .weight = call->from[G_WEIGHT],
                                                 .mean = call->from[G_MEAN],
                                                 .rstd = call->from[G_RSTD],
                                                 .dx = call->to[G_DX],
                                                 .dweight = call->to[G_DWEIGHT],
                                                 .dbias = call->to[G_DBIAS]},
                            2);
}

static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, G_X, "xxrrw>xww");
}

static const sherd_op layer_norm_grad_op = {.name = "sherd_layer_norm backward",
                                            .operand = {{"dy", 0},
                                                        {"x", 0},
                                                        {"mean", SHERD_OP_ANY},
                                                        {"rstd", SHERD_OP_ANY},
                                                        {"weight", SHERD_OP_OPTIONAL}},
                                            .result = {{"dx", 0}, {"dweight", 0}, {"dbias", 0}},
                                            SHERD__ROW_NORM_ATTRIBUTES,
                                            .rule = "...d,...d,...,...,d->...d,d,d",
                                            .whole = SHERD__ROW_LETTERS,
                                            .describe = sherd__row_norm_describe,
                                            .ways = lie_back,
                                            .forward = layer_norm_grad,
                                            .dry = layer_norm_grad,
                                            .on_device = sherd__fractions_there};

static sherd_tensor *formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    return sherd__row_norm_formula(node, in[X], in[WEIGHT], true);
}

/* The same, in a backward that is recorded. */
static void back_by_formula(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__differentiate(node, 1u << X | 1u << WEIGHT, formula, grad_out, grad_in);
    if (sherd_node_wants(node, BIAS))
        grad_in[BIAS] = sherd_cast(sherd__sum_to_operand(node, BIAS, grad_out[0]),
                                   sherd__node_dtype(node, BIAS));
}

static void layer_norm_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        back_by_formula(node, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[] = {grad_out[0], sherd_node_operand(node, X), sherd_node_result(node, MEAN),
                          sherd_node_result(node, RSTD), sherd_node_operand(node, WEIGHT)};
    sherd_tensor *grad[OPERANDS];

    sherd_apply_all(grad, &layer_norm_grad_op, in, 5, sherd_node_attributes(node));
    for (int i = 0; i < OPERANDS; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool layer_norm(sherd_call *call)
{
    static const sherd__row_norm of = {WEIGHT, BIAS, MEAN, RSTD};
    const sherd__row_norm_attributes *attributes = call->attributes;
    const sherd__normed_rows p = sherd__rows_of(call, call->in[X], call->out[RSTD]);

    if (p.apart)
        return sherd__row_norm_apart(call, &of);
    if (sherd__is_dry(call->world))
        return true;
    if (sherd__device_in(call)) {
        sherd__device_layer_norm(sherd__device_in(call), call->out[Y]->dtype, p.rows, p.inner,
                                 call->to[Y], call->to[MEAN], call->to[RSTD], call->from[X],
                                 call->from[WEIGHT], call->from[BIAS], attributes->eps);
        return true;
    }
    sherd__kernels_in(call)->layer_norm(p.rows, p.inner, call->to[Y], call->to[MEAN],
                                        call->to[RSTD], call->from[X], call->from[WEIGHT],
                                        call->from[BIAS], attributes->eps);
    return true;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, X, "xww>xrr");
}

enum { STATISTIC = SHERD_OP_STATISTIC | SHERD_OP_HIDDEN };
#define LAYER_NORM_NEEDS                                                               \
    (SHERD_NEEDS_OPERAND(X) | SHERD_NEEDS_OPERAND(WEIGHT) | SHERD_NEEDS_RESULT(MEAN) | \
     SHERD_NEEDS_RESULT(RSTD))

const sherd_op sherd__layer_norm_op = {
    .name = "sherd_layer_norm",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "(x - mean) / sqrt(var + eps) * weight + bias over the last dims",
    .layouts = "x is not moved; ranks that share a row exchange two numbers for it",
    .operand = {{"x", 0}, {"weight", SHERD_OP_OPTIONAL}, {"bias", SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}, {"mean", STATISTIC}, {"rstd", STATISTIC}},
    SHERD__ROW_NORM_ATTRIBUTES,
    .rule = "...d,d,d->...d,...,...",
    .whole = SHERD__ROW_LETTERS,
    .describe = sherd__row_norm_describe,
    .ways = lie,
    .forward = layer_norm,
    .dry = layer_norm,
    .on_device = sherd__fractions_there,
    .backward = layer_norm_back,
    .needs = {LAYER_NORM_NEEDS, LAYER_NORM_NEEDS, LAYER_NORM_NEEDS}};

sherd_tensor *sherd_layer_norm_over(sherd_tensor *x, int dims, sherd_tensor *weight,
                                    sherd_tensor *bias, double eps)
{
    return sherd_apply(&sherd__layer_norm_op, (sherd_tensor *[]){x, weight, bias}, 3,
                       &(sherd__row_norm_attributes){eps, (int64_t)dims - 1});
}

sherd_tensor *sherd_layer_norm(sherd_tensor *x, sherd_tensor *weight, sherd_tensor *bias,
                               double eps)
{
    return sherd_layer_norm_over(x, 1, weight, bias, eps);
}
