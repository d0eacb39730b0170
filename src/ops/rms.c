/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisation by the root of the mean of squares over the last dim, which is made whole; rows may be sharded. What each
 * row was multiplied by is kept for backward. The gradient of the weight is a sum over the local rows: pending where
 * rows are sharded.
 */
#include "operator.h"
#include "sherd/ops_layers.h"

enum { X, WEIGHT, OPERANDS };
enum { Y, RSTD };

typedef struct rms_attributes {
    double eps;
} rms_attributes;

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DY, G_X, G_RSTD, G_WEIGHT, G_OPERANDS };

static bool rms_norm_grad(sherd_call *call)
{
    const sherd_tensor *x = call->in[G_X];

    sherd__kernels_in(call)->rms_norm_grad(
        call->in[G_RSTD]->count, x->shape[x->ndim - 1], call->to[X], call->to[WEIGHT],
        call->from[G_DY], call->from[G_X], call->from[G_WEIGHT], call->from[G_RSTD]);
    return true;
}

static const sherd_op rms_norm_grad_op = {
    .name = "sherd_rms_norm backward",
    .operand = {{"dy", 0}, {"x", 0}, {"rstd", SHERD_OP_ANY}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"dx", 0}, {"dweight", 0}},
    .rule = "...d,...d,...,d->...d,d",
    .whole = "d",
    .forward = rms_norm_grad};

static void rms_norm_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *in[G_OPERANDS] = {grad_out[0], sherd_node_operand(node, X),
                                    sherd_node_result(node, RSTD),
                                    sherd_node_operand(node, WEIGHT)};
    sherd_tensor *grad[OPERANDS];

    sherd_apply_all(grad, &rms_norm_grad_op, in, G_OPERANDS, NULL);
    for (int i = 0; i < OPERANDS; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

/* ---- forward --------------------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const rms_attributes *attributes = call->attributes;

    return attributes->eps >= 0
               ? NULL
               : sherd_call_reason(call, "eps is %g, and must not be negative", attributes->eps);
}

static bool rms_norm(sherd_call *call)
{
    const rms_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X];

    sherd__kernels_in(call)->rms_norm(call->out[RSTD]->count, x->shape[x->ndim - 1], call->to[Y],
                                      call->to[RSTD], call->from[X], call->from[WEIGHT],
                                      attributes->eps);
    return true;
}

#define RMS_NORM_NEEDS \
    (SHERD_NEEDS_OPERAND(X) | SHERD_NEEDS_OPERAND(WEIGHT) | SHERD_NEEDS_RESULT(RSTD))

const sherd_op sherd__rms_norm_op = {
    .name = "sherd_rms_norm",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "x / sqrt(mean of x^2 + eps) * weight over the last dim",
    .operand = {{"x", 0}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}, {"rstd", SHERD_OP_STATISTIC | SHERD_OP_HIDDEN}},
    .field = {SHERD_FIELD(rms_attributes, eps, DOUBLE)},
    .attributes = sizeof(rms_attributes),
    .rule = "...d,d->...d,...",
    .whole = "d",
    .describe = describe,
    .forward = rms_norm,
    .backward = rms_norm_back,
    .needs = {RMS_NORM_NEEDS, RMS_NORM_NEEDS}};

sherd_tensor *sherd_rms_norm(sherd_tensor *x, sherd_tensor *weight, double eps)
{
    return sherd_apply(&sherd__rms_norm_op, (sherd_tensor *[]){x, weight}, OPERANDS,
                       &(rms_attributes){eps});
}
