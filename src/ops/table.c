/* SPDX-License-Identifier: Apache-2.0 */
/* All operators of the library, in the order of docs/operators.md. */
#include "operator.h"

const sherd_op *const sherd__operators[] = {
    &sherd__add_op,        &sherd__sub_op,         &sherd__mul_op,           &sherd__scale_op,
    &sherd__cast_op,
#define UNARY0(name, NAME, ...) &sherd__unary_ops[SHERD__##NAME],
#define UNARY1(name, NAME, ...) &sherd__unary_ops[SHERD__##NAME],
#define UNARY2(name, NAME, ...) &sherd__unary_ops[SHERD__##NAME],
#define BINARY(name, NAME, ...) &sherd__binary_ops[SHERD__##NAME],
#define COMPARE(name, NAME, ...) \
    &sherd__compare_ops[SHERD__##NAME], &sherd__compare_scalar_ops[SHERD__##NAME],
#define LOGIC(name, NAME, ...) &sherd__compare_ops[SHERD__##NAME],
#include "kernels/functions.inc"
    &sherd__add_scalar_op, &sherd__logical_not_op, &sherd__where_op,         &sherd__masked_fill_op,
    &sherd__matmul_op,     &sherd__linear_op,      &sherd__sum_op,           &sherd__mean_op,
    &sherd__view_op,       &sherd__transpose_op,   &sherd__layer_norm_op,    &sherd__embedding_op,
    &sherd__dropout_op,    &sherd__attention_op,   &sherd__cross_entropy_op, NULL};
