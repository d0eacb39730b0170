/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise functions of two operands: all that kernels/functions.inc lists under BINARY and
 * COMPARE. Pending reductions are settled first. Comparisons with a number are operators of their
 * own.
 */
#include "shared.h"
#include "autograd/node.h"
#include "sherd/ops_elements.h"
#include "vector/choose.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "device/compare.h"
#include "kernels/cast.h"

#define PAIR_OF_OPERANDS \
    .operand = {{"a", 0}, {"b", 0}}, .rule = "...,...->...", .broadcasts = true, .strided = true

static bool compute(sherd_call *call)
{
    sherd__binary_in(call, (sherd__binary_kind)(call->op - sherd__binary_ops));
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_A, G_B, G_DY };

typedef struct gradient_attributes {
    int kind, which;
} gradient_attributes;

static bool compute_slope(sherd_call *call)
{
    const gradient_attributes *attributes = call->attributes;
    const sherd_tensor *out = call->out[0];
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS], dy[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, G_A, a);
    sherd__broadcast_strides(call, G_B, b);
    sherd__broadcast_strides(call, G_DY, dy);
    if (out->count == 0)
        return true;
    sherd__device *device = sherd__device_in(call);
    if (device) {
        sherd__device_copy_box(device, sherd_dtype_bytes(out->dtype), out->ndim, out->local,
                               call->to[0], out->stride, call->from[G_DY], dy);
        sherd__device_binary_grad(device, out->dtype, (sherd__binary_kind)attributes->kind,
                                  attributes->which, out->ndim, out->local, call->to[0],
                                  call->to[0], call->from[G_A], a, call->from[G_B], b);
        return true;
    }
    const void *from = call->from[G_DY];
    if (memcmp(dy, out->stride, (size_t)out->ndim * sizeof *dy) != 0) { /* the result has room */
        sherd__copy_box(sherd_dtype_bytes(out->dtype), out->ndim, out->local, call->to[0],
                        out->stride, from, dy);
        from = call->to[0];
    }
    sherd__kernels_in(call)->binary_grad((sherd__binary_kind)attributes->kind, attributes->which,
                                         out->ndim, out->local, call->to[0], from, call->from[G_A],
                                         a, call->from[G_B], b);
    return true;
}

/*
 * For functions whose slopes are piecewise constant, such as maximum: the gradient passes the same
 * part of dy, so it is its own derivative by dy.
 */
static void same_part(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *in[] = {sherd_node_operand(node, G_A), sherd_node_operand(node, G_B),
                          grad_out[0]};

    if (sherd_node_wants(node, G_DY))
        grad_in[G_DY] = sherd__sum_to_operand(
            node, G_DY, sherd_apply(node->op, in, 3, sherd_node_attributes(node)));
}

/* The gradient of one operand, in the shape to which the operands broadcast. */
static const sherd_op gradient_op = {
    .name = "backward of two operands",
    .operand = {{"a", 0}, {"b", 0}, {"dy", 0}},
    .result = {{"dx", 0}},
    .field = {SHERD_FIELD(gradient_attributes, kind, INT),
              SHERD_FIELD(gradient_attributes, which, INT)},
    .attributes = sizeof(gradient_attributes),
    .rule = "...,...,...->...",
    .broadcasts = true,
    .strided = true,
    .forward = compute_slope,
    .on_device = sherd__fractions_there,
    .backward = same_part,
    .needs = {[G_DY] = SHERD_NEEDS_OPERAND(G_A) | SHERD_NEEDS_OPERAND(G_B)}};

/* Of atan2: b and -a over a^2 + b^2; 0 at 0. */
static sherd_tensor *angle_slope(int which, sherd_tensor *a, sherd_tensor *b, sherd_tensor *dy)
{
    sherd_tensor *none = sherd_logical_and(sherd_eq_scalar(a, 0), sherd_eq_scalar(b, 0));
    sherd_tensor *side = which == 0 ? b : sherd_neg(a);
    sherd_tensor *length = sherd_hypot(sherd_masked_fill(a, none, 1), b);

    return sherd_mul(dy, sherd_div(sherd_div(side, length), length));
}

/* dy times the slope of a or b, made of operators. */
static sherd_tensor *slope_of(sherd__binary_kind kind, int which, sherd_tensor *a, sherd_tensor *b,
                              sherd_tensor *dy)
{
    sherd_tensor *none;

    switch (kind) {
    case SHERD__DIV:
        return which == 0 ? sherd_div(dy, b)
                          : sherd_neg(sherd_mul(dy, sherd_div(sherd_div(a, b), b)));
    case SHERD__POWER:
        if (which == 0) {
            none = sherd_eq_scalar(b, 0);
            a = sherd_power(a, sherd_add_scalar(b, -1));
            return sherd_masked_fill(sherd_mul(dy, sherd_mul(b, a)), none, 0);
        }
        none = sherd_logical_and(sherd_eq_scalar(a, 0), sherd_ge_scalar(b, 0));
        a = sherd_masked_fill(a, none, 1); /* there log(a) would be -inf, times 0 */
        return sherd_masked_fill(sherd_mul(dy, sherd_mul(sherd_power(a, b), sherd_log(a))), none,
                                 0);
    case SHERD__ATAN2:
        return angle_slope(which, a, b, dy);
    case SHERD__HYPOT:
        return sherd_mul(dy, sherd_div(which == 0 ? a : b, sherd_hypot(a, b)));
    case SHERD__LOGADDEXP:
        return sherd_mul(dy, sherd_sigmoid(which == 0 ? sherd_sub(a, b) : sherd_sub(b, a)));
    case SHERD__XLOGY:
        if (which == 1)
            return sherd_mul(dy, sherd_div(a, b));
        none = sherd_logical_and(sherd_eq_scalar(a, 0), sherd_le_scalar(b, 0));
        return sherd_masked_fill(sherd_mul(dy, sherd_log(sherd_masked_fill(b, none, 1))), none, 0);
    default: /* dy times a piecewise constant */
        return sherd_apply(&gradient_op, (sherd_tensor *[]){a, b, dy}, 3,
                           &(gradient_attributes){(int)kind, which});
    }
}

static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    int kind = (int)(node->op - sherd__binary_ops);
    bool graph = sherd__makes_graph(sherd__node_world(node));

    for (int i = 0; i < 2; i++) {
        if (!sherd_node_wants(node, i))
            continue;
        sherd_tensor *in[] = {sherd_node_operand(node, 0), sherd_node_operand(node, 1),
                              grad_out[0]};
        sherd_tensor *g = graph ? slope_of((sherd__binary_kind)kind, i, in[0], in[1], in[2])
                                : sherd_apply(&gradient_op, in, 3, &(gradient_attributes){kind, i});
        grad_in[i] = sherd__sum_to_operand(node, i, g);
    }
}

enum { BOTH = SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_OPERAND(1) };

const sherd_op sherd__binary_ops[SHERD__BINARY_KINDS] = {
#define BINARY(name_, NAME, text, numbers_, ...)          \
    [SHERD__##NAME] = {PAIR_OF_OPERANDS,                  \
                       .name = "sherd_" #name_,           \
                       .summary = text,                   \
                       .result = {{"y", 0}},              \
                       .numbers = SHERD_##numbers_,       \
                       .forward = compute,                \
                       .on_device = sherd__numbers_there, \
                       .backward = differentiate,         \
                       .needs = {BOTH, BOTH}},
#include "kernels/functions.inc"
};

#define BINARY(name, NAME, ...)                                                                   \
    sherd_tensor *sherd_##name(sherd_tensor *a, sherd_tensor *b)                                  \
    {                                                                                             \
        return sherd_apply(&sherd__binary_ops[SHERD__##NAME], (sherd_tensor *[]){a, b}, 2, NULL); \
    }
#include "kernels/functions.inc"

/* ---- comparisons ----------------------------------------------------------------------------- */

static bool compare(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    sherd__compare_kind kind = (sherd__compare_kind)(call->op - sherd__compare_ops);
    sherd__device *device = sherd__device_in(call);
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, b);
    if (out->count && device)
        sherd__device_compare(device, call->in[0]->dtype, kind, out->ndim, out->local, call->to[0],
                              call->from[0], a, call->from[1], b);
    else if (out->count)
        sherd__kernels_in(call)->compare(kind, out->ndim, out->local, call->to[0], call->from[0], a,
                                         call->from[1], b);
    return true;
}

#define COMPARISON(name_, text)                                                          \
    {                                                                                    \
        PAIR_OF_OPERANDS, .name = "sherd_" #name_, .summary = text,                      \
                          .result = {{"y", SHERD_OP_BOOL}}, .numbers = SHERD_EVERYTHING, \
                          .forward = compare, .on_device = sherd__numbers_there          \
    }

const sherd_op sherd__compare_ops[SHERD__COMPARE_KINDS] = {
#define COMPARE(name, NAME, text, ...) [SHERD__##NAME] = COMPARISON(name, text),
#define LOGIC(name, NAME, text, ...)   [SHERD__##NAME] = COMPARISON(name, text),
#include "kernels/functions.inc"
};

#define COMPARE(name, NAME, ...)                                                                   \
    sherd_tensor *sherd_##name(sherd_tensor *a, sherd_tensor *b)                                   \
    {                                                                                              \
        return sherd_apply(&sherd__compare_ops[SHERD__##NAME], (sherd_tensor *[]){a, b}, 2, NULL); \
    }
#define LOGIC(...) COMPARE(__VA_ARGS__)
#include "kernels/functions.inc"

/* ---- with a number --------------------------------------------------------------------------- */

typedef struct scalar_attributes {
    double value;
} scalar_attributes;

/* All elements of the result are the same. */
static void fill_with(const sherd_call *call, bool value)
{
    sherd__device *device = sherd__device_in(call);

    if (device)
        sherd__device_set(device, call->to[0], value, call->out[0]->count);
    else
        memset(call->to[0], value, (size_t)call->out[0]->count);
}

/*
 * For comparing integers with a fraction: compare with the integer below it, by an equivalent
 * comparison. False: all integers have the same answer.
 */
static bool round_down(sherd__compare_kind *kind, double value, int64_t *bound, bool *answer)
{
    const double end = 9223372036854775808.0; /* 2^63 */
    double low = floor(value);
    bool less = *kind == SHERD__LT || *kind == SHERD__LE;

    *answer = *kind == SHERD__NE;
    if (isnan(value))
        return false;
    if (low < -end || low >= end) {
        *answer |= *kind != SHERD__EQ && less == (low >= end);
        return false;
    }
    *bound = (int64_t)low;
    if (low == value)
        return true;
    if (*kind == SHERD__EQ || *kind == SHERD__NE)
        return false;
    *kind = less ? SHERD__LE : SHERD__GT;
    return true;
}

/* The bound as an element, if there is one. */
static bool holds_bound(sherd_dtype dtype, int64_t bound, void *element)
{
    int64_t back;

    sherd__cast(dtype, SHERD_I64, 1, element, &bound);
    sherd__cast(SHERD_I64, dtype, 1, &back, element);
    return back == bound;
}

/* Compare integers in their dtype; if the number does not fit into that, in blocks of i64. */
static void compare_integers(const sherd_call *call, sherd__compare_kind kind, double value)
{
    enum { BLOCK = 256 };
    const sherd__kernels *kernels =
        sherd__kernels_of_any(sherd__world_kernels(call->world), SHERD_I64);
    const sherd_tensor *a = call->in[0];
    const int64_t one = 1, none = 0;
    int64_t bound, wide[BLOCK];
    unsigned char element[sizeof bound];
    bool answer;

    if (!round_down(&kind, value, &bound, &answer)) {
        fill_with(call, answer);
        return;
    }
    if (sherd__device_in(call)) {
        sherd__device_compare_number(sherd__device_in(call), a->dtype, kind, a->count, call->to[0],
                                     call->from[0], 0, bound);
        return;
    }
    if (holds_bound(a->dtype, bound, element)) {
        sherd__kernels_in(call)->compare(kind, 1, &a->count, call->to[0], call->from[0], &one,
                                         element, &none);
        return;
    }
    for (int64_t i = 0; i < a->count; i += BLOCK) {
        int64_t n = sherd__min(a->count - i, BLOCK);
        const char *from = call->from[0];
        sherd__cast(SHERD_I64, a->dtype, n, wide, from + (size_t)i * sherd_dtype_bytes(a->dtype));
        kernels->compare(kind, 1, &n, (uint8_t *)call->to[0] + i, wide, &one, &bound, &none);
    }
}

/* The number is first rounded to the dtype of the elements. */
static void compare_fractions(const sherd_call *call, sherd__compare_kind kind, double value)
{
    const sherd_tensor *a = call->in[0];
    const int64_t one = 1, none = 0;
    double element, rounded;

    sherd__cast(a->dtype, SHERD_F64, 1, &element, &value);
    if (sherd__device_in(call)) {
        sherd__cast(SHERD_F64, a->dtype, 1, &rounded, &element);
        sherd__device_compare_number(sherd__device_in(call), a->dtype, kind, a->count, call->to[0],
                                     call->from[0], rounded, 0);
        return;
    }
    sherd__kernels_in(call)->compare(kind, 1, &a->count, call->to[0], call->from[0], &one, &element,
                                     &none);
}

static bool compare_scalar(sherd_call *call)
{
    const scalar_attributes *attributes = call->attributes;
    sherd__compare_kind kind = (sherd__compare_kind)(call->op - sherd__compare_scalar_ops);

    if (call->in[0]->count == 0)
        return true;
    if (sherd__has_fractions(call->in[0]->dtype))
        compare_fractions(call, kind, attributes->value);
    else
        compare_integers(call, kind, attributes->value);
    return true;
}

const sherd_op sherd__compare_scalar_ops[SHERD__COMPARE_KINDS] = {
#define COMPARE(name_, NAME, text, ...)                                          \
    [SHERD__##NAME] = {.name = "sherd_" #name_ "_scalar",                        \
                       .summary = text ", a number",                             \
                       .operand = {{"a", 0}},                                    \
                       .result = {{"y", SHERD_OP_BOOL}},                         \
                       .field = {SHERD_FIELD(scalar_attributes, value, DOUBLE)}, \
                       .attributes = sizeof(scalar_attributes),                  \
                       .rule = "...->...",                                       \
                       .numbers = SHERD_EVERYTHING,                              \
                       .forward = compare_scalar,                                \
                       .on_device = sherd__numbers_there},
#include "kernels/functions.inc"
};

#define COMPARE(name, NAME, ...)                                             \
    sherd_tensor *sherd_##name##_scalar(sherd_tensor *a, double value)       \
    {                                                                        \
        return sherd_apply(&sherd__compare_scalar_ops[SHERD__##NAME], &a, 1, \
                           &(scalar_attributes){value});                     \
    }
#include "kernels/functions.inc"

static bool logical_not(sherd_call *call)
{
    call->out[0] = sherd_eq_scalar(call->in[0], 0);
    return true;
}

const sherd_op sherd__logical_not_op = {.name = "sherd_logical_not",
                                        .summary = "a = 0",
                                        .operand = {{"a", 0}},
                                        .result = {{"y", SHERD_OP_BOOL}},
                                        .numbers = SHERD_EVERYTHING,
                                        .compose = logical_not};

sherd_tensor *sherd_logical_not(sherd_tensor *a)
{
    return sherd_apply(&sherd__logical_not_op, &a, 1, NULL);
}
