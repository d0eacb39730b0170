/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over some dims, and the softmax. sherd_sum and sherd_mean of all elements are in
 * ops.h, and "see above" means what the head of ops.h says of all operators. Negative dims count
 * from the end. Reduced dims are removed from the shape, or, with `keepdim`, stay with size 1. If a
 * reduced dim is sharded, nothing is gathered: the result is a pending reduction, or ranks exchange
 * a few numbers for each element of the result. Unless a comment says otherwise, a pending operand
 * is settled first, and edge cases are PyTorch's.
 *
 *     const int rows = 0;
 *     y = sherd_max(x, &rows, 1, false); // [n, m] -> [m]; a pending maximum if rows are sharded
 *
 * @shapes   for all: dims[count]; count 0 = all dims.
 * @numerics for all, and for sherd_sum and sherd_mean: f32, bf16 and f16 are added in f32, a few
 *           elements at a time, these partial sums in f64. So the error does not grow with the
 *           number of elements: of f32 of one sign it is below 4e-6 of a rank's sum for each run of
 *           neighbouring dims, mostly below 1e-6, as that of a mean, norm or loss; of terms that
 *           cancel it is as small beside the sum of their magnitudes, not beside the result. f64 is
 *           added in f64. 16-bit results are rounded last. Ranks' sums are added in rank order, in
 *           the tensor's dtype: of p ranks that adds p roundings. The order of additions, so the
 *           last bits, depend on the layout, a view's order in memory and the instruction set, and
 *           are the same in every run; where they must not, see sherd_sum_exact. GPUs add in many
 *           short f32 sums.
 * @errors   for all: as in ops.h; EINVAL no such dim, a dim named twice, dims NULL with count > 0.
 */
#ifndef SHERD_OPS_REDUCTIONS_H
#define SHERD_OPS_REDUCTIONS_H

#include "ops.h"

SHERD_BEGIN

/**
 * The sum; integers and bool are added in i64, the dtype of the result. Over sharded dims it is a
 * pending sum. A pending operand stays pending, but one of an integer dtype narrower than i64 is
 * settled first.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_sum_over(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The mean: the sum divided by the number of elements, over all ranks; NaN for no elements.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_mean_over(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The variance: the sum of squared differences from the mean, divided by the number of elements,
 * over all ranks, minus `correction` (usually 1; 0 for a whole population).
 *
 * @collective see above, one exchange for the mean if a reduced dim is sharded
 * @numerics   two passes, so it is accurate even if the mean is large. On CPUs, over dims that
 *             follow one another, in f64, so that sherd_std is infinite or 0 only if no f32 holds
 *             it
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
 * smallest, 0 the number of nonzero elements. The gradient of an element that is 0 is 0; if p is 0
 * all gradients are. If an element is infinite or NaN, gradients are what the formula gives, 0 or
 * NaN, which may differ from PyTorch's.
 *
 * @collective see above
 * @numerics   powers are f32 for f32 and the 16-bit types; on CPUs those of p = 2 over dims that
 *             follow one another are f64, so that the norm is infinite or 0 only if no f32 holds it
 * @owns       scope
 * @errors     see above; EINVAL p is NaN
 */
SHERD_API sherd_tensor *sherd_norm(sherd_tensor *a, double p, const int *dims, int count,
                                   bool keepdim);

/**
 * The largest element; NaN if any element is NaN. Any dtype. Equal largest elements share the
 * gradient equally. Over sharded dims the result is a pending maximum.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL no elements
 */
SHERD_API sherd_tensor *sherd_max(sherd_tensor *a, const int *dims, int count, bool keepdim);

/** The smallest element, as sherd_max. @collective see above @owns scope @errors as sherd_max */
SHERD_API sherd_tensor *sherd_min(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The product; of integers and bool in i64. Over sharded dims it is a pending product. The gradient
 * of an element is the product of the others; if one of these is 0 it is 0, even if another is
 * infinite or NaN (PyTorch: NaN).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_prod(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * Whether any element is nonzero, as bool; false for no elements. Any dtype.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_any(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * Whether all elements are nonzero, as bool; true for no elements. Any dtype.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_all(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The global index, i32, of the largest element: of several equal ones the first; of the first NaN
 * if there is one. Over several dims it is the row-major index among them.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL no elements
 */
SHERD_API sherd_tensor *sherd_argmax(sherd_tensor *a, const int *dims, int count, bool keepdim);

/**
 * The global index of the smallest element, as sherd_argmax.
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
 * that is -inf is 0, even if all are (PyTorch: NaN).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_logsumexp(sherd_tensor *a, int dim, bool keepdim);

SHERD_END

#endif
