/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual sum and its norm: sum = x + dropout(delta), norm of sum. The kernels of the single
 * operators process the rows in blocks that fit the first-level cache, so memory is read and
 * written once, and the bits are those of the single operators. Where x is f32, and delta and norm
 * have the same 16 bits, one kernel has both, with the same bits. If rows themselves are sharded,
 * norm_rows.c continues after the sum. Backward: add_norm_back.c.
 */
#include "add_norm.h"
#include "sherd/ops_layers.h"

#include "base/num.h"
#include "vector/choose.h"

/* ---- forward --------------------------------------------------------------------------------- */

static void add_block(sherd__blocks *w, int64_t first, int64_t n)
{
    sherd_dtype dtype = w->call->in[DELTA]->dtype;
    const sherd__kernels *kernels = sherd__kernels_of(w->set, dtype);
    const void *delta = sherd__block_from(w, DELTA, first, sherd_dtype_bytes(dtype));
    const int64_t one = 1;

    if (w->dropped) {
        sherd__block_drop(w, kernels, sherd_dtype_bytes(dtype), n, w->dropped, delta);
        delta = w->dropped;
    }
    if (w->wide) {
        kernels->widen(n, w->wide, delta);
        delta = w->wide;
    }
    w->kernels->binary(SHERD__ADD, 1, &n, sherd__block_at(w, w->call->to[SUM], first),
                       sherd__block_from(w, X, first, w->element), &one, delta, &one);
}

static void norm_block(sherd__blocks *w, int64_t row, int64_t rows)
{
    sherd_call *call = w->call;
    size_t stat = sherd_dtype_bytes(call->out[w->of->scale]->dtype);
    int64_t cols = w->p.inner, first = row * cols;
    void *y = w->norm ? w->norm : sherd__block_at(w, call->to[NORM], first),
         *sum = sherd__block_at(w, call->to[SUM], first);
    char *rstd = (char *)call->to[w->of->scale] + (size_t)row * stat;

    if (w->of->mean >= 0)
        w->kernels->layer_norm(rows, cols, y, (char *)call->to[w->of->mean] + (size_t)row * stat,
                               rstd, sum, call->from[WEIGHT], call->from[BIAS], w->how->norm.eps);
    else
        w->kernels->rms_norm(rows, cols, y, rstd, sum, call->from[WEIGHT], w->how->norm.eps);
    if (w->norm && cols > 0)
        sherd__convert(
            w->set, call->out[NORM]->dtype, call->in[X]->dtype, rows * cols,
            (char *)call->to[NORM] + (size_t)first * sherd_dtype_bytes(call->out[NORM]->dtype), y);
}

/*
 * Whether one kernel computes the sum and the norm: x is f32, and delta and the norm have the same
 * 16-bit type.
 */
static bool is_mixed(const sherd_call *call, const sherd__blocks *w)
{
    sherd_dtype delta = call->in[DELTA]->dtype;

    return !w->p.apart && w->p.inner > 0 && call->in[X]->dtype == SHERD_F32 &&
           sherd__is_half(delta) && call->out[NORM]->dtype == delta;
}

static void mixed_block(sherd__blocks *w, int64_t row, int64_t rows)
{
    sherd_call *call = w->call;
    const sherd__kernels *kernels = sherd__kernels_of(w->set, call->in[DELTA]->dtype);
    size_t half = sherd_dtype_bytes(call->in[DELTA]->dtype);
    int64_t cols = w->p.inner, first = row * cols;
    const void *delta = sherd__block_from(w, DELTA, first, half);

    if (w->dropped) {
        sherd__block_drop(w, kernels, half, rows * cols, w->dropped, delta);
        delta = w->dropped;
    }
    const sherd__added_norm p = {
        .x = sherd__block_from(w, X, first, w->element),
        .weight = call->from[WEIGHT],
        .bias = w->of->bias >= 0 ? call->from[w->of->bias] : NULL,
        .delta = delta,
        .sum = sherd__block_at(w, call->to[SUM], first),
        .mean = w->of->mean >= 0 ? (float *)call->to[w->of->mean] + row : NULL,
        .rstd = (float *)call->to[w->of->scale] + row,
        .norm = (char *)call->to[NORM] + (size_t)first * half,
        .eps = w->how->norm.eps,
    };
    kernels->add_norm(rows, cols, &p);
}

/* The norm of the sum, which is complete, if rows lie on several ranks. */
static bool norm_apart(sherd__blocks *w)
{
    sherd_call *call = w->call;
    void *norm = call->to[NORM];

    call->from[X] = call->to[SUM];
    call->to[NORM] = w->norm ? w->norm : norm;
    if (!sherd__row_norm_apart(call, w->of))
        return false;
    call->to[NORM] = norm;
    if (w->norm && !sherd__is_dry(call->world))
        sherd__convert(w->set, call->out[NORM]->dtype, call->in[X]->dtype, call->out[NORM]->count,
                       norm, w->norm);
    return true;
}

static bool compute(sherd_call *call, const sherd__row_norm *of)
{
    const sherd_tensor *x = call->in[X], *delta = call->in[DELTA];
    sherd__blocks w = sherd__blocks_begin(call, of, x, call->out[of->scale], delta);
    int64_t block = sherd__min(w.step, w.p.rows) * w.p.inner;
    bool mixed = is_mixed(call, &w);

    if (sherd__device_in(call))
        return sherd__add_norm_there(&w);
    if (!sherd__block_room(&w, &w.dropped, w.how->p > 0, block) ||
        !sherd__block_room(&w, &w.wide, !mixed && delta->dtype != x->dtype, block) ||
        !sherd__block_room(&w, &w.norm, !mixed && call->out[NORM]->dtype != x->dtype,
                           w.p.apart ? x->count : block))
        return false;
    for (int64_t r = 0; r < w.p.rows && !sherd__is_dry(call->world); r += w.step) {
        int64_t rows = sherd__min(w.step, w.p.rows - r);
        if (mixed) {
            mixed_block(&w, r, rows);
            continue;
        }
        if (w.p.inner > 0)
            add_block(&w, r * w.p.inner, rows * w.p.inner);
        if (!w.p.apart)
            norm_block(&w, r, rows);
    }
    return !w.p.apart || norm_apart(&w);
}

static bool add_layer_norm(sherd_call *call)
{
    static const sherd__row_norm of = {WEIGHT, BIAS, MEAN, RSTD};

    return compute(call, &of);
}

static bool add_rms_norm(sherd_call *call)
{
    static const sherd__row_norm of = {WEIGHT, -1, -1, MEAN};

    return compute(call, &of);
}

/* ---- the operators --------------------------------------------------------------------------- */

/* Whether what has the dtype `a` may stand beside x of dtype `x`. */
static bool fits(sherd_dtype a, sherd_dtype x)
{
    return a == x || (x == SHERD_F32 && sherd__is_half(a));
}

static const char *describe(sherd_call *call)
{
    const sherd__add_norm *how = call->attributes;
    sherd_dtype x = call->in[X]->dtype, dtype = (sherd_dtype)how->dtype;

    if (!(how->norm.eps >= 0))
        return sherd_call_reason(call, "eps is %g, and must not be negative", how->norm.eps);
    if (!(how->p >= 0 && how->p < 1))
        return sherd_call_reason(call, "p = %g is outside of [0,1)", how->p);
    if (!fits(call->in[DELTA]->dtype, x))
        return "delta must have the dtype of x, or 16 bits where x is f32";
    if (dtype != SHERD_DTYPE_NONE && !fits(dtype, x))
        return sherd_call_reason(call, "a norm in %s: it must be the dtype of x, or 16 bits of f32",
                                 sherd_dtype_name(dtype));
    call->dtype[NORM] = dtype;
    return sherd__row_norm_describe(call);
}

static sherd_status lie_layer(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, X, "xxww>xxrr");
}

static sherd_status lie_rms(const sherd_call *call, sherd_ways *ways)
{
    return sherd__row_norm_ways(call, ways, X, "xxw>xxr");
}

enum { STATISTIC = SHERD_OP_STATISTIC | SHERD_OP_HIDDEN };
#define LAYER_NEEDS                                                                     \
    (SHERD_NEEDS_OPERAND(WEIGHT) | SHERD_NEEDS_RESULT(SUM) | SHERD_NEEDS_RESULT(MEAN) | \
     SHERD_NEEDS_RESULT(RSTD))
#define RMS_NEEDS (SHERD_NEEDS_OPERAND(WEIGHT) | SHERD_NEEDS_RESULT(SUM) | SHERD_NEEDS_RESULT(MEAN))

const sherd_op sherd__add_layer_norm_op = {
    .name = "sherd_add_layer_norm",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "x + dropout(delta), and its layer norm",
    .layouts = "as sherd_layer_norm; delta as x",
    .operand = {{"x", 0},
                {"delta", SHERD_OP_ANY},
                {"weight", SHERD_OP_OPTIONAL},
                {"bias", SHERD_OP_OPTIONAL}},
    .result = {{"norm", 0}, {"sum", 0}, {"mean", STATISTIC}, {"rstd", STATISTIC}},
    SHERD__ADD_NORM_ATTRIBUTES,
    .rule = "...d,...d,d,d->...d,...d,...,...",
    .whole = SHERD__ROW_LETTERS,
    .describe = describe,
    .ways = lie_layer,
    .forward = add_layer_norm,
    .dry = add_layer_norm,
    .on_device = sherd__fractions_there,
    .backward = sherd__add_layer_norm_back,
    .needs = {LAYER_NEEDS, LAYER_NEEDS, LAYER_NEEDS, LAYER_NEEDS}};

const sherd_op sherd__add_rms_norm_op = {
    .name = "sherd_add_rms_norm",
    .autocast = SHERD_AUTOCAST_FULL,
    .summary = "x + dropout(delta), and its RMS norm",
    .layouts = "as sherd_rms_norm; delta as x",
    .operand = {{"x", 0}, {"delta", SHERD_OP_ANY}, {"weight", SHERD_OP_OPTIONAL}},
    .result = {{"norm", 0}, {"sum", 0}, {"rstd", STATISTIC}},
    SHERD__ADD_NORM_ATTRIBUTES,
    .rule = "...d,...d,d->...d,...d,...",
    .whole = SHERD__ROW_LETTERS,
    .describe = describe,
    .ways = lie_rms,
    .forward = add_rms_norm,
    .dry = add_rms_norm,
    .on_device = sherd__fractions_there,
    .backward = sherd__add_rms_norm_back,
    .needs = {RMS_NEEDS, RMS_NEEDS, RMS_NEEDS}};

/*
 * Draws the key also where the call fails: it may fail on one rank only, and generators must stay
 * in step. NULL: fine.
 */
static sherd_tensor *draw_key(sherd__add_norm *how, const char *function, sherd_tensor *x,
                              sherd_tensor *delta, const sherd_add_norm_options *o)
{
    sherd_world *world = sherd_tensor_world(x) ? sherd_tensor_world(x) : sherd_tensor_world(delta);

    if (o->generator && world)
        how->key = sherd__next_key(world, o->generator);
    if (o->generator || !(o->p > 0) || !world || !x || sherd_tensor_failed(x))
        return NULL;
    return sherd__fail_tensor(world, x->layout != NULL, SHERD_EINVAL, "%s: no generator: x is %s",
                              function, sherd_tensor_text(x));
}

static bool apply(const sherd_op *op, sherd_tensor **norm, sherd_tensor **sum,
                  sherd_tensor *const *in, const sherd_add_norm_options *o, double eps)
{
    sherd__add_norm how = {
        .norm = {o->eps == 0 ? eps : o->eps, o->dims == 0 ? 0 : (int64_t)o->dims - 1},
        .p = o->p,
        .dtype = (int)o->dtype};
    sherd_tensor *failed = draw_key(&how, op->name, in[X], in[DELTA], o);
    sherd_tensor *result[2] = {failed, failed};
    bool good = !failed && sherd_apply_all(result, op, in, o->bias ? BIAS + 1 : BIAS, &how);

    if (good)
        sherd__take_wide(result[NORM], op, result[SUM]->dtype, true);
    if (norm)
        *norm = result[NORM];
    if (sum)
        *sum = result[SUM];
    return good;
}

static const sherd_add_norm_options none;

bool sherd_add_layer_norm(sherd_tensor **norm, sherd_tensor **sum, sherd_tensor *x,
                          sherd_tensor *delta, const sherd_add_norm_options *options)
{
    const sherd_add_norm_options *o = options ? options : &none;

    return apply(&sherd__add_layer_norm_op, norm, sum,
                 (sherd_tensor *[]){x, delta, o->weight, o->bias}, o, 1e-5);
}

bool sherd_add_rms_norm(sherd_tensor **norm, sherd_tensor **sum, sherd_tensor *x,
                        sherd_tensor *delta, const sherd_add_norm_options *options)
{
    const sherd_add_norm_options *o = options ? options : &none;

    return apply(&sherd__add_rms_norm_op, norm, sum,
                 (sherd_tensor *[]){x, delta, o->weight, o->bias}, o,
                 sherd__rms_epsilon(sherd_tensor_dtype(x)));
}
