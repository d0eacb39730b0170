/* SPDX-License-Identifier: Apache-2.0 */
/* The values of the library's operators, for the list of all of them (table.c) and for each other's backwards. */
#ifndef SHERD__OPERATORS_H
#define SHERD__OPERATORS_H

#include "sherd/op.h"

extern const sherd_op sherd__add_op, sherd__sub_op, sherd__mul_op, sherd__scale_op, sherd__cast_op;
extern const sherd_op sherd__relu_op, sherd__gelu_op;
extern const sherd_op sherd__matmul_op, sherd__linear_op;
extern const sherd_op sherd__sum_op, sherd__mean_op;
extern const sherd_op sherd__view_op;
extern const sherd_op sherd__flatten_op, sherd__unflatten_op, sherd__transpose_op,
    sherd__permute_op, sherd__squeeze_op, sherd__unsqueeze_op, sherd__expand_op, sherd__detach_op,
    sherd__contiguous_op, sherd__clone_op;
extern const sherd_op sherd__slice_op, sherd__narrow_op, sherd__select_op, sherd__pad_op,
    sherd__cat_op, sherd__stack_op, sherd__flip_op, sherd__roll_op, sherd__repeat_op;
extern const sherd_op sherd__index_select_op, sherd__gather_op, sherd__scatter_op,
    sherd__scatter_add_op, sherd__sort_op, sherd__topk_op, sherd__cumsum_op, sherd__tril_op,
    sherd__triu_op;
extern const sherd_op sherd__layer_norm_op, sherd__embedding_op, sherd__dropout_op,
    sherd__attention_op, sherd__cross_entropy_op;

#endif
