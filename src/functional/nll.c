/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The negative logarithm of a class chosen by an index, times the weight of that class. The choice
 * is linear in the logarithms, so if classes are sharded, each rank chooses among its own, and the
 * result is a pending sum: logarithms are never sent.
 */
#include "ops/shared.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_losses.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/compare.h"
#include "kernels/cast.h"

enum { X, TARGET, WEIGHT, OPERANDS };
enum { IGNORED = -100 };

typedef struct nll_attributes {
    int reduction;
    bool ignores; /* targets that are `ignored` */
    int ignored;
} nll_attributes;

#define NLL_ATTRIBUTES                                                          \
    .field = {SHERD__CHOICE(nll_attributes, reduction, SHERD__LOSS_REDUCTIONS), \
              SHERD_FIELD(nll_attributes, ignores, BOOL),                       \
              SHERD_FIELD(nll_attributes, ignored, INT)},                       \
    .attributes = sizeof(nll_attributes)

/* ---- choosing -------------------------------------------------------------------------------- */

/* The targets of `rows` positions; this rank has `cols` classes, from `first` on. */
typedef struct choice {
    const nll_attributes *attributes;
    const int32_t *target;
    int64_t rows, cols, first;
    size_t bytes; /* of an element */
} choice;

/* The column of row r's class; -1: it is not on this rank, or does not count. */
static int64_t column(const choice *c, int64_t r)
{
    int64_t at = c->target[r] - c->first;

    if (c->attributes->ignores && c->target[r] == c->attributes->ignored)
        return -1;
    return at >= 0 && at < c->cols ? at : -1;
}

/* out[row] = from[row * step + its class]; 0 if that is not on this rank. */
static void pick(const choice *c, char *out, const char *from, int64_t step)
{
    for (int64_t r = 0; r < c->rows; r++, out += c->bytes, from += (size_t)step * c->bytes) {
        int64_t at = column(c, r);
        if (at < 0)
            memset(out, 0, c->bytes);
        else
            memcpy(out, from + (size_t)at * c->bytes, c->bytes);
    }
}

/* The converse; everything else is 0. */
static void put(const choice *c, char *out, const char *from)
{
    size_t row = (size_t)c->cols * c->bytes;

    for (int64_t r = 0; r < c->rows; r++, out += row, from += c->bytes) {
        int64_t at = column(c, r);
        memset(out, 0, row);
        if (at >= 0)
            memcpy(out + (size_t)at * c->bytes, from, c->bytes);
    }
}

/*
 * out[row] = from[row] times the weight of its class; with a weight of 0 it is 0, even if `from` is
 * not finite. False: no memory.
 */
static bool weigh(sherd_call *call, const choice *c, char *out, const char *from)
{
    const sherd_tensor *weight = call->in[WEIGHT];
    char *picked = sherd_call_scratch(call, c->rows * (int64_t)c->bytes);
    double *wide = sherd_call_scratch(call, c->rows * (int64_t)sizeof *wide);
    const int64_t stride = 1;

    if (!picked || !wide || sherd__is_dry(call->world))
        return picked && wide;
    pick(c, picked, call->from[WEIGHT], 0);
    sherd__kernels_in(call)->binary(SHERD__MUL, 1, &c->rows, out, from, &stride, picked, &stride);
    sherd__cast(SHERD_F64, weight->dtype, c->rows, wide, picked);
    for (int64_t r = 0; r < c->rows; r++)
        if (wide[r] == 0)
            memset(out + (size_t)r * c->bytes, 0, c->bytes);
    return true;
}

static choice choice_of(const sherd_call *call, const sherd_tensor *all, int64_t rows)
{
    int last = all->ndim - 1;

    return (choice){.attributes = call->attributes,
                    .target = call->from[TARGET],
                    .rows = rows,
                    .cols = all->local[last],
                    .first = sherd_tensor_box(all).offset[last],
                    .bytes = sherd_dtype_bytes(all->dtype)};
}

/* The same on the GPU, with that weight. */
static sherd__classes classes_of(const sherd_call *call, const choice *c)
{
    return (sherd__classes){.rows = c->rows,
                            .cols = c->cols,
                            .first = c->first,
                            .target = c->target,
                            .weight = call->in[WEIGHT] ? call->from[WEIGHT] : NULL,
                            .ignores = c->attributes->ignores,
                            .ignored = c->attributes->ignored};
}

/* ---- backward -------------------------------------------------------------------------------- */

typedef struct spread_attributes {
    nll_attributes nll; /* first: what a choice looks at */
    int64_t classes;
} spread_attributes;

static const char *describe_spread(sherd_call *call)
{
    const spread_attributes *attributes = call->attributes;

    call->shape[0][call->in[0]->ndim] = attributes->classes;
    return NULL;
}

static bool spread_class(sherd_call *call)
{
    const choice c = choice_of(call, call->out[0], call->in[0]->count);
    const char *dy = call->from[0];
    char *weighed;

    if (call->out[0]->count == 0)
        return true;
    if (sherd__device_in(call)) {
        const sherd__classes of = classes_of(call, &c);
        sherd__device_put_class(sherd__device_in(call), call->out[0]->dtype, &of, call->to[0], dy);
        return true;
    }
    bool dry = sherd__is_dry(call->world);
    if (!call->in[WEIGHT]) {
        if (!dry)
            put(&c, call->to[0], dy);
        return true;
    }
    weighed = sherd_call_scratch(call, c.rows * (int64_t)c.bytes);
    if (!weighed || !weigh(call, &c, weighed, dy))
        return false;
    if (!dry)
        put(&c, call->to[0], weighed);
    return true;
}

static const sherd_op pick_class_op;

static void spread_class_back(sherd_node *node, sherd_tensor *const *grad_out,
                              sherd_tensor **grad_in)
{
    const spread_attributes *attributes = sherd_node_attributes(node);
    sherd_tensor *in[] = {grad_out[0], sherd_node_operand(node, 1), sherd_node_operand(node, 2)};

    grad_in[0] = sherd_apply(&pick_class_op, in, 3, &attributes->nll);
}

/* The last operand is the layout of the classes alone. */
static const sherd_op spread_class_op = {
    .name = "sherd_nll_loss backward",
    .operand = {{"dy", 0},
                {"target", SHERD_OP_INDEX},
                {"weight", SHERD_OP_OPTIONAL},
                {"x", SHERD_OP_OPTIONAL}},
    .result = {{"dx", 0}},
    .field = {SHERD_FIELD(spread_attributes, nll.ignores, BOOL),
              SHERD_FIELD(spread_attributes, nll.ignored, INT),
              SHERD_FIELD(spread_attributes, classes, INT64)},
    .attributes = sizeof(spread_attributes),
    .rule = "...,...,c,...c->...c",
    .describe = describe_spread,
    .forward = spread_class,
    .dry = spread_class,
    .on_device = sherd__fractions_there,
    .backward = spread_class_back,
    .needs = {SHERD_NEEDS_OPERAND(1) | SHERD_NEEDS_OPERAND(2)}};

static void pick_class_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *layout = sherd_node_layout(node, X), *like[4] = {NULL};
    sherd_tensor *in[] = {grad_out[0], sherd_node_operand(node, TARGET),
                          sherd_node_operand(node, WEIGHT), NULL};
    const nll_attributes *attributes = sherd_node_attributes(node);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, X, &shape);

    if (!sherd_node_wants(node, X))
        return;
    grad_in[X] = sherd__failed(sherd__node_world(node));
    if (layout && sherd__layout_settle(&like[3], layout) != SHERD_OK)
        sherd__fail_diag(sherd__node_world(node), true);
    else
        sherd__apply_like(&grad_in[X], &spread_class_op, in, 4,
                          &(spread_attributes){*attributes, shape[ndim - 1]}, like);
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool pick_class(sherd_call *call)
{
    const nll_attributes *attributes = call->attributes;
    const sherd_tensor *x = call->in[X];
    const choice c = choice_of(call, x, call->out[0]->count);
    const int32_t ignored = attributes->ignored;

    if (!sherd__check_indices_or(call, TARGET, x->shape[x->ndim - 1],
                                 attributes->ignores ? &ignored : NULL))
        return false;
    if (c.rows == 0)
        return true;
    if (sherd__device_in(call)) {
        const sherd__classes of = classes_of(call, &c);
        sherd__device_take_class(sherd__device_in(call), x->dtype, &of, call->to[0], call->from[X]);
        return true;
    }
    if (!sherd__is_dry(call->world))
        pick(&c, call->to[0], call->from[X], c.cols);
    return !call->in[WEIGHT] || weigh(call, &c, call->to[0], call->to[0]);
}

static const sherd_op pick_class_op = {
    .name = "sherd_nll_loss class",
    .operand = {{"x", 0}, {"target", SHERD_OP_INDEX}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}},
    NLL_ATTRIBUTES,
    .rule = "...c,...,c->...",
    .linearity = SHERD_LINEAR,
    .forward = pick_class,
    .dry = pick_class,
    .on_device = sherd__fractions_there,
    .backward = pick_class_back,
    .needs = {SHERD_NEEDS_OPERAND(TARGET) | SHERD_NEEDS_OPERAND(WEIGHT)}};

/* ---- what a mean is divided by --------------------------------------------------------------- */

typedef struct counted_attributes {
    nll_attributes nll; /* first: what a choice looks at */
    int dtype;
} counted_attributes;

enum { C_WEIGHT, C_TARGET };

/* Without weights, no rank needs the classes. */
static const char *describe_counted(sherd_call *call)
{
    const counted_attributes *attributes = call->attributes;

    snprintf(call->rule, sizeof call->rule, "%s,...->", call->in[C_WEIGHT] ? "c" : "");
    call->dtype[0] = (sherd_dtype)attributes->dtype;
    return NULL;
}

static bool counted(sherd_call *call)
{
    const sherd_tensor *weight = call->in[C_WEIGHT], *target = call->in[C_TARGET];
    double sum = 0, *wide = sherd_call_scratch(call, sherd__max(target->count, 1) * 8);
    choice c = {.attributes = call->attributes,
                .target = call->from[C_TARGET],
                .rows = target->count,
                .cols = INT32_MAX};

    if (!wide)
        return false;
    if (weight && target->count) {
        c = choice_of(call, weight, target->count);
        void *picked = sherd_call_scratch(call, c.rows * (int64_t)c.bytes);
        if (!picked || sherd__is_dry(call->world))
            return picked != NULL;
        pick(&c, picked, call->from[C_WEIGHT], 0);
        sherd__cast(SHERD_F64, weight->dtype, c.rows, wide, picked);
    }
    if (sherd__is_dry(call->world))
        return true;
    for (int64_t r = 0; r < c.rows; r++)
        sum += weight ? wide[r] : column(&c, r) >= 0;
    if (call->out[0]->count)
        sherd__cast(call->out[0]->dtype, SHERD_F64, 1, call->to[0], &sum);
    return true;
}

/* The sum of the weights of targets that count. */
static const sherd_op counted_op = {
    .name = "sherd_nll_loss weights",
    .operand = {{"weight", SHERD_OP_OPTIONAL}, {"target", SHERD_OP_INDEX}},
    .result = {{"counted", 0}},
    .field = {SHERD_FIELD(counted_attributes, nll.ignores, BOOL),
              SHERD_FIELD(counted_attributes, nll.ignored, INT),
              SHERD_FIELD(counted_attributes, dtype, INT)},
    .attributes = sizeof(counted_attributes),
    .numbers = SHERD_NUMBERS,
    .describe = describe_counted,
    .forward = counted,
    .dry = counted};

/* ---- the loss -------------------------------------------------------------------------------- */

/* In 16 bits the sum of many losses may overflow where their mean does not. */
static sherd_tensor *mean_of(sherd_call *call, sherd_tensor *each)
{
    const nll_attributes *attributes = call->attributes;
    sherd_dtype dtype = sherd__statistics_dtype(each->dtype);
    const counted_attributes of = {*attributes, (int)dtype};

    if (!attributes->ignores && !call->in[WEIGHT])
        return sherd_mean(each);
    sherd_tensor *weights =
        sherd_apply(&counted_op, (sherd_tensor *[]){call->in[WEIGHT], call->in[TARGET]}, 2, &of);
    return sherd_cast(sherd_div(sherd_sum(sherd_cast(each, dtype)), weights), each->dtype);
}

static bool nll(sherd_call *call)
{
    const nll_attributes *attributes = call->attributes;
    sherd_tensor *each;

    if (attributes->reduction < SHERD_LOSS_MEAN || attributes->reduction > SHERD_LOSS_NONE)
        return sherd_call_fail(call, SHERD_EINVAL, "there is no reduction %d",
                               attributes->reduction);
    each = sherd_neg(sherd_apply(&pick_class_op, call->in, OPERANDS, attributes));
    if (sherd_tensor_failed(each))
        return false;
    call->out[0] = attributes->reduction == SHERD_LOSS_NONE  ? each
                   : attributes->reduction == SHERD_LOSS_SUM ? sherd_sum(each)
                                                             : mean_of(call, each);
    return true;
}

const sherd_op sherd__nll_loss_op = {
    .name = "sherd_nll_loss",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "-x[target], with class weights and ignored targets",
    .operand = {{"x", 0}, {"target", SHERD_OP_INDEX}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"loss", 0}},
    NLL_ATTRIBUTES,
    .compose = nll};

sherd_tensor *sherd_nll_loss(sherd_tensor *log_x, sherd_tensor *target,
                             sherd_loss_reduction reduction)
{
    return sherd_apply(&sherd__nll_loss_op, (sherd_tensor *[]){log_x, target}, 2,
                       &(nll_attributes){.reduction = (int)reduction});
}

sherd_tensor *sherd_nll_loss_with(sherd_tensor *log_x, sherd_tensor *target,
                                  const sherd_nll_options *options)
{
    const sherd_nll_options o = options ? *options : (sherd_nll_options){0};
    const nll_attributes attributes = {(int)o.reduction, true, o.has_ignored ? o.ignored : IGNORED};

    return sherd_apply(&sherd__nll_loss_op, (sherd_tensor *[]){log_x, target, o.weight}, OPERANDS,
                       &attributes);
}
