/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise operators, beside those of ops.h. What the head of ops.h says of all operators ("see
 * above") holds here too; shapes broadcast as in NumPy; pending reductions are settled first unless
 * a comment says otherwise. Results at infinities and NaN, and gradients at kinks, are PyTorch's,
 * unless a comment says otherwise. A number beside 16-bit elements is taken in f32.
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
 * a^exponent, as C's pow. See sherd_power for an exponent per element. (PyTorch takes the square
 * root for an exponent of 1/2 or -1/2, which differs at -inf and at -0, and in the slope there.)
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_pow(sherd_tensor *a, double exponent);

/** 2^a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_exp2(sherd_tensor *a);
/** The logarithm to base 2. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log2(sherd_tensor *a);
/** The logarithm to base 10. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log10(sherd_tensor *a);
/** a a; integers too. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_square(sherd_tensor *a);
/** 1 / a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_reciprocal(sherd_tensor *a);
/** The sine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sin(sherd_tensor *a);
/** The cosine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_cos(sherd_tensor *a);
/** The tangent. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_tan(sherd_tensor *a);
/**
 * The inverse of the sine, in [-pi/2, pi/2].
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_asin(sherd_tensor *a);
/** The inverse of the cosine, in [0, pi]. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_acos(sherd_tensor *a);
/**
 * The inverse of the tangent; see sherd_atan2.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_atan(sherd_tensor *a);
/** The hyperbolic sine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_sinh(sherd_tensor *a);
/** The hyperbolic cosine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_cosh(sherd_tensor *a);
/** The inverse of the hyperbolic sine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_asinh(sherd_tensor *a);
/** The inverse of the hyperbolic cosine. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_acosh(sherd_tensor *a);
/** The inverse of the hyperbolic tangent. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_atanh(sherd_tensor *a);
/** The hyperbolic tangent. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_tanh(sherd_tensor *a);
/** The error function. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_erf(sherd_tensor *a);
/** 1 - erf(a), exact far out. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_erfc(sherd_tensor *a);

/**
 * The next integer below, or a itself. The gradient is 0, as that of the next three.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_floor(sherd_tensor *a);

/** The next integer above. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_ceil(sherd_tensor *a);
/** The next integer towards 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_trunc(sherd_tensor *a);
/**
 * The nearest integer, ties to even, where the thread rounds so, as it does unless it has called
 * fesetround(); all functions here presume that.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_round(sherd_tensor *a);
/** a - trunc(a), with the sign of a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_frac(sherd_tensor *a);

/**
 * floor(a / divisor), of the exact quotient; integers too: with sherd_remainder_scalar the row and
 * the column of an index. The gradient is 0.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL a divisor of integers that is 0 or not among them
 */
SHERD_API sherd_tensor *sherd_floor_divide_scalar(sherd_tensor *a, double divisor);

/**
 * a - divisor floor(a / divisor), exact, with the sign of the divisor, as Python's %. Integers too.
 *
 * @collective see above
 * @owns       scope
 * @errors     as sherd_floor_divide_scalar
 */
SHERD_API sherd_tensor *sherd_remainder_scalar(sherd_tensor *a, double divisor);

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
 * The logarithm of sherd_sigmoid, exact far out.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_logsigmoid(sherd_tensor *a);
/**
 * a if it is positive, else alpha (e^a - 1).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_elu(sherd_tensor *a, double alpha);
/** 1.0507 sherd_elu(a, 1.6733). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_selu(sherd_tensor *a);
/** a tanh(log(1 + e^a)). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_mish(sherd_tensor *a);
/** a / (1 + |a|). @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_softsign(sherd_tensor *a);
/** a / 6 + 1 / 2, limited to [0, 1]. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_hardsigmoid(sherd_tensor *a);
/**
 * a sherd_hardsigmoid(a); 0 at -inf (PyTorch: NaN).
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_hardswish(sherd_tensor *a);

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

/**
 * floor(a / b), of the exact quotient. The gradient is 0.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_floor_divide(sherd_tensor *a, sherd_tensor *b);

/**
 * a - b floor(a / b): has the sign of b, as Python's %.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_remainder(sherd_tensor *a, sherd_tensor *b);
/**
 * a - b trunc(a / b): has the sign of a, as in C.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_fmod(sherd_tensor *a, sherd_tensor *b);

/**
 * The angle between the first axis and the point with the coordinates b and a, in [-pi, pi]. The
 * gradient at 0, 0 is 0.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_atan2(sherd_tensor *a, sherd_tensor *b);

/**
 * sqrt(a^2 + b^2), which does not overflow halfway.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_hypot(sherd_tensor *a, sherd_tensor *b);
/** |a| with the sign of b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_copysign(sherd_tensor *a, sherd_tensor *b);
/**
 * log(e^a + e^b), which does not overflow halfway.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_logaddexp(sherd_tensor *a, sherd_tensor *b);
/** a log(b), 0 if a is 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_xlogy(sherd_tensor *a, sherd_tensor *b);

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

/* ---- numbers that are none, and indices ------------------------------------------------------ */

/** Whether it is NaN; any dtype. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_isnan(sherd_tensor *a);
/** Whether it is infinite; any dtype. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_isinf(sherd_tensor *a);
/** Whether it is neither; any dtype. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_isfinite(sherd_tensor *a);

/**
 * a with `nan` for NaN, `above` for infinity and `below` for -infinity. The gradient there is 0.
 * PyTorch's values are 0 and the largest and the least number of the dtype.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_nan_to_num(sherd_tensor *a, double nan, double above, double below);

/**
 * Of indices (i32) [...] the tensor [..., classes] of a dtype that is 1 where the class is the
 * index, else 0. An index outside [0, classes), such as one to be ignored, gives a row of zeroes.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL classes that are negative or more than i32 has, no such dtype
 */
SHERD_API sherd_tensor *sherd_one_hot(sherd_tensor *index, int64_t classes, sherd_dtype dtype);

/**
 * How often each class is an index (i32, of any shape): i32 [classes]. An index outside [0,
 * classes) is not counted. Of sharded indices the result is a pending sum; nothing moves.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL negative classes
 */
SHERD_API sherd_tensor *sherd_bincount(sherd_tensor *index, int64_t classes);

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
