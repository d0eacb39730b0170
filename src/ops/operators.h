/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the library's operators, for the list of all of them (table.c) and for each other's backwards. */
#ifndef SHERD__OPERATORS_H
#define SHERD__OPERATORS_H

#include "sherd/op.h"

extern const sherd_op sherd__add_op, sherd__sub_op, sherd__mul_op, sherd__scale_op, sherd__cast_op;
extern const sherd_op sherd__relu_op, sherd__gelu_op;
extern const sherd_op sherd__matmul_op, sherd__linear_op;
extern const sherd_op sherd__sum_op, sherd__mean_op;
extern const sherd_op sherd__view_op, sherd__transpose_op;
extern const sherd_op sherd__layer_norm_op, sherd__embedding_op, sherd__dropout_op,
    sherd__attention_op, sherd__cross_entropy_op;

/* ops_layers.h */
extern const sherd_op sherd__rms_norm_op, sherd__rotary_op, sherd__attention_with_op,
    sherd__attention_general_op;
extern const sherd_op sherd__cross_entropy_with_op, sherd__cross_entropy_mean_op;

#endif
