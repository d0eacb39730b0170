/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling for f16. Gradients below 6e-8 underflow to 0 in f16, so the loss is multiplied by a
 * factor before backward, and gradients are divided by it when they are used. The factor adapts as
 * in torch.amp.GradScaler: if a gradient is not finite, the step is skipped and the factor reduced;
 * after many good steps in a row it grows.
 *
 *     sherd_scaler scaler = {0}; // kept from step to step
 *     sherd_backward(sherd_scaler_scale(&scaler, loss));
 *     sherd_scaler_step(&scaler, optimizer, rate, 1, &norm);
 *
 * A scaler is a plain value, equal on all ranks, which the program saves with the rest of a run's
 * state. In a step that fails, some ranks may have adapted theirs and others not: so after a failed
 * sherd_world_check give it back the value that it had before the step.
 */
#ifndef SHERD_SCALER_H
#define SHERD_SCALER_H

#include "optimizer.h"

SHERD_BEGIN

/* A member that is zero takes the default in brackets. */
typedef struct sherd_scaler {
    double scale;     /* [65536] the factor */
    double growth;    /* [2] multiplies the factor after `interval` good steps in a row */
    double backoff;   /* [0.5] multiplies the factor after a skipped step, but not below 2^-24 */
    int64_t interval; /* [2000] steps */
    int64_t good;     /* good steps in a row since the factor changed */
    int64_t skipped;  /* skipped steps in all */
} sherd_scaler;

/**
 * The loss times the factor, for backward. Sets members of the scaler that are 0 to their defaults.
 *
 * @collective as sherd_scale
 * @owns       the result belongs to the scope
 * @errors     EINVAL `scaler` NULL, a factor that is negative or not finite, growth below 1,
 *             backoff outside (0, 1], a negative interval; those of sherd_scale
 */
SHERD_API sherd_tensor *sherd_scaler_scale(sherd_scaler *scaler, sherd_tensor *loss);

/**
 * One optimizer step with the gradients of a scaled loss: they are divided by the factor, and
 * clipped to a 2-norm of `most` (0 = not clipped). If a gradient on any rank is infinite or NaN, no
 * rank takes the step. Returns whether the step was taken, the same on all ranks. *norm gets the
 * norm of the divided gradients, before clipping; `norm` may be NULL.
 *
 * @collective the parameters' mesh
 * @numerics   as sherd_optimizer_step with its grad_scale: no further rounding
 * @errors     EINVAL a NULL, a scaler as in sherd_scaler_scale, `most` negative or NaN, a learning
 *             rate as in sherd_optimizer_step, by the alarm of the optimizer's world; EDIFFER;
 *             ENOMEM; EPEER; then false, and *norm is NaN
 */
SHERD_API bool sherd_scaler_step(sherd_scaler *scaler, sherd_optimizer *optimizer,
                                 double learning_rate, double most, double *norm);

/**
 * sherd_scaler_step for several optimizers: the norm of all their gradients decides whether all
 * take the step or none, and the factor is adapted once. To give one of them another learning rate,
 * use a group: {.pattern = "**", .rate = 10}.
 *
 * @collective all->mesh, as sherd_optimizers_grad_norm
 * @numerics   as sherd_optimizer_step with its grad_scale: no further rounding
 * @errors     as sherd_scaler_step and sherd_optimizers_grad_norm, by the alarm of the mesh's world
 */
SHERD_API bool sherd_scaler_step_all(sherd_scaler *scaler, const sherd_optimizers *all,
                                     double learning_rate, double most, double *norm);

SHERD_END

#endif
