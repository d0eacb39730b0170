/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling for f16. Gradients smaller than 6e-8 underflow to 0 in f16, so the loss is
 * multiplied by a factor before backward, and gradients are divided by it again when they are used.
 * The factor adapts as in torch.amp.GradScaler: a step with a gradient that is not finite is
 * skipped and the factor reduced; after many good steps in a row it grows.
 *
 *     sherd_scaler scaler = {0};
 *     sherd_backward(sherd_scaler_scale(&scaler, loss));
 *     sherd_scaler_step(&scaler, optimizer, rate, 1, &norm);
 *
 * It is a plain value, to be saved with the rest of a run's state; it is equal on all ranks.
 */
#ifndef SHERD_SCALER_H
#define SHERD_SCALER_H

#include "optimizer.h"

SHERD_BEGIN

/* A zero member takes the default in brackets. */
typedef struct sherd_scaler {
    double scale;     /* [65536] */
    double growth;    /* [2] multiplies the factor after `interval` good steps in a row */
    double backoff;   /* [0.5] multiplies it after a skipped step, but to no less than 2^-24 */
    int64_t interval; /* [2000] */
    int64_t good;     /* good steps in a row since the factor changed */
    int64_t skipped;  /* skipped steps in all */
} sherd_scaler;

/**
 * The loss times the factor, for backward. Members of the scaler that are 0 get their defaults.
 *
 * @collective as sherd_scale
 * @owns       the result belongs to the scope
 * @errors     EINVAL `scaler` NULL, a factor that is negative or not finite, growth below 1,
 *             backoff outside (0, 1], a negative interval; those of sherd_scale
 */
SHERD_API sherd_tensor *sherd_scaler_scale(sherd_scaler *scaler, sherd_tensor *loss);

/**
 * One optimizer step with the gradients of a scaled loss: they are divided by the factor and
 * clipped to a 2-norm of `most` (0 = not clipped). If a gradient is infinite or NaN on any rank, no
 * rank takes the step, and all return false. *norm (may be NULL) gets their norm after dividing,
 * before clipping.
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
 * The same for several optimizers: one norm of all their gradients says whether all take the step
 * or none, and the factor is adapted once. A rate of its own for one of them is that of a group:
 * {.pattern = "**", .rate = 10}.
 *
 * @collective all->mesh, as sherd_optimizers_grad_norm
 * @numerics   as sherd_optimizer_step with its grad_scale: no further rounding
 * @errors     as sherd_scaler_step and sherd_optimizers_grad_norm, by the alarm of the mesh's world
 */
SHERD_API bool sherd_scaler_step_all(sherd_scaler *scaler, const sherd_optimizers *all,
                                     double learning_rate, double most, double *norm);

SHERD_END

#endif
