/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of optimizers beside the common ones of the tables (kernels.h): one pass over p[n], its
 * state and its gradient, which is of `dtype`; p and state are f32 for the 16-bit dtypes.
 */
#ifndef SHERD__KERNELS_UPDATE_H
#define SHERD__KERNELS_UPDATE_H

#include "kernels.h"

/* n elements of a parameter, its state (NULL = none) and its gradient. */
typedef struct sherd__update_pass {
    sherd_dtype dtype;
    int64_t n;
    void *p, *state[3];
    const void *grad;
} sherd__update_pass;

/* As adamw, but divided by the largest v so far. state: m, v, and that. */
void sherd__update_amsgrad(const sherd__update_pass *a, const sherd__adamw_step *step);

/*
 * g = grad_scale grad + decay p; v = alpha v + (1-alpha) g^2; d = g / (sqrt(v) + eps); m = momentum
 * m + d; p -= rate m, or rate d without a momentum. centered: mean = alpha mean + (1-alpha) g, and
 * v - mean^2, not below 0, in the place of v. state: v, mean if centered, m if there is a momentum.
 */
typedef struct sherd__rmsprop_step {
    double rate, decay, grad_scale;
    double alpha, eps, momentum;
    bool centered;
} sherd__rmsprop_step;
void sherd__update_rmsprop(const sherd__update_pass *a, const sherd__rmsprop_step *step);

/* g as above; sum += more + g^2; p -= rate g / (sqrt(sum) + eps). state: sum. */
typedef struct sherd__adagrad_step {
    double rate, decay, grad_scale;
    double more, eps;
} sherd__adagrad_step;
void sherd__update_adagrad(const sherd__update_pass *a, const sherd__adagrad_step *step);

/* g = grad_scale grad; c = beta1 m + (1-beta1) g; p -= rate (sign(c) + decay p); m = beta2 m +
 * (1-beta2) g. state: m. */
typedef struct sherd__lion_step {
    double rate, decay, grad_scale;
    double beta1, beta2;
} sherd__lion_step;
void sherd__update_lion(const sherd__update_pass *a, const sherd__lion_step *step);

/*
 * g = grad_scale grad + l2 p; m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2) g^2; p = keep p -
 * (by_grad g + by_mean m) / (sqrt(v) root + eps), `plain`: not divided. state: m, v.
 */
typedef struct sherd__mean_step {
    double grad_scale, l2, keep;
    double beta1, beta2, eps, root;
    double by_grad, by_mean;
    bool plain;
} sherd__mean_step;
void sherd__update_mean(const sherd__update_pass *a, const sherd__mean_step *step);

#endif
