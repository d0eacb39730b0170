/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms of x[batch,channels,dims...] over sets: a channel of the whole batch, or a group's channels
 * of one item. x is never sent, however it is sharded: on items, on channels (even within a group),
 * on other dims. The operators; norms_here.c computes them, and norms_there.c on the GPU.
 */
#include "norms.h"
#include "norms_here.h"
#include "norms_there.h"
#include "sherd/ops_layers.h"

#include <stdio.h>

#include "base/dtype.h"
#include "sherd/ops_elements.h"

enum { X, WEIGHT, BIAS, GIVEN_MEAN, GIVEN_VAR };
enum { Y, MEAN, VAR };

static const sherd__norm_attributes *attributes_of(const sherd_call *call)
{
    return call->attributes;
}

enum { G_DY, G_X, G_MEAN, G_VAR, G_WEIGHT, G_OPERANDS };
enum { G_DX, G_DWEIGHT, G_DBIAS };

/* ---- backward -------------------------------------------------------------------------------- */

static bool differentiate(sherd_call *call, bool fixed)
{
    const sherd__sets p = sherd__sets_of(call->in[G_X], attributes_of(call)->groups);

    if (sherd__norm_fits_there(call, &p, call->in[G_MEAN], call->in[G_VAR], false))
        return sherd__norm_grad_there(call, &p, fixed);
    return sherd__leave_device(call) && sherd__norm_grad_here(call, &p, fixed);
}

static bool norm_grad(sherd_call *call)
{
    return differentiate(call, false);
}

static bool fixed_grad(sherd_call *call)
{
    return differentiate(call, true);
}

static const char letters[] = "abcdefgh";

/* The letters of the moments in rules. */
static const char *moments_label(const sherd_call *call)
{
    return attributes_of(call)->groups ? "ab" : "b";
}

static const char *describe_grad(sherd_call *call)
{
    const char *m = moments_label(call);
    int ndim = call->in[G_X]->ndim;

    snprintf(call->rule, sizeof call->rule, "%.*s,%.*s,%s,%s,b->%.*s,b,b", ndim, letters, ndim,
             letters, m, m, ndim, letters);
    return NULL;
}

#define NORM_ATTRIBUTES                                            \
    .field = {SHERD_FIELD(sherd__norm_attributes, eps, DOUBLE),    \
              SHERD_FIELD(sherd__norm_attributes, groups, INT64)}, \
    .attributes = sizeof(sherd__norm_attributes)

#define NORM_GRADIENT(name_, joined_, forward_)                                                  \
    {                                                                                            \
        .name = name_,                                                                           \
        .operand = {{"dy", 0},                                                                   \
                    {"x", 0},                                                                    \
                    {"mean", SHERD_OP_ANY},                                                      \
                    {"variance", SHERD_OP_ANY},                                                  \
                    {"weight", SHERD_OP_OPTIONAL}},                                              \
        .result = {{"dx", 0}, {"dweight", 0}, {"dbias", 0}}, NORM_ATTRIBUTES, .joined = joined_, \
        .on_device = sherd__fractions_there, .addends = 1u << G_DWEIGHT | 1u << G_DBIAS,         \
        .describe = describe_grad, .forward = forward_, .dry = forward_                          \
    }

/* Letters over which sets reach: items and what is behind channels. */
#define OF_BATCH "acdefgh"
#define OF_ITEM  "cdefgh"

static const sherd_op batch_grad_op =
    NORM_GRADIENT("sherd_batch_norm backward", OF_BATCH, norm_grad);
static const sherd_op group_grad_op =
    NORM_GRADIENT("sherd_group_norm backward", OF_ITEM, norm_grad);
static const sherd_op fixed_grad_op =
    NORM_GRADIENT("sherd_batch_norm backward, fixed", NULL, fixed_grad);

/* One number for each channel, beside x. */
static sherd_tensor *by_channel(sherd_tensor *t, const sherd_tensor *x)
{
    int64_t shape[SHERD_MAX_DIMS];

    for (int d = 1; d < x->ndim; d++)
        shape[d - 1] = d == 1 ? x->shape[1] : 1;
    return sherd_view(sherd_cast(t, sherd__statistics_dtype(x->dtype)), shape, x->ndim - 1);
}

static sherd_tensor *scaled(sherd_tensor *y, sherd_tensor *const *in)
{
    return in[WEIGHT] ? sherd_mul(y, by_channel(in[WEIGHT], in[X])) : y;
}

static sherd_tensor *batch_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    const sherd__norm_attributes *attributes = sherd_node_attributes(node);
    int dims[SHERD_MAX_DIMS], count = 0;

    for (int d = 0; d < in[X]->ndim; d++)
        if (d != 1)
            dims[count++] = d;
    return scaled(sherd__normalised(in[X], dims, count, attributes->eps, true), in);
}

static sherd_tensor *group_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    const sherd__norm_attributes *attributes = sherd_node_attributes(node);
    sherd_tensor *x = in[X];
    int64_t groups[3] = {x->shape[0], attributes->groups, 1};

    groups[2] = x->shape[1] / groups[1];
    for (int d = 2; d < x->ndim; d++)
        groups[2] *= x->shape[d];
    sherd_tensor *y =
        sherd__normalised(sherd_view(x, groups, 3), (int[]){2}, 1, attributes->eps, true);
    return scaled(sherd_view(y, x->shape, x->ndim), in);
}

/* The moments were given: they have no gradient. */
static sherd_tensor *fixed_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    const sherd__norm_attributes *attributes = sherd_node_attributes(node);
    sherd_tensor *mean = by_channel(sherd__saved_constant(node, MEAN), in[X]);
    sherd_tensor *var = by_channel(sherd__saved_constant(node, VAR), in[X]);
    sherd_tensor *x = sherd_cast(in[X], mean->dtype);

    return scaled(
        sherd_mul(sherd_sub(x, mean), sherd_rsqrt(sherd_add_scalar(var, attributes->eps))), in);
}

/* In a backward that is recorded. */
static void back_by_formula(sherd_node *node, sherd__formula formula, sherd_tensor *dy,
                            sherd_tensor **grad_in)
{
    sherd_tensor *of_y[SHERD_MAX_RESULTS] = {dy};

    sherd__differentiate(node, 1u << X | 1u << WEIGHT, formula, of_y, grad_in);
    if (!sherd_node_wants(node, BIAS))
        return;
    grad_in[BIAS] = sherd_cast(sherd__sum_to_channels(dy), sherd__node_dtype(node, BIAS));
}

static void go_back(const sherd_op *op, sherd__formula formula, sherd_node *node, sherd_tensor *dy,
                    sherd_tensor **grad_in)
{
    if (sherd__makes_graph(dy->world)) {
        back_by_formula(node, formula, dy, grad_in);
        return;
    }
    sherd_tensor *in[G_OPERANDS] = {dy, sherd_node_operand(node, X), sherd_node_result(node, MEAN),
                                    sherd_node_result(node, VAR), sherd_node_operand(node, WEIGHT)};
    sherd_tensor *grad[SHERD_MAX_RESULTS];

    sherd_apply_all(grad, op, in, G_OPERANDS, sherd_node_attributes(node));
    for (int i = X; i <= BIAS; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad[i];
}

static void batch_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    go_back(&batch_grad_op, batch_formula, node, grad_out[Y], grad_in);
}

static void group_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    go_back(&group_grad_op, group_formula, node, grad_out[Y], grad_in);
}

static void fixed_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    go_back(&fixed_grad_op, fixed_formula, node, grad_out[Y], grad_in);
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool norm(sherd_call *call)
{
    const sherd__sets p = sherd__sets_of(call->in[X], attributes_of(call)->groups);

    if (sherd__norm_fits_there(call, &p, call->out[MEAN], call->out[VAR], false))
        return sherd__norm_there(call, &p, false);
    return sherd__leave_device(call) && sherd__norm_here(call, &p, false);
}

static bool fixed_norm(sherd_call *call)
{
    const sherd__sets p = sherd__sets_of(call->in[X], attributes_of(call)->groups);

    if (sherd__norm_fits_there(call, &p, call->in[GIVEN_MEAN], call->in[GIVEN_VAR], true))
        return sherd__norm_there(call, &p, true);
    return sherd__leave_device(call) && sherd__norm_here(call, &p, true);
}

static const char *describe(sherd_call *call)
{
    const sherd__norm_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X];
    const char *m = moments_label(call);

    if (x->ndim < 2)
        return "x must have a dim of items and one of channels";
    if (!(attributes->eps >= 0))
        return sherd_call_reason(call, "eps is %g, and must not be negative", attributes->eps);
    if (attributes->groups < 0 || (attributes->groups && x->shape[1] % attributes->groups))
        return sherd_call_reason(call, "%lld channels are not %lld equal groups",
                                 (long long)x->shape[1], (long long)attributes->groups);
    if (call->op == &sherd__group_norm_op && x->shape[0] == 1 &&
        sherd__norm_together(x, attributes->groups) == 1)
        return "a group has one element, of one item: nothing would be left of it";
    snprintf(call->rule, sizeof call->rule, "%.*s,b,b%s->%.*s,%s,%s", x->ndim, letters,
             call->operands > GIVEN_MEAN ? ",b,b" : "", x->ndim, letters, m, m);
    return NULL;
}

#define NORM_NEEDS                                                                     \
    (SHERD_NEEDS_OPERAND(X) | SHERD_NEEDS_OPERAND(WEIGHT) | SHERD_NEEDS_RESULT(MEAN) | \
     SHERD_NEEDS_RESULT(VAR))
#define NORM(name_, joined_, backward_, moments_)                                              \
    .name = name_, .result = {{"y", 0}, {"mean", moments_}, {"variance", moments_}},           \
    NORM_ATTRIBUTES, .autocast = SHERD_AUTOCAST_FULL, .joined = joined_, .describe = describe, \
    .backward = backward_, .on_device = sherd__fractions_there,                                \
    .needs = {NORM_NEEDS, NORM_NEEDS, NORM_NEEDS}
#define NORM_OPERANDS                        \
    {"x", 0}, {"weight", SHERD_OP_OPTIONAL}, \
    {                                        \
        "bias", SHERD_OP_OPTIONAL            \
    }

enum { STATISTIC = SHERD_OP_STATISTIC, HIDDEN = SHERD_OP_STATISTIC | SHERD_OP_HIDDEN };

const sherd_op sherd__group_norm_op = {
    NORM("sherd_group_norm", OF_ITEM, group_back, HIDDEN),
    .summary = "(x - mean) / sqrt(var + eps) * weight + bias over groups of channels of each item",
    .layouts = "x is not moved; ranks that share a group exchange three numbers for it",
    .operand = {NORM_OPERANDS},
    .forward = norm,
    .dry = norm};

const sherd_op sherd__batch_moments_op = {
    NORM("sherd_batch_norm of a batch", OF_BATCH, batch_back, STATISTIC),
    .operand = {NORM_OPERANDS}, .forward = norm, .dry = norm};

const sherd_op sherd__instance_moments_op = {
    NORM("sherd_instance_norm of items", OF_ITEM, group_back, STATISTIC),
    .operand = {NORM_OPERANDS}, .forward = norm, .dry = norm};

const sherd_op sherd__fixed_norm_op = {
    NORM("sherd_batch_norm of given moments", OF_BATCH, fixed_back, HIDDEN),
    .operand = {NORM_OPERANDS, {"mean", SHERD_OP_ANY}, {"variance", SHERD_OP_ANY}},
    .forward = fixed_norm, .dry = fixed_norm};

sherd_tensor *sherd_group_norm(sherd_tensor *x, int64_t groups, sherd_tensor *weight,
                               sherd_tensor *bias, double eps)
{
    return sherd_apply(&sherd__group_norm_op, (sherd_tensor *[]){x, weight, bias}, 3,
                       &(sherd__norm_attributes){eps, groups > 0 ? groups : -1});
}
