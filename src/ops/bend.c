/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Second derivatives of the elementwise functions of one operand (kernels/functions.inc): the
 * slope of each, as a function of what it reads (x, or the value y), differentiated by that. They
 * are made of operators, so derivatives of any order follow. Where a slope jumps, it counts as
 * constant on both sides.
 */
#include "bend.h"

#include "sherd/ops_elements.h"

/* g factor / t^2; t^2 itself might overflow. */
static sherd_tensor *over_square(sherd_tensor *g, sherd_tensor *t, double factor)
{
    sherd_tensor *inverse = sherd_reciprocal(t);

    return sherd_scale(sherd_mul(sherd_mul(g, inverse), inverse), factor);
}

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

/* s (1 - s) (2 + x (1 - 2 s)) */
static sherd_tensor *bend_silu(sherd_tensor *g, sherd_tensor *x)
{
    logistic l = logistic_of(x);
    sherd_tensor *inner = sherd_mul(x, sherd_sub(l.rest, l.s));

    return sherd_mul(by_logistic(g, l), sherd_add_scalar(inner, 2));
}

static sherd_tensor *bend_softplus(sherd_tensor *g, sherd_tensor *x, double beta, double threshold)
{
    sherd_tensor *scaled = sherd_scale(x, beta);
    sherd_tensor *bent = sherd_scale(by_logistic(g, logistic_of(scaled)), beta);

    return sherd_masked_fill(bent, sherd_gt_scalar(scaled, threshold), 0);
}

/* Of factor |t|^exponent, which is 0 where t is 0. */
static sherd_tensor *bend_power(sherd_tensor *g, sherd_tensor *t, double exponent, double factor)
{
    sherd_tensor *zero = sherd_eq_scalar(t, 0), *size = sherd_masked_fill(sherd_abs(t), zero, 1);
    sherd_tensor *bent = sherd_scale(sherd_mul(g, sherd_pow(size, exponent)), factor);

    return exponent > 0 || exponent < 0 ? sherd_masked_fill(bent, zero, 0) : bent;
}

/* The slope is x within delta, else constant. */
static sherd_tensor *bend_huber(sherd_tensor *g, sherd_tensor *x, double delta)
{
    return sherd_masked_fill(g, sherd_gt_scalar(sherd_abs(x), delta), 0);
}

/* The slope is scale (log x + 1), and 0 at 0. */
static sherd_tensor *bend_x_log_x(sherd_tensor *g, sherd_tensor *x, double scale)
{
    sherd_tensor *zero = sherd_eq_scalar(x, 0), *safe = sherd_masked_fill(x, zero, 1);

    return sherd_masked_fill(sherd_scale(sherd_mul(g, sherd_reciprocal(safe)), scale), zero, 0);
}

/* Made of straight parts: the second derivative is 0. */
static bool is_straight(sherd__unary_kind kind, double p)
{
    switch (kind) {
    case SHERD__NEG:
    case SHERD__ABS:
    case SHERD__SIGN:
    case SHERD__RELU:
    case SHERD__LEAKY_RELU:
    case SHERD__CLAMP:
    case SHERD__COUNT_OF:
        return true;
    case SHERD__POW:
    case SHERD__SIZE_TO:
        return p == 0 || p == 1;
    case SHERD__ROOT:
        return p == 1;
    default:
        return false;
    }
}

sherd_tensor *sherd__bend(sherd__unary_kind kind, sherd_tensor *t, sherd_tensor *dy,
                          sherd_tensor *g, const double *parameter)
{
    double p = parameter ? parameter[0] : 0;

    if (is_straight(kind, p))
        return NULL;
    g = sherd_mul(g, dy);
    switch (kind) {
    case SHERD__EXP:
    case SHERD__EXPM1:
        return g;
    case SHERD__LOG:
        return over_square(g, t, -1);
    case SHERD__LOG1P:
        return over_square(g, sherd_add_scalar(t, 1), -1);
    case SHERD__SQRT:
        return over_square(g, t, -0.5);
    case SHERD__RSQRT:
        return sherd_scale(sherd_mul(g, sherd_square(t)), -1.5);
    case SHERD__POW:
        return sherd_scale(sherd_mul(g, sherd_pow(t, p - 2)), p * (p - 1));
    case SHERD__SQUARE:
        return sherd_scale(g, 2);
    case SHERD__RECIPROCAL:
    case SHERD__TANH:
        return sherd_scale(sherd_mul(g, t), -2);
    case SHERD__SIN:
        return sherd_neg(sherd_mul(g, sherd_sin(t)));
    case SHERD__COS:
        return sherd_neg(sherd_mul(g, sherd_cos(t)));
    case SHERD__ERF:
        return bend_erf(g, t);
    case SHERD__SIGMOID:
        return sherd_mul(g, sherd_add_scalar(sherd_scale(t, -2), 1));
    case SHERD__GELU:
        return bend_gelu(g, t);
    case SHERD__GELU_ERF:
        return bend_gelu_erf(g, t);
    case SHERD__SILU:
        return bend_silu(g, t);
    case SHERD__SOFTPLUS:
        return bend_softplus(g, t, p, parameter ? parameter[1] : 0);
    case SHERD__SIZE_TO:
        return bend_power(g, t, p - 2, p * (p - 1));
    case SHERD__ROOT:
        return bend_power(g, t, -p, (1 - p) / p);
    case SHERD__HUBER_OF:
        return bend_huber(g, t, p);
    case SHERD__X_LOG_X:
        return bend_x_log_x(g, t, p);
    default: /* another kind of kernel, of no function */
        return NULL;
    }
}
