/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cross-entropy with all its options, over classes and positions that may both be sharded. Class c
 * of a position has a share: its weight times its probability, or one for the target, smoothed; the
 * loss of a position is the sum of its shares times (log sum exp - logit). Each rank reduces its
 * classes to five numbers a position, which are exchanged in one call; logits are never sent. A
 * mean over targets that count needs a second call, of two numbers, if positions are sharded.
 */
#include "entropy.h"
#include "stats.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "kernels/cast.h"
#include "kernels/layers.h"
#include "sherd/ops_layers.h"
#include "world/doing.h"

enum { LOGITS = SHERD__LOGITS, TARGETS, WEIGHT, OPERANDS };
enum { LOSS = SHERD__LOSS, SUMS, AMOUNT, COUNTED };
enum { IGNORED = -100 };

typedef sherd__entropy_attributes entropy_attributes;

static const sherd__layer_kernels *kernels_in(const sherd_call *call)
{
    return sherd__layer_kernels_of(call->in[LOGITS]->dtype);
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DY = SHERD__G_DY, G_COUNTED, G_LOGITS, G_TARGETS, G_WEIGHT, G_SUMS, G_AMOUNT, G_OPERANDS };

/* The gradient of each row's loss, in f64. NULL: failed. */
static double *scales(sherd_call *call, int64_t rows)
{
    const entropy_attributes *attributes = call->attributes;
    sherd_tensor *dy = call->in[G_DY], *counted = call->in[G_COUNTED];
    double *scale = sherd_call_scratch(call, sherd__max(rows, 1) * (int64_t)sizeof *scale);
    double value, by = 1;

    if (!scale || sherd__is_dry(call->world))
        return scale;
    if (attributes->reduction == SHERD_LOSS_NONE) {
        sherd__cast(SHERD_F64, dy->dtype, rows, scale, call->from[G_DY]);
        return scale;
    }
    if (!sherd__scalar_value(dy, &value) || (counted && !sherd__scalar_value(counted, &by)))
        return NULL;
    for (int64_t r = 0; r < rows; r++)
        scale[r] = value / by;
    return scale;
}

/*
 * By the fast kernel, row by row. If only the target has a share, a row's gradient is that of the
 * loss without options, times the share; otherwise the kernel gets no target, and the shares are
 * subtracted afterwards.
 */
static void differentiate_rows(sherd_call *call, const sherd__entropy *e, const double *scale)
{
    static const int32_t none = -1;
    bool one = e->target && e->spread == 0;
    const sherd__kernels *kernels = sherd__kernels_in(call);
    size_t row = (size_t)e->cols * sherd_dtype_bytes(call->out[0]->dtype);
    size_t stat = sherd_dtype_bytes(sherd__statistics_dtype(call->out[0]->dtype));
    const char *logits = call->from[G_LOGITS], *amount = call->from[G_AMOUNT];
    const double *sums = call->from[G_SUMS];
    char *out = call->to[0];

    for (int64_t r = 0; r < e->rows; r++, out += row, logits += row) {
        double share;
        if (sherd__is_ignored(e, r)) {
            memset(out, 0, row);
            continue;
        }
        sherd__cast(SHERD_F64, call->in[G_AMOUNT]->dtype, 1, &share, amount + (size_t)r * stat);
        kernels->cross_entropy_grad(1, e->cols, out, logits, one ? e->target + r : &none, e->first,
                                    sums + 2 * r, share * scale[r]);
    }
    if (!one)
        sherd__layer_kernels_of(call->out[0]->dtype)->entropy_subtract(e, call->to[0], scale);
}

static bool differentiate(sherd_call *call)
{
    if (sherd__device_in(call))
        return sherd__entropy_grad_there(call, false);
    sherd__entropy e = sherd__entropy_of(call, G_LOGITS);
    const double *scale = scales(call, e.rows);

    if (!scale)
        return false;
    if (call->out[0]->count == 0 || sherd__is_dry(call->world))
        return true;
    /* 16 bits would be rounded twice. */
    if ((e.target && e.spread == 0) || !sherd__is_half(call->out[0]->dtype))
        differentiate_rows(call, &e, scale);
    else
        sherd__layer_kernels_of(call->out[0]->dtype)
            ->entropy_grad(&e, call->to[0], call->from[G_LOGITS], call->from[G_SUMS],
                           call->from[G_AMOUNT], scale);
    return true;
}

static bool differentiate_targets(sherd_call *call)
{
    if (sherd__device_in(call))
        return sherd__entropy_grad_there(call, true);
    sherd__entropy e = sherd__entropy_of(call, G_LOGITS);
    const double *scale = scales(call, e.rows);

    if (scale && call->out[0]->count && !sherd__is_dry(call->world))
        sherd__layer_kernels_of(call->out[0]->dtype)
            ->entropy_target_grad(&e, call->to[0], call->from[G_LOGITS], call->from[G_SUMS], scale);
    return scale != NULL;
}

/* The gradient of each position, or one for all. */
static const char *describe_grad(sherd_call *call)
{
    const entropy_attributes *attributes = call->attributes;
    const sherd_tensor *targets = call->in[G_TARGETS];

    snprintf(call->rule, sizeof call->rule, "%s,,...c,%s,c,...m,...->...c",
             attributes->reduction == SHERD_LOSS_NONE ? "..." : "",
             !targets || sherd__are_classes(targets) ? "..." : "...c");
    return NULL;
}

#define ENTROPY_FIELDS                                                        \
    {                                                                         \
        SHERD__CHOICE(entropy_attributes, reduction, SHERD__LOSS_REDUCTIONS), \
            SHERD_FIELD(entropy_attributes, ignored, INT),                    \
            SHERD_FIELD(entropy_attributes, smoothing, DOUBLE)                \
    }

#define ENTROPY_GRADIENT(label, result_name, run)                                          \
    {                                                                                      \
        .name = label,                                                                     \
        .operand = {{"dy", 0},                                                             \
                    {"counted", SHERD_OP_ANY | SHERD_OP_OPTIONAL},                         \
                    {"logits", 0},                                                         \
                    {"targets", SHERD_OP_ANY | SHERD_OP_OPTIONAL},                         \
                    {"weight", SHERD_OP_OPTIONAL},                                         \
                    {"sums", SHERD_OP_ANY},                                                \
                    {"amount", SHERD_OP_ANY}},                                             \
        .result = {{result_name, 0}}, .field = ENTROPY_FIELDS,                             \
        .attributes = sizeof(entropy_attributes), .whole = "m", .describe = describe_grad, \
        .forward = run, .dry = run, .on_device = sherd__fractions_there                    \
    }

static const sherd_op logits_grad_op =
    ENTROPY_GRADIENT("sherd_cross_entropy_with backward", "dlogits", differentiate);
static const sherd_op targets_grad_op = ENTROPY_GRADIENT(
    "sherd_cross_entropy_with backward of targets", "dtargets", differentiate_targets);

static sherd_tensor *formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    return sherd__entropy_formula(node, in, false);
}

static sherd_tensor *formula_of_mean(sherd_node *node, sherd_tensor *const *in, int result)
{
    (void)result;
    return sherd__entropy_formula(node, in, true);
}

static void go_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                    bool counted)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        sherd__differentiate(node, 1u << LOGITS | 1u << TARGETS | 1u << WEIGHT,
                             counted ? formula_of_mean : formula, grad_out, grad_in);
        if (sherd_node_operands(node) > WEIGHT)
            grad_in[WEIGHT] = NULL; /* it has none */
        return;
    }
    sherd_tensor *in[G_OPERANDS] = {grad_out[0],
                                    counted ? sherd_node_result(node, COUNTED) : NULL,
                                    sherd_node_operand(node, LOGITS),
                                    sherd_node_operand(node, TARGETS),
                                    sherd_node_operand(node, WEIGHT),
                                    sherd_node_result(node, SUMS),
                                    sherd_node_result(node, AMOUNT)};
    const entropy_attributes *attributes = sherd_node_attributes(node);

    if (sherd_node_wants(node, LOGITS))
        grad_in[LOGITS] = sherd_apply(&logits_grad_op, in, G_OPERANDS, attributes);
    if (sherd_node_wants(node, TARGETS))
        grad_in[TARGETS] = sherd_apply(&targets_grad_op, in, G_OPERANDS, attributes);
}

static void entropy_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    go_back(node, grad_out, grad_in, false);
}

static void entropy_mean_back(sherd_node *node, sherd_tensor *const *grad_out,
                              sherd_tensor **grad_in)
{
    go_back(node, grad_out, grad_in, true);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The five numbers of this rank's classes. False: failed. */
static bool fill_stats(sherd_call *call, const sherd__entropy *e, sherd_tensor *stats)
{
    const int32_t *target = e->target;
    int64_t bytes = sherd__max(e->rows, 1) * (int64_t)sizeof *target;
    bool dry = sherd__is_dry(call->world);

    if (!target) { /* the fast kernel is to find none */
        int32_t *none = sherd_call_scratch(call, bytes);
        if (!none)
            return false;
        if (!dry)
            memset(none, -1, (size_t)bytes);
        target = none;
    }
    if (dry)
        return true;
    sherd__kernels_in(call)->cross_entropy(e->rows, e->cols, sherd__fresh(stats),
                                           call->from[LOGITS], target, e->first);
    kernels_in(call)->entropy(e, sherd__fresh(stats), call->from[LOGITS]);
    return true;
}

/* Losses of all rows of this rank, from the stats of all classes; NULL: failed. */
static double *losses(sherd_call *call, const sherd__entropy *e, double *counted)
{
    const sherd_layout *layout = call->in[LOGITS]->layout;
    sherd_tensor *stats = sherd__new_stats(call, SHERD__ENTROPY_NUMBERS, e->rows, false), *all;
    double *loss;

    if (sherd_tensor_failed(stats) || !fill_stats(call, e, stats))
        return NULL;
    all = sherd__gather_stats(stats, layout);
    const void *data = sherd_tensor_failed(all) ? NULL : sherd__data(all);
    loss = sherd_call_scratch(call, sherd__max(e->rows, 1) * (int64_t)sizeof *loss);
    if (!data || !loss)
        return NULL;
    if (call->out[LOSS]->count && !sherd__is_dry(call->world))
        *counted = kernels_in(call)->entropy_join(e, sherd__stats_parts(all, layout),
                                                  call->to[SUMS], call->to[AMOUNT], loss, data);
    return loss;
}

static bool start(sherd_call *call, sherd__entropy *e)
{
    const sherd_tensor *logits = call->in[LOGITS];
    const entropy_attributes *attributes = call->attributes;

    *e = sherd__entropy_of(call, LOGITS);
    return !sherd__are_classes(call->in[TARGETS]) ||
           sherd__check_indices_or(call, TARGETS, logits->shape[logits->ndim - 1],
                                   &(int32_t){attributes->ignored});
}

static double sum_of(const double *loss, int64_t rows)
{
    double sum = 0;

    for (int64_t r = 0; r < rows; r++)
        sum += loss[r];
    return sum;
}

/* The loss of each position, or this rank's addend of the sum. */
static bool entropy(sherd_call *call)
{
    const entropy_attributes *attributes = call->attributes;
    sherd_tensor *out = call->out[LOSS];
    sherd__entropy e;
    double counted = 0, *loss;

    if (!start(call, &e))
        return false;
    if (sherd__device_in(call))
        return sherd__entropy_there(call, &e);
    if (!(loss = losses(call, &e, &counted)))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    if (attributes->reduction == SHERD_LOSS_NONE)
        sherd__cast(out->dtype, SHERD_F64, out->count, call->to[LOSS], loss);
    else if (out->count)
        sherd__kernels_in(call)->fill(call->to[LOSS], 1, sum_of(loss, e.rows));
    return true;
}

/* Sum over all positions: pair[2] holds the sums over this rank's. False: failed. */
static bool add_positions(sherd_call *call, double pair[2])
{
    const sherd_layout *whole = NULL;

    if (!call->in[LOGITS]->layout)
        return true;
    sherd_tensor *sum = sherd__entropy_pair(call, &whole, false);
    if (sherd_tensor_failed(sum))
        return false;
    if (sum->count)
        memcpy(sherd__fresh(sum), pair, 2 * sizeof *pair);
    sum = sherd__move_to(sum, whole, false);
    const double *data = sherd_tensor_failed(sum) ? NULL : sherd__data(sum);
    if (data && sum->count)
        memcpy(pair, data, 2 * sizeof *pair);
    return data != NULL;
}

static bool entropy_mean(sherd_call *call)
{
    sherd__entropy e;
    double pair[2] = {0, 0}, *loss;

    if (!start(call, &e))
        return false;
    if (sherd__device_in(call))
        return sherd__entropy_mean_there(call, &e);
    if (!(loss = losses(call, &e, &pair[1])))
        return false;
    bool computes = call->out[LOSS]->count && !sherd__is_dry(call->world);
    pair[0] = sum_of(loss, computes ? e.rows : 0);
    if (!add_positions(call, pair))
        return false;
    if (computes) {
        sherd__kernels_in(call)->fill(call->to[LOSS], 1, pair[0] / pair[1]);
        sherd__cast(call->out[COUNTED]->dtype, SHERD_F64, 1, call->to[COUNTED], &pair[1]);
    }
    return true;
}

static const char *describe(sherd_call *call)
{
    const entropy_attributes *attributes = call->attributes;
    const sherd_tensor *logits = call->in[LOGITS], *targets = call->in[TARGETS];
    bool indices = sherd__are_classes(targets);

    if (attributes->reduction < SHERD_LOSS_MEAN || attributes->reduction > SHERD_LOSS_NONE)
        return sherd_call_reason(call, "there is no reduction %d", attributes->reduction);
    if (!(attributes->smoothing >= 0 && attributes->smoothing <= 1))
        return sherd_call_reason(call, "label smoothing is %g, not in [0,1]",
                                 attributes->smoothing);
    if (!indices && targets->dtype != logits->dtype)
        return "targets must be i32 (indices) or of the dtype of logits (probabilities): cast them "
               "(sherd_cast)";
    if (logits->ndim != targets->ndim + indices || logits->ndim < 1 ||
        logits->ndim >= SHERD_MAX_DIMS)
        return indices ? "logits must have the dims of targets and one for the classes"
                       : "logits and probabilities must have the same dims";
    snprintf(call->rule, sizeof call->rule, "...c,%s,c->%s,...m,...%s", indices ? "..." : "...c",
             attributes->reduction == SHERD_LOSS_NONE ? "..." : "",
             call->results > COUNTED ? "," : "");
    call->dtype[SUMS] = SHERD_F64;
    call->shape[SUMS][logits->ndim - 1] = 2;
    return NULL;
}

enum { STATISTIC = SHERD_OP_STATISTIC | SHERD_OP_HIDDEN };
#define ENTROPY_NEEDS                                                                           \
    (SHERD_NEEDS_OPERAND(LOGITS) | SHERD_NEEDS_OPERAND(TARGETS) | SHERD_NEEDS_OPERAND(WEIGHT) | \
     SHERD_NEEDS_RESULT(SUMS) | SHERD_NEEDS_RESULT(AMOUNT))

const sherd_op sherd__cross_entropy_with_op = {
    .name = "sherd_cross_entropy_with",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "cross-entropy with options, for each position or summed",
    .operand = {{"logits", 0}, {"targets", SHERD_OP_ANY}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"loss", 0}, {"sums", SHERD_OP_HIDDEN}, {"amount", STATISTIC}},
    .field = ENTROPY_FIELDS,
    .attributes = sizeof(entropy_attributes),
    .joined = "c",
    .describe = describe,
    .forward = entropy,
    .dry = entropy,
    .on_device = sherd__fractions_there,
    .backward = entropy_back,
    .needs = {ENTROPY_NEEDS, ENTROPY_NEEDS}};

/* Its loss is no pending sum: what it is divided by is known only when all positions are. */
const sherd_op sherd__cross_entropy_mean_op = {
    .name = "sherd_cross_entropy_mean",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "cross-entropy with options, mean over the targets that count",
    .operand = {{"logits", 0}, {"targets", SHERD_OP_ANY}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"loss", 0},
               {"sums", SHERD_OP_HIDDEN},
               {"amount", STATISTIC},
               {"counted", STATISTIC}},
    .field = ENTROPY_FIELDS,
    .attributes = sizeof(entropy_attributes),
    .joined = "cABCDEFGH",
    .describe = describe,
    .forward = entropy_mean,
    .dry = entropy_mean,
    .on_device = sherd__fractions_there,
    .backward = entropy_mean_back,
    .needs = {ENTROPY_NEEDS | SHERD_NEEDS_RESULT(COUNTED)}};

/* The mean over positions of probabilities: how many there are is known. */
static sherd_tensor *mean_of_probabilities(sherd_tensor *const *in, entropy_attributes attributes)
{
    int64_t n = 1;

    for (int d = 0; d + 1 < in[LOGITS]->ndim; d++)
        n *= in[LOGITS]->shape[d];
    attributes.reduction = SHERD_LOSS_SUM;
    return sherd__mean_of(sherd_apply(&sherd__cross_entropy_with_op, in, OPERANDS, &attributes), n);
}

sherd_tensor *sherd_cross_entropy_with(sherd_tensor *logits, sherd_tensor *targets,
                                       const sherd_cross_entropy_options *options)
{
    const sherd_cross_entropy_options o = options ? *options : (sherd_cross_entropy_options){0};
    sherd_tensor *in[OPERANDS] = {logits, targets, o.weight};
    entropy_attributes attributes = {(int)o.reduction, o.has_ignored ? o.ignored : IGNORED,
                                     o.label_smoothing};
    bool good = logits && targets && !sherd_tensor_failed(logits) && !sherd_tensor_failed(targets);

    if (good && !sherd__are_classes(targets) && o.has_ignored)
        return sherd__fail_tensor(logits->world, logits->layout || targets->layout, SHERD_EINVAL,
                                  "sherd_cross_entropy_with: an index to ignore beside "
                                  "probabilities: targets is %s",
                                  sherd_tensor_text(targets));
    if (o.reduction != SHERD_LOSS_MEAN)
        return sherd_apply(&sherd__cross_entropy_with_op, in, OPERANDS, &attributes);
    if (good && !sherd__are_classes(targets))
        return mean_of_probabilities(in, attributes);
    sherd_world *world = logits ? logits->world : targets ? targets->world : NULL;
    bool begun = sherd__doing_begin(world, "sherd_cross_entropy");
    sherd_tensor *loss = sherd_apply(&sherd__cross_entropy_mean_op, in, OPERANDS, &attributes);
    sherd__doing_end(world, begun);
    return loss;
}
