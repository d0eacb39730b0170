/* SPDX-License-Identifier: Apache-2.0 */
/* Cross-entropy with options: its attributes, and its formula for backwards that are recorded. */
#ifndef SHERD__ENTROPY_H
#define SHERD__ENTROPY_H

#include "operator.h"

typedef struct sherd__entropy_attributes {
    int reduction;
    int ignored;
    double smoothing;
} sherd__entropy_attributes;

/* Of a node whose operands are logits, targets and, if any, the weight. */
sherd_tensor *sherd__entropy_formula(sherd_node *node, sherd_tensor *const *in, bool mean);

#endif
