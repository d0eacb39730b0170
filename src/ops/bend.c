/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Second derivatives of the elementwise functions of one operand (kernels/functions.inc): the slope
 * of each, as a function of what it reads (x, or the value y), differentiated by that. They are
 * made of operators, so derivatives of any order follow. Where a slope jumps, it counts as constant
 * on both sides; functions whose slope is piecewise constant are not in the table.
 */
#include "bend.h"

#include "sherd/ops_elements.h"

/* g factor / t^2; t^2 itself might overflow. */
static sherd_tensor *over_square(sherd_tensor *g, sherd_tensor *t, double factor)
{
    sherd_tensor *inverse = sherd_reciprocal(t);

    return sherd_scale(sherd_mul(sherd_mul(g, inverse), inverse), factor);
}

/* g times the third power of t, and factor. */
static sherd_tensor *by_cube(sherd_tensor *g, sherd_tensor *t, double factor)
{
    return sherd_scale(sherd_mul(sherd_mul(g, t), sherd_square(t)), factor);
}

/* ---- powers, exponentials and logarithms ----------------------------------------------------- */

static sherd_tensor *bend_exp(sherd_tensor *g, sherd_tensor *y)
{
    (void)y;
    return g;
}

static sherd_tensor *bend_exp2(sherd_tensor *g, sherd_tensor *y)
{
    (void)y;
    return sherd_scale(g, 0.6931471805599453);
}

static sherd_tensor *bend_log(sherd_tensor *g, sherd_tensor *x)
{
    return over_square(g, x, -1);
}

static sherd_tensor *bend_log2(sherd_tensor *g, sherd_tensor *x)
{
    return over_square(g, x, -1.4426950408889634);
}

static sherd_tensor *bend_log10(sherd_tensor *g, sherd_tensor *x)
{
    return over_square(g, x, -0.4342944819032518);
}

static sherd_tensor *bend_log1p(sherd_tensor *g, sherd_tensor *x)
{
    return over_square(g, sherd_add_scalar(x, 1), -1);
}

static sherd_tensor *bend_sqrt(sherd_tensor *g, sherd_tensor *y)
{
    return over_square(g, y, -0.5);
}

static sherd_tensor *bend_rsqrt(sherd_tensor *g, sherd_tensor *y)
{
    return sherd_scale(sherd_mul(g, sherd_square(y)), -1.5);
}

static sherd_tensor *bend_square(sherd_tensor *g, sherd_tensor *x)
{
    (void)x;
    return sherd_scale(g, 2);
}

static sherd_tensor *bend_pow(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    if (p[0] == 0 || p[0] == 1)
        return NULL;
    return sherd_scale(sherd_mul(g, sherd_pow(x, p[0] - 2)), p[0] * (p[0] - 1));
}

/* Of factor |t|^exponent, which is 0 where t is 0. */
static sherd_tensor *bend_power(sherd_tensor *g, sherd_tensor *t, double exponent, double factor)
{
    sherd_tensor *zero = sherd_eq_scalar(t, 0), *size = sherd_masked_fill(sherd_abs(t), zero, 1);
    sherd_tensor *bent = sherd_scale(sherd_mul(g, sherd_pow(size, exponent)), factor);

    return exponent > 0 || exponent < 0 ? sherd_masked_fill(bent, zero, 0) : bent;
}

static sherd_tensor *bend_size_to(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    return p[0] == 0 || p[0] == 1 ? NULL : bend_power(g, x, p[0] - 2, p[0] * (p[0] - 1));
}

static sherd_tensor *bend_root(sherd_tensor *g, sherd_tensor *y, const double *p)
{
    return p[0] == 1 ? NULL : bend_power(g, y, -p[0], (1 - p[0]) / p[0]);
}

/* ---- angles ---------------------------------------------------------------------------------- */

/* Of 1 / x, and of tanh. */
static sherd_tensor *bend_minus_2(sherd_tensor *g, sherd_tensor *y)
{
    return sherd_scale(sherd_mul(g, y), -2);
}

static sherd_tensor *bend_sin(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_neg(sherd_mul(g, sherd_sin(x)));
}

static sherd_tensor *bend_cos(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_neg(sherd_mul(g, sherd_cos(x)));
}

static sherd_tensor *bend_tan(sherd_tensor *g, sherd_tensor *y)
{
    return sherd_scale(sherd_mul(g, y), 2);
}

static sherd_tensor *bend_sinh(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_mul(g, sherd_sinh(x));
}

static sherd_tensor *bend_cosh(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_mul(g, sherd_cosh(x));
}

/* x / sqrt(1 - x^2)^3 */
static sherd_tensor *bend_asin(sherd_tensor *g, sherd_tensor *x)
{
    sherd_tensor *slope = sherd_rsqrt(sherd_add_scalar(sherd_neg(sherd_square(x)), 1));

    return by_cube(sherd_mul(g, x), slope, 1);
}

static sherd_tensor *bend_acos(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_neg(bend_asin(g, x));
}

/* -2 x / (1 + x^2)^2 */
static sherd_tensor *bend_atan(sherd_tensor *g, sherd_tensor *x)
{
    return over_square(sherd_mul(g, x), sherd_add_scalar(sherd_square(x), 1), -2);
}

/* -x / sqrt(x^2 + 1)^3 */
static sherd_tensor *bend_asinh(sherd_tensor *g, sherd_tensor *x)
{
    return by_cube(sherd_mul(g, x), sherd_rsqrt(sherd_add_scalar(sherd_square(x), 1)), -1);
}

/* -x / sqrt(x^2 - 1)^3 */
static sherd_tensor *bend_acosh(sherd_tensor *g, sherd_tensor *x)
{
    return by_cube(sherd_mul(g, x), sherd_rsqrt(sherd_add_scalar(sherd_square(x), -1)), -1);
}

/* 2 x / (1 - x^2)^2 */
static sherd_tensor *bend_atanh(sherd_tensor *g, sherd_tensor *x)
{
    return over_square(sherd_mul(g, x), sherd_add_scalar(sherd_square(x), -1), 2);
}

/* ---- gates ----------------------------------------------------------------------------------- */

/* The logistic function s of x and, exact far out, 1 - s. */
typedef struct logistic {
    sherd_tensor *s, *rest;
} logistic;

static logistic logistic_of(sherd_tensor *x)
{
    return (logistic){sherd_sigmoid(x), sherd_sigmoid(sherd_neg(x))};
}

/* g s (1 - s) */
static sherd_tensor *by_logistic(sherd_tensor *g, logistic l)
{
    return sherd_mul(sherd_mul(g, l.s), l.rest);
}

static sherd_tensor *bend_sigmoid(sherd_tensor *g, sherd_tensor *y)
{
    return sherd_mul(g, sherd_add_scalar(sherd_scale(y, -2), 1));
}

static sherd_tensor *bend_logsigmoid(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_neg(by_logistic(g, logistic_of(x)));
}

/* s (1 - s) (2 + x (1 - 2 s)) */
static sherd_tensor *bend_silu(sherd_tensor *g, sherd_tensor *x)
{
    logistic l = logistic_of(x);
    sherd_tensor *inner = sherd_mul(x, sherd_sub(l.rest, l.s));

    return sherd_mul(by_logistic(g, l), sherd_add_scalar(inner, 2));
}

static sherd_tensor *bend_softplus(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    sherd_tensor *scaled = sherd_scale(x, p[0]);
    sherd_tensor *bent = sherd_scale(by_logistic(g, logistic_of(scaled)), p[0]);

    return sherd_masked_fill(bent, sherd_gt_scalar(scaled, p[1]), 0);
}

/*
 * With t = tanh(softplus(x)), which rises by t' = (1 - t^2) s, the slope is t + x t', and its own
 * slope t' (2 + x (1 - s - 2 t s)). Far out, where t' is 0, x may be infinite.
 */
static sherd_tensor *bend_mish(sherd_tensor *g, sherd_tensor *x)
{
    x = sherd_clamp(x, -100, 100);
    logistic l = logistic_of(x);
    sherd_tensor *t = sherd_tanh(sherd_neg(sherd_logsigmoid(sherd_neg(x))));
    sherd_tensor *rise = sherd_mul(sherd_add_scalar(sherd_neg(sherd_square(t)), 1), l.s);
    sherd_tensor *inner = sherd_sub(l.rest, sherd_scale(sherd_mul(t, l.s), 2));

    return sherd_mul(sherd_mul(g, rise), sherd_add_scalar(sherd_mul(x, inner), 2));
}

/*
 * With u = c (x + a x^3) and t = tanh(u) the slope is (1 + t) / 2 + x (1 - t^2) u' / 2, and its own
 * slope (1 - t^2) (u' - x t u'^2 + x u'' / 2). Of the logistic function s of 2 u, t is s - (1 - s)
 * and 1 - t^2 is 4 s (1 - s). Far out, where that is 0, powers of x would overflow.
 */
static sherd_tensor *bend_gelu(sherd_tensor *g, sherd_tensor *x)
{
    const double c = 0.7978845608028654, a = 0.044715;

    x = sherd_clamp(x, -30, 30);
    sherd_tensor *square = sherd_square(x);
    sherd_tensor *factor = sherd_add_scalar(sherd_scale(square, a), 1);
    logistic l = logistic_of(sherd_mul(sherd_scale(x, 2 * c), factor));
    sherd_tensor *slope = sherd_scale(sherd_add_scalar(sherd_scale(square, 3 * a), 1), c);
    sherd_tensor *curve = sherd_scale(square, 3 * a * c);
    sherd_tensor *t = sherd_sub(l.s, l.rest);
    sherd_tensor *inner =
        sherd_sub(sherd_add(slope, curve), sherd_mul(sherd_mul(x, t), sherd_square(slope)));
    return sherd_scale(sherd_mul(by_logistic(g, l), inner), 4);
}

/* The density is d(x) = e^(-x^2 / 2) / sqrt(2 pi): d(x) (2 - x^2). */
static sherd_tensor *bend_gelu_erf(sherd_tensor *g, sherd_tensor *x)
{
    sherd_tensor *square = sherd_square(sherd_clamp(x, -50, 50));
    sherd_tensor *density = sherd_scale(sherd_exp(sherd_scale(square, -0.5)), 0.3989422804014327);

    return sherd_mul(g, sherd_mul(density, sherd_add_scalar(sherd_neg(square), 2)));
}

static sherd_tensor *bend_erf(sherd_tensor *g, sherd_tensor *x)
{
    sherd_tensor *density = sherd_exp(sherd_neg(sherd_square(x)));

    return sherd_scale(sherd_mul(g, sherd_mul(x, density)), -2 * 1.1283791670955126);
}

static sherd_tensor *bend_erfc(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_neg(bend_erf(g, x));
}

/* g factor e^x where x is negative, else 0. */
static sherd_tensor *below_0(sherd_tensor *g, sherd_tensor *x, double factor)
{
    sherd_tensor *bent = sherd_scale(sherd_mul(g, sherd_exp(sherd_clamp(x, -1000, 0))), factor);

    return sherd_masked_fill(bent, sherd_gt_scalar(x, 0), 0);
}

static sherd_tensor *bend_elu(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    return below_0(g, x, p[0]);
}

static sherd_tensor *bend_celu(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    return below_0(g, sherd_scale(x, 1 / p[0]), 1 / p[0]);
}

static sherd_tensor *bend_selu(sherd_tensor *g, sherd_tensor *x)
{
    return below_0(g, x, 1.7580993408473766);
}

/* -2 sign(x) / (1 + |x|)^3 */
static sherd_tensor *bend_softsign(sherd_tensor *g, sherd_tensor *x)
{
    return by_cube(sherd_mul(g, sherd_sign(x)), sherd_reciprocal(sherd_add_scalar(sherd_abs(x), 1)),
                   -2);
}

/* The slope is x / 3 + 1 / 2 between -3 and 3. */
static sherd_tensor *bend_hardswish(sherd_tensor *g, sherd_tensor *x)
{
    return sherd_masked_fill(sherd_scale(g, 1.0 / 3), sherd_ge_scalar(sherd_abs(x), 3), 0);
}

/* ---- steps of losses ------------------------------------------------------------------------- */

/* The slope is x within delta, else constant. */
static sherd_tensor *bend_huber(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    return sherd_masked_fill(g, sherd_gt_scalar(sherd_abs(x), p[0]), 0);
}

/* The slope is scale (log x + 1), and 0 at 0. */
static sherd_tensor *bend_x_log_x(sherd_tensor *g, sherd_tensor *x, const double *p)
{
    sherd_tensor *zero = sherd_eq_scalar(x, 0), *safe = sherd_masked_fill(x, zero, 1);

    return sherd_masked_fill(sherd_scale(sherd_mul(g, sherd_reciprocal(safe)), p[0]), zero, 0);
}

/* By kind; g holds dy, and t is what the slope reads. */
static sherd_tensor *(*const bends[SHERD__UNARY_KINDS])(sherd_tensor *g, sherd_tensor *t) = {
    [SHERD__EXP] = bend_exp,
    [SHERD__EXPM1] = bend_exp,
    [SHERD__EXP2] = bend_exp2,
    [SHERD__LOG] = bend_log,
    [SHERD__LOG2] = bend_log2,
    [SHERD__LOG10] = bend_log10,
    [SHERD__LOG1P] = bend_log1p,
    [SHERD__SQRT] = bend_sqrt,
    [SHERD__RSQRT] = bend_rsqrt,
    [SHERD__SQUARE] = bend_square,
    [SHERD__RECIPROCAL] = bend_minus_2,
    [SHERD__SIN] = bend_sin,
    [SHERD__COS] = bend_cos,
    [SHERD__TAN] = bend_tan,
    [SHERD__ASIN] = bend_asin,
    [SHERD__ACOS] = bend_acos,
    [SHERD__ATAN] = bend_atan,
    [SHERD__SINH] = bend_sinh,
    [SHERD__COSH] = bend_cosh,
    [SHERD__TANH] = bend_minus_2,
    [SHERD__ASINH] = bend_asinh,
    [SHERD__ACOSH] = bend_acosh,
    [SHERD__ATANH] = bend_atanh,
    [SHERD__ERF] = bend_erf,
    [SHERD__ERFC] = bend_erfc,
    [SHERD__SIGMOID] = bend_sigmoid,
    [SHERD__LOGSIGMOID] = bend_logsigmoid,
    [SHERD__GELU] = bend_gelu,
    [SHERD__GELU_ERF] = bend_gelu_erf,
    [SHERD__SILU] = bend_silu,
    [SHERD__MISH] = bend_mish,
    [SHERD__SELU] = bend_selu,
    [SHERD__SOFTSIGN] = bend_softsign,
    [SHERD__HARDSWISH] = bend_hardswish,
};

/* The same for functions with parameters. */
static sherd_tensor *(*const bends_by[SHERD__UNARY_KINDS])(sherd_tensor *g, sherd_tensor *t,
                                                           const double *p) = {
    [SHERD__POW] = bend_pow,         [SHERD__SOFTPLUS] = bend_softplus,
    [SHERD__ELU] = bend_elu,         [SHERD__SIZE_TO] = bend_size_to,
    [SHERD__ROOT] = bend_root,       [SHERD__HUBER_OF] = bend_huber,
    [SHERD__X_LOG_X] = bend_x_log_x, [SHERD__CELU] = bend_celu,
};

sherd_tensor *sherd__bend(sherd__unary_kind kind, sherd_tensor *t, sherd_tensor *dy,
                          sherd_tensor *g, const double *parameter)
{
    if (bends[kind])
        return bends[kind](sherd_mul(g, dy), t);
    return bends_by[kind] ? bends_by[kind](sherd_mul(g, dy), t, parameter) : NULL;
}
