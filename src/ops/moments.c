/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mean, variance and deviation, composed of sums over dims and functions. A variance takes two
 * passes: first the mean over all shards, then the squared differences; never the difference of two
 * large numbers. 16-bit types compute in f32 in between.
 */
#include "dims.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

#include <math.h>

#include "base/num.h"

typedef struct moment_attributes {
    sherd__dims dims;
    double parameter; /* correction */
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

static sherd_tensor *mean_along(sherd_tensor *a, const sherd__dims *dims)
{
    return sherd__mean_of(sherd__sum_over(a, dims), sherd__dims_count(dims, a));
}

/* What the sum of squared differences is divided by. */
static double divisor_of(const sherd_tensor *a, const moment_attributes *attributes)
{
    return fmax((double)sherd__dims_count(&attributes->dims, a) - attributes->parameter, 0);
}

static bool mean_over(sherd_call *call)
{
    const sherd__dims *dims = call->attributes;

    if (!check_dims(call, dims))
        return false;
    call->out[0] = sherd_cast(mean_along(widened(call), dims), call->in[0]->dtype);
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

/* The slot of the mean among what is saved. */
enum { SAVED_MEAN = 1 };

/*
 * The gradient by way of the mean is a factor of the sum of the differences, which is 0, so the
 * saved mean serves as a constant. Only a recorded backward computes the mean again.
 */
static void variance_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const moment_attributes *attributes = sherd_node_attributes(node);
    sherd_tensor *a = sherd_node_operand(node, 0), *dy = sherd__dims_kept(node, grad_out[0]);
    sherd__dims kept = attributes->dims;

    kept.keepdim = true;
    sherd_tensor *mean =
        sherd__makes_graph(a->world) ? mean_along(a, &kept) : sherd__saved(node, SAVED_MEAN);
    dy = sherd_scale(dy, 2 / divisor_of(a, attributes));
    grad_in[0] = sherd_mul(sherd_sub(a, mean), dy);
}

static const sherd_op variance_table = {.name = "sherd_var", .backward = variance_back};

static sherd_tensor *variance_of(sherd_call *call)
{
    const moment_attributes *attributes = call->attributes;
    sherd_tensor *a = sherd__without_pending(widened(call));
    sherd__dims kept = attributes->dims;

    kept.keepdim = true;
    bool before = sherd_set_recording(call->world, false);
    sherd_tensor *mean = mean_along(a, &kept), *squares = sherd_square(sherd_sub(a, mean));
    sherd_tensor *y = sherd__unary(SHERD__DIVIDED, sherd__sum_over(squares, &attributes->dims),
                                   divisor_of(a, attributes));
    sherd_set_recording(call->world, before);
    if (sherd_tensor_failed(y))
        return y;
    sherd_node *node = sherd__record_node(call->world, &variance_table, &a, 1, &y, 1, attributes,
                                          sizeof *attributes);
    sherd__save(node, 0, a);
    sherd__save(node, SAVED_MEAN, mean);
    return y;
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
