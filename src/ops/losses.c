/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses made of other operators: what each element loses, then a mean, a sum, or neither. Only the choice of a class by an
 * index has a kernel of its own; it is linear, so sharded classes give a pending sum.
 */
#include "operator.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_losses.h"

#include <string.h>

#include "base/num.h"

typedef struct loss_attributes {
    int reduction;
    double parameter;
    bool logarithm;
} loss_attributes;

#define LOSS(name_, text, made)                                               \
    {                                                                         \
        .name = name_, .summary = text, .operand = {{"x", 0}, {"target", 0}}, \
        .result = {{"loss", 0}}, LOSS_FIELDS, .compose = made                 \
    }
#define LOSS_FIELDS                                            \
    .field = {SHERD_FIELD(loss_attributes, reduction, INT),    \
              SHERD_FIELD(loss_attributes, parameter, DOUBLE), \
              SHERD_FIELD(loss_attributes, logarithm, BOOL)},  \
    .attributes = sizeof(loss_attributes)

/* The result of a call whose elements lose `each`. */
static bool reduced(sherd_call *call, sherd_tensor *each)
{
    const loss_attributes *attributes = call->attributes;

    switch (attributes->reduction) {
    case SHERD_LOSS_MEAN:
        call->out[0] = sherd_mean(each);
        return true;
    case SHERD_LOSS_SUM:
        call->out[0] = sherd_sum(each);
        return true;
    case SHERD_LOSS_NONE:
        call->out[0] = each;
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

/* ---- of differences --------------------------------------------------------------------------- */

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
    double beta = attributes->parameter;

    if (!(beta >= 0))
        return sherd_call_fail(call, SHERD_EINVAL, "beta = %g is negative", beta);
    if (beta == 0)
        return l1(call);
    sherd_tensor *d = sherd_sub(call->in[0], call->in[1]);
    return reduced(call, sherd_scale(sherd__unary(SHERD__HUBER_OF, d, beta), 1 / beta));
}

const sherd_op sherd__mse_loss_op = LOSS("sherd_mse_loss", "(x - target)^2", mse);
const sherd_op sherd__l1_loss_op = LOSS("sherd_l1_loss", "|x - target|", l1);
const sherd_op sherd__huber_loss_op =
    LOSS("sherd_huber_loss", "d^2 / 2, from delta on linear", huber);
const sherd_op sherd__smooth_l1_loss_op =
    LOSS("sherd_smooth_l1_loss", "sherd_huber_loss over beta", smooth_l1);

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

/* ---- of probabilities -------------------------------------------------------------------------- */

/* (1 - target) x + w softplus(-x), w = 1 + (positive_weight - 1) target: nothing large is subtracted. */
static bool bce(sherd_call *call)
{
    enum { EXACT = 40 }; /* from here on softplus(x) is x, in f64 too */
    sherd_tensor *x = call->in[0], *target = call->in[1], *weight = call->in[2];
    sherd_tensor *log_s = sherd_softplus(sherd_neg(x), 1, EXACT);

    if (call->in[3])
        log_s = sherd_mul(
            log_s, sherd_add_scalar(sherd_mul(sherd_add_scalar(call->in[3], -1), target), 1));
    sherd_tensor *each = sherd_add(sherd_mul(sherd_add_scalar(sherd_neg(target), 1), x), log_s);
    return reduced(call, weight ? sherd_mul(each, weight) : each);
}

const sherd_op sherd__bce_with_logits_op = {.name = "sherd_bce_with_logits",
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

static bool kl_div(sherd_call *call)
{
    const loss_attributes *attributes = call->attributes;
    sherd_tensor *x = call->in[0], *t = call->in[1];

    if (attributes->logarithm)
        return reduced(call, sherd_mul(sherd_exp(t), sherd_sub(t, x)));
    return reduced(call, sherd_sub(sherd__unary(SHERD__X_LOG_X, t, 1), sherd_mul(t, x)));
}

const sherd_op sherd__kl_div_op = LOSS("sherd_kl_div", "target (log target - x)", kl_div);

sherd_tensor *sherd_kl_div(sherd_tensor *log_x, sherd_tensor *target, bool log_target,
                           sherd_loss_reduction reduction)
{
    return sherd_apply(&sherd__kl_div_op, (sherd_tensor *[]){log_x, target}, 2,
                       &(loss_attributes){.reduction = (int)reduction, .logarithm = log_target});
}

/* ---- of a class by its index -------------------------------------------------------------------- */

/* dst[row] = x[row, target], 0 where another rank has it; or the other way round, everything else 0. */
static void choose(size_t bytes, int64_t rows, int64_t cols, int64_t first, char *one, char *all,
                   const int32_t *target, bool back)
{
    for (int64_t r = 0; r < rows; r++, one += bytes, all += (size_t)cols * bytes) {
        int64_t at = target[r] - first;
        bool here = at >= 0 && at < cols;
        char *element = all + (size_t)(here ? at : 0) * bytes;
        if (back)
            memset(all, 0, (size_t)cols * bytes);
        if (back && here)
            memcpy(element, one, bytes);
        else if (!back && here)
            memcpy(one, element, bytes);
        else if (!back)
            memset(one, 0, bytes);
    }
}

typedef struct class_attributes {
    int64_t classes;
} class_attributes;

static const char *describe_spread(sherd_call *call)
{
    const class_attributes *attributes = call->attributes;

    call->shape[0][call->in[0]->ndim] = attributes->classes;
    return NULL;
}

static bool spread_class(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int last = out->ndim - 1;

    if (out->count)
        choose(sherd_dtype_bytes(out->dtype), call->in[0]->count, out->local[last],
               sherd_tensor_box(out).offset[last], (char *)(uintptr_t)call->from[0], call->to[0],
               call->from[1], true);
    return true;
}

/* The third operand is the layout of the classes alone. */
static const sherd_op spread_class_op = {
    .name = "sherd_nll_loss backward",
    .operand = {{"dy", 0}, {"target", SHERD_OP_INDEX}, {"x", SHERD_OP_OPTIONAL}},
    .result = {{"dx", 0}},
    .field = {SHERD_FIELD(class_attributes, classes, INT64)},
    .attributes = sizeof(class_attributes),
    .rule = "...,...,...c->...c",
    .describe = describe_spread,
    .forward = spread_class};

static void pick_class_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *layout = sherd_node_layout(node, 0), *like[3] = {NULL, NULL, NULL};
    sherd_tensor *in[] = {grad_out[0], sherd_node_operand(node, 1), NULL};
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    grad_in[0] = sherd__failed(sherd__node_world(node));
    if (layout && sherd__layout_settle(&like[2], layout) != SHERD_OK)
        sherd__fail_diag(sherd__node_world(node), true);
    else
        sherd__apply_like(grad_in, &spread_class_op, in, 3, &(class_attributes){shape[ndim - 1]},
                          like);
}

static bool pick_class(sherd_call *call)
{
    const sherd_tensor *x = call->in[0];
    int last = x->ndim - 1;

    if (!sherd__check_indices(call, 1, x->shape[last]))
        return false;
    choose(sherd_dtype_bytes(x->dtype), call->out[0]->count, x->local[last],
           sherd_tensor_box(x).offset[last], call->to[0], (char *)(uintptr_t)call->from[0],
           call->from[1], false);
    return true;
}

static const sherd_op pick_class_op = {.name = "sherd_nll_loss class",
                                       .operand = {{"x", 0}, {"target", SHERD_OP_INDEX}},
                                       .result = {{"y", 0}},
                                       .rule = "...c,...->...",
                                       .linearity = SHERD_LINEAR,
                                       .forward = pick_class,
                                       .backward = pick_class_back,
                                       .needs = {SHERD_NEEDS_OPERAND(1)}};

static bool nll(sherd_call *call)
{
    sherd_tensor *picked = sherd_apply(&pick_class_op, call->in, 2, NULL);

    return reduced(call, sherd_neg(picked));
}

const sherd_op sherd__nll_loss_op = {.name = "sherd_nll_loss",
                                     .summary = "-x[target]",
                                     .operand = {{"x", 0}, {"target", SHERD_OP_INDEX}},
                                     .result = {{"loss", 0}},
                                     LOSS_FIELDS,
                                     .compose = nll};

sherd_tensor *sherd_nll_loss(sherd_tensor *log_x, sherd_tensor *target,
                             sherd_loss_reduction reduction)
{
    return apply_loss(&sherd__nll_loss_op, log_x, target, reduction, 0);
}
