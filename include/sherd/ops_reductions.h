/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over some dims, and the softmax. sherd_sum and sherd_mean of all elements are in
 * ops.h; what its head says of all operators ("see above") holds here too. Dims may be negative
 * (counted from the last one); with `keepdim` they stay, with size 1. If a reduced dim is sharded,
 * nothing is gathered: the result is a pending reduction, or ranks exchange a few numbers for each
 * element of the result. Pending reductions of the operand are settled first unless a comment says
 * otherwise. Edge cases are PyTorch's, unless a comment says otherwise.
 *
 * @shapes   for all: dims[count]; count 0 = all dims.
 * @numerics for all, and sherd_sum and sherd_mean: f32, bf16 and f16 are added in f32, a few at a
 *           time, and what those add up to in f64, so that the error does not grow with how many
 *           there are: of f32 of one sign it is below 1e-6 of a rank's sum, and of the mean, norm
 *           or loss that is made of it. Results of 16 bits are rounded at the end. Sums of ranks
 *           are added in rank order in the tensor's dtype. What is added first depends on the
 *           layout and on the instruction set, and so do the last bits; they are the same in every
 *           run. GPUs add in f32, in many short sums.
 * @errors   for all: as in ops.h; EINVAL no such dim, a dim named twice, dims NULL with count > 0.
 */
#ifndef SHERD_OPS_REDUCTIONS_H
#define SHERD_OPS_REDUCTIONS_H

#include "ops.h"

SHERD_BEGIN

/**
 * The sum; integers and bool are added in i64. Over sharded dims it is a pending sum, and a pending
 * sum stays pending, unless its dtype is narrower than i64: then it is settled first.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_sum_over(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The mean: the sum divided by the global count; NaN for no elements.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_mean_over(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The variance: the sum of squared differences from the mean, divided by the global count minus
 * `correction` (usually 1; 0 for a whole population).
 *
 * @collective see above, one exchange for the mean if a reduced dim is sharded
 * @numerics   two passes, so it is accurate even if the mean is large
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_var(sherd_tensor *a, const int *dims, int count, double correction,
                                  bool keepdim);

/**
 * The square root of sherd_var; its gradient is 0 where it is 0.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_std(sherd_tensor *a, const int *dims, int count, double correction,
                                  bool keepdim);

/**
 * The p-norm, (sum of |a|^p)^(1/p), for any p; INFINITY gives the largest |a|, -INFINITY the
 * smallest, 0 the number of nonzero elements. The gradient at 0 is 0, and everywhere if p is 0.
 * Beside an infinite element or NaN gradients are what the formula gives: 0 or NaN, and not always
 * where PyTorch has these.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL p is NaN
 */
SHERD_API sherd_tensor *sherd_norm(sherd_tensor *a, double p, const int *dims, int count,
                                   bool keepdim);

/**
 * The largest element; NaN if there is one. Any dtype. Equal elements share the gradient equally.
 * Over sharded dims it is a pending maximum.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL no elements
 */
SHERD_API sherd_tensor *sherd_max(sherd_tensor *a, const int *dims, int count, bool keepdim);

/** The smallest element, as sherd_max. @collective see above @owns scope @errors as sherd_max */
SHERD_API sherd_tensor *sherd_min(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The product; of integers and bool in i64. Over sharded dims it is a pending product. The
 * gradient of an element is the product of the others; beside a 0 it is 0, also if another one is
 * infinite or NaN (PyTorch: NaN).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_prod(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * Whether any element is nonzero, of any dtype, as bool. False for no elements.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_any(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * Whether all elements are nonzero, of any dtype, as bool. True for no elements.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_all(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The index of the largest element among the reduced dims, row-major, i32: the first one of equal
 * elements, the first NaN if there is one. Over sharded dims it is the global index.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL no elements
 */
SHERD_API sherd_tensor *sherd_argmax(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The index of the smallest element, as sherd_argmax.
 *
 * @collective see above   @owns scope   @errors as sherd_argmax
 */
SHERD_API sherd_tensor *sherd_argmin(sherd_tensor *a, const int *dims, int count, bool keepdim);

/* ---- softmax --------------------------------------------------------------------------------- */

/**
 * e^a / (sum of e^a) over one dim, which may be sharded.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_softmax(sherd_tensor *a, int dim);

/** The logarithm of sherd_softmax. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log_softmax(sherd_tensor *a, int dim);

/**
 * The logarithm of the sum of e^a over one dim, which may be sharded. The gradient of an element
 * that is -inf is 0, also where all are (PyTorch: NaN).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_logsumexp(sherd_tensor *a, int dim, bool keepdim);

SHERD_END

#endif
