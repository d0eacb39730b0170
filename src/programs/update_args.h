/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arguments of the kernels of update.cu: lists of tensors that one launch goes through. Blocks
 * take chunks of them; `first` is a tensor's first block, `wide`: its groups of elements may be
 * read and written at once. All of a list is an argument of the launch, of 4 KiB at most.
 */
#ifndef SHERD__PROGRAMS_UPDATE_ARGS_H
#define SHERD__PROGRAMS_UPDATE_ARGS_H

enum {
    UPDATE_THREADS = 256,
    UPDATE_CHUNK = 4096, /* elements that a block takes */
    UPDATE_MOST = 48,    /* tensors of a launch */
    SQUARES_CHUNK = 16384,
    SQUARES_MOST = 128
};

/* rate and root have the corrections in them: m's, and 1 / the root of v's. */
typedef struct adamw_item {
    void *p, *m, *v;
    const void *grad;
    int64_t n;
    double rate, root, shrink, l2;
    int32_t first, wide;
} adamw_item;

typedef struct adamw_args {
    int32_t count;
    double eps, grad_scale;
    double beta1, rest1, beta2, rest2; /* rest = 1 - beta */
    adamw_item item[UPDATE_MOST];
} adamw_args;

/* m NULL: none. */
typedef struct sgd_args {
    void *p, *m;
    const void *grad;
    int64_t n;
    int32_t wide, nesterov;
    double rate, decay, grad_scale, keep, add, momentum;
} sgd_args;

typedef struct squares_item {
    const void *src;
    int64_t n;
    int32_t first, wide;
} squares_item;

/* sums[blocks]: of the squares of a chunk each. */
typedef struct squares_args {
    int32_t count;
    double *sums;
    squares_item item[SQUARES_MOST];
} squares_args;

#endif
