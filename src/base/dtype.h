/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of number a dtype is. */
#ifndef SHERD__BASE_DTYPE_H
#define SHERD__BASE_DTYPE_H

#include "sherd/dtype.h"

/* Whether it is floating-point: f32, f64, bf16, f16. Only these may have gradients. */
bool sherd__has_fractions(sherd_dtype dtype);
/* Whether it has 16 bits: bf16, f16. */
bool sherd__is_half(sherd_dtype dtype);

/*
 * The dtype in which operators keep sums, means and logarithms of sums: f32 for the 16-bit types.
 */
sherd_dtype sherd__statistics_dtype(sherd_dtype dtype);

#endif
