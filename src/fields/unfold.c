/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows that slide along a dim, as a dim of their own; and back, added up where they overlap. A
 * rank has the windows that begin in its piece, and fetches what they read behind it.
 */
#include "apply/sketch.h"
#include "ops/shared.h"
#include "sherd/ops_stencil.h"

#include <string.h>

#include "base/num.h"
#include "kernels/fold.h"

typedef struct sliding {
    int64_t size, step;
    int64_t n; /* in backward: of the dim */
    int dim;
} sliding;

#define FIELDS                                                                      \
    .field = {SHERD_FIELD(sliding, size, INT64), SHERD_FIELD(sliding, step, INT64), \
              SHERD_FIELD(sliding, n, INT64), SHERD_FIELD(sliding, dim, INT)},      \
    .attributes = sizeof(sliding)

/* How many windows begin before index `end` of a dim of size n. */
static int64_t windows_before(const sliding *s, int64_t end, int64_t n)
{
    return sherd__min(sherd__ceil_div(end, s->step), (n - s->size) / s->step + 1);
}

/* ---- shapes and layouts ---------------------------------------------------------------------- */

static const char *describe(sherd_call *call)
{
    const sliding *s = call->attributes;
    const sherd_tensor *x = call->in[0];
    int dim = sherd__dim_of(s->dim, x->ndim);
    int64_t shape[SHERD_MAX_DIMS];

    if (dim < 0 || x->ndim == SHERD_MAX_DIMS)
        return sherd_call_reason(call, "no dim %d, or %d dims, all that there may be", s->dim,
                                 x->ndim);
    if (s->step < 1 || s->size < 1 || s->size > x->shape[dim])
        return sherd_call_reason(call, "windows of %lld by steps of %lld in dim %d of size %lld",
                                 (long long)s->size, (long long)s->step, dim,
                                 (long long)x->shape[dim]);
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = windows_before(s, x->shape[dim], x->shape[dim]);
    shape[x->ndim] = s->size;
    sherd_call_shape(call, 0, x->ndim + 1, shape);
    return NULL;
}

static const char *describe_back(sherd_call *call)
{
    const sliding *s = call->attributes;
    const sherd_tensor *dy = call->in[0];
    int64_t shape[SHERD_MAX_DIMS];

    memcpy(shape, dy->shape, sizeof shape);
    shape[s->dim] = s->n;
    sherd_call_shape(call, 0, dy->ndim - 1, shape);
    return NULL;
}

/* The layout of the windows on x: they are where they begin. */
static sherd_status lay_windows(const sherd_layout **out, const sherd_call *call, int dim,
                                const sherd_layout *x)
{
    const sliding *at = call->attributes;
    sherd__sketch s;

    sherd__sketch_begin(&s, x);
    sherd__dim *d = &s.spec.dim[dim];
    int64_t n = s.spec.shape[dim], *cuts = d->axes ? sherd__sketch_cuts(&s, dim) : NULL;
    int64_t parts = sherd__dim_parts(s.spec.mesh, d);
    for (int64_t i = 0; cuts && i <= parts; i++)
        cuts[i] = windows_before(at, sherd__dim_cut(s.spec.mesh, d, n, i), n);
    d->cuts = cuts;
    s.spec.shape[dim] = windows_before(at, n, n);
    s.spec.dim[s.spec.ndim] = (sherd__dim){0};
    s.spec.shape[s.spec.ndim++] = at->size;
    return sherd__sketch_end(out, &s, call->op->name);
}

static sherd_status lie(const sherd_call *call, sherd_ways *ways)
{
    const sliding *at = call->attributes;
    const sherd_layout *given = sherd__way_given(ways, 0), *x = NULL, *y = NULL;
    sherd__sketch s;

    sherd__sketch_begin_sums(&s, given, sherd__sums_of(given));
    sherd_status status = sherd__sketch_end(&x, &s, call->op->name);
    if (!status)
        status = lay_windows(&y, call, sherd__dim_of(at->dim, call->in[0]->ndim), x);
    return status ? status : sherd_way_add(ways, &x, &y);
}

/* A gradient may be pending where x is not sharded; where x was plain, nothing is sharded. */
static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    const sliding *at = call->attributes;
    const sherd_layout *dy = sherd__way_given(ways, 0), *like = sherd__way_given(ways, 1);
    const sherd_layout *x = NULL, *operand[2] = {NULL, like};
    sherd__sketch s;

    sherd__sketch_begin_sums(&s, like ? like : dy,
                             like ? sherd__sums_of(dy) & ~like->shard_axes : 0);
    s.spec.ndim = call->in[0]->ndim - 1;
    for (int d = 0; d < s.spec.ndim && !like; d++) {
        s.spec.dim[d] = (sherd__dim){0};
        s.spec.shape[d] = call->shape[0][d];
    }
    sherd_status status = sherd__sketch_end(&x, &s, call->op->name);
    if (!status)
        status = lay_windows(&operand[0], call, at->dim, x);
    return status ? status : sherd_way_add(ways, operand, &x);
}

/* What the windows [lo, hi) read. */
static void reads(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                  int64_t *end)
{
    const sliding *at = call->attributes;

    if (d != sherd__dim_of(at->dim, call->in[i]->ndim))
        return;
    *first = lo * at->step;
    *end = (hi - 1) * at->step + at->size;
}

/* The windows that read any of [lo, hi). */
static void reads_back(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                       int64_t *end)
{
    const sliding *at = call->attributes;

    (void)i;
    if (d != at->dim)
        return;
    *first = lo < at->size ? 0 : (lo - at->size) / at->step + 1;
    *end = sherd__max(windows_before(at, hi, at->n), *first);
}

/* ---- forward --------------------------------------------------------------------------------- */

static bool unfold(sherd_call *call)
{
    const sliding *at = call->attributes;
    const sherd_tensor *x = call->in[0], *y = call->out[0];
    int dim = sherd__dim_of(at->dim, x->ndim);
    int64_t stride[SHERD_MAX_DIMS];
    size_t element = sherd_dtype_bytes(y->dtype);

    if (y->count == 0)
        return true;
    int64_t begins = sherd_tensor_box(y).offset[dim] * at->step;
    int64_t skip = (begins - sherd_call_box(call, 0).offset[dim]) * x->stride[dim];
    memcpy(stride, x->stride, sizeof stride);
    stride[x->ndim] = x->stride[dim];
    if (y->local[dim] > 1) /* else no stride is walked, and a step may be any number */
        stride[dim] = x->stride[dim] * at->step;
    sherd__copy_in(call, element, y->ndim, y->local, call->to[0], y->stride,
                   (const char *)call->from[0] + skip * (int64_t)element, stride);
    return true;
}

static bool fold(sherd_call *call)
{
    const sliding *at = call->attributes;
    const sherd_tensor *dy = call->in[0], *dx = call->out[0];
    int64_t windows = dy->local[at->dim];
    sherd_box here = sherd_tensor_box(dx), there = sherd_call_box(call, 0);

    if (dx->count == 0)
        return true;
    const sherd__fold_of f = {.outer = sherd__local_count(dx, 0, at->dim),
                              .n = dx->local[at->dim],
                              .inner = sherd__local_count(dx, at->dim + 1, dx->ndim),
                              .windows = windows,
                              .size = at->size,
                              .step = at->step,
                              .first = here.offset[at->dim] - there.offset[at->dim] * at->step};
    sherd__fold_windows_of(dx->dtype, &f, call->to[0], call->from[0]);
    return true;
}

/* The second operand is its layout alone. */
static const sherd_op fold_op = {.name = "sherd_unfold backward",
                                 .operand = {{"dy", SHERD_OP_AROUND}, {"x", SHERD_OP_OPTIONAL}},
                                 .result = {{"dx", 0}},
                                 FIELDS,
                                 .linearity = SHERD_LINEAR,
                                 .describe = describe_back,
                                 .ways = lie_back,
                                 .reads = reads_back,
                                 .forward = fold};

static void differentiate(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sliding *at = sherd_node_attributes(node);
    sliding back = *at;
    const int64_t *shape;

    back.dim = sherd__dim_of(at->dim, sherd_node_shape(node, 0, &shape));
    back.n = shape[back.dim];
    grad_in[0] = sherd__adjoint_like(node, &fold_op, &back, at, grad_out[0]);
}

const sherd_op sherd__unfold_op = {.name = "sherd_unfold",
                                   .summary = "windows along a dim, as a new last dim",
                                   .layouts = "any; what windows read beyond a piece is fetched",
                                   .operand = {{"x", SHERD_OP_AROUND}},
                                   .result = {{"y", 0}},
                                   FIELDS,
                                   .linearity = SHERD_LINEAR,
                                   .numbers = SHERD_EVERYTHING,
                                   .describe = describe,
                                   .ways = lie,
                                   .reads = reads,
                                   .forward = unfold,
                                   .backward = differentiate,
                                   .takes_pending = true};

/* Sizes are below 2^62, so a longer step makes no difference. */
sherd_tensor *sherd_unfold(sherd_tensor *x, int dim, int64_t size, int64_t step)
{
    step = sherd__min(step, (int64_t)1 << 61);
    return sherd_apply(&sherd__unfold_op, &x, 1,
                       &(sliding){.size = size, .step = step, .dim = dim});
}
