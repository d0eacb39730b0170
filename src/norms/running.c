/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch and instance norms with running averages: the norm itself (norms.c), by x's own moments or
 * by given ones, and then, outside of the tape, the update of the averages. These are small: if x
 * is sharded on channels and they are not, the new averages are gathered, never x.
 */
#include "norms.h"
#include "sherd/ops_layers.h"
#include "sherd/ops_reductions.h"

#include "base/num.h"

enum { X, WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR, OPERANDS };
enum { Y, MEAN, VAR };

typedef struct running_attributes {
    bool fixed;
    double momentum, eps;
} running_attributes;

/* ---- running averages ------------------------------------------------------------------------ */

/*
 * New values for a plain average must be plain; a rank outside the mesh has none. NULL: nothing to
 * write.
 */
static sherd_tensor *made_plain(sherd_tensor *running, sherd_tensor *value)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (running->layout || sherd_tensor_failed(value) || !value->layout)
        return value;
    bool inside = sherd__coordinate(value, coordinate);
    value = sherd_full(value);
    return inside ? value : NULL;
}

/* What it becomes; NULL: nothing is to be written. */
static sherd_tensor *averaged(sherd_tensor *running, sherd_tensor *value, double factor,
                              double momentum)
{
    sherd_dtype dtype = sherd__statistics_dtype(running->dtype);

    value = made_plain(running, sherd_scale(sherd_cast(value, dtype), factor * momentum));
    if (!value)
        return NULL;
    return sherd_add(sherd_scale(sherd_cast(running, dtype), 1 - momentum), value);
}

/* Both are written, or neither: that of the variance may be one that cannot be. */
static bool write_both(sherd_tensor *const *running, sherd_tensor *const *value)
{
    for (int i = 0; i < 2; i++)
        if (value[i] && !sherd__copy_fits(running[i], value[i]))
            return false;
    for (int i = 0; i < 2; i++)
        if (value[i] && sherd_tensor_failed(sherd_copy_from(running[i], value[i])))
            return false;
    return true;
}

/* Update by the moments of this call; those of items are averaged. `groups` as in norms.h. */
static bool update(sherd_call *call, sherd_tensor *mean, sherd_tensor *var, int64_t groups)
{
    const running_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X];
    double n = sherd__norm_together(x, groups);
    bool before, good;

    if (!call->in[RUNNING_MEAN] || sherd_tensor_count(x) == 0 || sherd_is_recomputing(call->world))
        return true;
    before = sherd_set_recording(call->world, false);
    if (groups) {
        mean = sherd_mean_over(mean, (int[]){0}, 1, false);
        var = sherd_mean_over(var, (int[]){0}, 1, false);
    }
    mean = averaged(call->in[RUNNING_MEAN], mean, 1, attributes->momentum);
    var = averaged(call->in[RUNNING_VAR], var, n / (n - 1), attributes->momentum);
    good = write_both(&call->in[RUNNING_MEAN], (sherd_tensor *[]){mean, var});
    sherd_set_recording(call->world, before);
    return good;
}

/* ---- the norms ------------------------------------------------------------------------------- */

static const char *check_average(sherd_call *call, int i)
{
    const sherd_tensor *t = call->in[i], *x = call->in[X];

    if (!t)
        return NULL;
    if (!sherd__has_fractions(t->dtype))
        return "running averages have fractions";
    return t->ndim == 1 && t->shape[0] == x->shape[1]
               ? NULL
               : sherd_call_reason(call, "running averages have the shape [%lld]",
                                   (long long)x->shape[1]);
}

static const char *describe(sherd_call *call)
{
    const running_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X];
    bool averages = call->in[RUNNING_MEAN] && call->in[RUNNING_VAR];
    const char *reason;

    if (x->ndim < 2)
        return "x must have a dim of items and one of channels";
    if (!averages && (call->in[RUNNING_MEAN] || call->in[RUNNING_VAR]))
        return "a running average is there without the other";
    if (attributes->fixed && !averages)
        return "it is fixed, and there are no running averages";
    if (!(attributes->momentum >= 0))
        return sherd_call_reason(call, "momentum is %g, and must not be negative",
                                 attributes->momentum);
    reason = check_average(call, RUNNING_MEAN);
    return reason ? reason : check_average(call, RUNNING_VAR);
}

static bool normalise(sherd_call *call, const sherd_op *op, int64_t groups)
{
    const running_attributes *attributes = call->attributes;
    const sherd__norm_attributes of = {attributes->eps, attributes->fixed ? 0 : groups};
    sherd_tensor *out[SHERD_MAX_RESULTS];

    if (attributes->fixed) {
        call->out[Y] = sherd_apply(&sherd__fixed_norm_op, call->in, OPERANDS, &of);
        return true;
    }
    if (sherd__norm_together(call->in[X], groups) == 1)
        return sherd_call_fail(call, SHERD_EINVAL,
                               "it has one element in each channel: nothing would be left of it");
    if (!sherd_apply_all(out, op, call->in, BIAS + 1, &of))
        return false;
    call->out[Y] = out[Y];
    return update(call, out[MEAN], out[VAR], groups);
}

static bool batch_norm(sherd_call *call)
{
    return normalise(call, &sherd__batch_moments_op, 0);
}

static bool instance_norm(sherd_call *call)
{
    return normalise(call, &sherd__instance_moments_op, sherd__max(call->in[X]->shape[1], 1));
}

#define WITH_AVERAGES(name_, text, made)                                                       \
    {                                                                                          \
        .name = name_, .summary = text,                                                        \
        .layouts = "x is not moved; ranks that share a channel exchange three numbers for it", \
        .operand = {{"x", 0},                                                                  \
                    {"weight", SHERD_OP_OPTIONAL},                                             \
                    {"bias", SHERD_OP_OPTIONAL},                                               \
                    {"running_mean", SHERD_OP_OPTIONAL | SHERD_OP_ANY},                        \
                    {"running_variance", SHERD_OP_OPTIONAL | SHERD_OP_ANY}},                   \
        .result = {{"y", 0}},                                                                  \
        .field = {SHERD_FIELD(running_attributes, fixed, BOOL),                                \
                  SHERD_FIELD(running_attributes, momentum, DOUBLE),                           \
                  SHERD_FIELD(running_attributes, eps, DOUBLE)},                               \
        .attributes = sizeof(running_attributes), .autocast = SHERD_AUTOCAST_FULL,             \
        .describe = describe, .compose = made                                                  \
    }

const sherd_op sherd__batch_norm_op =
    WITH_AVERAGES("sherd_batch_norm", "normalise channels over the whole batch", batch_norm);
const sherd_op sherd__instance_norm_op =
    WITH_AVERAGES("sherd_instance_norm", "normalise the channels of each item", instance_norm);

static sherd_tensor *apply(const sherd_op *op, sherd_tensor *x,
                           const sherd_batch_norm_options *options)
{
    const sherd_batch_norm_options o = options ? *options : (sherd_batch_norm_options){0};
    sherd_tensor *in[OPERANDS] = {x, o.weight, o.bias, o.running_mean, o.running_variance};

    return sherd_apply(op, in, OPERANDS,
                       &(running_attributes){o.fixed, o.momentum == 0 ? 0.1 : o.momentum,
                                             o.eps == 0 ? 1e-5 : o.eps});
}

sherd_tensor *sherd_batch_norm(sherd_tensor *x, const sherd_batch_norm_options *options)
{
    return apply(&sherd__batch_norm_op, x, options);
}

sherd_tensor *sherd_instance_norm(sherd_tensor *x, const sherd_batch_norm_options *options)
{
    return apply(&sherd__instance_norm_op, x, options);
}
