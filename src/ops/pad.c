/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor embedded in a larger one that is filled with a value: padding, and the gradient of a
 * slice. Along a sharded dim the shards of the first and the last rank that have elements grow, so
 * nothing is moved.
 */
#include "pad.h"
#include "shared.h"

#include <stdio.h>

#include "base/num.h"

/* Index i of dim d of the operand is start[d] + i step[d] of the result. */
typedef struct frame {
    int64_t size[SHERD_MAX_DIMS], start[SHERD_MAX_DIMS], step[SHERD_MAX_DIMS];
    double value;
} frame;

enum { A, LIKE };

static sherd__part part_of(const frame *f, int d, int64_t count)
{
    return (sherd__part){f->start[d], f->step[d], count};
}

static const char *describe(sherd_call *call)
{
    const frame *f = call->attributes;
    const sherd_tensor *a = call->in[0];
    static const char any[] = "********";

    const char *fault = sherd__value_fault(call, a->dtype, f->value);
    if (fault)
        return fault;
    snprintf(call->rule, sizeof call->rule, "%.*s%s->%.*s", a->ndim, any,
             call->op->operand[LIKE].name ? ",..." : "", a->ndim, any);
    for (int d = 0; d < a->ndim; d++)
        call->shape[0][d] = f->size[d];
    return NULL;
}

/* ---- how it lies ----------------------------------------------------------------------------- */

/*
 * Whether the operand has the layout of that part of `like`: then the result has the layout of
 * `like`.
 */
static sherd_status is_part_of(bool *yes, const sherd_call *call, const sherd_layout *like)
{
    const sherd_layout *from = call->in[A]->layout, *image = NULL;
    const frame *f = call->attributes;
    sherd__sketch s;

    sherd__sketch_begin(&s, like);
    for (int d = 0; d < like->spec.ndim; d++)
        if (f->step[d] != 1 || f->size[d] != from->spec.shape[d])
            sherd__sketch_part(&s, d, part_of(f, d, from->spec.shape[d]));
    sherd_status status = sherd__sketch_end(&image, &s, call->op->name);
    *yes = !status && sherd__dims_equal(image, from);
    return status;
}

/* Whether the result is so much larger that settling it later would move several times as much. */
static bool grows(const sherd_call *call)
{
    const frame *f = call->attributes;
    const sherd_tensor *a = call->in[A];
    int64_t times = 1;

    for (int d = 0; d < a->ndim; d++)
        if (a->shape[d] && times < SHERD__GROWTH)
            times *= f->size[d] / a->shape[d];
    return times >= SHERD__GROWTH;
}

/*
 * A pending product would take the value from each rank, so it is settled, unless the value is 0.
 * What is padded to a multiple of its size is settled before, but not the gradient of a slice.
 */
static sherd_status operand_of(const sherd_layout **out, const sherd_call *call)
{
    const frame *f = call->attributes;
    sherd__sketch s;

    sherd__sketch_begin(&s, call->in[A]->layout);
    bool settles = call->operands <= LIKE && grows(call);
    for (int a = 0; a < s.spec.mesh->axes; a++)
        if (settles || (f->value != 0 && s.spec.pending[a] == SHERD_PRODUCT))
            s.spec.pending[a] = -1;
    return sherd__sketch_end(out, &s, call->op->name);
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const frame *f = call->attributes;
    const sherd_layout *like = call->operands > LIKE ? sherd__way_given(ways, LIKE) : NULL;
    const sherd_layout *operand[] = {NULL, like}, *result = NULL;
    bool is_part = false;
    sherd__sketch s;
    sherd_status status = operand_of(&operand[A], call);

    if (!status && like)
        status = is_part_of(&is_part, call, like);
    if (status)
        return status;
    sherd__sketch_begin(&s, operand[A]);
    for (int d = 0; d < s.spec.ndim; d++) {
        int64_t n = s.spec.shape[d];
        if (is_part)
            s.spec.dim[d] = like->spec.dim[d];
        else if (n != f->size[d])
            sherd__sketch_around(&s, d, f->size[d], part_of(f, d, n));
        s.spec.shape[d] = f->size[d];
    }
    status = sherd__sketch_end(&result, &s, call->op->name);
    return status ? status : sherd_way_add(ways, operand, &result);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* The value that this rank pads with: on a pending sum only one rank does. */
static double filler(const sherd_tensor *y, double value)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (!sherd__coordinate(y, coordinate))
        return value;
    for (int a = 0; a < y->layout->spec.mesh->axes; a++)
        if (y->layout->spec.pending[a] == SHERD_SUM && coordinate[a] != 0)
            return 0;
    return value;
}

static bool embed(sherd_call *call)
{
    const frame *f = call->attributes;
    const sherd_tensor *a = call->in[A];
    const sherd_tensor *y = call->out[0];
    sherd_box from = sherd_tensor_box(a), to = sherd_tensor_box(y);
    size_t element = sherd_dtype_bytes(a->dtype);
    int64_t stride[SHERD_MAX_DIMS], at = 0;

    sherd__fill_in(call, 0, filler(y, f->value));
    if (a->count == 0)
        return true;
    for (int d = 0; d < a->ndim; d++) {
        stride[d] = y->stride[d] * f->step[d];
        at += y->stride[d] * (f->start[d] + from.offset[d] * f->step[d] - to.offset[d]);
    }
    sherd__copy_in(call, element, a->ndim, a->local, (char *)call->to[0] + at * (int64_t)element,
                   stride, call->from[0], a->stride);
    return true;
}

#define FRAME_FIELDS                                                                            \
    {                                                                                           \
        SHERD_FIELDS(frame, size, INT64, SHERD_MAX_DIMS),                                       \
            SHERD_FIELDS(frame, start, INT64, SHERD_MAX_DIMS),                                  \
            SHERD_FIELDS(frame, step, INT64, SHERD_MAX_DIMS), SHERD_FIELD(frame, value, DOUBLE) \
    }

/* ---- the gradient of a slice ----------------------------------------------------------------- */

/* The last operand is its layout alone: that of what was sliced. */
static const sherd_op embed_op = {.name = "sherd_slice backward",
                                  .operand = {{"dy", 0}, {"a", SHERD_OP_OPTIONAL}},
                                  .result = {{"da", 0}},
                                  .field = FRAME_FIELDS,
                                  .attributes = sizeof(frame),
                                  .linearity = SHERD_UNCHANGED,
                                  .numbers = SHERD_EVERYTHING,
                                  .strided = true,
                                  .describe = describe,
                                  .ways = lie,
                                  .forward = embed,
                                  .on_device = sherd__copies_there};

sherd_tensor *sherd__embed(sherd_tensor *t, int dim, int64_t n, sherd__part part,
                           const sherd_layout *like)
{
    frame f = {.value = 0};
    sherd_tensor *out = NULL, *in[] = {t, NULL};

    if (sherd_tensor_failed(t))
        return t;
    for (int d = 0; d < t->ndim; d++) {
        f.size[d] = d == dim ? n : t->shape[d];
        f.start[d] = d == dim ? part.start : 0;
        f.step[d] = d == dim ? part.step : 1;
    }
    sherd__apply_like(&out, &embed_op, in, 2, &f,
                      t->layout ? (const sherd_layout *[]){NULL, like} : NULL);
    return out;
}

/* ---- pad ------------------------------------------------------------------------------------- */

static void pad_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const frame *f = sherd_node_attributes(node);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    grad_in[0] = grad_out[0];
    for (int d = 0; d < ndim; d++)
        if (f->size[d] != shape[d])
            grad_in[0] = sherd_narrow(grad_in[0], d, f->start[d], shape[d]);
}

const sherd_op sherd__pad_op = {.name = "sherd_pad",
                                .summary = "pad with one value",
                                .operand = {{"a", 0}},
                                .result = {{"y", 0}},
                                .field = FRAME_FIELDS,
                                .attributes = sizeof(frame),
                                .linearity = SHERD_UNCHANGED,
                                .numbers = SHERD_EVERYTHING,
                                .strided = true,
                                .describe = describe,
                                .ways = lie,
                                .forward = embed,
                                .on_device = sherd__copies_there,
                                .backward = pad_back,
                                .takes_pending = true};

/* Whether the new sizes are valid; a negative number removes elements. */
static bool can_pad(const sherd_tensor *a, const int64_t *before, const int64_t *after)
{
    int64_t n;

    for (int d = 0; before && after && d < a->ndim; d++)
        if (before[d] <= -((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) ||
            after[d] <= -((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) ||
            !sherd__add(sherd__max(before[d], 0), sherd__max(after[d], 0), &n) ||
            !sherd__add(n, a->shape[d], &n) || a->shape[d] + before[d] + after[d] < 0)
            return false;
    return a->ndim == 0 || (before && after);
}

sherd_tensor *sherd_pad(sherd_tensor *a, const int64_t *before, const int64_t *after, double value)
{
    frame f = {.value = value};
    sherd_tensor *t = a;

    if (sherd_tensor_failed(a))
        return sherd_apply(&sherd__pad_op, &a, 1, &f);
    if (!can_pad(a, before, after))
        return sherd__fail_tensor(a->world, a->layout != NULL, SHERD_EINVAL,
                                  "sherd_pad: before and after do not fit: a is %s",
                                  sherd_tensor_text(a));
    for (int d = 0; d < a->ndim; d++) {
        int64_t cut = sherd__max(-before[d], 0), n = a->shape[d] - cut - sherd__max(-after[d], 0);
        if (n != a->shape[d])
            t = sherd_narrow(t, d, sherd__min(cut, a->shape[d]), sherd__max(n, 0));
        f.size[d] = a->shape[d] + before[d] + after[d];
        f.start[d] = sherd__max(before[d], 0);
        f.step[d] = 1;
    }
    return sherd_apply(&sherd__pad_op, &t, 1, &f);
}
