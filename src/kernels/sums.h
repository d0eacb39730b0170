/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many f32 are added up, also of 16 bits: a few in f32, and what those add up to in f64. So the
 * error does not grow with their number: one running sum of 10 million equal numbers in f32 is
 * wrong in the third digit. Rows added where indices say: places.h. Gradients of a convolution's
 * weights by oneDNN: some images at a time (conv_kept.c). Not so yet: those of one large image, or
 * of few products, gradients of tables on GPUs, and products that are more numbers than terms.
 */
#ifndef SHERD__KERNELS_SUMS_H
#define SHERD__KERNELS_SUMS_H

#include "kernels.h"

/*
 * Columns, in which whole rows are added, have the same bits in all tables of a dtype: up to so
 * many rows one after the other; of more, groups of so many neighbours from the first row on, whose
 * sums from 0 on are added in f64, in order. Of f64 always one after the other.
 */
enum { SHERD__ROWS_OF_SUM = 64 };

/*
 * Products that are a few long sums: they are made in parts of so many terms, whose sums are added
 * in f64. Only where there are few of them, which read so much that this takes no time. Of f32
 * kernels do it, of 16 bits and of more sums sherd__multiply.
 */
enum { SHERD__LONG_SUM = 1 << 16, SHERD__LONG_SUMS = 64, SHERD__LONG_PART = 1 << 12 };

static inline bool sherd__is_long_sum(int64_t m, int64_t n, int64_t k)
{
    return k > SHERD__LONG_SUM && m <= SHERD__LONG_SUMS && n <= SHERD__LONG_SUMS &&
           m * n <= SHERD__LONG_SUMS;
}

#endif
