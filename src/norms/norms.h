/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over sets of channels, for those that keep running averages too. */
#ifndef SHERD__NORMS_NORMS_H
#define SHERD__NORMS_NORMS_H

#include "ops/shared.h"

typedef struct sherd__norm_attributes {
    double eps;
    int64_t groups; /* of channels, of one item each; 0 = each channel, of the whole batch */
} sherd__norm_attributes;

/*
 * Operands x, weight, bias; results y, mean, variance (of all elements of a set: biased), one for
 * each channel.
 */
extern const sherd_op sherd__batch_moments_op;    /* groups = 0; mean [channels] */
extern const sherd_op sherd__instance_moments_op; /* mean [batch,channels] */
/* By moments that are given: operands x, weight, bias, mean, variance [channels], of any dtype. */
extern const sherd_op sherd__fixed_norm_op;

/*
 * For kernels of norms, in f64: zeros; `n` numbers of an operand, or `value` in all if it is
 * absent; and writing back to a result, if it is wanted. NULL: failed.
 */
double *sherd__norm_room(sherd_call *call, int64_t n);
double *sherd__norm_read(sherd_call *call, int operand, int64_t n, double value);
void sherd__norm_write(sherd_call *call, int result, int64_t n, const double *numbers);

/*
 * Chan's formula for [count, mean, sum of squared differences]. A part without elements has no
 * mean.
 */
void sherd__join_moments(double *to, const double *from);

/* How many elements of x one set has. */
double sherd__norm_together(const sherd_tensor *x, int64_t groups);

#endif
