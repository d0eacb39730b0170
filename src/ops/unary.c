/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise functions of one operand: all that kernels/functions.inc lists. Operator, gradient
 * and public function follow from the row; an operator's index in its table is the number of its
 * kernel.
 */
#include "bend.h"
#include "shared.h"
#include "autograd/node.h"
#include "sherd/ops_elements.h"

#include <math.h>

#include "kernels/cast.h"

typedef struct unary_attributes {
    double parameter[SHERD__PARAMETERS];
} unary_attributes;

static bool compute(sherd_call *call)
{
    const unary_attributes *attributes = call->attributes;
    sherd__unary_kind kind = (sherd__unary_kind)(call->op - sherd__unary_ops);

    sherd__unary_in(call, kind, sherd__in_order(call), attributes ? attributes->parameter : NULL);
    return true;
}

/* Integers have no bound that is NaN, and cannot become it. */
static const char *describe_bounds(sherd_call *call)
{
    const unary_attributes *attributes = call->attributes;
    bool good = !isnan(attributes->parameter[0]) && !isnan(attributes->parameter[1]);

    return good || sherd__has_fractions(call->in[0]->dtype) ? NULL : "a bound of integers is NaN";
}

/* Integers are divided by one of theirs; and what some functions make no sense of. */
static const char *describe_parameter(sherd_call *call)
{
    const unary_attributes *attributes = call->attributes;
    sherd__unary_kind kind = (sherd__unary_kind)(call->op - sherd__unary_ops);
    double divisor = attributes->parameter[0];
    sherd_dtype dtype = call->in[0]->dtype;

    if (kind == SHERD__CELU && (divisor == 0 || !isfinite(divisor)))
        return sherd_call_reason(call, "alpha is %g: must be finite, and not 0", divisor);
    if (kind == SHERD__SOFTSHRINK && !(divisor >= 0))
        return sherd_call_reason(call, "the bound is %g: must be 0 or more", divisor);
    if (sherd__has_fractions(dtype) || (sherd__holds(dtype, divisor) && divisor != 0))
        return NULL;
    return sherd_call_reason(call, "%g is not an integer other than 0 that %s holds", divisor,
                             sherd_dtype_name(dtype));
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_AT, G_DY };

static bool compute_slope(sherd_call *call);
static void bend(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in);

/* What a row says of numbers, and of what its slope reads. */
#define NUMBERS_LINEAR .numbers = SHERD_NUMBERS, .linearity = SHERD_LINEAR, .takes_pending = true

#define NUMBERS_LINEAR_FRACTIONS \
    .numbers = SHERD_FRACTIONS, .linearity = SHERD_LINEAR, .takes_pending = true

#define NUMBERS_FRACTIONS          .numbers = SHERD_FRACTIONS
#define NUMBERS_NUMBERS            .numbers = SHERD_NUMBERS
#define LINEARITY_LINEAR           .linearity = SHERD_LINEAR
#define LINEARITY_LINEAR_FRACTIONS LINEARITY_LINEAR
#define LINEARITY_FRACTIONS        .linearity = SHERD_NONLINEAR
#define LINEARITY_NUMBERS          .linearity = SHERD_NONLINEAR
#define NEEDS_X                    SHERD_NEEDS_OPERAND(0)
#define NEEDS_Y                    SHERD_NEEDS_RESULT(0)
#define NEEDS_NOTHING              0

#define PARAMETER(p, i)                                 \
    {                                                   \
#p, SHERD_FIELD_DOUBLE, (i) * sizeof(double), 1 \
    }
#define PARAMETERS(...) .field = {__VA_ARGS__}, .attributes = sizeof(unary_attributes)

/* The gradient of x, from x or y (or nothing) and dy. */
#define GRADIENT(name_, numbers_, ...)                                                          \
    {                                                                                           \
        .name = "sherd_" #name_ " backward", .operand = {{"at", SHERD_OP_OPTIONAL}, {"dy", 0}}, \
        .result = {{"dx", 0}}, .rule = "...,...->...", .forward = compute_slope,                \
        .on_device = sherd__fractions_there, .backward = bend,                                  \
        .needs = {SHERD_NEEDS_OPERAND(G_AT) | SHERD_NEEDS_OPERAND(G_DY),                        \
                  SHERD_NEEDS_OPERAND(G_AT)},                                                   \
        LINEARITY_##numbers_, __VA_ARGS__                                                       \
    }

static const sherd_op gradients[SHERD__UNARY_KINDS] = {
#define UNARY0(name, NAME, text, numbers, ...) \
    [SHERD__##NAME] = GRADIENT(name, numbers, .attributes = 0),
#define UNARY1(name, NAME, p, text, numbers, ...) \
    [SHERD__##NAME] = GRADIENT(name, numbers, PARAMETERS(PARAMETER(p, 0))),
#define UNARY2(name, NAME, p, q, text, numbers, ...) \
    [SHERD__##NAME] = GRADIENT(name, numbers, PARAMETERS(PARAMETER(p, 0), PARAMETER(q, 1))),
#define HIDDEN1(name, NAME, p, text, numbers, ...) \
    [SHERD__##NAME] = GRADIENT(name, numbers, PARAMETERS(PARAMETER(p, 0))),
#include "kernels/functions.inc"
};

static bool compute_slope(sherd_call *call)
{
    const unary_attributes *attributes = call->attributes;
    sherd__unary_kind kind = (sherd__unary_kind)(call->op - gradients);

    sherd__unary_grad_in(call, kind, call->from[G_AT], call->from[G_DY],
                         attributes ? attributes->parameter : NULL);
    return true;
}

/* The gradient is linear in dy; `at` is x or y. */
static void bend(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const unary_attributes *attributes = sherd_node_attributes(node);
    sherd__unary_kind kind = (sherd__unary_kind)(node->op - gradients);
    sherd_tensor *at = sherd_node_operand(node, G_AT), *g = grad_out[0];
    const double *parameter = node->op->attributes ? attributes->parameter : NULL;

    if (sherd_node_wants(node, G_DY))
        grad_in[G_DY] = sherd_apply(node->op, (sherd_tensor *[]){at, g}, 2, attributes);
    if (sherd_node_wants(node, G_AT))
        grad_in[G_AT] = sherd__bend(kind, at, sherd_node_operand(node, G_DY), g, parameter);
}

/* Written over dy if nothing else uses it, which saves a pass over memory. */
static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_op *op = node->op;
    sherd_tensor *in[] = {op->needs[0] == NEEDS_X   ? sherd_node_operand(node, 0)
                          : op->needs[0] == NEEDS_Y ? sherd_node_result(node, 0)
                                                    : NULL,
                          grad_out[0]};

    sherd__apply_into(&grad_in[0], &gradients[op - sherd__unary_ops], in, 2,
                      sherd_node_attributes(node),
                      (sherd__into){sherd__spare_grad(node, 0), SHERD__WRITTEN_OVER});
}

/* ---- operators and functions ----------------------------------------------------------------- */

#define OPERATOR(name_, text, numbers_, at, ...)                                               \
    {                                                                                          \
        .name = "sherd_" #name_, .summary = text, .operand = {{"a", 0}}, .result = {{"y", 0}}, \
        .rule = "...->...", .strided = true, .forward = compute,                               \
        .on_device = sherd__numbers_there, .backward = differentiate, .needs = {NEEDS_##at},   \
        NUMBERS_##numbers_, __VA_ARGS__                                                        \
    }

const sherd_op sherd__unary_ops[SHERD__UNARY_KINDS] = {
#define UNARY0(name, NAME, text, numbers, at, ...) \
    [SHERD__##NAME] = OPERATOR(name, text, numbers, at, .attributes = 0),
#define UNARY1(name, NAME, p, text, numbers, at, ...)                                \
    [SHERD__##NAME] = OPERATOR(name, text, numbers, at, PARAMETERS(PARAMETER(p, 0)), \
                               .describe = describe_parameter),
#define UNARY2(name, NAME, p, q, text, numbers, at, ...)                                \
    [SHERD__##NAME] =                                                                   \
        OPERATOR(name, text, numbers, at, PARAMETERS(PARAMETER(p, 0), PARAMETER(q, 1)), \
                 .describe = describe_bounds),
#define HIDDEN1(name, NAME, p, text, numbers, at, ...) \
    [SHERD__##NAME] = OPERATOR(name, text, numbers, at, PARAMETERS(PARAMETER(p, 0))),
#include "kernels/functions.inc"
};

#define UNARY0(name, NAME, ...)                                            \
    sherd_tensor *sherd_##name(sherd_tensor *a)                            \
    {                                                                      \
        return sherd_apply(&sherd__unary_ops[SHERD__##NAME], &a, 1, NULL); \
    }
#define UNARY1(name, NAME, p, ...)                                                             \
    sherd_tensor *sherd_##name(sherd_tensor *a, double p)                                      \
    {                                                                                          \
        return sherd_apply(&sherd__unary_ops[SHERD__##NAME], &a, 1, &(unary_attributes){{p}}); \
    }
#define UNARY2(name, NAME, p, q, ...)                                                             \
    sherd_tensor *sherd_##name(sherd_tensor *a, double p, double q)                               \
    {                                                                                             \
        return sherd_apply(&sherd__unary_ops[SHERD__##NAME], &a, 1, &(unary_attributes){{p, q}}); \
    }
#include "kernels/functions.inc"

sherd_tensor *sherd__unary(sherd__unary_kind kind, sherd_tensor *a, double parameter)
{
    return sherd_apply(&sherd__unary_ops[kind], &a, 1, &(unary_attributes){{parameter}});
}
