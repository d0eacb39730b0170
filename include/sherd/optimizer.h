/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers on sharded parameters. All gradients are settled in one round of communication (one call per group);
 * after that every rank updates only what it holds. State lies as its parameter does.
 *
 * Weight decay is that of matrices: parameters of two dims or more, unless decay_all is set.
 *
 * Of a bf16 or f16 parameter the state and the parameter itself are kept in f32 as well, and the parameter is that copy, rounded;
 * if somebody writes it between steps, the copy is what was written.
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
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */
} sherd_adamw_options;

/**
 * AdamW over all parameters of a module, as they are now (parallelize first).
 *
 * m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; p -= lr (m/(1-b1^t) / (sqrt(v/(1-b2^t)) + eps) + decay p)
 * where t counts the steps in which this parameter had a gradient.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL betas outside of [0, 1), eps or weight_decay negative, parameters on two meshes; ENOMEM
 */
SHERD_CALL sherd_status sherd_adamw_create(sherd_optimizer **out, sherd_module *module,
                                           const sherd_adamw_options *options);

/**
 * Adam over all parameters of a module: as sherd_adamw_create, but the decay is added to the gradient, g + decay p, and so
 * is in m and v.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL betas outside of [0, 1), eps or weight_decay negative, parameters on two meshes; ENOMEM
 */
SHERD_CALL sherd_status sherd_adam_create(sherd_optimizer **out, sherd_module *module,
                                          const sherd_adamw_options *options);

/* All zero = p -= lr g, without state. */
typedef struct sherd_sgd_options {
    double momentum;
    double dampening;
    double weight_decay;
    bool nesterov;
    bool decay_all; /* parameters of fewer than two dims decay too */
} sherd_sgd_options;

/**
 * SGD over all parameters of a module, as they are now (parallelize first).
 *
 * g += decay p; m = momentum m + (1 - dampening) g, but m = g in the first step of this parameter; p -= lr m, or
 * lr (g + momentum m) with nesterov; without momentum p -= lr g.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL momentum outside of [0, 1), dampening outside of [0, 1], weight_decay negative, nesterov without momentum or
 *         with dampening, parameters on two meshes; ENOMEM
 */
SHERD_CALL sherd_status sherd_sgd_create(sherd_optimizer **out, sherd_module *module,
                                         const sherd_sgd_options *options);

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
 * Scale all gradients so that their 2-norm is at most `most`; the norm that they had. Where it is no finite number nothing is
 * scaled. sherd_optimizer_step can do the same without another pass over the gradients: see its grad_scale.
 *
 * @collective the parameters' mesh   @numerics as sherd_optimizer_grad_norm
 * @errors     EINVAL `most` negative; EDIFFER; ENOMEM; EPEER; by the alarm, and NaN
 */
SHERD_API double sherd_optimizer_clip(sherd_optimizer *optimizer, double most);

/**
 * Hold every element of all gradients within [-most, most]. They are settled first: it is sums that are clipped.
 *
 * @collective the parameters' mesh, if gradients are still to be settled
 * @errors     EINVAL `most` negative; EDIFFER; ENOMEM; EPEER; by the alarm
 */
SHERD_API void sherd_optimizer_clip_value(sherd_optimizer *optimizer, double most);

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

/**
 * All tensors of state, to save beside those of the module (sherd_module_state), under names that begin with the parameter's,
 * "blocks.0.attn.wq.weight.m": m and v of Adam and AdamW, momentum of SGD, exact of a parameter of 16 bits (the same in f32), and
 * steps (i64 []: those in which the parameter had a gradient). They lie as the parameter does, steps
 * on all its ranks.
 *
 * @local      may wait until peers have read an exact copy
 * @shapes     out: sherd_named_state[room], or NULL to count only
 * @owns       entries are borrowed, until the optimizer is destroyed
 * @errors     none; returns how many there are, also if `room` is smaller
 */
SHERD_API int sherd_optimizer_state(sherd_optimizer *optimizer, sherd_named_state *out, int room);

/**
 * Give a tensor of state the values of another one, which is moved to where that lies: for a run that is taken up again, on any ranks
 * and layout. Load the module first: whoever writes a parameter of 16 bits afterwards has the exact copy made anew from it.
 *
 * @collective as sherd_module_load
 * @shapes     name: as sherd_state_name writes it; root: as in sherd_module_load
 * @numerics   values are copied bit for bit
 * @owns       `t` is only read
 * @errors     EINVAL no such state, otherwise as sherd_module_load. What was there stays there then
 */
SHERD_CALL sherd_status sherd_optimizer_load(sherd_optimizer *optimizer, const char *name,
                                             sherd_tensor *t, int root);

/*
 * Learning-rate schedules: factors for the rate, functions of the step (from 0) and of nothing else, so that a run that is
 * taken up again goes on as it would have. They multiply:
 * rate = 3e-4 * sherd_schedule_warmup(step, 100) * sherd_schedule_cosine(step, 10000, 0.1).
 */

/** `factor` in the first `steps` steps, then 1. @local @errors none */
SHERD_API double sherd_schedule_constant(int64_t step, int64_t steps, double factor);
/** (step + 1) / steps, at most 1. @local @errors none */
SHERD_API double sherd_schedule_warmup(int64_t step, int64_t steps);
/** From `first` at step 0 in a line to `last` at `steps`, where it stays. @local @errors none */
SHERD_API double sherd_schedule_linear(int64_t step, int64_t steps, double first, double last);
/** From 1 at step 0 in half a cosine to `last` at `steps`, where it stays. @local @errors none */
SHERD_API double sherd_schedule_cosine(int64_t step, int64_t steps, double last);
/** `factor` once more after every `every` steps. @local @errors none; 1 if `every` < 1 */
SHERD_API double sherd_schedule_step(int64_t step, int64_t every, double factor);
/** `factor` to the power of the step. @local @errors none */
SHERD_API double sherd_schedule_exponential(int64_t step, double factor);

SHERD_END

#endif
