/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation by the root of the mean of squares over the last dims. The factor of each row is
 * kept for backward. The gradient of the weight is a sum over the local rows: pending if rows are
 * sharded. If a row itself is divided among ranks: norm_rows.c.
 */
#include "norm_sums.h"
#include "sherd/ops_layers.h"

#include <float.h>

enum { X, WEIGHT, OPERANDS };
enum { Y, RSTD };

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DY, G_X, G_RSTD, G_WEIGHT, G_OPERANDS };

static bool rms_norm_grad(sherd_call *call)
{
    static const sherd__row_norm of = {G_WEIGHT, -1, -1, G_RSTD};

    return sherd__norm_grad(call, &of, G_X,
                            &(sherd__added_grad){.dy = call->from[G_DY],
                                                 .sum = call->from[G_X],
                                                 .weight = call->from[G_WEIGHT],
                                                 .rstd = call->from[G_RSTD],
                                                 .dx = call->to[X],
                                                 .dweight = call->to[WEIGHT]},
                            1);
}

static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, G_X, "xxrw>xw");
}

static const sherd_op rms_norm_grad_op = {
    .name = "sherd_rms_norm backward",
    .operand = {{"dy", 0}, {"x", 0}, {"rstd", SHERD_OP_ANY}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"dx", 0}, {"dweight", 0}},
    SHERD__ROW_NORM_ATTRIBUTES,
    .rule = "...d,...d,...,d->...d,d",
    .whole = SHERD__ROW_LETTERS,
    .describe = sherd__row_norm_describe,
    .ways = lie_back,
    .forward = rms_norm_grad,
    .dry = rms_norm_grad,
    .on_device = sherd__fractions_there};

static sherd_tensor *formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    return sherd__row_norm_formula(node, in[X], in[WEIGHT], false);
}

static void rms_norm_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1u << X | 1u << WEIGHT, formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[G_OPERANDS] = {grad_out[0], sherd_node_operand(node, X),
                                    sherd_node_result(node, RSTD),
                                    sherd_node_operand(node, WEIGHT)};
    sherd_tensor *grad[OPERANDS];

    sherd_apply_all(grad, &rms_norm_grad_op, in, G_OPERANDS, sherd_node_attributes(node));
    for (int i = 0; i < OPERANDS; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const sherd__row_norm_attributes *attributes = call->attributes;

    return attributes->eps >= 0
               ? sherd__row_norm_describe(call)
               : sherd_call_reason(call, "eps is %g, and must not be negative", attributes->eps);
}

static bool rms_norm(sherd_call *call)
{
    static const sherd__row_norm of = {WEIGHT, -1, -1, RSTD};
    const sherd__row_norm_attributes *attributes = call->attributes;
    const sherd__normed_rows p = sherd__rows_of(call, call->in[X], call->out[RSTD]);

    if (p.apart)
        return sherd__row_norm_apart(call, &of);
    if (sherd__is_dry(call->world))
        return true;
    if (sherd__device_in(call)) {
        sherd__device_rms_norm(sherd__device_in(call), call->out[Y]->dtype, p.rows, p.inner,
                               call->to[Y], call->to[RSTD], call->from[X], call->from[WEIGHT],
                               attributes->eps);
        return true;
    }
    sherd__kernels_in(call)->rms_norm(p.rows, p.inner, call->to[Y], call->to[RSTD], call->from[X],
                                      call->from[WEIGHT], attributes->eps);
    return true;
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, X, "xw>xr");
}

#define RMS_NORM_NEEDS \
    (SHERD_NEEDS_OPERAND(X) | SHERD_NEEDS_OPERAND(WEIGHT) | SHERD_NEEDS_RESULT(RSTD))

const sherd_op sherd__rms_norm_op = {
    .name = "sherd_rms_norm",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "x / sqrt(mean of x^2 + eps) * weight over the last dims",
    .layouts = "x is not moved; ranks that share a row exchange one number for it",
    .operand = {{"x", 0}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}, {"rstd", SHERD_OP_STATISTIC | SHERD_OP_HIDDEN}},
    SHERD__ROW_NORM_ATTRIBUTES,
    .rule = "...d,d->...d,...",
    .whole = SHERD__ROW_LETTERS,
    .describe = describe,
    .ways = lie,
    .forward = rms_norm,
    .dry = rms_norm,
    .on_device = sherd__fractions_there,
    .backward = rms_norm_back,
    .needs = {RMS_NORM_NEEDS, RMS_NORM_NEEDS}};

double sherd__rms_epsilon(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? DBL_EPSILON : (double)FLT_EPSILON;
}

sherd_tensor *sherd_rms_norm_over(sherd_tensor *x, int dims, sherd_tensor *weight, double eps)
{
    return sherd_apply(&sherd__rms_norm_op, (sherd_tensor *[]){x, weight}, OPERANDS,
                       &(sherd__row_norm_attributes){eps, (int64_t)dims - 1});
}

sherd_tensor *sherd_rms_norm(sherd_tensor *x, sherd_tensor *weight, double eps)
{
    return sherd_rms_norm_over(x, 1, weight, eps);
}
