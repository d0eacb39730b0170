/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses, beside sherd_cross_entropy (ops.h) and sherd_cross_entropy_with (ops_layers.h). "See
 * above" means what the head of ops.h says of all operators. Losses are composed of other
 * operators: shapes broadcast, nothing is gathered, and the mean or sum of a sharded tensor is
 * pending. Targets that are not indices may require a gradient.
 *
 * @errors for all: as in ops.h; EINVAL an unknown reduction.
 */
#ifndef SHERD_OPS_LOSSES_H
#define SHERD_OPS_LOSSES_H

#include "ops.h"

SHERD_BEGIN

/* How the losses of the elements are combined. */
typedef enum sherd_loss_reduction {
    SHERD_LOSS_MEAN = 0, /* over all elements; NaN if there are none */
    SHERD_LOSS_SUM = 1,
    SHERD_LOSS_NONE = 2 /* not combined: one loss per element */
} sherd_loss_reduction;

/** (x - target)^2. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mse_loss(sherd_tensor *x, sherd_tensor *target,
                                       sherd_loss_reduction reduction);
/** |x - target|. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_l1_loss(sherd_tensor *x, sherd_tensor *target,
                                      sherd_loss_reduction reduction);

/**
 * With d = |x - target|: d^2 / 2 if d <= delta, else delta (d - delta / 2).
 *
 * @collective see above   @owns scope   @errors see above; EINVAL delta not positive
 */
SHERD_API sherd_tensor *sherd_huber_loss(sherd_tensor *x, sherd_tensor *target, double delta,
                                         sherd_loss_reduction reduction);

/**
 * sherd_huber_loss with delta = beta, divided by beta; with beta 0 it is sherd_l1_loss.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL beta negative
 */
SHERD_API sherd_tensor *sherd_smooth_l1_loss(sherd_tensor *x, sherd_tensor *target, double beta,
                                             sherd_loss_reduction reduction);

/**
 * Binary cross-entropy of logits x: -weight (p target log s(x) + (1 - target) log(1 - s(x))), where
 * s is the sigmoid and p is `positive_weight`, usually one per class. Accurate for logits of any
 * size. Both weights broadcast, and may be NULL = ones.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_bce_with_logits(sherd_tensor *x, sherd_tensor *target,
                                              sherd_tensor *weight, sherd_tensor *positive_weight,
                                              sherd_loss_reduction reduction);

/**
 * The Kullback-Leibler divergence of each element, target (log(target) - log_x), or 0 where target
 * is 0. If `log_target` is set, `target` has the logarithms of the probabilities.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_kl_div(sherd_tensor *log_x, sherd_tensor *target, bool log_target,
                                     sherd_loss_reduction reduction);

/**
 * -log_x[target] for each position: log_x [..., classes], target i32 [...]. If classes are sharded,
 * each rank picks among its own, and the result is a pending sum.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a target outside [0, classes)
 */
SHERD_API sherd_tensor *sherd_nll_loss(sherd_tensor *log_x, sherd_tensor *target,
                                       sherd_loss_reduction reduction);

/* All zero = the mean over all targets that are not -100. */
typedef struct sherd_nll_options {
    sherd_tensor *weight; /* per class, [classes], of the dtype of log_x; NULL = ones */
    sherd_loss_reduction reduction;
    bool has_ignored; /* use `ignored`; otherwise -100 */
    int32_t ignored;  /* a position with this target has no loss and no gradient */
} sherd_nll_options;

/**
 * sherd_nll_loss with options: -weight[target] log_x[target]. The mean is the sum divided by the
 * sum of weight[target] over all targets that are not ignored; NaN if all are. A class of weight 0
 * adds nothing, even if its log_x is -inf (PyTorch: NaN). The weight gets no gradient.
 *
 * @collective see above; with sharded classes the result is a pending sum. The mean settles two
 *             numbers
 * @shapes     options: NULL = all zero
 * @owns       scope
 * @errors     see above; EINVAL a target that is neither in [0, classes) nor ignored, a weight of
 *             another shape or dtype
 */
SHERD_API sherd_tensor *sherd_nll_loss_with(sherd_tensor *log_x, sherd_tensor *target,
                                            const sherd_nll_options *options);

SHERD_END

#endif
