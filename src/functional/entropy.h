/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy with options: its attributes, and its formula for backwards that are recorded. */
#ifndef SHERD__FUNCTIONAL_ENTROPY_H
#define SHERD__FUNCTIONAL_ENTROPY_H

#include "kernels/layers.h"
#include "ops/shared.h"

typedef struct sherd__entropy_attributes {
    int reduction;
    int ignored;
    double smoothing;
} sherd__entropy_attributes;

/* Operands and results; backward's operands. */
enum { SHERD__LOGITS, SHERD__TARGETS, SHERD__WEIGHT };
enum { SHERD__LOSS, SHERD__SUMS, SHERD__AMOUNT, SHERD__COUNTED };
enum {
    SHERD__G_DY,
    SHERD__G_COUNTED,
    SHERD__G_LOGITS,
    SHERD__G_TARGETS,
    SHERD__G_WEIGHT,
    SHERD__G_SUMS,
    SHERD__G_AMOUNT
};

/* Targets are classes, or probabilities of all classes. */
static inline bool sherd__are_classes(const sherd_tensor *targets)
{
    return targets->dtype == SHERD_I32;
}

/*
 * This rank's part of the problem; operands `logits`, then targets and weight, which may be absent.
 */
sherd__entropy sherd__entropy_of(const sherd_call *call, int logits);

/*
 * Two numbers in f64, to be added over all positions of sharded logits: a tensor to be filled, and
 * the layout that it then is moved to; in the GPU's memory if `there`. Failed: failed.
 */
sherd_tensor *sherd__entropy_pair(sherd_call *call, const sherd_layout **whole, bool there);

/* Forward and backward on the GPU (entropy_there.c). False: failed. */
bool sherd__entropy_there(sherd_call *call, const sherd__entropy *e);
bool sherd__entropy_mean_there(sherd_call *call, const sherd__entropy *e);
bool sherd__entropy_grad_there(sherd_call *call, bool of_targets);

/* Of a node whose operands are logits, targets and, if any, the weight. */
sherd_tensor *sherd__entropy_formula(sherd_node *node, sherd_tensor *const *in, bool mean);

#endif
