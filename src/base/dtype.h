/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of number a dtype is. */
#ifndef SHERD__DTYPE_H
#define SHERD__DTYPE_H

#include "sherd/dtype.h"

/* f32, f64, bf16, f16: what may have a gradient, and be drawn at random. */
bool sherd__has_fractions(sherd_dtype dtype);
/* bf16, f16. */
bool sherd__is_half(sherd_dtype dtype);
/* In what an operator on this dtype keeps sums, means and logarithms of sums: f32 for the 16-bit types. */
sherd_dtype sherd__statistics_dtype(sherd_dtype dtype);

#endif
