/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators, beside those of ops.h. What the head of ops.h says of all operators ("see
 * above") holds here too; shapes broadcast as in NumPy; pending reductions are settled first unless
 * a comment says otherwise. Results at infinities and NaN, and gradients at kinks, are PyTorch's.
 */
#ifndef SHERD_OPS_ELEMENTS_H
#define SHERD_OPS_ELEMENTS_H

#include "ops.h"

SHERD_BEGIN

/* ---- one operand (relu and gelu: ops.h). Floating-point unless "integers too" ---------------- */

/**
 * -a; integers too. A pending sum stays pending.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_neg(sherd_tensor *a);

/**
 * |a|; integers too. The gradient at 0 is 0.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_abs(sherd_tensor *a);

/**
 * -1, 0 or 1; integers too. The gradient is 0.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_sign(sherd_tensor *a);

/** e^a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_exp(sherd_tensor *a);
/** e^a - 1, exact near 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_expm1(sherd_tensor *a);
/** The natural logarithm. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log(sherd_tensor *a);
/** log(1 + a), exact near 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log1p(sherd_tensor *a);
/** The square root. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sqrt(sherd_tensor *a);
/** 1 / sqrt(a). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_rsqrt(sherd_tensor *a);

/**
 * a^exponent. See sherd_power for an exponent per element.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_pow(sherd_tensor *a, double exponent);

/** a a; integers too. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_square(sherd_tensor *a);
/** 1 / a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_reciprocal(sherd_tensor *a);
/** The sine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sin(sherd_tensor *a);
/** The cosine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_cos(sherd_tensor *a);
/** The hyperbolic tangent. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_tanh(sherd_tensor *a);
/** The error function. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_erf(sherd_tensor *a);
/** 1 / (1 + e^-a). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sigmoid(sherd_tensor *a);
/** a if it is positive, else slope a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_leaky_relu(sherd_tensor *a, double slope);

/**
 * The exact GELU: a/2 (1 + erf(a / sqrt(2))). sherd_gelu is the tanh approximation.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_gelu_erf(sherd_tensor *a);

/** a sigmoid(a). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_silu(sherd_tensor *a);

/**
 * log(1 + e^(beta a)) / beta; a itself if beta a > threshold. Usual values: 1 and 20.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_softplus(sherd_tensor *a, double beta, double threshold);

/**
 * a limited to [min, max]; max if min > max. Integers too. The gradient outside is 0.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a bound of integers that is NaN
 */
SHERD_API sherd_tensor *sherd_clamp(sherd_tensor *a, double min, double max);

/**
 * a + addend. On a pending sum one rank adds it, and the sum stays pending. Integers too. For a - c
 * pass -c; for a / c use sherd_scale with 1 / c.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL an addend to integers that their dtype holds with neither sign
 */
SHERD_API sherd_tensor *sherd_add_scalar(sherd_tensor *a, double addend);

/* ---- two operands ---------------------------------------------------------------------------- */

/** a / b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_div(sherd_tensor *a, sherd_tensor *b);

/**
 * The larger one; NaN if one is. Integers too. Equal elements share the gradient equally.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_maximum(sherd_tensor *a, sherd_tensor *b);

/**
 * The smaller one; NaN if one is. Integers too. Equal elements share the gradient equally.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_minimum(sherd_tensor *a, sherd_tensor *b);

/** a^b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_power(sherd_tensor *a, sherd_tensor *b);

/* ---- comparisons: any dtype; the result is bool and has no gradient -------------------------- */

/** a = b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_eq(sherd_tensor *a, sherd_tensor *b);
/** a != b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_ne(sherd_tensor *a, sherd_tensor *b);
/** a < b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_lt(sherd_tensor *a, sherd_tensor *b);
/** a <= b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_le(sherd_tensor *a, sherd_tensor *b);
/** a > b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_gt(sherd_tensor *a, sherd_tensor *b);
/** a >= b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_ge(sherd_tensor *a, sherd_tensor *b);
/** Whether both are nonzero. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_and(sherd_tensor *a, sherd_tensor *b);
/** Whether at least one is nonzero. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_or(sherd_tensor *a, sherd_tensor *b);
/** Whether exactly one is nonzero. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_xor(sherd_tensor *a, sherd_tensor *b);
/** Whether it is 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_not(sherd_tensor *a);

/**
 * a = value, where `value` is first rounded to the dtype of a if that is floating-point; integers
 * compare with `value` itself.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_eq_scalar(sherd_tensor *a, double value);

/** a != value; as sherd_eq_scalar. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_ne_scalar(sherd_tensor *a, double value);
/** a < value; as sherd_eq_scalar. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_lt_scalar(sherd_tensor *a, double value);
/** a <= value; as sherd_eq_scalar. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_le_scalar(sherd_tensor *a, double value);
/** a > value; as sherd_eq_scalar. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_gt_scalar(sherd_tensor *a, double value);
/** a >= value; as sherd_eq_scalar. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_ge_scalar(sherd_tensor *a, double value);

/* ---- selection ------------------------------------------------------------------------------- */

/**
 * condition ? a : b, of any dtype; the condition is bool.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_where(sherd_tensor *condition, sherd_tensor *a, sherd_tensor *b);

/**
 * `value` where the mask (bool) is true, else a, of any dtype. If `value` is 0, a pending sum stays
 * pending.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_masked_fill(sherd_tensor *a, sherd_tensor *mask, double value);

SHERD_END

#endif
