/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors that count, and distributions for parameters. Each element is a function of its global index, so a distributed one
 * is made where it lies: nothing travels, and it is equal under every layout and rank count.
 */
#ifndef SHERD_VALUES_H
#define SHERD_VALUES_H

#include "tensor.h"

SHERD_BEGIN

/* ---- counting ------------------------------------------------------------------------------- */

/**
 * start, start + step, ... below end (above it, where step < 0), as a plain tensor of one dim; it does not vary.
 *
 * @local
 * @numerics start + i step in f64, rounded once; exact for integers
 * @owns     the result belongs to the scope
 * @errors   EINVAL a step that leads away from end, numbers that an integer dtype does not hold, bool; ELIMIT; ENOMEM. NULL
 *           for a NULL world
 */
SHERD_API sherd_tensor *sherd_arange(sherd_world *world, sherd_dtype dtype, double start,
                                     double end, double step);

/** The same on a layout of one dim, whose size says how many. @local @owns scope @errors as sherd_arange; EINVAL a layout of other than one dim, a pending reduction. NULL for a NULL layout */
SHERD_API sherd_tensor *sherd_arange_on(const sherd_layout *layout, sherd_dtype dtype, double start,
                                        double step);

/** `count` numbers from start to end, both there, evenly apart; a plain tensor that does not vary. @local @owns scope @errors EINVAL a dtype without fractions, count < 0; ELIMIT; ENOMEM. NULL for a NULL world */
SHERD_API sherd_tensor *sherd_linspace(sherd_world *world, sherd_dtype dtype, double start,
                                       double end, int64_t count);

/** The same on a layout of one dim, whose size says how many. @local @owns scope @errors as sherd_linspace and sherd_arange_on. NULL for a NULL layout */
SHERD_API sherd_tensor *sherd_linspace_on(const sherd_layout *layout, sherd_dtype dtype,
                                          double start, double end);

/** Ones where row and column have one number, else zeroes: [rows, columns]; a plain tensor that does not vary. @local @owns scope @errors EINVAL a negative size, no dtype; ELIMIT; ENOMEM. NULL for a NULL world */
SHERD_API sherd_tensor *sherd_eye(sherd_world *world, sherd_dtype dtype, int64_t rows,
                                  int64_t columns);

/** The same on a layout of two dims. @local @owns scope @errors as sherd_eye; EINVAL a layout of other than two dims, a pending reduction. NULL for a NULL layout */
SHERD_API sherd_tensor *sherd_eye_on(const sherd_layout *layout, sherd_dtype dtype);

/* ---- distributions for weights -------------------------------------------------------------- */

/*
 * For a weight of this global shape [out, in, ...]: fan in is in times the sizes behind it, fan out likewise. `gain` is 1 for
 * no activation, sqrt(2) for relu. Fewer than two dims, or no shape: sherd_random refuses what is returned.
 */

/** Uniform in [-b, b), b = gain sqrt(6 / (fan in + fan out)). @local @shapes shape: int64_t[ndim] @errors none */
SHERD_API sherd_distribution sherd_xavier_uniform(const int64_t *shape, int ndim, double gain);
/** Normal with deviation gain sqrt(2 / (fan in + fan out)). @local @shapes shape: int64_t[ndim] @errors none */
SHERD_API sherd_distribution sherd_xavier_normal(const int64_t *shape, int ndim, double gain);
/** Uniform in [-b, b), b = gain sqrt(3 / fan in). @local @shapes shape: int64_t[ndim] @errors none */
SHERD_API sherd_distribution sherd_kaiming_uniform(const int64_t *shape, int ndim, double gain);
/** Normal with deviation gain / sqrt(fan in). @local @shapes shape: int64_t[ndim] @errors none */
SHERD_API sherd_distribution sherd_kaiming_normal(const int64_t *shape, int ndim, double gain);

SHERD_END

#endif
