/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mean, variance, deviation and norms, composed of sums over dims and functions. A variance takes
 * two passes: first the mean over all shards, then the squared differences; never the difference of
 * two large numbers. 16-bit types compute in f32 in between.
 */
#include "dims.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

#include <math.h>

#include "base/num.h"

typedef struct moment_attributes {
    sherd__dims dims;
    double parameter; /* correction, or p of a norm */
} moment_attributes;

#define MOMENT_FIELDS                                                         \
    .field = {SHERD_FIELD(moment_attributes, dims.count, INT),                \
              SHERD_FIELDS(moment_attributes, dims.dim, INT, SHERD_MAX_DIMS), \
              SHERD_FIELD(moment_attributes, dims.keepdim, BOOL),             \
              SHERD_FIELD(moment_attributes, parameter, DOUBLE)},             \
    .attributes = sizeof(moment_attributes)

/* A composition uses the dims before any operator checks them. */
static bool check_dims(sherd_call *call, const sherd__dims *dims)
{
    const char *reason = sherd__dims_rule(call, dims);

    return !reason || sherd_call_fail(call, SHERD_EINVAL, "%s", reason);
}

static sherd_tensor *widened(const sherd_call *call)
{
    return sherd_cast(call->in[0], sherd__statistics_dtype(call->in[0]->dtype));
}

static sherd_tensor *mean_of(sherd_tensor *a, const sherd__dims *dims)
{
    int64_t n = sherd__dims_count(dims, a);

    return sherd_scale(sherd__sum_over(a, dims), n ? 1 / (double)n : (double)NAN);
}

static bool mean_over(sherd_call *call)
{
    const sherd__dims *dims = call->attributes;

    if (!check_dims(call, dims))
        return false;
    call->out[0] = sherd_cast(mean_of(widened(call), dims), call->in[0]->dtype);
    return true;
}

const sherd_op sherd__mean_over_op = {.name = "sherd_mean_over",
                                      .autocast = SHERD_AUTOCAST_FULL,
                                      .summary = "mean over dims",
                                      .operand = {{"a", 0}},
                                      .result = {{"y", 0}},
                                      SHERD__DIMS_FIELDS,
                                      .compose = mean_over};

sherd_tensor *sherd_mean_over(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    const sherd__dims d = sherd__dims_given(a, dims, count, keepdim);

    return sherd_apply(&sherd__mean_over_op, &a, 1, &d);
}

/* ---- variance and deviation ------------------------------------------------------------------ */

/* The mean is not recorded: its part of the gradient is the sum of the differences, 0. */
static sherd_tensor *variance_of(sherd_call *call)
{
    const moment_attributes *attributes = call->attributes;
    sherd_tensor *a = widened(call);
    sherd__dims kept = attributes->dims;
    double n = (double)sherd__dims_count(&kept, a) - attributes->parameter;

    kept.keepdim = true;
    bool before = sherd_set_recording(call->world, false);
    sherd_tensor *mean = mean_of(a, &kept);
    sherd_set_recording(call->world, before);
    sherd_tensor *squares = sherd_square(sherd_sub(a, mean));
    return sherd_scale(sherd__sum_over(squares, &attributes->dims), 1 / fmax(n, 0));
}

static bool var(sherd_call *call)
{
    const moment_attributes *attributes = call->attributes;

    if (!check_dims(call, &attributes->dims))
        return false;
    call->out[0] = sherd_cast(variance_of(call), call->in[0]->dtype);
    return true;
}

static bool std(sherd_call *call)
{
    const moment_attributes *attributes = call->attributes;

    if (!check_dims(call, &attributes->dims))
        return false;
    call->out[0] = sherd_cast(sherd__unary(SHERD__ROOT, variance_of(call), 2), call->in[0]->dtype);
    return true;
}

const sherd_op sherd__var_op = {.name = "sherd_var",
                                .autocast = SHERD_AUTOCAST_FULL,
                                .summary = "variance over dims",
                                .operand = {{"a", 0}},
                                .result = {{"y", 0}},
                                MOMENT_FIELDS,
                                .compose = var};

const sherd_op sherd__std_op = {.name = "sherd_std",
                                .autocast = SHERD_AUTOCAST_FULL,
                                .summary = "standard deviation over dims",
                                .operand = {{"a", 0}},
                                .result = {{"y", 0}},
                                MOMENT_FIELDS,
                                .compose = std};

sherd_tensor *sherd_var(sherd_tensor *a, const int *dims, int count, double correction,
                        bool keepdim)
{
    const moment_attributes m = {sherd__dims_given(a, dims, count, keepdim), correction};

    return sherd_apply(&sherd__var_op, &a, 1, &m);
}

sherd_tensor *sherd_std(sherd_tensor *a, const int *dims, int count, double correction,
                        bool keepdim)
{
    const moment_attributes m = {sherd__dims_given(a, dims, count, keepdim), correction};

    return sherd_apply(&sherd__std_op, &a, 1, &m);
}

/* ---- norms ----------------------------------------------------------------------------------- */

static sherd_tensor *norm_of(sherd_tensor *a, double p, const sherd__dims *dims)
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
    const moment_attributes *attributes = call->attributes;

    if (!check_dims(call, &attributes->dims))
        return false;
    if (isnan(attributes->parameter))
        return sherd_call_fail(call, SHERD_EINVAL, "p is not a number");
    call->out[0] = sherd_cast(norm_of(widened(call), attributes->parameter, &attributes->dims),
                              call->in[0]->dtype);
    return true;
}

const sherd_op sherd__norm_op = {.name = "sherd_norm",
                                 .autocast = SHERD_AUTOCAST_FULL,
                                 .summary = "(sum of |a|^p)^(1/p) over dims",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 MOMENT_FIELDS,
                                 .compose = norm};

sherd_tensor *sherd_norm(sherd_tensor *a, double p, const int *dims, int count, bool keepdim)
{
    const moment_attributes m = {sherd__dims_given(a, dims, count, keepdim), p};

    return sherd_apply(&sherd__norm_op, &a, 1, &m);
}
