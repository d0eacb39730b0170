/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers beside the uniform and normal ones of the tables (kernels.h), in f64: out[i] is a
 * function of the key and of first + i alone. Whoever wants another dtype rounds them once.
 */
#ifndef SHERD__KERNELS_DRAW_H
#define SHERD__KERNELS_DRAW_H

#include "base/philox.h"

/* low + j, j in [0, count), each as likely as the others to 2^-32; count <= 2^32. */
void sherd__draw_integers(int64_t n, double *out, double low, double count, sherd__key key,
                          int64_t first);

/* 1 with probability p (to 2^-32), else 0. */
void sherd__draw_bernoulli(int64_t n, double *out, double p, sherd__key key, int64_t first);

/* Normal numbers as they are within [low, high]: the inverse of their distribution, to 1e-15. */
void sherd__draw_truncated(int64_t n, double *out, const double mean_deviation[2], double low,
                           double high, sherd__key key, int64_t first);

/* x such that a normal number is below it with probability p in (0,1). */
double sherd__normal_quantile(double p);

#endif
