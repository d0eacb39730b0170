/* SPDX-License-Identifier: Apache-2.0 */
/* All operators of the library, in the order of docs/operators.md. */
#include "operator.h"

const sherd_op *const sherd__operators[] = {&sherd__add_op,
                                            &sherd__sub_op,
                                            &sherd__mul_op,
                                            &sherd__scale_op,
                                            &sherd__cast_op,
                                            &sherd__relu_op,
                                            &sherd__gelu_op,
                                            &sherd__matmul_op,
                                            &sherd__linear_op,
                                            &sherd__sum_op,
                                            &sherd__mean_op,
                                            &sherd__view_op,
                                            &sherd__transpose_op,
                                            &sherd__layer_norm_op,
                                            &sherd__embedding_op,
                                            &sherd__dropout_op,
                                            &sherd__attention_op,
                                            &sherd__cross_entropy_op,
                                            &sherd__rms_norm_op,
                                            &sherd__rotary_op,
                                            &sherd__attention_with_op,
                                            &sherd__attention_general_op,
                                            &sherd__cross_entropy_with_op,
                                            &sherd__cross_entropy_mean_op,
                                            NULL};
