/* SPDX-License-Identifier: Apache-2.0 */
/* Losses composed of other operators: the loss of each element, then a mean, a sum, or neither. */
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_losses.h"

#include <float.h>

typedef struct loss_attributes {
    int reduction;
    double parameter;
    bool logarithm;
} loss_attributes;

#define LOSS(name_, text, made)                                                                \
    {                                                                                          \
        .name = name_, .summary = text, .operand = {{"x", 0}, {"target", 0}},                  \
        .autocast = SHERD_AUTOCAST_FULL, .result = {{"loss", 0}}, LOSS_FIELDS, .compose = made \
    }
#define LOSS_FIELDS                                                              \
    .field = {SHERD__CHOICE(loss_attributes, reduction, SHERD__LOSS_REDUCTIONS), \
              SHERD_FIELD(loss_attributes, parameter, DOUBLE),                   \
              SHERD_FIELD(loss_attributes, logarithm, BOOL)},                    \
    .attributes = sizeof(loss_attributes)

/* The result of a call whose elements lose `each`, which may be f32 where operands have 16 bits. */
static bool reduced(sherd_call *call, sherd_tensor *each)
{
    const loss_attributes *attributes = call->attributes;
    sherd_dtype dtype = call->in[0]->dtype;

    switch (attributes->reduction) {
    case SHERD_LOSS_MEAN:
        call->out[0] = sherd_cast(sherd_mean(each), dtype);
        return true;
    case SHERD_LOSS_SUM:
        call->out[0] = sherd_cast(sherd_sum(each), dtype);
        return true;
    case SHERD_LOSS_NONE:
        call->out[0] = sherd_cast(each, dtype);
        return true;
    default:
        return sherd_call_fail(call, SHERD_EINVAL, "there is no reduction %d",
                               attributes->reduction);
    }
}

static sherd_tensor *apply_loss(const sherd_op *op, sherd_tensor *x, sherd_tensor *target,
                                sherd_loss_reduction reduction, double parameter)
{
    const loss_attributes attributes = {(int)reduction, parameter, false};

    return sherd_apply(op, (sherd_tensor *[]){x, target}, 2, &attributes);
}

/* ---- of differences -------------------------------------------------------------------------- */

static bool mse(sherd_call *call)
{
    return reduced(call, sherd_square(sherd_sub(call->in[0], call->in[1])));
}

static bool l1(sherd_call *call)
{
    return reduced(call, sherd_abs(sherd_sub(call->in[0], call->in[1])));
}

static bool huber(sherd_call *call)
{
    const loss_attributes *attributes = call->attributes;

    if (!(attributes->parameter > 0))
        return sherd_call_fail(call, SHERD_EINVAL, "delta = %g is not positive",
                               attributes->parameter);
    return reduced(call, sherd__unary(SHERD__HUBER_OF, sherd_sub(call->in[0], call->in[1]),
                                      attributes->parameter));
}

static bool smooth_l1(sherd_call *call)
{
    const loss_attributes *attributes = call->attributes;
    sherd_dtype dtype = sherd__statistics_dtype(call->in[0]->dtype);
    double beta = attributes->parameter;

    if (!(beta >= 0))
        return sherd_call_fail(call, SHERD_EINVAL, "beta = %g is negative", beta);
    if (beta < (dtype == SHERD_F64 ? DBL_MIN : (double)FLT_MIN)) /* its inverse may be infinite */
        return l1(call);
    /* In f32 or f64: 16 bits have too few digits for what is divided by a small beta. */
    sherd_tensor *d = sherd_cast(sherd_sub(call->in[0], call->in[1]), dtype);
    return reduced(call, sherd_scale(sherd__unary(SHERD__HUBER_OF, d, beta), 1 / beta));
}

const sherd_op sherd__mse_loss_op = LOSS("sherd_mse_loss", "(x - target)^2", mse);
const sherd_op sherd__l1_loss_op = LOSS("sherd_l1_loss", "|x - target|", l1);
const sherd_op sherd__huber_loss_op =
    LOSS("sherd_huber_loss", "d^2 / 2, linear from delta on", huber);
const sherd_op sherd__smooth_l1_loss_op =
    LOSS("sherd_smooth_l1_loss", "sherd_huber_loss divided by beta", smooth_l1);

sherd_tensor *sherd_mse_loss(sherd_tensor *x, sherd_tensor *target, sherd_loss_reduction reduction)
{
    return apply_loss(&sherd__mse_loss_op, x, target, reduction, 0);
}

sherd_tensor *sherd_l1_loss(sherd_tensor *x, sherd_tensor *target, sherd_loss_reduction reduction)
{
    return apply_loss(&sherd__l1_loss_op, x, target, reduction, 0);
}

sherd_tensor *sherd_huber_loss(sherd_tensor *x, sherd_tensor *target, double delta,
                               sherd_loss_reduction reduction)
{
    return apply_loss(&sherd__huber_loss_op, x, target, reduction, delta);
}

sherd_tensor *sherd_smooth_l1_loss(sherd_tensor *x, sherd_tensor *target, double beta,
                                   sherd_loss_reduction reduction)
{
    return apply_loss(&sherd__smooth_l1_loss_op, x, target, reduction, beta);
}

/* ---- of probabilities ------------------------------------------------------------------------ */

/*
 * (1 - target) x + w softplus(-x), w = 1 + (positive_weight - 1) target: nothing large is
 * subtracted. Its gradient is a difference: of numbers of 16 bits it is computed in f32.
 */
static bool bce(sherd_call *call)
{
    enum { EXACT = 40 }; /* from here on softplus(x) is x, in f64 too */
    sherd_dtype dtype = sherd__statistics_dtype(call->in[0]->dtype);
    sherd_tensor *in[4];

    for (int i = 0; i < 4; i++)
        in[i] = call->in[i] ? sherd_cast(call->in[i], dtype) : NULL;
    sherd_tensor *x = in[0], *target = in[1], *weight = in[2];
    sherd_tensor *log_s = sherd_softplus(sherd_neg(x), 1, EXACT);

    if (in[3])
        log_s =
            sherd_mul(log_s, sherd_add_scalar(sherd_mul(sherd_add_scalar(in[3], -1), target), 1));
    sherd_tensor *each = sherd_add(sherd_mul(sherd_add_scalar(sherd_neg(target), 1), x), log_s);
    return reduced(call, weight ? sherd_mul(each, weight) : each);
}

const sherd_op sherd__bce_with_logits_op = {.name = "sherd_bce_with_logits",
                                            .autocast = SHERD_AUTOCAST_FULL,
                                            .summary = "binary cross-entropy of logits",
                                            .operand = {{"x", 0},
                                                        {"target", 0},
                                                        {"weight", SHERD_OP_OPTIONAL},
                                                        {"positive_weight", SHERD_OP_OPTIONAL}},
                                            .result = {{"loss", 0}},
                                            LOSS_FIELDS,
                                            .compose = bce};

sherd_tensor *sherd_bce_with_logits(sherd_tensor *x, sherd_tensor *target, sherd_tensor *weight,
                                    sherd_tensor *positive_weight, sherd_loss_reduction reduction)
{
    return sherd_apply(&sherd__bce_with_logits_op,
                       (sherd_tensor *[]){x, target, weight, positive_weight}, 4,
                       &(loss_attributes){.reduction = (int)reduction});
}

/* What is weighed by 0 is that 0, so that infinite logarithms are not there. */
static sherd_tensor *unless_0(sherd_tensor *weight, sherd_tensor *x)
{
    weight = sherd_detach(weight);
    return sherd_where(sherd_eq_scalar(weight, 0), weight, x);
}

static bool kl_div(sherd_call *call)
{
    const loss_attributes *attributes = call->attributes;
    sherd_tensor *x = call->in[0], *t = call->in[1];

    if (attributes->logarithm) {
        sherd_tensor *p = sherd_exp(t);
        return reduced(call, sherd_mul(p, unless_0(p, sherd_sub(t, x))));
    }
    return reduced(call,
                   sherd_sub(sherd__unary(SHERD__X_LOG_X, t, 1), sherd_mul(t, unless_0(t, x))));
}

const sherd_op sherd__kl_div_op = LOSS("sherd_kl_div", "target (log target - x)", kl_div);

sherd_tensor *sherd_kl_div(sherd_tensor *log_x, sherd_tensor *target, bool log_target,
                           sherd_loss_reduction reduction)
{
    return sherd_apply(&sherd__kl_div_op, (sherd_tensor *[]){log_x, target}, 2,
                       &(loss_attributes){.reduction = (int)reduction, .logarithm = log_target});
}
