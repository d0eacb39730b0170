/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy with options, made of operators: where a backward is recorded, its gradients are
 * those of this. A class without a share adds nothing, even if its logarithm is -inf.
 */
#include "entropy.h"

#include <math.h>

#include "base/dtype.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_losses.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"

enum { LOGITS, TARGETS, WEIGHT };

/* a times factors that broadcast; 0 where these are 0, even if a is -inf. */
static sherd_tensor *counted(sherd_tensor *a, sherd_tensor *factor)
{
    sherd_tensor *none;

    if (!factor)
        return a;
    none = sherd_logical_and(sherd_eq_scalar(a, -(double)INFINITY), sherd_eq_scalar(factor, 0));
    return sherd_mul(sherd_masked_fill(a, none, 0), factor);
}

static sherd_tensor *over_classes(sherd_tensor *log_x, sherd_tensor *weight)
{
    return sherd_neg(sherd_sum_over(counted(log_x, weight), (int[]){-1}, 1, false));
}

static sherd_tensor *picked(sherd_tensor *log_x, sherd_tensor *target, sherd_tensor *weight,
                            const sherd__entropy_attributes *a, sherd_loss_reduction reduction)
{
    return sherd_nll_loss_with(
        log_x, target,
        &(sherd_nll_options){
            .weight = weight, .reduction = reduction, .has_ignored = true, .ignored = a->ignored});
}

/* The part that smoothing gives to all classes alike, of the positions that count. */
static sherd_tensor *smooth(sherd_node *node, sherd_tensor *log_x, sherd_tensor *target,
                            sherd_tensor *weight, bool mean)
{
    const sherd__entropy_attributes *a = sherd_node_attributes(node);
    double classes = (double)log_x->shape[log_x->ndim - 1];
    sherd_tensor *rows =
        sherd_masked_fill(over_classes(log_x, weight), sherd_eq_scalar(target, a->ignored), 0);

    rows = sherd_scale(rows, a->smoothing / classes);
    if (!mean)
        return a->reduction == SHERD_LOSS_NONE ? rows : sherd_sum(rows);
    sherd_tensor *ones = sherd_cast(sherd__zeros_like_operand(node, LOGITS), log_x->dtype);
    ones = sherd_add_scalar(ones, -1);
    return sherd_div(sherd_sum(rows), picked(ones, target, weight, a, SHERD_LOSS_SUM));
}

static sherd_tensor *of_indices(sherd_node *node, sherd_tensor *log_x, sherd_tensor *target,
                                sherd_tensor *weight, bool mean)
{
    const sherd__entropy_attributes *a = sherd_node_attributes(node);
    sherd_loss_reduction reduction = mean ? SHERD_LOSS_MEAN : (sherd_loss_reduction)a->reduction;
    sherd_tensor *y = picked(log_x, target, weight, a, reduction);

    if (a->smoothing == 0)
        return y;
    return sherd_add(sherd_scale(y, 1 - a->smoothing), smooth(node, log_x, target, weight, mean));
}

static sherd_tensor *of_probabilities(const sherd__entropy_attributes *a, sherd_tensor *log_x,
                                      sherd_tensor *share, sherd_tensor *weight)
{
    double classes = (double)log_x->shape[log_x->ndim - 1];

    share = sherd_cast(share, log_x->dtype);
    share = sherd_add_scalar(sherd_scale(share, 1 - a->smoothing), a->smoothing / classes);
    sherd_tensor *rows = over_classes(counted(log_x, share), weight);
    return a->reduction == SHERD_LOSS_NONE ? rows : sherd_sum(rows);
}

sherd_tensor *sherd__entropy_formula(sherd_node *node, sherd_tensor *const *in, bool mean)
{
    sherd_dtype dtype = sherd__statistics_dtype(in[LOGITS]->dtype);
    sherd_tensor *log_x = sherd_log_softmax(sherd_cast(in[LOGITS], dtype), -1);
    /* The weight has no gradient. */
    sherd_tensor *weight = in[WEIGHT] ? sherd_cast(sherd_detach(in[WEIGHT]), dtype) : NULL;

    return in[TARGETS]->dtype == SHERD_I32
               ? of_indices(node, log_x, in[TARGETS], weight, mean)
               : of_probabilities(sherd_node_attributes(node), log_x, in[TARGETS], weight);
}
