/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors along a dim: their products, lengths and angles, and gates. What ops.h says of all
 * operators holds here too. Dims may be negative (-1 is the last one); where two operands
 * broadcast, a dim is one of the result.
 */
#ifndef SHERD_OPS_VECTORS_H
#define SHERD_OPS_VECTORS_H

#include "ops.h"

SHERD_BEGIN

/**
 * The cross product of vectors along a dim, which has size 3 in both (torch.linalg.cross). Other
 * dims broadcast, and may be sharded; one operand may be a pending sum.
 *
 * @collective see ops.h   @owns scope   @errors see ops.h; EINVAL no such dim, or of another size
 */
SHERD_API sherd_tensor *sherd_cross(sherd_tensor *a, sherd_tensor *b, int dim);

/**
 * Vectors of length 1: a / max(n, eps), where n is the p-norm along a dim (sherd_norm).
 *
 * @collective see ops.h; if the dim is sharded, ranks exchange one number for each vector
 * @shapes     p: 2, usually; eps: 1e-12 in PyTorch
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, p is NaN, an eps that is negative or NaN, a dim of
 *             size 0 if p is infinite
 */
SHERD_API sherd_tensor *sherd_normalize(sherd_tensor *a, double p, int dim, double eps);

/**
 * The cosine of the angle between vectors along a dim, which the result does not have: the sum of a
 * b / (max(|a|, eps) max(|b|, eps)). Shapes broadcast, also along the dim.
 *
 * @collective see ops.h; if the dim is sharded, ranks exchange three numbers for each vector
 * @shapes     eps: 1e-8 in PyTorch
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, an eps that is negative or NaN
 */
SHERD_API sherd_tensor *sherd_cosine_similarity(sherd_tensor *a, sherd_tensor *b, int dim,
                                                double eps);

/**
 * The first half of a dim times the sigmoid of the second half. If the dim is sharded, one half
 * moves to the other: shard another one.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     see ops.h; EINVAL no such dim, or of an odd size
 */
SHERD_API sherd_tensor *sherd_glu(sherd_tensor *a, int dim);

/**
 * a where it is positive, else slope a: one slope [1] for all elements, or one for each channel
 * [channels], dim 1. At 0 the gradient of a is the slope.
 *
 * @collective see ops.h   @owns scope   @errors see ops.h; EINVAL a slope of another shape
 */
SHERD_API sherd_tensor *sherd_prelu(sherd_tensor *a, sherd_tensor *slope);

SHERD_END

#endif
