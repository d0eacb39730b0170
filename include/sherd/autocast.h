/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision: while a dtype of 16 bits is set, operators bring their operands to the precision that suits them. Parameters stay
 * f32, and so do their gradients and the optimizer's state; products read 16 bits and add up in f32.
 *
 *     sherd_dtype before = sherd_set_autocast(world, SHERD_BF16);
 *     loss = ...forward...
 *     sherd_set_autocast(world, before);
 *     sherd_backward(loss);
 *
 * What is done with operands of f32, bf16 and f16 (those of f64, integers and bool are left alone, and so is a call that has one of f64)
 * is said by each operator (sherd_op.autocast):
 *
 *   SHERD_AUTOCAST_LOW      products: matmul, linear, einsum, convolutions, attention: operands go to the 16-bit dtype, and the result has it
 *   SHERD_AUTOCAST_FULL     losses, softmax, norms, sums, means, variances, cumsum, prod: operands go to f32, and the result has it; a residual sum's norm
 *                           may be asked for in 16 bits (sherd_add_layer_norm), for products to read
 *   SHERD_AUTOCAST_WIDEST   all others: operands stay as they are; where they differ, they go to f32
 *
 * The copy of a tensor is made once and kept until the tensor is written or gone: of a parameter once a step, however often it is used. Its
 * gradient is f32, also that of each use, so uses add up in f32.
 *
 * Against torch.autocast("cpu"): norms, softmax and sums run in f32 (as on its CUDA; its CPU leaves them as operands come); all operators whose
 * operands differ promote; copies of any tensor are kept, not only of leaves, and past the end of the scope; inside of backward and of
 * what optimizers do it is off.
 */
#ifndef SHERD_AUTOCAST_H
#define SHERD_AUTOCAST_H

#include "autograd.h"

SHERD_BEGIN

/**
 * Let operators on this world compute in bf16 or f16 from now on, or (SHERD_DTYPE_NONE) as their operands are; returns what was before.
 *
 * All ranks must set the same: else they apply different operators, and get EDIFFER.
 *
 * @local   @errors EINVAL another dtype, by the alarm; then nothing changes
 */
SHERD_API sherd_dtype sherd_set_autocast(sherd_world *world, sherd_dtype dtype);

/** The dtype that is set; SHERD_DTYPE_NONE = none, and of a world that is NULL. @local @errors none */
SHERD_API sherd_dtype sherd_autocast(const sherd_world *world);

SHERD_END

#endif
