/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mean, variance and deviation. A variance takes two passes: first the mean over all shards, then
 * the squared differences; never the difference of two large numbers. On CPUs sums, mean and
 * variance are f64: beside a large mean, what rounding it to f32 takes would be the variance, and
 * squares may be too large or too small for f32 where the deviation is not. On GPUs they are
 * composed of sums over dims and functions, in f32 for 16-bit types, and the error of the mean is
 * computed too.
 */
#include "dims.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"

#include <math.h>
#include <string.h>

#include "kernels/squares.h"

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

/* ---- variance and deviation, in f64 ---------------------------------------------------------- */

/* What backward knows. */
typedef struct spread {
    sherd__dims dims;
    double divisor; /* of the sum of squares */
    bool root;
} spread;

static sherd__dims kept_of(const sherd__dims *dims)
{
    sherd__dims kept = *dims;

    kept.keepdim = true;
    return kept;
}

enum { MEAN, ABOUT, ABOUT_OPERANDS };

static bool add_up(sherd_call *call)
{
    bool about = call->operands == ABOUT_OPERANDS;
    const sherd_tensor *a = call->in[call->operands - 1], *out = call->out[0];

    if (out->count && a->count) {
        const sherd__squares s = sherd__squares_of(a, call->attributes);
        sherd__sums_about(sherd__kernels_in(call), a->dtype, &s, call->to[0],
                          about ? call->from[MEAN] : NULL, call->from[call->operands - 1]);
    } else if (out->count) {
        memset(call->to[0], 0, (size_t)out->count * sizeof(double));
    }
    return true;
}

static const sherd_op sums_op = {.name = "sum in f64",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 SHERD__DIMS_FIELDS,
                                 .describe = sherd__describe_sums,
                                 .forward = add_up};

static const char *describe_about(sherd_call *call)
{
    call->dtype[0] = SHERD_F64;
    sherd__dims_rule_beside(call, call->attributes, true);
    return NULL;
}

static const sherd_op about_op = {.name = "sum of squares about a mean",
                                  .operand = {{"mean", SHERD_OP_ANY}, {"a", 0}},
                                  .result = {{"y", 0}},
                                  SHERD__DIMS_FIELDS,
                                  .describe = describe_about,
                                  .forward = add_up};

enum { BY, ITS_MEAN, A, OPERANDS };

static bool slope(sherd_call *call)
{
    const sherd_tensor *a = call->in[A];

    if (a->count) {
        const sherd__squares s = sherd__squares_of(a, call->attributes);
        sherd__spread_slope(sherd__kernels_in(call), a->dtype, &s, call->to[0], call->from[BY],
                            call->from[ITS_MEAN], call->from[A]);
    }
    return true;
}

static const sherd_op slope_op = {
    .name = "sherd_var backward",
    .operand = {{"by", SHERD_OP_ANY}, {"mean", SHERD_OP_ANY}, {"a", 0}},
    .result = {{"da", 0}},
    SHERD__DIMS_FIELDS,
    .describe = sherd__describe_beside,
    .forward = slope};

static sherd_tensor *composed(sherd_tensor *a, const sherd__dims *dims, double divisor);

/* The slots of mean and result, f64, among what is saved. */
enum { SAVED_MEAN = 1, SAVED_RESULT };

/* What differences from the mean are multiplied by; a deviation of 0 has no gradient. */
static sherd_tensor *factor_of(const spread *s, sherd_tensor *dy, sherd_tensor *deviation)
{
    if (!s->root)
        return sherd_scale(dy, 2 / s->divisor);
    sherd_tensor *none = sherd_eq_scalar(deviation, 0);
    sherd_tensor *by = sherd_div(dy, sherd_masked_fill(deviation, none, 1));
    return sherd_scale(sherd_masked_fill(by, none, 0), 1 / s->divisor);
}

/*
 * The gradient by way of the mean is a factor of the sum of the differences, which is 0, so the
 * saved mean serves as a constant. Only a recorded backward computes it again.
 */
static void spread_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const spread *s = sherd_node_attributes(node);
    sherd_tensor *a = sherd_node_operand(node, 0), *dy = sherd__dims_kept(node, grad_out[0]);
    const sherd__dims kept = kept_of(&s->dims);

    if (sherd__makes_graph(a->world)) {
        sherd_tensor *wide = sherd_cast(a, sherd__statistics_dtype(a->dtype)), *deviation = NULL;
        sherd_tensor *mean = mean_along(wide, &kept);
        if (s->root)
            deviation = sherd__unary(SHERD__ROOT, composed(wide, &kept, s->divisor), 2);
        dy = factor_of(s, sherd_cast(dy, wide->dtype), deviation);
        grad_in[0] = sherd_cast(sherd_mul(sherd_sub(wide, mean), dy), a->dtype);
        return;
    }
    sherd_tensor *deviation =
        s->root ? sherd__dims_kept(node, sherd__saved(node, SAVED_RESULT)) : NULL;
    sherd_tensor *in[OPERANDS] = {factor_of(s, sherd_cast(dy, SHERD_F64), deviation),
                                  sherd__saved(node, SAVED_MEAN), a};
    grad_in[0] = sherd_apply(&slope_op, in, OPERANDS, &kept);
}

static const sherd_op spread_table = {.name = "sherd_var", .backward = spread_back};

/* `moved`: a lies in another order, and is copied once for both passes. */
static sherd_tensor *spread_of(sherd_tensor *a, const sherd__dims *dims, double divisor, bool root,
                               bool moved)
{
    const sherd__dims kept = kept_of(dims);
    const spread s = {*dims, divisor, root};
    sherd_world *world = a->world;

    a = sherd__without_pending(a);
    bool before = sherd_set_recording(world, false);
    sherd_tensor *x = moved ? sherd_contiguous(a) : a;
    sherd_tensor *mean =
        sherd__mean_of(sherd_apply(&sums_op, &x, 1, &kept), sherd__dims_count(dims, a));
    mean = sherd__without_pending(mean);
    sherd_tensor *squares =
        sherd_apply(&about_op, (sherd_tensor *[]){mean, x}, ABOUT_OPERANDS, dims);
    sherd_tensor *result = sherd__unary(SHERD__DIVIDED, squares, divisor);
    result = root ? sherd__unary(SHERD__ROOT, result, 2) : result;
    sherd_tensor *y = sherd_cast(result, a->dtype);
    sherd_set_recording(world, before);
    if (sherd_tensor_failed(y))
        return y;
    if (y == result)
        y = sherd__alias(y);
    sherd_node *node = sherd__record_node(world, &spread_table, &a, 1, &y, 1, &s, sizeof s);
    sherd__save(node, 0, a);
    sherd__save(node, SAVED_MEAN, mean);
    sherd__save(node, SAVED_RESULT, result);
    return y;
}

/* Dims that do not follow one another are put behind the others. */
static sherd_tensor *spread_over(sherd_tensor *a, const sherd__dims *dims, double divisor,
                                 bool root)
{
    unsigned reduced = sherd__dims_bits(dims, a->ndim);
    int order[SHERD_MAX_DIMS], ndim = a->ndim, n = 0;
    sherd__dims last = {.count = 0};

    if (sherd__dims_are_neighbours(dims, ndim))
        return spread_of(a, dims, divisor, root, false);
    for (int d = 0; d < ndim; d++)
        if (!(reduced >> d & 1))
            order[n++] = d;
    for (int d = 0; d < ndim; d++)
        if (reduced >> d & 1) {
            last.dim[last.count++] = n;
            order[n++] = d;
        }
    sherd_tensor *y = spread_of(sherd_permute(a, order, ndim), &last, divisor, root, true);
    for (int d = 0; d < ndim && dims->keepdim; d++)
        if (reduced >> d & 1)
            y = sherd_unsqueeze(y, d);
    return y;
}

/* ---- variance and deviation ------------------------------------------------------------------ */

static void variance_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const spread *s = sherd_node_attributes(node);
    sherd_tensor *a = sherd_node_operand(node, 0), *dy = sherd__dims_kept(node, grad_out[0]);
    const sherd__dims kept = kept_of(&s->dims);
    sherd_tensor *mean =
        sherd__makes_graph(a->world) ? mean_along(a, &kept) : sherd__saved(node, SAVED_MEAN);

    grad_in[0] = sherd_mul(sherd_sub(a, mean), factor_of(s, dy, NULL));
}

static const sherd_op variance_table = {.name = "sherd_var", .backward = variance_back};

/* The sum of the differences is that of their number and what the mean is wrong by. */
static sherd_tensor *composed(sherd_tensor *a, const sherd__dims *dims, double divisor)
{
    double n = (double)sherd__dims_count(dims, a);
    const sherd__dims kept = kept_of(dims);
    const spread s = {*dims, divisor, false};

    bool before = sherd_set_recording(a->world, false);
    sherd_tensor *mean = sherd__without_pending(mean_along(a, &kept)), *apart = sherd_sub(a, mean);
    sherd_tensor *off = sherd__without_pending(sherd__sum_over(apart, dims));
    sherd_tensor *squares = sherd__without_pending(sherd__sum_over(sherd_square(apart), dims));
    squares = sherd_sub(squares, sherd_scale(sherd_square(off), n > 0 ? 1 / n : 0));
    sherd_tensor *y = sherd__unary(SHERD__DIVIDED, sherd_clamp(squares, 0, INFINITY), divisor);
    sherd_set_recording(a->world, before);
    if (sherd_tensor_failed(y))
        return y;
    sherd_node *node = sherd__record_node(a->world, &variance_table, &a, 1, &y, 1, &s, sizeof s);
    sherd__save(node, 0, a);
    sherd__save(node, SAVED_MEAN, mean);
    return y;
}

static bool measure(sherd_call *call, bool root)
{
    const moment_attributes *attributes = call->attributes;
    const sherd__dims *dims = &attributes->dims;
    sherd_tensor *a = call->in[0];

    if (!check_dims(call, dims))
        return false;
    double divisor = fmax((double)sherd__dims_count(dims, a) - attributes->parameter, 0);
    if (!sherd__world_device(call->world)) {
        call->out[0] = spread_over(a, dims, divisor, root);
        return true;
    }
    sherd_tensor *y = composed(sherd__without_pending(widened(call)), dims, divisor);
    call->out[0] = sherd_cast(root ? sherd__unary(SHERD__ROOT, y, 2) : y, a->dtype);
    return true;
}

static bool var(sherd_call *call)
{
    return measure(call, false);
}

static bool std(sherd_call *call)
{
    return measure(call, true);
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
