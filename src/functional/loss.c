/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy over classes that may be sharded. Each rank reduces its classes to three numbers a
 * position (maximum, sum of exponentials, the target's logit); only these are exchanged, and every
 * rank combines them in rank order. Backward has the maximum and the sum over all classes apart: in
 * one logarithm the sum would be lost beside a large maximum. The loss is pending over the axes
 * that shard positions and equal over those that shard classes.
 */
#include "stats.h"

#include <math.h>

#include "base/num.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_reductions.h"

enum { LOGITS, TARGETS };
enum { LOSS, SUMS };

/* Number of positions in all, at least 1. */
static double positions(const sherd_tensor *targets)
{
    return (double)sherd__max(sherd_tensor_count(targets), 1);
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DY, G_LOGITS, G_TARGETS, G_SUMS, G_OPERANDS };

static bool differentiate(sherd_call *call)
{
    const sherd_tensor *out = call->out[0], *targets = call->in[G_TARGETS];
    int last = out->ndim - 1;
    sherd__device *device = sherd__device_in(call);
    double dy;

    if (device && out->count)
        sherd__device_cross_entropy_grad(device, out->dtype, targets->count, out->local[last],
                                         call->to[0], call->from[G_LOGITS], call->from[G_TARGETS],
                                         sherd_tensor_box(out).offset[last], call->from[G_SUMS],
                                         call->from[G_DY], 1 / positions(targets));
    if (device)
        return true;
    if (!sherd__scalar_value(call->in[G_DY], &dy))
        return false;
    if (out->count)
        sherd__kernels_in(call)->cross_entropy_grad(targets->count, out->local[last], call->to[0],
                                                    call->from[G_LOGITS], call->from[G_TARGETS],
                                                    sherd_tensor_box(out).offset[last],
                                                    call->from[G_SUMS], dy / positions(targets));
    return true;
}

static const sherd_op cross_entropy_grad_op = {
    .name = "sherd_cross_entropy backward",
    .operand = {{"dy", 0}, {"logits", 0}, {"targets", SHERD_OP_INDEX}, {"sums", SHERD_OP_ANY}},
    .result = {{"dlogits", 0}},
    .rule = ",...c,...,...m->...c",
    .whole = "m",
    .forward = differentiate,
    .on_device = sherd__fractions_there};

/* For a backward that is recorded. */
static sherd_tensor *formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    (void)node;
    sherd_tensor *x = sherd_cast(in[LOGITS], sherd__statistics_dtype(in[LOGITS]->dtype));
    return sherd_nll_loss(sherd_log_softmax(x, -1), in[TARGETS], SHERD_LOSS_MEAN);
}

static void cross_entropy_back(sherd_node *node, sherd_tensor *const *grad_out,
                               sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1u << LOGITS | 1u << TARGETS, formula, grad_out, grad_in);
        return;
    }
    sherd_tensor *in[G_OPERANDS] = {grad_out[0], sherd_node_operand(node, LOGITS),
                                    sherd_node_operand(node, TARGETS),
                                    sherd_node_result(node, SUMS)};

    grad_in[LOGITS] = sherd_apply(&cross_entropy_grad_op, in, G_OPERANDS, NULL);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* On the GPU; where classes are sharded, what ranks exchange goes from one to the other. */
static bool cross_entropy_there(sherd_call *call, sherd__device *device)
{
    sherd_tensor *logits = call->in[LOGITS], *targets = call->in[TARGETS];
    int last = logits->ndim - 1;
    sherd_dtype dtype = logits->dtype;

    sherd_tensor *stats = sherd__new_stats(call, 3, targets->count, true);
    if (sherd_tensor_failed(stats))
        return false;
    sherd__device_cross_entropy(device, dtype, targets->count, logits->local[last],
                                sherd__device_fresh(stats), call->from[LOGITS], call->from[TARGETS],
                                sherd_tensor_box(logits).offset[last]);
    sherd_tensor *all = sherd__gather_stats(stats, logits->layout);
    const void *data = sherd_tensor_failed(all) ? NULL : sherd__device_data(all);
    if (!data)
        return false;
    if (call->out[LOSS]->count)
        sherd__device_cross_entropy_join(device, dtype, sherd__stats_parts(all, logits->layout),
                                         targets->count, call->to[LOSS], call->to[SUMS], data,
                                         sherd_tensor_count(targets) == 0 ? (double)NAN
                                                                          : 1 / positions(targets));
    return true;
}

/* Compute stats, exchange them, combine them. */
static bool cross_entropy(sherd_call *call)
{
    const sherd__kernels *kernels = sherd__kernels_in(call);
    sherd_tensor *logits = call->in[LOGITS], *targets = call->in[TARGETS];
    int last = logits->ndim - 1;
    int64_t rows = targets->count, first = sherd_tensor_box(logits).offset[last];

    if (!sherd__check_indices(call, TARGETS, logits->shape[last]))
        return false;
    if (sherd__device_in(call))
        return cross_entropy_there(call, sherd__device_in(call));
    sherd_tensor *stats = sherd__new_stats(call, 3, rows, false);
    if (sherd_tensor_failed(stats))
        return false;
    bool dry = sherd__is_dry(call->world);
    if (!dry)
        kernels->cross_entropy(rows, logits->local[last], sherd__fresh(stats), call->from[LOGITS],
                               call->from[TARGETS], first);
    sherd_tensor *all = sherd__gather_stats(stats, logits->layout);
    const void *data = sherd_tensor_failed(all) ? NULL : sherd__data(all);
    if (!data)
        return false;
    if (call->out[LOSS]->count == 0 || dry)
        return true;
    double sum = kernels->cross_entropy_join(sherd__stats_parts(all, logits->layout), rows,
                                             call->to[SUMS], data);
    bool empty = sherd_tensor_count(targets) == 0;
    kernels->fill(call->to[LOSS], 1, empty ? (double)NAN : sum / positions(targets));
    return true;
}

static const char *describe(sherd_call *call)
{
    int last = call->in[LOGITS]->ndim - 1;

    if (last != call->in[TARGETS]->ndim || last + 1 >= SHERD_MAX_DIMS)
        return "logits must have the dims of targets and one for the classes";
    call->dtype[SUMS] = SHERD_F64;
    call->shape[SUMS][last] = 2;
    return NULL;
}

const sherd_op sherd__cross_entropy_op = {.name = "sherd_cross_entropy",
                                          .autocast = SHERD_AUTOCAST_FULL,
                                          .summary = "mean of -log softmax(logits)[target]",
                                          .operand = {{"logits", 0}, {"targets", SHERD_OP_INDEX}},
                                          .result = {{"loss", 0}, {"sums", SHERD_OP_HIDDEN}},
                                          .rule = "...c,...->,...m",
                                          .joined = "c",
                                          .describe = describe,
                                          .forward = cross_entropy,
                                          .dry = cross_entropy,
                                          .on_device = sherd__fractions_there,
                                          .backward = cross_entropy_back,
                                          .needs = {[LOGITS] = SHERD_NEEDS_OPERAND(LOGITS) |
                                                               SHERD_NEEDS_OPERAND(TARGETS) |
                                                               SHERD_NEEDS_RESULT(SUMS)}};

sherd_tensor *sherd_cross_entropy(sherd_tensor *logits, sherd_tensor *targets)
{
    return sherd_apply(&sherd__cross_entropy_op, (sherd_tensor *[]){logits, targets}, 2, NULL);
}
