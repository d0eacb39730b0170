/* SPDX-License-Identifier: Apache-2.0 */
/* What kind of number a dtype is. */
#ifndef SHERD__DTYPE_H
#define SHERD__DTYPE_H

#include "sherd/dtype.h"

/* f32, f64, bf16, f16: what may have a gradient, and be drawn at random. */
bool sherd__has_fractions(sherd_dtype dtype);
/* bf16, f16. */
bool sherd__is_half(sherd_dtype dtype);

#endif
