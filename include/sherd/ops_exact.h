/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums that are the same bits however a tensor is distributed: on any number of ranks, any mesh,
 * any layout, any order of shards, any machine. Sums in floating point (sherd_sum) depend in their
 * last digits on the order of additions; these add in fixed point, where all bits of all elements
 * have room, and round once. So a program that is started again on other ranks, or compared with
 * one rank, decides and prints the same.
 *
 * Each rank adds what it has; then integers are added over the ranks that hold different elements,
 * 71 for each element of the result (568 bytes), or 14 if the dtype is not f64. If no reduced dim
 * is sharded and nothing is pending, nothing is sent. The result is settled, and equal on all ranks
 * that hold it.
 *
 * Replicas count once. Of a pending sum the addends of all ranks are added, as they are; another
 * pending reduction is settled first.
 *
 * Zeros: a sum that is 0 is +0, also that of no elements, or of -0 alone. NaN, if an element is
 * NaN, or if there are both infinities; otherwise an infinity, if there is one. A finite sum is
 * infinite only if it rounds to more than the dtype holds, whatever the sums of some elements are:
 * 1e308 + 1e308 - 1e308 is 1e308.
 *
 *     double mass = sherd_item(sherd_sum_exact(field)); // the same bits on 1 rank and on 1000
 */
#ifndef SHERD_OPS_EXACT_H
#define SHERD_OPS_EXACT_H

#include "tensor.h"

SHERD_BEGIN

/**
 * The sum of all elements, a scalar (ndim 0); f64, f32, bf16 or f16. That of integers is exact
 * anyway: sherd_sum. Gradients are those of sherd_sum.
 *
 * @collective see ops.h
 * @numerics   the true sum, rounded once to the nearest number of the dtype, of two equally near
 *             ones to the even one. One CPU core takes 1.0 to 1.5 ns for each element, of any
 *             dtype: for f64 2 to 8 times as long as sherd_sum and PyTorch's sum, which wait for
 *             memory; for f32 5 to 20 times; a fifteenth of Python's math.fsum. Five times as
 *             long where elements that are near one another differ by more than 2^32
 * @owns       scope
 * @errors     see ops.h; EINVAL integers or bool
 */
SHERD_API sherd_tensor *sherd_sum_exact(sherd_tensor *a);

/**
 * The sums over some dims, as sherd_sum_over has them: dims[count], negative ones count from the
 * end, count 0 = all dims. Reduced dims are removed from the shape or, with `keepdim`, stay with
 * size 1.
 *
 * @collective see ops.h
 * @shapes     dims: [count]
 * @numerics   as sherd_sum_exact; 3 to 10 ns for each element where reduced dims are not the last
 * @owns       scope
 * @errors     as sherd_sum_exact; EINVAL no such dim, a dim named twice, dims NULL with count > 0
 */
SHERD_API sherd_tensor *sherd_sum_exact_over(sherd_tensor *a, const int *dims, int count,
                                             bool keepdim);

SHERD_END

#endif
