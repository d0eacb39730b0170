/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling, for f16: gradients smaller than 6e-8 are lost in it, so the loss is multiplied before backward, and gradients are divided
 * again when they are used. The factor finds its own size, as torch.amp.GradScaler's does: a step whose gradients are not all finite
 * is skipped and the factor cut, and after many steps in a row that were good it grows.
 *
 *     sherd_scaler scaler = {0};
 *     sherd_backward(sherd_scaler_scale(&scaler, loss));
 *     sherd_scaler_step(&scaler, optimizer, rate, 1, &norm);
 *
 * It is a plain value, to be kept with the rest of a run's state; all ranks come to the same one.
 */
#ifndef SHERD_SCALER_H
#define SHERD_SCALER_H

#include "optimizer.h"

SHERD_BEGIN

/* Zero = the default in brackets. */
typedef struct sherd_scaler {
    double scale;     /* [65536] */
    double growth;    /* [2] after `interval` good steps */
    double backoff;   /* [0.5] after one that was skipped */
    int64_t interval; /* [2000] */
    int64_t good;     /* steps in a row that were good since the factor changed */
    int64_t skipped;  /* steps, in all */
} sherd_scaler;

/**
 * The loss times the factor, for backward. What was 0 in the scaler gets its default.
 *
 * @collective as sherd_scale   @owns the result belongs to the scope   @errors EINVAL `scaler` NULL, a factor that is negative or not
 * finite, growth below 1, backoff outside of (0, 1], a negative interval; those of sherd_scale
 */
SHERD_API sherd_tensor *sherd_scaler_scale(sherd_scaler *scaler, sherd_tensor *loss);

/**
 * A step of an optimizer with gradients of a scaled loss: they are divided by the factor, and clipped to a 2-norm of `most` (0 =
 * as they are). If one of them is infinite or NaN, on whatever rank, no rank takes the step: false. *norm (may be NULL) is their norm after
 * dividing, before clipping.
 *
 * @collective the parameters' mesh   @numerics as sherd_optimizer_step with its grad_scale: no further rounding
 * @errors     EINVAL a NULL, a scaler as above, `most` negative, by the alarm of the optimizer's world; EDIFFER; ENOMEM; EPEER; then false, and NaN
 */
SHERD_API bool sherd_scaler_step(sherd_scaler *scaler, sherd_optimizer *optimizer,
                                 double learning_rate, double most, double *norm);

SHERD_END

#endif
