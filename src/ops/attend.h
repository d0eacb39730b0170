/* SPDX-License-Identifier: Apache-2.0 */
/* Attention with what the fast kernel can not do: masks, shared heads, dropout, gradients of the logarithms of sums. */
#ifndef SHERD__ATTEND_H
#define SHERD__ATTEND_H

#include "operator.h"

/* Whether these options, or fewer heads of k and v, need it. */
bool sherd__attend_is_general(const sherd_tensor *q, const sherd_tensor *k, const sherd_tensor *v,
                              const sherd_attention_options *options);

/* out[2]: the result and the logarithms of sums. False: failed. */
bool sherd__attend(sherd_tensor *out[2], sherd_tensor *q, sherd_tensor *k, sherd_tensor *v,
                   const sherd_attention_options *options, double scale);

/* The backward of an operator whose operands are q, k, v, and whose results are these two. */
void sherd__attend_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                        double scale, bool causal);

#endif
