/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses, beside sherd_cross_entropy of ops.h, whose head holds for these too. They are made of other operators, so shapes
 * broadcast, nothing is gathered, and a mean or a sum of what is sharded is pending. Targets may want a gradient.
 *
 * @collective for all: the operands' mesh, if distributed. @owns for all: the result belongs to the scope.
 * @errors for all: as in ops.h; EINVAL no such reduction.
 */
#ifndef SHERD_OPS_LOSSES_H
#define SHERD_OPS_LOSSES_H

#include "ops.h"

SHERD_BEGIN

/* What becomes of the losses of all elements. */
typedef enum sherd_loss_reduction {
    SHERD_LOSS_MEAN = 0, /* of all elements: NaN of none */
    SHERD_LOSS_SUM = 1,
    SHERD_LOSS_NONE = 2 /* each stays */
} sherd_loss_reduction;

/** (x - target)^2. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mse_loss(sherd_tensor *x, sherd_tensor *target,
                                       sherd_loss_reduction reduction);
/** |x - target|. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_l1_loss(sherd_tensor *x, sherd_tensor *target,
                                      sherd_loss_reduction reduction);
/** With d = |x - target|: d^2 / 2 where d <= delta, else delta (d - delta / 2). @collective see above @owns scope @errors see above; EINVAL delta not positive */
SHERD_API sherd_tensor *sherd_huber_loss(sherd_tensor *x, sherd_tensor *target, double delta,
                                         sherd_loss_reduction reduction);
/** sherd_huber_loss with delta = beta, over beta; beta 0 is sherd_l1_loss. @collective see above @owns scope @errors see above; EINVAL beta negative */
SHERD_API sherd_tensor *sherd_smooth_l1_loss(sherd_tensor *x, sherd_tensor *target, double beta,
                                             sherd_loss_reduction reduction);

/**
 * Binary cross-entropy of logits: -(p target log s(x) + (1 - target) log(1 - s(x))), s the sigmoid; times `weight`. No
 * logit is too large for it. `weight` and `positive_weight` (p; usually per class) broadcast, and may be NULL: ones.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_bce_with_logits(sherd_tensor *x, sherd_tensor *target,
                                              sherd_tensor *weight, sherd_tensor *positive_weight,
                                              sherd_loss_reduction reduction);

/** target (log(target) - log_x), 0 where target is 0; with `log_target`, target is a logarithm too. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_kl_div(sherd_tensor *log_x, sherd_tensor *target, bool log_target,
                                     sherd_loss_reduction reduction);

/**
 * -log_x[target]: log_x [..., classes], target i32 [...]. Of sharded classes each rank picks its own: a pending sum.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a target outside of [0, classes)
 */
SHERD_API sherd_tensor *sherd_nll_loss(sherd_tensor *log_x, sherd_tensor *target,
                                       sherd_loss_reduction reduction);

/* All zero = the mean over targets that are not -100. */
typedef struct sherd_nll_options {
    sherd_tensor *weight; /* of classes, [classes], of the dtype of log_x; NULL = ones */
    sherd_loss_reduction reduction;
    bool has_ignored; /* `ignored` is said; else -100 */
    int32_t ignored;  /* a position with this target has no loss and no gradient */
} sherd_nll_options;

/**
 * sherd_nll_loss with options: -weight[target] log_x[target]. The mean is the sum divided by that of the weights of targets
 * that count: NaN if none does. A class of weight 0 adds nothing, also where its logarithm is -inf (PyTorch: NaN). There is no
 * gradient of the weight.
 *
 * @collective see above; sharded classes give a pending sum. The mean settles two numbers, of which the second has no gradient
 * @shapes     options: NULL = all zero
 * @owns       scope
 * @errors     see above; EINVAL a target that is neither in [0, classes) nor ignored, a weight of another shape or dtype
 */
SHERD_API sherd_tensor *sherd_nll_loss_with(sherd_tensor *log_x, sherd_tensor *target,
                                            const sherd_nll_options *options);

SHERD_END

#endif
