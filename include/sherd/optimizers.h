/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More optimizers (optimizer.h): NAdam, RAdam, and Adafactor, whose state is small. Their numbers
 * are those of torch.optim. On GPUs their steps are computed by the CPU.
 */
#ifndef SHERD_OPTIMIZERS_H
#define SHERD_OPTIMIZERS_H

#include "optimizer.h"

SHERD_BEGIN

/* Of NAdam and RAdam. A member that is zero takes the default in brackets. */
typedef struct sherd_nadam_options {
    double beta1;          /* [0.9] */
    double beta2;          /* [0.999] */
    double eps;            /* [1e-8] */
    double momentum_decay; /* [0.004] psi; not of RAdam */
    double weight_decay;   /* [0] */
    bool decoupled;        /* p -= lr decay p, as in AdamW; otherwise g += decay p */
    bool decay_all;        /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_nadam_options;

/**
 * NAdam over all parameters of a module, as they are now (so call sherd_parallelize first): Adam
 * with Nesterov's look ahead.
 *
 * m and v as in sherd_adam_create; mu_t = b1 (1 - 0.5 0.96^(t psi)), and M_t the product of mu_1 to
 * mu_t; p -= lr ((1-mu_t) / (1-M_t) g + mu_(t+1) / (1-M_(t+1)) m) / (sqrt(v/(1-b2^t)) + eps). If
 * betas change between steps (sherd_optimizer_betas), M is that of the new ones.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL momentum_decay negative; otherwise as sherd_adamw_create
 */
SHERD_CALL sherd_status sherd_nadam_create(sherd_optimizer **out, sherd_module *module,
                                           const sherd_nadam_options *options);

/**
 * RAdam over all parameters of a module, as they are now: Adam whose first steps are not divided by
 * a deviation that is not known yet.
 *
 * m and v as in sherd_adam_create; R = 2 / (1-b2) - 1, r = R - 2 t b2^t / (1-b2^t); p -= lr m /
 * (1-b1^t) while r <= 5, then that times sqrt(((r-4) (r-2) R) / ((R-4) r)) sqrt(1-b2^t) /
 * (sqrt(v) + eps).
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors as sherd_nadam_create
 */
SHERD_CALL sherd_status sherd_radam_create(sherd_optimizer **out, sherd_module *module,
                                           const sherd_nadam_options *options);

/* A member that is zero takes the default in brackets. */
typedef struct sherd_adafactor_options {
    double beta2_decay;  /* [-0.8] the newest moments weigh t^beta2_decay; not positive */
    double eps;          /* [2^-23; 2^-52 of f64 parameters] */
    double least_scale;  /* [1e-3] of a parameter */
    double limit;        /* [1] d, of the size of an update */
    double weight_decay; /* [0] */
    bool decay_all;      /* parameters of fewer than two dims decay too */

    const sherd_optimizer_group *groups; /* as in sherd_adamw_options */
    int group_count;
} sherd_adafactor_options;

/**
 * Adafactor over all parameters of a module, as they are now (so call sherd_parallelize first). Of
 * a parameter of two or more dims its state has one number for each row and each column, of the
 * last two dims, in place of two for each element. Usual learning rate: 0.01.
 *
 * rms(x) is the root of the mean of x^2. w = t^beta2_decay; row = (1-w) row + w mean of g^2 over
 * the last dim, col = the same over the dim before; v = row col / max(mean of row, eps); of fewer
 * dims v = (1-w) v + w g^2. u = g / sqrt(max(v, eps^2)); p -= lr decay p; p -= max(least_scale,
 * rms(p)) min(lr, 1/sqrt(t)) / max(1, rms(u) / d) u.
 *
 * Sums over dims that are sharded are settled in one round for all parameters: a step makes three
 * such rounds, of a few bytes beside the parameters.
 *
 * @local
 * @owns   the caller destroys *out, before the module; NULL on failure
 * @errors EINVAL beta2_decay positive, another member negative, parameters on two meshes; a group
 *         as in sherd_adamw_create; ENOMEM
 */
SHERD_CALL sherd_status sherd_adafactor_create(sherd_optimizer **out, sherd_module *module,
                                               const sherd_adafactor_options *options);

SHERD_END

#endif
