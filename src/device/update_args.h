/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of the kernels of update.cu. */
#ifndef SHERD__UPDATE_ARGS_H
#define SHERD__UPDATE_ARGS_H

/* wide: groups of elements of p, m, v and of the gradient may be read and written at once. */
typedef struct adamw_args {
    void *p, *m, *v;
    const void *grad;
    int64_t n;
    int32_t wide;
    double rate, eps, decay, grad_scale, l2;
    double beta1, rest1, beta2, rest2; /* rest = 1 - beta */
    double correction1, correction2;
} adamw_args;

/* m NULL: none. */
typedef struct sgd_args {
    void *p, *m;
    const void *grad;
    int64_t n;
    int32_t wide, nesterov;
    double rate, decay, grad_scale, keep, add, momentum;
} sgd_args;

#endif
