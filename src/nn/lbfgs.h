/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of L-BFGS: all parameters as one vector (lbfgs_vector.c), and the steps (lbfgs.c). A
 * rank has the elements of the vector that it holds, as f64; those that it counts
 * (sherd__counts_here) come first, so inner products are sums over them.
 */
#ifndef SHERD__NN_LBFGS_H
#define SHERD__NN_LBFGS_H

#include "nn/numbers.h"
#include "nn/optimizer.h"
#include "sherd/lbfgs.h"

/* A change of the parameters, and that of the gradient. */
typedef struct sherd__lbfgs_pair {
    double *s, *y, inverse; /* 1 / (s y) */
} sherd__lbfgs_pair;

struct sherd_lbfgs {
    sherd_world *world;
    sherd_optimizer *all; /* lists and settles; takes no steps */
    sherd_lbfgs_options with;
    int64_t *at;        /* [all->count] where each parameter begins in a vector */
    int64_t n, counted; /* elements; those that this rank counts are the first */
    /* Vectors, in one allocation, which is x: the parameters before a step; the gradient that was
     * asked for last, that of the best point, and that before the step; the direction. After a step
     * `room` and `old` are the changes that it has made, of parameters and gradient. */
    double *x, *g, *best, *old, *way, *room;
    sherd__lbfgs_pair *pair; /* [history] a ring; the oldest is `first` */
    double *share;           /* [history] of each pair in the direction */
    double *exchanged;       /* [ranks NUMBERS] */
    int pairs, first;
    double scale; /* the first guess of the inverse of second derivatives */
    bool begun;   /* a step has been taken since the history was empty */
    bool running;
    uint64_t checks; /* failed ones, when it ran last */
};

extern const char sherd__lbfgs_create_name[], sherd__lbfgs_step_name[];

/* Where each parameter lies in a vector. EINVAL a parameter that it can not take. */
sherd_status sherd__lbfgs_lay_out(sherd_lbfgs *l);

/* numbers[count] of each rank into l->exchanged; false: the alarm is raised. */
bool sherd__lbfgs_exchange(sherd_lbfgs *l, const double *numbers, int count);
int64_t sherd__lbfgs_ranks(const sherd_lbfgs *l);

/* A sum over the elements that this rank counts. */
double sherd__lbfgs_dot_here(const sherd_lbfgs *l, const double *a, const double *b);
/* Inner products of whole vectors: out[i] = a[i] b[i]. False: the alarm is raised. */
bool sherd__lbfgs_dots(sherd_lbfgs *l, int count, const double *const *a, const double *const *b,
                       double *out);
/* The largest element of all ranks, by size. False: the alarm is raised. */
bool sherd__lbfgs_largest(sherd_lbfgs *l, const double *a, double *out);

/* False: ended by the alarm. Parameters without a gradient stay as they are: it is zero. */
bool sherd__lbfgs_load_parameters(const sherd_lbfgs *l, double *to);
bool sherd__lbfgs_load_gradients(const sherd_lbfgs *l, double *to);
/* The parameters become x + t way. False: ended by the alarm. */
bool sherd__lbfgs_go_to(sherd_lbfgs *l, double t);

#endif
