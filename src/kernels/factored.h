/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Steps of Adafactor: of matrices [outer, m, n] whose second moments are a product of those of rows
 * and of columns; or of a vector, [1, 1, n], whose moments are `col` and which has no rows.
 * Gradient, parameter and moments are of one dtype, f32 or f64; sums are f64.
 */
#ifndef SHERD__KERNELS_FACTORED_H
#define SHERD__KERNELS_FACTORED_H

#include "sherd/dtype.h"

#include <stdint.h>

typedef struct sherd__factored {
    sherd_dtype dtype;
    int64_t outer, m, n;
    const void *grad;
    double scale;             /* of the gradient */
    const void *row, *col;    /* [outer, m], NULL for a vector; [outer, n] */
    const double *mean;       /* [outer]: of row, 0 or more; NULL for a vector */
    double least_mean, least; /* limits of the mean, and of a moment */
} sherd__factored;

/* row[outer, m] and col[outer, n]: sums of the squares of what is scaled; row may be NULL. */
void sherd__factored_sums(const sherd__factored *f, double *row, double *col);

/* moment[n] = (1 - weight) moment + weight factor sum. */
void sherd__factored_average(sherd_dtype dtype, int64_t n, void *moment, const double *sum,
                             double factor, double weight);

/* sum[outer] of row[outer, m], times a factor. */
void sherd__factored_means(sherd_dtype dtype, int64_t outer, int64_t m, double *sum,
                           const void *row, double factor);

/* The sum of squares of n elements. */
double sherd__factored_squares(sherd_dtype dtype, int64_t n, const void *x);

/* The sum of squares of the update, gradient / sqrt(moment); and p = keep p - rate update. */
double sherd__factored_size(const sherd__factored *f);
void sherd__factored_update(const sherd__factored *f, void *p, double keep, double rate);

#endif
