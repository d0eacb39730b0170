/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over some dims, and the softmax; sherd_sum and sherd_mean of everything are in ops.h, whose head holds for
 * these too. Dims may be negative (from the last one on); `keepdim` leaves them with size 1. Where a reduced dim is sharded
 * nothing is gathered: results are pending, or ranks exchange a few numbers per position. What is pending in an operand
 * is settled first unless it says otherwise. Edge cases are PyTorch's.
 *
 * @collective for all: the operands' mesh, if distributed. @owns for all: the result belongs to the scope.
 * @shapes for all: dims[count]; count 0 = all dims.
 * @errors for all: as in ops.h; EINVAL no such dim, a dim named twice, dims NULL where count is not 0.
 */
#ifndef SHERD_OPS_REDUCTIONS_H
#define SHERD_OPS_REDUCTIONS_H

#include "ops.h"

SHERD_BEGIN

/** The sum; of integers and bool in i64. Of sharded dims it is a pending sum, and a pending sum stays so. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sum_over(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** The mean: the sum divided by the global count; NaN of nothing. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mean_over(sherd_tensor *a, const int *dims, int count, bool keepdim);
/**
 * The variance: the sum of the squares of the differences from the mean, divided by the global count less `correction`
 * (usual: 1; 0 = of a whole population).
 *
 * @collective see above, one exchange for the mean where a reduced dim is sharded
 * @numerics   two passes, so it is exact to rounding also where the mean is large
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_var(sherd_tensor *a, const int *dims, int count, double correction,
                                  bool keepdim);
/** The square root of sherd_var; its gradient is 0 where it is 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_std(sherd_tensor *a, const int *dims, int count, double correction,
                                  bool keepdim);
/** (sum of |a|^p)^(1/p): p 2, 1 or any other; INFINITY is the largest |a|, -INFINITY the least, 0 how many are not 0. Gradient 0 at 0. @collective see above @owns scope @errors see above; EINVAL p is NaN */
SHERD_API sherd_tensor *sherd_norm(sherd_tensor *a, double p, const int *dims, int count,
                                   bool keepdim);
/** The largest; NaN if one is. Any dtype. Of equal ones each has the same part of the gradient. Pending of sharded dims. EINVAL of nothing. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_max(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** The least, as sherd_max. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_min(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** The product; of integers and bool in i64. Pending of sharded dims. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_prod(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** Whether one is not 0, of any dtype: bool. False of nothing. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_any(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** Whether none is 0, of any dtype: bool. True of nothing. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_all(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** Where the largest is: its index among the reduced dims, row-major, i32; the first one of equals, NaN before all. Of sharded dims the global index. EINVAL of nothing. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_argmax(sherd_tensor *a, const int *dims, int count, bool keepdim);
/** Where the least is, as sherd_argmax. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_argmin(sherd_tensor *a, const int *dims, int count, bool keepdim);

/* ---- softmax ---------------------------------------------------------------------------------- */

/** e^a / (sum of e^a) over one dim, which may be sharded. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_softmax(sherd_tensor *a, int dim);
/** The logarithm of sherd_softmax. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log_softmax(sherd_tensor *a, int dim);
/** The logarithm of the sum of e^a over one dim, which may be sharded. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logsumexp(sherd_tensor *a, int dim, bool keepdim);

SHERD_END

#endif
