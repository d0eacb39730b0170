/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions between dtypes. */
#ifndef SHERD__KERNELS_CAST_H
#define SHERD__KERNELS_CAST_H

#include <stdbool.h>
#include <stdint.h>

#include "sherd/dtype.h"

/*
 * dst[n] = src[n] in another dtype, rounded to nearest, ties to even. Fractions to integers:
 * truncated, held within the range, NaN is 0. Integers to narrower ones keep the low bits. To bool:
 * whether it is not 0. dst and src do not overlap. The plain version: see sherd__convert for the
 * one that takes the machine's best.
 */
void sherd__cast(sherd_dtype dst_dtype, sherd_dtype src_dtype, int64_t n, void *dst,
                 const void *src);

/*
 * dst[n] = src[n], f64 or integers, as f32 that round to 16 bits as src would: what an f32 cannot
 * hold has a last bit of 1.
 */
void sherd__cast_to_odd(sherd_dtype src_dtype, int64_t n, float *dst, const void *src);

/* Whether an element can hold a number: fractions are rounded, integers are not. */
bool sherd__holds(sherd_dtype dtype, double value);

#endif
