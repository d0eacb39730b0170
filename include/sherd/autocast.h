/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mixed precision, as torch.autocast. While a 16-bit dtype is set, operators cast their operands to
 * the precision that suits them. Parameters stay f32, and so do their gradients and the optimizer's
 * state; products read 16-bit operands and accumulate in f32.
 *
 *     sherd_dtype before = sherd_set_autocast(world, SHERD_BF16);
 *     loss = loss_of(sherd_module_call(model, x)); // forward
 *     sherd_set_autocast(world, before);
 *     sherd_backward(loss);
 *
 * Each operator belongs to a class (sherd_op.autocast), which says what happens to operands of f32,
 * bf16 and f16. Operands of f64, integers and bool are never cast, and a call with an f64 operand
 * is not affected at all.
 *
 *     SHERD_AUTOCAST_LOW      products: matmul, linear, einsum, convolutions, attention. Operands
 *                             are cast to the 16-bit dtype, and the result has it
 *     SHERD_AUTOCAST_FULL     losses, softmax, norms, sums, means, variances, cumsum, prod: all in
 *                             f32, results too; the norm of a residual sum may be asked for in 16
 *                             bits (sherd_add_layer_norm)
 *     SHERD_AUTOCAST_WIDEST   all others. Operands stay as they are; if they differ, they are
 *                             cast to f32
 *
 * The cast copy of a tensor is made once, and kept until the tensor is written or released: so a
 * parameter is cast once in each step, however often it is used. The gradient of each use is f32,
 * so several uses add up in f32.
 *
 * Differences from torch.autocast("cpu"): norms, softmax and sums run in f32 (as with CUDA; on the
 * CPU PyTorch takes operands as they come); every operator casts operands of different dtypes to
 * f32; cast copies of all tensors are kept, not only of leaves, and also when autocast is switched
 * off; autocast is off inside backward and optimizer steps.
 */
#ifndef SHERD_AUTOCAST_H
#define SHERD_AUTOCAST_H

#include "autograd.h"

SHERD_BEGIN

/**
 * Let operators on this world compute in bf16 or f16 from now on, or, with SHERD_DTYPE_NONE, in the
 * dtype of their operands. Returns the previous setting.
 *
 * All ranks must set the same: otherwise they apply different operators and get EDIFFER.
 *
 * @local   @errors EINVAL any other dtype, by the alarm; then the setting does not change
 */
SHERD_API sherd_dtype sherd_set_autocast(sherd_world *world, sherd_dtype dtype);

/** The dtype that is set; SHERD_DTYPE_NONE if none is, or for a NULL world. @local @errors none */
SHERD_API sherd_dtype sherd_autocast(const sherd_world *world);

SHERD_END

#endif
