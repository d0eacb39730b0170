/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions about numbers (is it NaN, infinite, finite, near to another), made of comparisons; and
 * indices as rows of 0 and 1, and counted. Each rank counts its own, so counts of sharded indices
 * are a pending sum, and nothing moves.
 */
#include "shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"
#include "sherd/values.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "device/whole.h"
#include "kernels/finite.h"

#define QUESTION(name_, text, composed)                                                          \
    {                                                                                            \
        .name = name_, .summary = text, .operand = {{"a", 0}}, .result = {{"y", SHERD_OP_BOOL}}, \
        .numbers = SHERD_EVERYTHING, .compose = composed                                         \
    }

static bool isnan_of(sherd_call *call)
{
    sherd_tensor *a = sherd__without_pending(call->in[0]);

    call->out[0] = sherd_ne(a, a);
    return true;
}

static bool isinf_of(sherd_call *call)
{
    sherd_tensor *a = sherd__without_pending(call->in[0]);

    call->out[0] =
        sherd__has_fractions(a->dtype) ? sherd_eq_scalar(sherd_abs(a), INFINITY) : sherd_ne(a, a);
    return true;
}

static bool isfinite_of(sherd_call *call)
{
    sherd_tensor *a = sherd__without_pending(call->in[0]);

    call->out[0] =
        sherd__has_fractions(a->dtype) ? sherd_lt_scalar(sherd_abs(a), INFINITY) : sherd_eq(a, a);
    return true;
}

const sherd_op sherd__isnan_op = QUESTION("sherd_isnan", "whether a is NaN", isnan_of);
const sherd_op sherd__isinf_op = QUESTION("sherd_isinf", "whether a is infinite", isinf_of);
const sherd_op sherd__isfinite_op =
    QUESTION("sherd_isfinite", "whether a is neither NaN nor infinite", isfinite_of);

sherd_tensor *sherd_isnan(sherd_tensor *a)
{
    return sherd_apply(&sherd__isnan_op, &a, 1, NULL);
}

sherd_tensor *sherd_isinf(sherd_tensor *a)
{
    return sherd_apply(&sherd__isinf_op, &a, 1, NULL);
}

sherd_tensor *sherd_isfinite(sherd_tensor *a)
{
    return sherd_apply(&sherd__isfinite_op, &a, 1, NULL);
}

/* ---- nearly equal ---------------------------------------------------------------------------- */

typedef struct nearness {
    double relative, absolute;
    bool equal_nan;
} nearness;

static const char *describe_nearness(sherd_call *call)
{
    const nearness *by = call->attributes;

    if (!(by->relative >= 0 && by->absolute >= 0))
        return sherd_call_reason(call, "tolerances %g and %g must not be negative", by->relative,
                                 by->absolute);
    return NULL;
}

/* Infinite ones are equal or far apart. */
static bool isclose_of(sherd_call *call)
{
    const nearness *by = call->attributes;
    sherd_tensor *a = sherd__without_pending(call->in[0]), *b = sherd__without_pending(call->in[1]);
    sherd_tensor *apart = sherd_abs(sherd_sub(a, b));
    sherd_tensor *most = sherd_add_scalar(sherd_scale(sherd_abs(b), by->relative), by->absolute);
    sherd_tensor *near = sherd_logical_and(sherd_isfinite(apart), sherd_le(apart, most));

    near = sherd_logical_or(near, sherd_eq(a, b));
    if (by->equal_nan)
        near = sherd_logical_or(near, sherd_logical_and(sherd_isnan(a), sherd_isnan(b)));
    call->out[0] = near;
    return true;
}

const sherd_op sherd__isclose_op = {.name = "sherd_isclose",
                                    .summary = "whether |a - b| <= absolute + relative |b|",
                                    .operand = {{"a", 0}, {"b", 0}},
                                    .result = {{"y", SHERD_OP_BOOL}},
                                    .field = {SHERD_FIELD(nearness, relative, DOUBLE),
                                              SHERD_FIELD(nearness, absolute, DOUBLE),
                                              SHERD_FIELD(nearness, equal_nan, BOOL)},
                                    .attributes = sizeof(nearness),
                                    .describe = describe_nearness,
                                    .compose = isclose_of};

sherd_tensor *sherd_isclose(sherd_tensor *a, sherd_tensor *b, double relative, double absolute,
                            bool equal_nan)
{
    return sherd_apply(&sherd__isclose_op, (sherd_tensor *[]){a, b}, 2,
                       &(nearness){relative, absolute, equal_nan});
}

/* ---- without infinities ---------------------------------------------------------------------- */

typedef struct finite_attributes {
    double nan, above, below;
} finite_attributes;

#define FINITE_FIELDS                                      \
    {                                                      \
        SHERD_FIELD(finite_attributes, nan, DOUBLE),       \
            SHERD_FIELD(finite_attributes, above, DOUBLE), \
            SHERD_FIELD(finite_attributes, below, DOUBLE)  \
    }

static bool replace(sherd_call *call)
{
    const finite_attributes *to = call->attributes;
    const double values[3] = {to->nan, to->above, to->below};

    sherd__replace_odd(call->out[0]->dtype, call->out[0]->count, call->to[0], call->from[0],
                       values);
    return true;
}

/* What was replaced gets none; only a finite number is 0 less than itself. */
static void replace_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *a = sherd_node_operand(node, 0), *zero = sherd_sub(a, a);

    grad_in[0] = sherd_masked_fill(grad_out[0], sherd_ne(zero, zero), 0);
}

/* One pass, on the CPU. */
static const sherd_op replace_op = {.name = "sherd_nan_to_num",
                                    .operand = {{"a", 0}},
                                    .result = {{"y", 0}},
                                    .field = FINITE_FIELDS,
                                    .attributes = sizeof(finite_attributes),
                                    .rule = "...->...",
                                    .forward = replace,
                                    .backward = replace_back,
                                    .needs = {SHERD_NEEDS_OPERAND(0)}};

/* A GPU has kernels for these steps. */
static bool nan_to_num(sherd_call *call)
{
    const finite_attributes *to = call->attributes;
    sherd_tensor *a = sherd__without_pending(call->in[0]);

    if (!sherd__world_device(call->world)) {
        call->out[0] = sherd_apply(&replace_op, &a, 1, to);
        return true;
    }
    sherd_tensor *y = sherd_masked_fill(a, sherd_isnan(a), to->nan);
    y = sherd_masked_fill(y, sherd_eq_scalar(a, INFINITY), to->above);
    call->out[0] = sherd_masked_fill(y, sherd_eq_scalar(a, -INFINITY), to->below);
    return true;
}

const sherd_op sherd__nan_to_num_op = {.name = "sherd_nan_to_num",
                                       .summary = "NaN and infinities replaced",
                                       .operand = {{"a", 0}},
                                       .result = {{"y", 0}},
                                       .field = FINITE_FIELDS,
                                       .attributes = sizeof(finite_attributes),
                                       .compose = nan_to_num};

sherd_tensor *sherd_nan_to_num(sherd_tensor *a, double nan, double above, double below)
{
    return sherd_apply(&sherd__nan_to_num_op, &a, 1, &(finite_attributes){nan, above, below});
}

/* ---- indices --------------------------------------------------------------------------------- */

typedef struct class_attributes {
    int64_t classes;
    int dtype;
} class_attributes;

static bool one_hot(sherd_call *call)
{
    const class_attributes *to = call->attributes;
    sherd_tensor *index = sherd_unsqueeze(call->in[0], -1);

    if (to->classes < 0 || to->classes > INT32_MAX)
        return sherd_call_fail(call, SHERD_EINVAL, "%lld classes: must be in [0, 2^31)",
                               (long long)to->classes);
    /* The classes are as many numbers as one row of the result: of no rows they are left out. */
    int64_t count = to->classes > 1 && !sherd_tensor_count(call->in[0]) ? 1 : to->classes;
    sherd_tensor *all = sherd__known_beside(
        call->in[0], sherd_arange(call->world, SHERD_I32, 0, (double)count, 1), call->op->name);
    sherd_tensor *y = sherd_cast(sherd_eq(index, all), (sherd_dtype)to->dtype);
    if (count != to->classes && !sherd_tensor_failed(y)) {
        int64_t shape[SHERD_MAX_DIMS];
        memcpy(shape, y->shape, sizeof shape);
        shape[y->ndim - 1] = to->classes;
        y = sherd_expand(y, shape, y->ndim);
    }
    call->out[0] = y;
    return true;
}

const sherd_op sherd__one_hot_op = {.name = "sherd_one_hot",
                                    .summary = "1 at the index, else 0, in a new last dim",
                                    .operand = {{"index", SHERD_OP_INDEX}},
                                    .result = {{"y", 0}},
                                    .numbers = SHERD_EVERYTHING,
                                    .field = {SHERD_FIELD(class_attributes, classes, INT64),
                                              SHERD_FIELD(class_attributes, dtype, INT)},
                                    .attributes = sizeof(class_attributes),
                                    .compose = one_hot};

sherd_tensor *sherd_one_hot(sherd_tensor *index, int64_t classes, sherd_dtype dtype)
{
    return sherd_apply(&sherd__one_hot_op, &index, 1, &(class_attributes){classes, (int)dtype});
}

static const char *describe_counts(sherd_call *call)
{
    const class_attributes *to = call->attributes;

    if (to->classes < 0)
        return sherd_call_reason(call, "%lld classes", (long long)to->classes);
    call->shape[0][0] = to->classes;
    return NULL;
}

/* The piece of the result may be a part of the classes. */
static bool count(sherd_call *call)
{
    const sherd_tensor *out = call->out[0];
    int64_t first = sherd_tensor_box(out).offset[0];
    const int32_t *index = call->from[0];
    int32_t *counts = call->to[0];

    if (out->count == 0)
        return true;
    if (sherd__device_in(call)) {
        sherd__device_count(sherd__device_in(call), call->in[0]->count, first, out->count, counts,
                            index);
        return true;
    }
    memset(counts, 0, (size_t)out->count * sizeof *counts);
    for (int64_t i = 0; i < call->in[0]->count; i++)
        if (index[i] >= first && index[i] - first < out->count)
            counts[index[i] - first]++;
    return true;
}

const sherd_op sherd__bincount_op = {.name = "sherd_bincount",
                                     .summary = "how often each index occurs",
                                     .operand = {{"index", SHERD_OP_INDEX}},
                                     .result = {{"y", SHERD_OP_INDEX}},
                                     .field = {SHERD_FIELD(class_attributes, classes, INT64)},
                                     .attributes = sizeof(class_attributes),
                                     .rule = "...->v",
                                     .numbers = SHERD_EVERYTHING,
                                     .describe = describe_counts,
                                     .forward = count,
                                     .on_device = sherd__numbers_there};

sherd_tensor *sherd_bincount(sherd_tensor *index, int64_t classes)
{
    return sherd_apply(&sherd__bincount_op, &index, 1, &(class_attributes){.classes = classes});
}

/* ---- in bins --------------------------------------------------------------------------------- */

typedef struct bin_attributes {
    int64_t bins;
    double min, max;
} bin_attributes;

static const char *describe_bins(sherd_call *call)
{
    const bin_attributes *by = call->attributes;

    if (by->bins < 1 || by->bins > INT32_MAX)
        return sherd_call_reason(call, "%lld bins: must be in [1, 2^31)", (long long)by->bins);
    if (!(by->min < by->max) || !isfinite(by->min) || !isfinite(by->max))
        return sherd_call_reason(call, "min %g must be below max %g, both finite", by->min,
                                 by->max);
    double most = call->in[0]->dtype == SHERD_F64 ? DBL_MAX : (double)FLT_MAX;
    if ((by->max - by->min) * (double)by->bins > most)
        return sherd_call_reason(call,
                                 "%lld bins from %g to %g: their number times max - min is "
                                 "more than the dtype holds",
                                 (long long)by->bins, by->min, by->max);
    return NULL;
}

/* The width is a tensor: it is divided by, as in PyTorch, not multiplied by its inverse. */
static bool histc(sherd_call *call)
{
    const bin_attributes *by = call->attributes;
    sherd_tensor *a = sherd__without_pending(sherd_detach(call->in[0]));

    if (sherd__is_half(a->dtype))
        a = sherd_cast(a, SHERD_F32);
    sherd_tensor *width =
        sherd_add_scalar(sherd_constant(call->world, a->dtype, NULL, 0, by->max), -by->min);
    sherd_tensor *at = sherd_scale(sherd_add_scalar(a, -by->min), (double)by->bins);
    sherd_tensor *inside =
        sherd_logical_and(sherd_ge_scalar(a, by->min), sherd_le_scalar(a, by->max));
    at = sherd_masked_fill(sherd_div(at, sherd__known_beside(call->in[0], width, call->op->name)),
                           sherd_logical_not(inside), -1);
    sherd_tensor *bin = sherd_cast(at, SHERD_I32), *end = sherd_eq_scalar(bin, (double)by->bins);
    call->out[0] = sherd_bincount(sherd_masked_fill(bin, end, (double)(by->bins - 1)), by->bins);
    return true;
}

const sherd_op sherd__histc_op = {.name = "sherd_histc",
                                  .summary = "how many elements lie in each bin",
                                  .operand = {{"a", 0}},
                                  .result = {{"y", SHERD_OP_INDEX}},
                                  .field = {SHERD_FIELD(bin_attributes, bins, INT64),
                                            SHERD_FIELD(bin_attributes, min, DOUBLE),
                                            SHERD_FIELD(bin_attributes, max, DOUBLE)},
                                  .attributes = sizeof(bin_attributes),
                                  .describe = describe_bins,
                                  .compose = histc};

sherd_tensor *sherd_histc(sherd_tensor *a, int64_t bins, double min, double max)
{
    return sherd_apply(&sherd__histc_op, &a, 1, &(bin_attributes){bins, min, max});
}
