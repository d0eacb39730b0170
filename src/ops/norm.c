/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms over dims. Norms of degree 2 over neighbouring dims are, on CPUs, one pass over the operand
 * with sums in f64, since the squares of f32 numbers may be too large or too small for f32 even if
 * their norm is not. Other norms are composed of functions and sums over dims; 16-bit types compute
 * in f32 in between.
 */
#include "dims.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

#include <math.h>
#include <string.h>

#include "kernels/squares.h"

typedef struct norm_attributes {
    sherd__dims dims;
    double parameter; /* the degree */
} norm_attributes;

#define NORM_FIELDS                                                         \
    .field = {SHERD_FIELD(norm_attributes, dims.count, INT),                \
              SHERD_FIELDS(norm_attributes, dims.dim, INT, SHERD_MAX_DIMS), \
              SHERD_FIELD(norm_attributes, dims.keepdim, BOOL),             \
              SHERD_FIELD(norm_attributes, parameter, DOUBLE)},             \
    .attributes = sizeof(norm_attributes)

/* ---- of degree 2 ----------------------------------------------------------------------------- */

static bool add_squares(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    const sherd_tensor *out = call->out[0];

    if (out->count && a->count) {
        const sherd__squares s = sherd__squares_of(a, call->attributes);
        sherd__sum_squares_of(sherd__kernels_in(call), a->dtype, &s, call->to[0], call->from[0]);
    } else if (out->count) {
        memset(call->to[0], 0, (size_t)out->count * sizeof(double));
    }
    return true;
}

static const sherd_op squares_op = {.name = "sum of squares",
                                    .operand = {{"a", 0}},
                                    .result = {{"y", 0}},
                                    SHERD__DIMS_FIELDS,
                                    .describe = sherd__describe_sums,
                                    .forward = add_squares};

enum { DY, LENGTH, A, OPERANDS };

static bool slope(sherd_call *call)
{
    const sherd_tensor *a = call->in[A];

    if (a->count) {
        const sherd__squares s = sherd__squares_of(a, call->attributes);
        sherd__length_slope(sherd__kernels_in(call), a->dtype, &s, call->to[0], call->from[DY],
                            call->from[LENGTH], call->from[A]);
    }
    return true;
}

static const sherd_op slope_op = {.name = "sherd_norm backward",
                                  .operand = {{"dy", 0}, {"length", SHERD_OP_ANY}, {"a", 0}},
                                  .result = {{"da", 0}},
                                  SHERD__DIMS_FIELDS,
                                  .describe = sherd__describe_beside,
                                  .forward = slope};

static sherd_tensor *composed(sherd_tensor *a, double p, const sherd__dims *dims);

/* The slot of the norm, f64, among what is saved. */
enum { SAVED_LENGTH = 1 };

/* A recorded backward differentiates a norm that is composed of operators. */
static void length_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const norm_attributes *attributes = sherd_node_attributes(node);
    sherd_tensor *a = sherd_node_operand(node, 0), *dy = sherd__dims_kept(node, grad_out[0]);
    sherd__dims kept = attributes->dims;

    kept.keepdim = true;
    if (sherd__makes_graph(a->world)) {
        sherd_tensor *wide = sherd_cast(a, sherd__statistics_dtype(a->dtype));
        sherd_tensor *length = composed(wide, 2, &kept);
        sherd_tensor *is_zero = sherd_eq_scalar(length, 0); /* there the gradient is 0 */
        sherd_tensor *by =
            sherd_div(sherd_cast(dy, wide->dtype), sherd_masked_fill(length, is_zero, 1));
        grad_in[0] = sherd_cast(sherd_mul(wide, by), a->dtype);
        return;
    }
    sherd_tensor *length = sherd__dims_kept(node, sherd__saved(node, SAVED_LENGTH));
    sherd_tensor *in[OPERANDS] = {dy, length, a};
    grad_in[0] = sherd_apply(&slope_op, in, OPERANDS, &kept);
}

static const sherd_op length_table = {.name = "sherd_norm", .backward = length_back};

static sherd_tensor *length_of(sherd_call *call)
{
    const norm_attributes *attributes = call->attributes;
    sherd_tensor *a = sherd__without_pending(call->in[0]);

    bool before = sherd_set_recording(call->world, false);
    sherd_tensor *squares = sherd_apply(&squares_op, &a, 1, &attributes->dims);
    sherd_tensor *length = sherd__unary(SHERD__ROOT, squares, 2);
    sherd_tensor *y = sherd_cast(length, call->in[0]->dtype);
    sherd_set_recording(call->world, before);
    if (sherd_tensor_failed(y))
        return y;
    if (y == length)
        y = sherd__alias(y);
    sherd_node *node = sherd__record_node(call->world, &length_table, &a, 1, &y, 1, attributes,
                                          sizeof *attributes);
    sherd__save(node, 0, a);
    sherd__save(node, SAVED_LENGTH, length);
    return y;
}

/* ---- of any degree --------------------------------------------------------------------------- */

static sherd_tensor *composed(sherd_tensor *a, double p, const sherd__dims *dims)
{
    if (isinf(p))
        return sherd__extreme_over(sherd_abs(a), p < 0, dims);
    if (p == 0)
        return sherd__sum_over(sherd__unary(SHERD__COUNT_OF, a, 1), dims);
    if (p == 1)
        return sherd__sum_over(sherd_abs(a), dims);
    sherd_tensor *powers = p == 2 ? sherd_square(a) : sherd__unary(SHERD__SIZE_TO, a, p);
    return sherd__unary(SHERD__ROOT, sherd__sum_over(powers, dims), p);
}

static bool norm(sherd_call *call)
{
    const norm_attributes *attributes = call->attributes;
    sherd_tensor *a = call->in[0];
    const char *reason = sherd__dims_rule(call, &attributes->dims);

    if (reason)
        return sherd_call_fail(call, SHERD_EINVAL, "%s", reason);
    if (isnan(attributes->parameter))
        return sherd_call_fail(call, SHERD_EINVAL, "p is not a number");
    if (attributes->parameter == 2 && !sherd__world_device(call->world) &&
        sherd__dims_are_neighbours(&attributes->dims, a->ndim)) {
        call->out[0] = length_of(call);
        return true;
    }
    a = sherd_cast(a, sherd__statistics_dtype(a->dtype));
    call->out[0] =
        sherd_cast(composed(a, attributes->parameter, &attributes->dims), call->in[0]->dtype);
    return true;
}

const sherd_op sherd__norm_op = {.name = "sherd_norm",
                                 .autocast = SHERD_AUTOCAST_FULL,
                                 .summary = "(sum of |a|^p)^(1/p) over dims",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 NORM_FIELDS,
                                 .compose = norm};

sherd_tensor *sherd_norm(sherd_tensor *a, double p, const int *dims, int count, bool keepdim)
{
    const norm_attributes m = {sherd__dims_given(a, dims, count, keepdim), p};

    return sherd_apply(&sherd__norm_op, &a, 1, &m);
}
