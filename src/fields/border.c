/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Padding with any borders. A rank's piece of the result is a window on the operand that extends
 * beyond its ends, so one call fetches it, and its adjoint adds gradients up where their elements
 * came from. Takes memory for the result twice, but where no dim that is padded is sharded: then
 * each rank copies its own, once.
 */
#include "apply/sketch.h"

#include <string.h>

#include "base/num.h"
#include "kernels/cast.h"
#include "ops/shared.h"
#include "plan/window.h"
#include "sherd/ops_stencil.h"

typedef struct around {
    int64_t before[SHERD_MAX_DIMS], after[SHERD_MAX_DIMS];
    int border_before[SHERD_MAX_DIMS], border_after[SHERD_MAX_DIMS];
    double value;
    int64_t from[SHERD_MAX_DIMS]; /* in backward: the shape of what was padded */
} around;

#define BORDERS "none|constant|replicate|reflect|periodic|symmetric"
#define AROUND_FIELDS                                                                              \
    {                                                                                              \
        SHERD_FIELDS(around, before, INT64, SHERD_MAX_DIMS),                                       \
            SHERD_FIELDS(around, after, INT64, SHERD_MAX_DIMS),                                    \
            SHERD__CHOICES(around, border_before, BORDERS, SHERD_MAX_DIMS),                        \
            SHERD__CHOICES(around, border_after, BORDERS, SHERD_MAX_DIMS),                         \
            SHERD_FIELD(around, value, DOUBLE), SHERD_FIELDS(around, from, INT64, SHERD_MAX_DIMS), \
    }

/* ---- what is wanted -------------------------------------------------------------------------- */

static const char *side_fault(sherd_call *call, int d, int64_t width, int border, int64_t n)
{
    const char *fault = NULL;
    char number[16];

    if (width == 0)
        return NULL;
    if (width < 0 || width >> (SHERD__SIZE_LIMIT_LOG2 - 2))
        fault = "a width is at least 0, and no size";
    else if (d >= call->in[0]->ndim)
        fault = "there is no such dim";
    else if (border <= SHERD_BORDER_NONE || border >= SHERD_BORDERS)
        fault = "there is no such border";
    else if (border == SHERD_BORDER_REFLECT && width >= n)
        fault = "a mirror is narrower than the dim";
    else if (border == SHERD_BORDER_SYMMETRIC && width > n)
        fault = "a mirror is not wider than the dim";
    else if (n == 0 && border != SHERD_BORDER_CONSTANT)
        fault = "there is nothing to repeat";
    return fault ? sherd_call_reason(call, "%lld elements with border %s at dim %d: %s",
                                     (long long)width, sherd__border_text(border, number), d, fault)
                 : NULL;
}

static const char *describe(sherd_call *call)
{
    const around *w = call->attributes;
    const sherd_tensor *x = call->in[0];
    const char *fault = NULL;
    bool constant = false;

    for (int d = 0; d < SHERD_MAX_DIMS && !fault; d++) {
        int64_t n = d < x->ndim ? x->shape[d] : 0;
        fault = side_fault(call, d, w->before[d], w->border_before[d], n);
        fault = fault ? fault : side_fault(call, d, w->after[d], w->border_after[d], n);
        call->shape[0][d] = fault ? n : n + w->before[d] + w->after[d];
        constant = constant || w->border_before[d] == SHERD_BORDER_CONSTANT ||
                   w->border_after[d] == SHERD_BORDER_CONSTANT;
    }
    if (!fault && constant)
        fault = sherd__value_fault(call, x->dtype, w->value);
    sherd_call_shape(call, 0, x->ndim, NULL);
    return fault;
}

static const char *describe_back(sherd_call *call)
{
    const around *w = call->attributes;

    sherd_call_shape(call, 0, call->in[0]->ndim, w->from);
    return NULL;
}

/* ---- how it lies ----------------------------------------------------------------------------- */

/*
 * The operand's layout, settled, and the result's. `like` may be the layout of either: both are
 * sharded by the same axes.
 */
static sherd_status lay(const sherd_layout **x, const sherd_layout **y, const sherd_call *call,
                        const sherd_layout *like)
{
    const around *w = call->attributes;
    sherd__sketch s, larger;

    sherd__sketch_begin(&s, like);
    sherd__spec_settle(&s.spec);
    sherd_status status = sherd__sketch_end(x, &s, call->op->name);
    if (status)
        return status;
    sherd__sketch_begin(&larger, *x);
    for (int d = 0; d < larger.spec.ndim; d++) {
        int64_t n = larger.spec.shape[d], all = n + w->before[d] + w->after[d];
        if (all != n)
            sherd__sketch_around(&larger, d, all, (sherd__part){w->before[d], 1, n});
    }
    return sherd__sketch_end(y, &larger, call->op->name);
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *x = NULL, *y = NULL;
    sherd_status status = lay(&x, &y, call, sherd__way_given(ways, 0));

    return status ? status : sherd_way_add(ways, &x, &y);
}

static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *like = sherd__way_given(ways, 1), *x = NULL, *operand[2] = {NULL, like};
    sherd__sketch whole;
    sherd_status status = SHERD_OK;

    if (!like) { /* it was plain: nothing is sharded */
        sherd__sketch_begin(&whole, sherd__way_given(ways, 0));
        for (int d = 0; d < whole.spec.ndim; d++) {
            whole.spec.dim[d] = (sherd__dim){0};
            whole.spec.shape[d] = call->shape[0][d];
        }
        status = sherd__sketch_end(&like, &whole, call->op->name);
    }
    if (!status)
        status = lay(&x, &operand[0], call, like);
    return status ? status : sherd_way_add(ways, operand, &x);
}

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct asked {
    const around *around;
    const sherd_layout *y; /* NULL: plain */
} asked;

/* A shard asks for its part of the result, in indices of the operand. */
static void ask(const void *what, int d, int64_t shard, int64_t lo, int64_t hi, int64_t *first,
                int64_t *end)
{
    const asked *a = what;
    const sherd__layout_spec *y = a->y ? &a->y->spec : NULL;
    int64_t before = a->around->before[d];

    *first = y ? sherd__dim_cut(y->mesh, &y->dim[d], y->shape[d], shard) - before : lo - before;
    *end = y ? sherd__dim_cut(y->mesh, &y->dim[d], y->shape[d], shard + 1) - before
             : hi + a->around->after[d];
}

/* The window of a result y on an operand x, either of which may be plain; NULL: failed, raised. */
static sherd__window *window_on(sherd_call *call, const sherd_tensor *x, const sherd_tensor *y)
{
    const around *w = call->attributes;
    const asked a = {w, y->layout};
    const sherd_layout *layout = x->layout;
    sherd_halo_options borders = {.value = w->value};
    sherd__window *window = NULL;
    sherd_status status = SHERD_OK;

    for (int d = 0; d < x->ndim; d++) {
        borders.before[d] = (sherd_halo_side){w->before[d], (sherd_border)w->border_before[d]};
        borders.after[d] = (sherd_halo_side){w->after[d], (sherd_border)w->border_after[d]};
    }
    if (!layout)
        status = sherd__layout_alone(&layout, call->world, x->ndim, x->shape);
    if (!status)
        status = sherd__check_borders(layout, &borders, call->op->name, layout->text);
    if (!status)
        status = sherd__window_create(&window, layout, &(sherd__asking){ask, &a, &borders});
    if (status)
        sherd__fail_diag(call->world, x->layout != NULL);
    return window;
}

static bool keep(sherd_call *call, sherd_tensor *made)
{
    const void *from = sherd__device_in(call) ? sherd__device_data(made) : sherd_tensor_read(made);
    const sherd_tensor *out = call->out[0];

    if (out->count && from && !sherd__is_dry(call->world))
        sherd__copy_in(call, sherd_dtype_bytes(out->dtype), out->ndim, out->local, call->to[0],
                       out->stride, from, made->stride);
    return from || !out->count;
}

/* Whether no dim that is padded is sharded: then each rank has what its borders repeat. */
static bool is_here(const sherd_call *call)
{
    const around *w = call->attributes;
    const sherd_tensor *x = call->in[0];

    for (int d = 0; d < x->ndim && x->layout; d++)
        if ((w->before[d] || w->after[d]) && x->layout->spec.dim[d].axes)
            return false;
    return !sherd__device_in(call);
}

/* A border of dim d, of what lies inside it: `size`, from element `first` of the result on. */
static void pad_stretch(const sherd_call *call, int d, const sherd__stretch *s, const int64_t *size,
                        int64_t first)
{
    const around *w = call->attributes;
    const sherd_tensor *y = call->out[0];
    size_t element = sherd_dtype_bytes(y->dtype);
    static const int64_t same[SHERD_MAX_DIMS];
    int64_t box[SHERD_MAX_DIMS];
    char *from = (char *)call->to[0] + first * (int64_t)element, value[8];

    memcpy(box, size, sizeof box);
    box[d] = s->count;
    sherd__cast(y->dtype, SHERD_F64, 1, value, &w->value);
    sherd__copy_box(
        element, y->ndim, box, from + s->at * y->stride[d] * (int64_t)element, y->stride,
        s->from < 0 ? value : from + (w->before[d] + s->from) * y->stride[d] * (int64_t)element,
        s->from < 0 ? same : y->stride);
}

/* The operand where it lies in the result, then one dim after the other, with the borders of those
 * before. */
static void pad_here(const sherd_call *call, const sherd__window *window)
{
    const around *w = call->attributes;
    const sherd_tensor *x = call->in[0], *y = call->out[0];
    int64_t size[SHERD_MAX_DIMS] = {0}, first = 0;
    size_t element = sherd_dtype_bytes(y->dtype);

    memcpy(size, x->local, (size_t)x->ndim * sizeof *size);
    for (int d = 0; d < x->ndim; d++)
        first += w->before[d] * y->stride[d];
    sherd__copy_box(element, x->ndim, size, (char *)call->to[0] + first * (int64_t)element,
                    y->stride, call->from[0], x->stride);
    for (int d = 0; d < x->ndim; d++) {
        sherd__stretch s = {0};
        first -= w->before[d] * y->stride[d];
        while ((w->before[d] || w->after[d]) && sherd__stretch_next(&window->reach[d], 0, &s))
            if (s.from < 0 || s.from != s.at - w->before[d]) /* not the operand itself */
                pad_stretch(call, d, &s, size, first);
        size[d] += w->before[d] + w->after[d];
    }
}

static bool pad(sherd_call *call)
{
    const sherd__run *run = (const sherd__run *)(const void *)call;
    sherd__windowed w = {.window = window_on(call, run->arg[0], call->out[0]),
                         .whole = run->arg[0]};
    bool good = w.window != NULL;

    if (good && is_here(call)) {
        if (!sherd__is_dry(call->world) && call->out[0]->count)
            pad_here(call, w.window);
        sherd__window_release(w.window);
        return true;
    }
    sherd__open_in(call);
    good = good && sherd__gather_windows(&w, 1, false, call->op->name) && keep(call, w.piece);
    sherd__window_release(w.window);
    return good;
}

static bool pad_back(sherd_call *call)
{
    const sherd__run *run = (const sherd__run *)(const void *)call;
    sherd__windowed w = {.window = window_on(call, call->out[0], run->arg[0])};
    bool good = w.window != NULL;

    sherd__open_in(call);
    w.piece = run->arg[0]->layout ? sherd__local_view(run->arg[0]) : run->arg[0];
    good = good && !sherd_tensor_failed(w.piece) &&
           sherd__fold_windows(&w, 1, false, call->op->name) && keep(call, w.whole);
    sherd__window_release(w.window);
    return good;
}

/* ---- the operators --------------------------------------------------------------------------- */

/* The last operand is its layout alone: that of what was padded. */
static const sherd_op back_op = {.name = "sherd_pad_with backward",
                                 .operand = {{"dy", 0}, {"x", SHERD_OP_OPTIONAL}},
                                 .result = {{"dx", 0}},
                                 .field = AROUND_FIELDS,
                                 .attributes = sizeof(around),
                                 .describe = describe_back,
                                 .ways = lie_back,
                                 .forward = pad_back,
                                 .dry = pad_back,
                                 .on_device = sherd__copies_there};

static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    around back = *(const around *)sherd_node_attributes(node), again = back;
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    again.value = 0;
    for (int d = 0; d < ndim; d++)
        back.from[d] = shape[d];
    grad_in[0] = sherd__adjoint_like(node, &back_op, &back, &again, grad_out[0]);
}

const sherd_op sherd__pad_with_op = {.name = "sherd_pad_with",
                                     .summary = "pad with any border",
                                     .operand = {{"x", 0}},
                                     .result = {{"y", 0}},
                                     .field = AROUND_FIELDS,
                                     .attributes = sizeof(around),
                                     .numbers = SHERD_EVERYTHING,
                                     .describe = describe,
                                     .ways = lie,
                                     .forward = pad,
                                     .dry = pad,
                                     .on_device = sherd__copies_there,
                                     .backward = differentiate,
                                     .layouts = "any; padding belongs to the end rank"};

/* A side without width has no border, so that equal paddings compare equal. */
static int border_of(const sherd_halo_side *side)
{
    return side->width ? (int)side->border : SHERD_BORDER_NONE;
}

sherd_tensor *sherd_pad_with(sherd_tensor *x, const sherd_pad_options *options)
{
    static const sherd_pad_options none;
    const sherd_pad_options *o = options ? options : &none;
    around w = {.value = o->value};
    bool simple = x != NULL, mirrors = false;

    for (int d = 0; d < SHERD_MAX_DIMS; d++) {
        w.before[d] = o->before[d].width;
        w.after[d] = o->after[d].width;
        w.border_before[d] = border_of(&o->before[d]);
        w.border_after[d] = border_of(&o->after[d]);
        mirrors = mirrors || w.border_before[d] > SHERD_BORDER_CONSTANT ||
                  w.border_after[d] > SHERD_BORDER_CONSTANT;
        simple = simple && w.before[d] >= 0 && w.after[d] >= 0 &&
                 (d < x->ndim || !(w.before[d] || w.after[d])) && w.border_before[d] >= 0 &&
                 w.border_after[d] >= 0 && (w.border_before[d] || !w.before[d]) &&
                 (w.border_after[d] || !w.after[d]);
    }
    if (simple && !mirrors && !sherd_tensor_failed(x))
        return sherd_pad(x, w.before, w.after, w.value); /* pending sums stay, nothing travels */
    return sherd_apply(&sherd__pad_with_op, &x, 1, &w);
}
