/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of a tensor along a dim: views of the same storage. On a sharded dim each rank keeps what
 * it has of the part, so nothing moves; the result's cuts are those of the operand, counted in the
 * part. The gradient is embedded in zeros, on the same ranks.
 */
#include "pad.h"
#include "shared.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

typedef struct slice {
    int dim;
    int64_t start, end, step;
} slice;

/* As Python does: negative numbers count from the end, and all are clipped to the dim. */
static int64_t held(int64_t at, int64_t n)
{
    if (at < 0)
        at = at < -n ? 0 : at + n;
    return sherd__min(at, n);
}

/* The indices of a dim of size n. */
static sherd__part part_of(const slice *s, int64_t n)
{
    int64_t start = held(s->start, n), length = sherd__max(held(s->end, n) - start, 0);

    return (sherd__part){start, s->step, length ? (length - 1) / s->step + 1 : 0};
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The layout of the slice of a tensor with this layout. */
static sherd_status image_of(const sherd_layout **out, const sherd_layout *input, int dim,
                             sherd__part part, const char *name)
{
    sherd__sketch s;

    sherd__sketch_begin(&s, input);
    sherd__sketch_part(&s, dim, part);
    return sherd__sketch_end(out, &s, name);
}

/*
 * A gradient may come in any layout (this node takes pending sums); if it is not sharded as the
 * slice was, it is moved first, while it is small.
 */
static void slice_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const slice *s = sherd_node_attributes(node);
    const sherd_layout *input = sherd_node_layout(node, 0), *image = NULL;
    sherd_tensor *g = grad_out[0];
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape), dim = sherd__dim_of(s->dim, ndim);
    sherd__part part = part_of(s, shape[dim]);

    if (input && g->layout) {
        sherd_status status = image_of(&image, input, dim, part, "sherd_slice");
        if (!status && !sherd__dims_equal(image, g->layout)) {
            status = sherd__layout_settle(&image, image);
            g = status ? g : sherd__gradient_to(g, image, false);
        }
        if (status)
            g = sherd__fail_diag(g->world, true);
    }
    bool recording = sherd_set_recording(g->world, false);
    grad_in[0] = sherd__embed(g, dim, shape[dim], part, input);
    sherd_set_recording(g->world, recording);
    sherd__record_adjoint(node, s, g, grad_in[0]);
}

/* Report a failure before there is a call. */
static bool refuse(sherd_tensor *a, const char *function, const char *reason)
{
    if (a && !sherd_tensor_failed(a))
        sherd__fail_tensor(a->world, a->layout != NULL, SHERD_EINVAL, "%s: %s: a is %s", function,
                           reason, sherd_tensor_text(a));
    return false;
}

#define NO_PART "%lld indices from %lld on do not fit in dim %d of size %lld"

/* ---- slice and narrow ------------------------------------------------------------------------ */

/* A whole dim, or neighbours in the outermost one. */
static bool is_in_order(const sherd_call *call, int dim, sherd__part part)
{
    const sherd_tensor *a = call->in[0];
    int outer = 0;

    while (outer < dim && sherd__is_single(call, outer))
        outer++;
    return part.step == 1 && (outer == dim || (a->layout && part.count == a->shape[dim]));
}

static const char *describe_part(sherd_call *call)
{
    const slice *s = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(s->dim, a->ndim);
    sherd__part part = part_of(s, a->shape[dim]);

    sherd_call_shape(call, 0, a->ndim, a->shape);
    call->shape[0][dim] = part.count;
    if (is_in_order(call, dim, part))
        sherd__call_in_order(call);
    return NULL;
}

static const char *describe_slice(sherd_call *call)
{
    const slice *s = call->attributes;

    if (sherd__dim_of(s->dim, call->in[0]->ndim) < 0)
        return sherd_call_reason(call, "no dim %d", s->dim);
    if (s->step < 1)
        return sherd_call_reason(call, "a step of %lld: it must be 1 or more", (long long)s->step);
    return describe_part(call);
}

/* Here nothing is clipped: indices outside the dim are an error. */
static const char *describe_narrow(sherd_call *call)
{
    const slice *s = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(s->dim, a->ndim);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", s->dim);
    int64_t n = a->shape[dim], length = s->end - s->start;
    if (s->start < 0 || s->start > n || length < 0 || s->end > n)
        return sherd_call_reason(call, NO_PART, (long long)length, (long long)s->start, dim,
                                 (long long)n);
    return describe_part(call);
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const slice *s = call->attributes;
    const sherd_layout *from = call->in[0]->layout, *to = NULL;
    int dim = sherd__dim_of(s->dim, call->in[0]->ndim);
    sherd_status status =
        image_of(&to, from, dim, part_of(s, call->in[0]->shape[dim]), call->op->name);

    return status ? status : sherd_way_add(ways, &from, &to);
}

static bool take(sherd_call *call)
{
    const slice *s = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(s->dim, a->ndim);
    int64_t stride[SHERD_MAX_DIMS], offset = 0;
    sherd__part part = part_of(s, a->shape[dim]);

    memcpy(stride, a->stride, sizeof stride);
    if (part.count > 1) /* else no stride is walked, and a step may be any number */
        stride[dim] *= part.step;
    if (call->out[0]->count)
        offset = part.start;
    /* If the whole dim is here, the piece begins at index 0, and nothing is to be subtracted. */
    if (call->out[0]->count && a->local[dim] < a->shape[dim]) {
        int64_t first = sherd_tensor_box(call->out[0]).offset[dim];
        offset += first * part.step - sherd_tensor_box(a).offset[dim];
    }
    sherd_call_view(call, 0, stride, offset * a->stride[dim]);
    return true;
}

#define PART(label, text, describes)                                                            \
    {                                                                                           \
        .name = label, .summary = text, .operand = {{"a", 0}}, .result = {{"y", 0}},            \
        .field = {SHERD_FIELD(slice, dim, INT), SHERD_FIELD(slice, start, INT64),               \
                  SHERD_FIELD(slice, end, INT64), SHERD_FIELD(slice, step, INT64)},             \
        .attributes = sizeof(slice), .linearity = SHERD_UNCHANGED, .numbers = SHERD_EVERYTHING, \
        .strided = true, .views = true, .describe = describes, .ways = lie, .forward = take,    \
        .backward = slice_back, .takes_pending = true                                           \
    }

const sherd_op sherd__slice_op =
    PART("sherd_slice", "every step-th index of a dim; a view", describe_slice);
const sherd_op sherd__narrow_op =
    PART("sherd_narrow", "some indices of a dim; a view", describe_narrow);

sherd_tensor *sherd_slice(sherd_tensor *a, int dim, int64_t start, int64_t end, int64_t step)
{
    return sherd_apply(&sherd__slice_op, &a, 1, &(slice){dim, start, end, step});
}

sherd_tensor *sherd_narrow(sherd_tensor *a, int dim, int64_t start, int64_t length)
{
    int d = sherd_tensor_failed(a) ? -1 : sherd__dim_of(dim, a->ndim);

    if (d >= 0 && start < 0 && start >= -a->shape[d])
        start += a->shape[d];
    /* Checked before start and length are added, since invalid ones may add up to a valid end. */
    if (d >= 0 && (length < 0 || start < 0 || start > a->shape[d] || length > a->shape[d])) {
        char reason[128];
        snprintf(reason, sizeof reason, NO_PART, (long long)length, (long long)start, d,
                 (long long)a->shape[d]);
        refuse(a, "sherd_narrow", reason);
        return sherd__failed(a->world);
    }
    if (d < 0)
        start = length = 0;
    return sherd_apply(&sherd__narrow_op, &a, 1, &(slice){dim, start, start + length, 1});
}

/* ---- one index ------------------------------------------------------------------------------- */

typedef struct place {
    int dim;
    int64_t index;
} place;

static const char *describe_select(sherd_call *call)
{
    const place *at = call->attributes;
    const sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (at->index < -a->shape[dim] || at->index >= a->shape[dim])
        return sherd_call_reason(call, "index %lld is outside of dim %d of size %lld",
                                 (long long)at->index, dim, (long long)a->shape[dim]);
    return NULL;
}

/* The index of a sharded dim is sent to the other ranks, since the result does not have the dim. */
static bool select_one(sherd_call *call)
{
    const place *at = call->attributes;

    call->out[0] = sherd_squeeze(sherd_narrow(call->in[0], at->dim, at->index, 1), at->dim);
    return true;
}

const sherd_op sherd__select_op = {
    .name = "sherd_select",
    .summary = "one index of a dim, without the dim; a view",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(place, dim, INT), SHERD_FIELD(place, index, INT64)},
    .attributes = sizeof(place),
    .numbers = SHERD_EVERYTHING,
    .describe = describe_select,
    .compose = select_one};

sherd_tensor *sherd_select(sherd_tensor *a, int dim, int64_t index)
{
    return sherd_apply(&sherd__select_op, &a, 1, &(place){dim, index});
}

/* ---- all parts ------------------------------------------------------------------------------- */

/* The parts of these sizes; false, and out[] failed, if a size does not fit. */
static bool cut(sherd_tensor **out, sherd_tensor *a, int dim, int64_t size, int count)
{
    int64_t n = a->shape[sherd__dim_of(dim, a->ndim)];
    bool good = true;

    for (int i = 0; i < count; i++) {
        int64_t start = sherd__min(i * size, n);
        out[i] = sherd_narrow(a, dim, start, sherd__min(size, n - start));
        good &= !sherd_tensor_failed(out[i]);
    }
    return good;
}

bool sherd_split(sherd_tensor **out, sherd_tensor *a, int dim, const int64_t *sizes, int count)
{
    int64_t total = 0;
    int d = sherd_tensor_failed(a) ? -1 : sherd__dim_of(dim, a->ndim);
    bool good = out && sizes && count > 0;

    for (int i = 0; out && i < count; i++)
        out[i] = sherd_tensor_world(a) ? sherd__failed(a->world) : NULL;
    if (sherd_tensor_failed(a))
        return false;
    for (int i = 0; good && i < count; i++)
        good = sizes[i] >= 0 && sherd__add(total, sizes[i], &total);
    if (!good || d < 0 || total != a->shape[d])
        return refuse(a, "sherd_split", "the sizes do not add up to that of a dim");
    total = 0;
    for (int i = 0; i < count; i++) {
        out[i] = sherd_narrow(a, dim, total, sizes[i]);
        total += sizes[i];
        good &= !sherd_tensor_failed(out[i]);
    }
    return good;
}

int sherd_chunk(sherd_tensor **out, sherd_tensor *a, int dim, int count)
{
    int d = sherd_tensor_failed(a) ? -1 : sherd__dim_of(dim, a->ndim);

    for (int i = 0; out && i < count; i++)
        out[i] = sherd_tensor_world(a) ? sherd__failed(a->world) : NULL;
    if (sherd_tensor_failed(a))
        return 0;
    if (!out || count < 1 || d < 0) {
        refuse(a, "sherd_chunk", "no such dim, or no chunk");
        return 0;
    }
    int64_t n = a->shape[d], size = sherd__max(sherd__ceil_div(n, count), 1);
    /* As PyTorch: fewer chunks where they come out shorter; of nothing, as many as asked for. */
    int chunks = n ? sherd__int(sherd__ceil_div(n, size)) : count;
    cut(out, a, dim, size, chunks);
    return chunks;
}
