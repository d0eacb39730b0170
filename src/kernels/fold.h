/* SPDX-License-Identifier: Apache-2.0 */
/* Overlapping windows, added up where their elements lie. */
#ifndef SHERD__KERNELS_FOLD_H
#define SHERD__KERNELS_FOLD_H

#include <stdint.h>

#include "sherd/dtype.h"

/*
 * dst [outer, n, inner] = the sum of what lies there of the windows src [outer, windows, inner,
 * size]: element j of window w lies at w step + j - first.
 */
typedef struct sherd__fold_of {
    int64_t outer, n, inner, windows, size, step, first;
} sherd__fold_of;

/* Adds up in f64, in the order of windows. f32, f64, bf16, f16. */
void sherd__fold_windows_of(sherd_dtype dtype, const sherd__fold_of *f, void *dst, const void *src);

#endif
