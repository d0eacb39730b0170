/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runs along a dim, beside sherd_cumsum (ops_shape.h): products, extremes, logarithms of sums,
 * linear recurrences. What ops.h says of all operators holds here too; dims may be negative (-1 is
 * the last one). A sharded dim is gathered, or its shards are moved to another dim, whichever is
 * cheaper; the others stay as they are. Pending reductions are settled first.
 *
 * All have gradients of any order, also where elements are 0.
 */
#ifndef SHERD_OPS_RUNNING_H
#define SHERD_OPS_RUNNING_H

#include "ops.h"

SHERD_BEGIN

/**
 * Running products along a dim; integers keep their dtype, and its low bits.
 *
 * @collective see ops.h
 * @numerics   f32 and 16 bits are multiplied in f64, in order
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, bool
 */
SHERD_API sherd_tensor *sherd_cumprod(sherd_tensor *a, int dim);

/**
 * The largest element of a dim so far, of any dtype, and where it is: the last one of equal
 * elements; from a NaN on it is NaN. The gradient goes to that element.
 *
 * @collective see ops.h
 * @shapes     indices: gets the i32 tensor; NULL = not wanted
 * @owns       scope, both
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_cummax(sherd_tensor *a, int dim, sherd_tensor **indices);

/**
 * The smallest element so far, as sherd_cummax.
 *
 * @collective see ops.h
 * @shapes     indices: as there
 * @owns       scope, both
 * @errors     as sherd_cummax
 */
SHERD_API sherd_tensor *sherd_cummin(sherd_tensor *a, int dim, sherd_tensor **indices);

/**
 * The logarithm of the running sum of e^a along a dim. The gradient of an element that is -inf is 0
 * (PyTorch: NaN, where all before it are too).
 *
 * @collective see ops.h
 * @numerics   f32 and 16 bits compute in f64, in order; nothing overflows
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_logcumsumexp(sherd_tensor *a, int dim);

/**
 * The linear recurrence y[j] = a[j] y[j - 1] + b[j] along a dim, with y[0] = b[0]; if `reverse`,
 * y[j] = a[j] y[j + 1] + b[j], with the last y = b. A state-space layer is one, and so are
 * discounted returns: sherd_recurrence(discount, reward, dim, true). a and b have one shape
 * (sherd_expand, if one of them varies less); a[0], or the last one, is not read.
 *
 * @collective see ops.h
 * @numerics   f32 and 16 bits compute in f64, in order
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim
 */
SHERD_API sherd_tensor *sherd_recurrence(sherd_tensor *a, sherd_tensor *b, int dim, bool reverse);

SHERD_END

#endif
