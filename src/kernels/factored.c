/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of factored.h, each once in f32 and once in f64. Two passes over the gradient find the
 * moments and the size of the update, one more changes the parameter. */
#include "factored.h"

#include <math.h>
#include <stddef.h>

#define NAME(x) x##_f32
#define REAL    float
#define SQRT(x) sqrtf(x)
#include "factored_body.inc"

#define NAME(x) x##_f64
#define REAL    double
#define SQRT(x) sqrt(x)
#include "factored_body.inc"

void sherd__factored_sums(const sherd__factored *f, double *row, double *col)
{
    if (f->dtype == SHERD_F64)
        sums_f64(f, row, col);
    else
        sums_f32(f, row, col);
}

void sherd__factored_average(sherd_dtype dtype, int64_t n, void *moment, const double *sum,
                             double factor, double weight)
{
    if (dtype == SHERD_F64)
        average_f64(n, moment, sum, factor, weight);
    else
        average_f32(n, moment, sum, factor, weight);
}

void sherd__factored_means(sherd_dtype dtype, int64_t outer, int64_t m, double *sum,
                           const void *row, double factor)
{
    if (dtype == SHERD_F64)
        means_f64(outer, m, sum, row, factor);
    else
        means_f32(outer, m, sum, row, factor);
}

double sherd__factored_squares(sherd_dtype dtype, int64_t n, const void *x)
{
    return dtype == SHERD_F64 ? squares_f64(n, x) : squares_f32(n, x);
}

double sherd__factored_size(const sherd__factored *f)
{
    return f->dtype == SHERD_F64 ? size_f64(f) : size_f32(f);
}

void sherd__factored_update(const sherd__factored *f, void *p, double keep, double rate)
{
    if (f->dtype == SHERD_F64)
        update_f64(f, p, keep, rate);
    else
        update_f32(f, p, keep, rate);
}
