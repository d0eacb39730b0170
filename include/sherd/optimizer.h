/* SPDX-License-Identifier: Apache-2.0 */
/*
 * AdamW on sharded parameters. All gradients are settled in one round of communication (one call per group);
 * after that every rank updates only what it holds.
 */
#ifndef SHERD_OPTIMIZER_H
#define SHERD_OPTIMIZER_H

#include "module.h"

SHERD_BEGIN

typedef struct sherd_optimizer sherd_optimizer;

/* Zero = the default in brackets. */
typedef struct sherd_adamw_options {
    double beta1;        /* [0.9] */
    double beta2;        /* [0.999] */
    double eps;          /* [1e-8] */
    double weight_decay; /* [0] on parameters of two dims or more */
} sherd_adamw_options;

/**
 * AdamW over all parameters of a module, as they are now (parallelize first).
 *
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay p)
 * where t counts the steps in which this parameter had a gradient.
 *
 * Of a bf16 or f16 parameter m, v and p itself are kept in f32 (12 bytes an element more), and the parameter is p rounded; if
 * somebody writes it between steps, p is what was written.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL betas outside of [0, 1), eps or weight_decay negative, parameters on two meshes; ENOMEM
 */
SHERD_CALL sherd_status sherd_adamw_create(sherd_optimizer **out, sherd_module *module,
                                           const sherd_adamw_options *options);

/** Free an optimizer; NULL is a no-op. @local @errors none */
SHERD_API void sherd_optimizer_destroy(sherd_optimizer *optimizer);

/**
 * Settle all pending gradients in one round. Called by step and norm if it is still to be done.
 *
 * @collective the parameters' mesh   @errors EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_settle(sherd_optimizer *optimizer);

/**
 * The 2-norm of all gradients, each element counted once, equal on all ranks; NaN after the alarm.
 *
 * @collective the parameters' mesh   @numerics squares are added in f64   @errors EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API double sherd_optimizer_grad_norm(sherd_optimizer *optimizer);

/**
 * One step; gradients are multiplied by `grad_scale` first (1 = as they are; max_norm / norm clips). Parameters
 * without a gradient stay. Gradients are kept; see sherd_optimizer_clear.
 *
 * @collective the parameters' mesh, if gradients are still to be settled
 * @errors     EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_step(sherd_optimizer *optimizer, double learning_rate,
                                    double grad_scale);

/** Forget all gradients. @local @errors none */
SHERD_API void sherd_optimizer_clear(sherd_optimizer *optimizer);

SHERD_END

#endif
