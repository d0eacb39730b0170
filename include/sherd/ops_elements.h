/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More elementwise operators. "See above" means what the head of ops.h says of all operators.
 * Shapes broadcast as in NumPy. Unless a comment says otherwise, pending reductions are settled
 * first, and results at infinities and NaN, and gradients at kinks, are PyTorch's. A `double`
 * parameter is rounded to f32 for 16-bit elements.
 */
#ifndef SHERD_OPS_ELEMENTS_H
#define SHERD_OPS_ELEMENTS_H

#include "ops.h"

SHERD_BEGIN

/* ---- one operand, floating-point unless "integers too" (relu, gelu, scale: ops.h) ------------ */

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
/** e^a - 1, accurate near 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_expm1(sherd_tensor *a);
/** The natural logarithm. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_log(sherd_tensor *a);
/** log(1 + a), accurate near 0. @collective see above @owns scope @errors see above */
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
/** a^2; integers too. @collective see above @owns scope @errors see above */
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
/** 1 - erf(a), accurate where it is small. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_erfc(sherd_tensor *a);

/**
 * The largest integer not above a. The gradient is 0, and so is that of the next three functions.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_floor(sherd_tensor *a);

/** The smallest integer not below a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_ceil(sherd_tensor *a);
/** a without its fraction. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_trunc(sherd_tensor *a);
/**
 * The nearest integer, ties to even. (A thread that has changed the rounding mode by fesetround()
 * gets that mode; all functions of sherd presume the default.)
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_round(sherd_tensor *a);
/** a - trunc(a), with the sign of a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_frac(sherd_tensor *a);

/**
 * floor(a / divisor) of the exact quotient; integers too. Together with sherd_remainder_scalar it
 * turns an index into a row and a column. The gradient is 0.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL for integers: a divisor that is 0 or that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_floor_divide_scalar(sherd_tensor *a, double divisor);

/**
 * a - divisor floor(a / divisor), exact; it has the sign of the divisor, as Python's %. Integers
 * too.
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
 * The logarithm of sherd_sigmoid, accurate for large |a| too.
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
/**
 * a if it is positive, else alpha (e^(a / alpha) - 1), which has no kink.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL alpha 0, or not finite
 */
SHERD_API sherd_tensor *sherd_celu(sherd_tensor *a, double alpha);
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
 * a - bound above `bound`, a + bound below -bound, else 0. Usual bound: 0.5.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a bound below 0, or NaN
 */
SHERD_API sherd_tensor *sherd_softshrink(sherd_tensor *a, double bound);
/** 0 if |a| <= bound, else a. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_hardshrink(sherd_tensor *a, double bound);

/**
 * log(1 + e^(beta a)) / beta; a itself if beta a > threshold. Usual values: 1 and 20.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_softplus(sherd_tensor *a, double beta, double threshold);

/**
 * a limited to [min, max]; max if min > max. Integers too. The gradient is 0 where a is outside.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL for integers: a bound is NaN
 */
SHERD_API sherd_tensor *sherd_clamp(sherd_tensor *a, double min, double max);

/**
 * a + addend. If a is a pending sum, one rank adds it, and the sum stays pending. Integers too. For
 * a - c pass -c; for a / c use sherd_scale with 1 / c.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL for integers: the dtype can hold neither the addend nor its
 *             negative
 */
SHERD_API sherd_tensor *sherd_add_scalar(sherd_tensor *a, double addend);

/* ---- two operands ---------------------------------------------------------------------------- */

/**
 * a + factor b in one pass over memory, as torch.add(a, b, alpha=factor). If one operand is a
 * pending sum, the other is added to it once, and the result is pending.
 *
 * @collective see above
 * @numerics   the product is rounded, then the sum; of 16 bits in f32, and once at the end (by a
 *             GPU the product too)
 * @owns       scope
 * @errors     see above
 */
SHERD_API sherd_tensor *sherd_add_scaled(sherd_tensor *a, sherd_tensor *b, double factor);

/**
 * a += factor b, with the same bits as sherd_add_scaled; for the rest as sherd_add_to.
 *
 * @collective as sherd_add_to   @owns `a` itself   @errors as sherd_add_to; EINVAL integers, bool
 */
SHERD_API sherd_tensor *sherd_add_scaled_to(sherd_tensor *a, sherd_tensor *b, double factor);

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

/**
 * The larger one; where only one is NaN, the other. Of equal elements `a` gets the gradient.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_fmax(sherd_tensor *a, sherd_tensor *b);

/**
 * The smaller one; where only one is NaN, the other. Of equal elements `a` gets the gradient.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_fmin(sherd_tensor *a, sherd_tensor *b);

/** a^b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_power(sherd_tensor *a, sherd_tensor *b);

/**
 * floor(a / b) of the exact quotient. The gradient is 0.
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
 * The angle of the point (x, y) = (b, a) from the x axis, in [-pi, pi], as C's atan2(a, b). The
 * gradient at (0, 0) is 0.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_atan2(sherd_tensor *a, sherd_tensor *b);

/**
 * sqrt(a^2 + b^2), without overflow of the squares.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_hypot(sherd_tensor *a, sherd_tensor *b);
/** |a| with the sign of b. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_copysign(sherd_tensor *a, sherd_tensor *b);
/**
 * log(e^a + e^b), without overflow of the powers.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_logaddexp(sherd_tensor *a, sherd_tensor *b);
/** a log(b), 0 if a is 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_xlogy(sherd_tensor *a, sherd_tensor *b);

/* ---- comparisons: any dtype; the result is bool and has no gradient -------------------------- */

/** a == b. @collective see above @owns scope @errors see above */
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
/** Whether a and b are both nonzero. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_and(sherd_tensor *a, sherd_tensor *b);
/** Whether a or b is nonzero. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_or(sherd_tensor *a, sherd_tensor *b);
/** Whether exactly one is nonzero. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_xor(sherd_tensor *a, sherd_tensor *b);
/** Whether a is 0. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_logical_not(sherd_tensor *a);

/**
 * a == value. If a is floating-point, `value` is first rounded to its dtype; integers are compared
 * with `value` itself.
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

/* ---- NaN and infinity, and indices ----------------------------------------------------------- */

/** Whether a is NaN; any dtype. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_isnan(sherd_tensor *a);
/** Whether a is infinite; any dtype. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_isinf(sherd_tensor *a);
/** Whether a is finite; any dtype. @collective see above @owns scope @errors see above */
SHERD_API sherd_tensor *sherd_isfinite(sherd_tensor *a);

/**
 * Whether |a - b| is finite and at most absolute + relative |b|, or a and b are equal, also
 * infinite, or both NaN if `equal_nan`. (PyTorch's tolerances are 1e-5 and 1e-8.) Whether all are,
 * on all ranks, as torch.allclose says:
 *
 *     y = sherd_full(sherd_all(sherd_isclose(a, b, 1e-5, 1e-8, false), NULL, 0, false));
 *
 * @collective see above   @owns scope   @errors see above; EINVAL a negative tolerance, or NaN
 */
SHERD_API sherd_tensor *sherd_isclose(sherd_tensor *a, sherd_tensor *b, double relative,
                                      double absolute, bool equal_nan);

/**
 * a, with `nan` in place of NaN, `above` in place of infinity, and `below` in place of -infinity.
 * The gradient of a replaced element is 0. PyTorch's defaults are 0, and the largest and the
 * smallest finite number of the dtype.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_nan_to_num(sherd_tensor *a, double nan, double above, double below);

/**
 * index (i32) [...] -> [..., classes], of the given dtype: 1 at the class that the index names,
 * else 0. An index outside [0, classes), such as one to be ignored, gives a row of zeros.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL classes outside [0, 2^31), an unknown dtype
 */
SHERD_API sherd_tensor *sherd_one_hot(sherd_tensor *index, int64_t classes, sherd_dtype dtype);

/**
 * How often each number from 0 to classes - 1 occurs in `index` (i32, of any shape): i32 [classes].
 * Other numbers are not counted. Of a sharded index the result is a pending sum, and nothing moves.
 *
 * @collective see above   @owns scope   @errors see above; EINVAL negative classes
 */
SHERD_API sherd_tensor *sherd_bincount(sherd_tensor *index, int64_t classes);

/**
 * How many elements of `a` (of any shape, floating-point) lie in each of `bins` equal parts of
 * [min, max], the last of which has its upper end too: i32 [bins]. Others, and NaN, are not
 * counted. Of a sharded `a` the result is a pending sum, and nothing moves. Bins by edges:
 * sherd_bincount of sherd_searchsorted, whose places are one more than those of bins.
 *
 * @collective see above
 * @numerics   the bin is floor((a - min) bins / (max - min)), with min and max in the dtype of `a`
 *             (f32 for 16 bits): PyTorch's (torch.histc), whose counts are of that dtype
 * @owns       scope
 * @errors     see above; EINVAL bins outside [1, 2^31), min not below max, (max - min) bins inf
 */
SHERD_API sherd_tensor *sherd_histc(sherd_tensor *a, int64_t bins, double min, double max);

/* ---- selection ------------------------------------------------------------------------------- */

/**
 * condition ? a : b, element by element; `condition` is bool, a and b are of any dtype.
 *
 * @collective see above   @owns scope   @errors see above
 */
SHERD_API sherd_tensor *sherd_where(sherd_tensor *condition, sherd_tensor *a, sherd_tensor *b);

/**
 * `value` where `mask` (bool) is true, else a, which is of any dtype. A pending sum stays pending
 * if `value` is 0.
 *
 * @collective see above
 * @owns       scope
 * @errors     see above; EINVAL a value that the dtype cannot hold
 */
SHERD_API sherd_tensor *sherd_masked_fill(sherd_tensor *a, sherd_tensor *mask, double value);

SHERD_END

#endif
