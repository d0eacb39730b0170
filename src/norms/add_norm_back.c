/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward of a residual sum and its norm: from the gradients of both, those of x, delta, weight
 * and bias, by one kernel, in blocks of rows as in forward (add_norm.c). Either gradient may be
 * absent.
 */
#include "add_norm.h"
#include "functional/dropout.h"
#include "norm_sums.h"

#include "base/num.h"
#include "vector/choose.h"

enum { G_DY, G_SUM, G_FIRST /* statistics, weight, gradient of the sum */ };
enum { G_DX, G_DWEIGHT, G_DBIAS };

/* Which result is the gradient of delta: the one after those of x, weight and bias. */
static int delta_at(const sherd__row_norm *of)
{
    return of->mean < 0 ? G_DBIAS : G_DBIAS + 1;
}

/*
 * Write the gradient of delta, if it is not dx itself: if it has 16 bits, or with dropout. `made`:
 * it holds the converted dx already.
 */
static void pass_to_delta(sherd__blocks *w, int64_t first, int64_t n, bool made)
{
    sherd_call *call = w->call;
    int j = delta_at(w->of);
    const void *dx = sherd__block_at(w, call->to[G_DX], first);

    if (call->results <= j)
        return;
    sherd_dtype dtype = call->out[j]->dtype;
    size_t element = sherd_dtype_bytes(dtype);
    char *ddelta = (char *)call->to[j] + (size_t)first * element;
    if (!made && dtype != call->out[G_DX]->dtype)
        sherd__convert(w->set, dtype, call->out[G_DX]->dtype, n, ddelta, dx);
    if (w->how->p > 0)
        sherd__block_drop(w, sherd__kernels_of(w->set, dtype), element, n, ddelta,
                          dtype != call->out[G_DX]->dtype ? ddelta : dx);
}

/*
 * dx holds the gradient by way of the norm: add the gradient of the sum itself, and write that of
 * delta.
 */
static void pass_on(sherd__blocks *w, int64_t first, int64_t n)
{
    const void *dsum = sherd__block_from(w, w->of->weight + 1, first, w->element);
    void *dx = sherd__block_at(w, w->call->to[G_DX], first);
    const int64_t one = 1;

    if (dsum)
        w->kernels->binary(SHERD__ADD, 1, &n, dx, dx, &one, dsum, &one);
    pass_to_delta(w, first, n, false);
}

static const void *widened(sherd__blocks *w, int64_t first, int64_t n)
{
    sherd_dtype dtype = w->call->in[G_DY]->dtype;
    const void *dy = sherd__block_from(w, G_DY, first, sherd_dtype_bytes(dtype));

    if (!w->wide || n == 0 || sherd__is_dry(w->call->world))
        return dy;
    sherd__convert(w->set, w->call->in[G_SUM]->dtype, dtype, n, w->wide, dy);
    return w->wide;
}

static void grad_block(sherd__blocks *w, const sherd__norm_sums *sums, int64_t row, int64_t rows)
{
    sherd_call *call = w->call;
    const sherd__row_norm *of = w->of;
    const sherd__kernels *kernels = w->kernels;
    size_t stat = sherd_dtype_bytes(call->in[of->scale]->dtype);
    int64_t first = row * w->p.inner, n = rows * w->p.inner;
    int j = delta_at(of);
    bool low = call->results > j && sherd__is_half(call->out[j]->dtype);
    sherd__added_grad p = {.dy = widened(w, first, n),
                           .sum = sherd__block_from(w, G_SUM, first, w->element),
                           .dsum = sherd__block_from(w, of->weight + 1, first, w->element),
                           .weight = call->from[of->weight],
                           .mean = of->mean >= 0 ? sherd__block_from(w, of->mean, row, stat) : NULL,
                           .rstd = sherd__block_from(w, of->scale, row, stat),
                           .dx = sherd__block_at(w, call->to[G_DX], first),
                           .dweight = sherd__norm_sums_at(sums, 0),
                           .dbias = sherd__norm_sums_at(sums, 1),
                           .add = sums->rows > 0};

    if (sherd__is_half(call->in[G_SUM]->dtype)) {
        sherd__half_norm_grad(kernels, rows, w->p.inner, &p, of->mean >= 0);
        if (n > 0)
            pass_on(w, first, n);
        return;
    }
    if (low) {
        kernels = sherd__kernels_of(w->set, call->out[j]->dtype);
        p.ddelta = (char *)call->to[j] + (size_t)first * sherd_dtype_bytes(call->out[j]->dtype);
    }
    kernels->add_norm_grad(rows, w->p.inner, &p);
    if (n > 0)
        pass_to_delta(w, first, n, low);
}

static bool grad_apart(sherd__blocks *w)
{
    sherd_call *call = w->call;
    const void *dy = call->from[G_DY];

    call->from[G_DY] = widened(w, 0, w->call->in[G_DY]->count);
    bool good = sherd__row_norm_apart_grad(call, w->of);
    call->from[G_DY] = dy;
    if (good && call->out[G_DX]->count > 0 && !sherd__is_dry(call->world))
        pass_on(w, 0, call->out[G_DX]->count);
    return good;
}

/* Sums of 16 bits are rounded once: all rows are one block there. */
static bool compute_grad(sherd_call *call, const sherd__row_norm *of)
{
    const sherd_tensor *sum = call->in[G_SUM];
    sherd__blocks w = sherd__blocks_begin(call, of, sum, call->in[of->scale], call->out[G_DX]);
    sherd__norm_sums sums;

    if (sherd__device_in(call))
        return sherd__add_norm_grad_there(
            &w, &(sherd__add_norm_grad){G_DY, G_SUM, G_DX, G_DWEIGHT, G_DBIAS, delta_at(of)});
    if (sherd__is_half(sum->dtype))
        w.step = sherd__max(w.p.rows, 1);
    int64_t block = w.p.apart ? sum->count : sherd__min(w.step, w.p.rows) * w.p.inner;
    if (!sherd__block_room(&w, &w.wide, call->in[G_DY]->dtype != sum->dtype, block))
        return false;
    if (w.p.apart)
        return grad_apart(&w);
    if (!sherd__norm_sums_begin(&sums, call, &w.p, G_DWEIGHT, of->mean >= 0 ? 2 : 1))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    int64_t r = 0, rows;
    do { /* of no rows the sums are zeros */
        rows = sherd__min(sherd__min(w.step, w.p.rows - r), sums.most - sums.rows);
        grad_block(&w, &sums, r, rows);
        sherd__norm_sums_count(&sums, rows);
    } while ((r += rows) < w.p.rows);
    sherd__norm_sums_end(&sums);
    return true;
}

enum { L_MEAN = G_FIRST, L_RSTD, L_WEIGHT, L_DSUM, L_OPERANDS };
enum { R_RSTD = G_FIRST, R_WEIGHT, R_DSUM, R_OPERANDS };

static const sherd__row_norm layer_of = {L_WEIGHT, -1, L_MEAN, L_RSTD};
static const sherd__row_norm rms_of = {R_WEIGHT, -1, -1, R_RSTD};

static bool layer_grad(sherd_call *call)
{
    return compute_grad(call, &layer_of);
}

static bool rms_grad(sherd_call *call)
{
    return compute_grad(call, &rms_of);
}

static const char *describe_grad(sherd_call *call)
{
    const sherd__add_norm *how = call->attributes;
    int j = delta_at(call->op->forward == layer_grad ? &layer_of : &rms_of);

    if (call->results > j)
        call->dtype[j] = (sherd_dtype)how->dtype;
    return sherd__row_norm_describe(call);
}

static sherd_status lie_layer_grad(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, G_SUM, "xxrrwx>xwwx");
}

static sherd_status lie_rms_grad(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, G_SUM, "xxrwx>xwx");
}

#define DY_AND_SUM        \
    {"dy", SHERD_OP_ANY}, \
    {                     \
        "sum", 0          \
    }
#define WEIGHT_AND_DSUM            \
    {"weight", SHERD_OP_OPTIONAL}, \
    {                              \
        "dsum", SHERD_OP_OPTIONAL  \
    }
#define STAT(name)         \
    {                      \
        name, SHERD_OP_ANY \
    }
#define LAYER_GRAD(rule_, ...)                                                          \
    {                                                                                   \
        .name = "sherd_add_layer_norm backward",                                        \
        .operand = {DY_AND_SUM, STAT("mean"), STAT("rstd"), WEIGHT_AND_DSUM},           \
        .result = {{"dx", 0}, {"dweight", 0}, {"dbias", 0}, __VA_ARGS__},               \
        SHERD__ADD_NORM_ATTRIBUTES, .rule = "...d,...d,...,...,d,...d->...d,d,d" rule_, \
        .whole = SHERD__ROW_LETTERS, .describe = describe_grad, .ways = lie_layer_grad, \
        .forward = layer_grad, .dry = layer_grad, .on_device = sherd__fractions_there   \
    }
#define RMS_GRAD(rule_, ...)                                                                   \
    {                                                                                          \
        .name = "sherd_add_rms_norm backward",                                                 \
        .operand = {DY_AND_SUM, STAT("rstd"), WEIGHT_AND_DSUM},                                \
        .result = {{"dx", 0}, {"dweight", 0}, __VA_ARGS__}, SHERD__ADD_NORM_ATTRIBUTES,        \
        .rule = "...d,...d,...,d,...d->...d,d" rule_, .whole = SHERD__ROW_LETTERS,             \
        .describe = describe_grad, .ways = lie_rms_grad, .forward = rms_grad, .dry = rms_grad, \
        .on_device = sherd__fractions_there                                                    \
    }

/* Indexed by whether delta has a gradient of its own; otherwise it shares that of x. */
static const sherd_op layer_grad_op[] = {LAYER_GRAD("", {NULL, 0}),
                                         LAYER_GRAD(",...d", {"ddelta", 0})};
static const sherd_op rms_grad_op[] = {RMS_GRAD("", {NULL, 0}), RMS_GRAD(",...d", {"ddelta", 0})};

/* The norm has no gradient, only the sum has. */
static void sum_back(sherd_node *node, sherd_tensor *dsum, sherd_tensor **grad_in)
{
    const sherd__add_norm *how = sherd_node_attributes(node);

    if (sherd_node_wants(node, X))
        grad_in[X] = dsum;
    if (sherd_node_wants(node, DELTA))
        grad_in[DELTA] =
            sherd__dropped(sherd_cast(dsum, sherd__node_dtype(node, DELTA)), how->p, how->key);
}

/* In a backward that is recorded: the norm's gradient by its formula, beyond that all is linear. */
static void back_by_formula(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in,
                            bool centred)
{
    sherd_tensor *dy = grad_out[NORM], *weight = sherd_node_operand(node, WEIGHT);
    sherd_tensor *in[] = {sherd__alias(sherd_node_result(node, SUM)),
                          weight ? sherd__alias(weight) : NULL};
    bool weighs = weight && sherd_node_wants(node, WEIGHT);
    sherd_tensor *y = sherd__row_norm_formula(node, in[0], in[1], centred), *found[2];

    sherd__gradients_of(found, in, weighs ? 2 : 1, &y, &dy, 1);
    sum_back(node, grad_out[SUM] ? sherd_add(grad_out[SUM], found[0]) : found[0], grad_in);
    if (weighs)
        grad_in[WEIGHT] = found[1];
    if (centred && sherd_node_wants(node, BIAS))
        grad_in[BIAS] =
            sherd_cast(sherd__sum_to_operand(node, BIAS, dy), sherd__node_dtype(node, BIAS));
}

/* in: dy, sum, statistics; then weight and the gradient of the sum are added. */
static void norm_back(sherd_node *node, const sherd__row_norm *of, sherd_tensor **in,
                      sherd_tensor *dsum, sherd_tensor **grad_in)
{
    sherd__add_norm how = *(const sherd__add_norm *)sherd_node_attributes(node);
    sherd_dtype dtype = sherd__node_dtype(node, DELTA);
    bool apart =
        sherd_node_wants(node, DELTA) && (how.p > 0 || dtype != sherd__node_dtype(node, X));
    sherd_tensor *grad[SHERD_MAX_RESULTS];

    how.dtype = (int)dtype;
    in[of->weight] = sherd_node_operand(node, WEIGHT);
    in[of->weight + 1] = dsum;
    sherd_apply_all(grad, of->mean < 0 ? &rms_grad_op[apart] : &layer_grad_op[apart], in,
                    of->weight + 2, &how);
    if (sherd_node_wants(node, X))
        grad_in[X] = grad[G_DX];
    if (sherd_node_wants(node, DELTA))
        grad_in[DELTA] = grad[apart ? delta_at(of) : G_DX];
    if (sherd_node_wants(node, WEIGHT))
        grad_in[WEIGHT] = grad[G_DWEIGHT];
    if (of->mean >= 0 && sherd_node_wants(node, BIAS))
        grad_in[BIAS] = grad[G_DBIAS];
}

void sherd__add_layer_norm_back(sherd_node *node, sherd_tensor *const *grad_out,
                                sherd_tensor **grad_in)
{
    if (grad_out[NORM] && sherd__makes_graph(sherd__node_world(node)))
        back_by_formula(node, grad_out, grad_in, true);
    else if (grad_out[NORM])
        norm_back(node, &layer_of,
                  (sherd_tensor *[L_OPERANDS]){grad_out[NORM], sherd_node_result(node, SUM),
                                               sherd_node_result(node, MEAN),
                                               sherd_node_result(node, RSTD)},
                  grad_out[SUM], grad_in);
    else
        sum_back(node, grad_out[SUM], grad_in);
}

void sherd__add_rms_norm_back(sherd_node *node, sherd_tensor *const *grad_out,
                              sherd_tensor **grad_in)
{
    if (grad_out[NORM] && sherd__makes_graph(sherd__node_world(node)))
        back_by_formula(node, grad_out, grad_in, false);
    else if (grad_out[NORM])
        norm_back(node, &rms_of,
                  (sherd_tensor *[R_OPERANDS]){grad_out[NORM], sherd_node_result(node, SUM),
                                               sherd_node_result(node, MEAN)},
                  grad_out[SUM], grad_in);
    else
        sum_back(node, grad_out[SUM], grad_in);
}
