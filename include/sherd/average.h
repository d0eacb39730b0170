/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The average of a module over its training, by which it is evaluated, or samples are drawn: an
 * exponential moving average (EMA; PyTorch: swa_utils.AveragedModel with get_ema_multi_avg_fn), or
 * the mean of some states (SWA). The average is a module of its own, made by the same functions as
 * the one that is trained. So it is called, made parallel, written and read as any module:
 *
 *     if (sherd_module_require_grad(average, "**", false) == 0) // no optimizer, no gradients
 *         return 1;
 *     sherd_module_average(average, model, 1); // begins as a copy
 *     for (int i = 0; i < 1000; i++) {
 *         sherd_backward(loss_of(sherd_module_call(model, x)));
 *         sherd_optimizer_step(optimizer, rate, 1);
 *         sherd_module_average(average, model, 1 - 0.9999);
 *     }
 *
 * For the mean of states i = 0, 1, .. pass the weight 1 / (i + 1). Average in f32 what is trained
 * in 16 bits (sherd_module_cast): in these, small steps are lost.
 */
#ifndef SHERD_AVERAGE_H
#define SHERD_AVERAGE_H

#include "module.h"

SHERD_BEGIN

/**
 * Move the parameters of a module towards those of another: a += weight (m - a), where a is a
 * parameter of `average`, and m the one with the same name of `module`. Buffers are copied. With
 * the weight 1 parameters are copied too.
 *
 * Nothing is recorded, and gradients do not change. Parameters may lie in other layouts than those
 * of `average`, or have another floating-point dtype; they are moved and cast then.
 *
 * @collective the parameters' mesh, only where layouts differ; blocks until other ranks have
 *             finished reading what is written. All ranks pass the same weight
 * @numerics   in the dtype of `average`, one rounding for each operation; in 16 bits three, so pass
 *             an average in f32. With the weight 1 bit for bit
 * @owns       the parameters of `average` stay the same tensors; for a while each rank has memory
 *             for its part of the largest one
 * @errors     EINVAL a NULL, `module` is `average`, they have other names or shapes (the text has
 *             the first that differs), a weight outside [0, 1], a buffer of another dtype without
 *             fractions, parameters on two meshes or distributed in only one of both, a module of
 *             another world, one that is being called: then nothing is written; EDIFFER; ENOMEM;
 *             EPEER: then some may be written; all by the alarm
 */
SHERD_API void sherd_module_average(sherd_module *average, sherd_module *module, double weight);

SHERD_END

#endif
