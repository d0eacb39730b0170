/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes and layouts of operators with windows: batch, channels and space are not moved, and the
 * cuts of the result follow from those of the input. A pending sum stays pending if the operator is
 * linear.
 */
#include "taps.h"

#include "apply/sketch.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool is_window(int mode)
{
    return mode == SHERD__TAPS_AVERAGE || mode == SHERD__TAPS_MAXIMUM;
}

static const char *window_size(sherd_call *call, const sherd__taps_attributes *a, int d, int64_t n,
                               int64_t *size)
{
    sherd__taps t = sherd__taps_of(a, d, n, 0, SHERD_F64);

    if (t.kernel < 1 || t.stride < 1 || t.dilation < 1 || t.padding < 0 || t.kernel >> 31 ||
        t.stride >> 31 || t.dilation >> 31)
        return sherd_call_reason(
            call, "kernel %lld, stride %lld, padding %lld, dilation %lld in dim %d",
            (long long)a->kernel[d], (long long)a->stride[d], (long long)a->padding[d],
            (long long)a->dilation[d], SHERD__SPACE + d);
    int64_t reach = t.dilation * (t.kernel - 1) + 1; /* below 2^62 */
    if (t.padding > reach / 2)
        return sherd_call_reason(call, "padding of %lld is more than half the kernel in dim %d",
                                 (long long)t.padding, SHERD__SPACE + d);
    int64_t rest = n + 2 * t.padding - reach;
    if (rest < 0 && !(a->ceil && rest + t.stride > 0))
        return sherd_call_reason(
            call, "a kernel that reaches over %lld in dim %d of size %lld, padded to %lld",
            (long long)reach, SHERD__SPACE + d, (long long)n, (long long)(n + 2 * t.padding));
    *size = (rest + (a->ceil ? t.stride - 1 : 0)) / t.stride + 1;
    if (a->ceil && (*size - 1) * t.stride >= n + t.padding)
        --*size; /* the last window would begin behind the padding */
    return NULL;
}

static const char *given_size(sherd_call *call, const sherd__taps_attributes *a, int d, int64_t n,
                              int64_t *size)
{
    const int64_t limit = (int64_t)1 << 31;
    double made = (double)n * a->factor[d];

    *size = a->size[d];
    if (a->size[d] == 0 && made >= 1 && made < (double)limit)
        *size = (int64_t)made;
    bool fits = *size >= 1 && *size <= limit && n <= limit;
    if (!fits && call->op != &sherd__interpolate_op) /* a pool has no factor */
        return sherd_call_reason(call, "size %lld in dim %d of size %lld: both are in [1,2^31]",
                                 (long long)a->size[d], SHERD__SPACE + d, (long long)n);
    if (!fits || (a->size[d] && a->factor[d] != 0))
        return sherd_call_reason(
            call, "size %lld and factor %g in dim %d of size %lld: give one of the two",
            (long long)a->size[d], a->factor[d], SHERD__SPACE + d, (long long)n);
    return NULL;
}

const char *sherd__taps_describe(sherd_call *call)
{
    const sherd__taps_attributes *a = call->attributes;
    const sherd_tensor *x = call->in[0];
    const char *fault = NULL;

    if (x->ndim <= SHERD__SPACE || x->ndim > SHERD__SPACE + SHERD__SPACE_DIMS)
        return "it must be [batch, channels, ...] with one to three dims behind";
    if (a->divisor < 0)
        return sherd_call_reason(call, "a divisor of %lld", (long long)a->divisor);
    for (int d = 0; d < x->ndim && !fault; d++) {
        int64_t n = call->shape[0][d] = x->shape[d], *size = &call->shape[0][d];
        if (d < SHERD__SPACE)
            continue;
        fault = n < 1                ? sherd_call_reason(call, "dim %d is empty", d)
                : is_window(a->mode) ? window_size(call, a, d - SHERD__SPACE, n, size)
                                     : given_size(call, a, d - SHERD__SPACE, n, size);
    }
    for (int j = 0; j < call->results; j++)
        sherd_call_shape(call, j, x->ndim, call->shape[0]);
    return fault;
}

const char *sherd__taps_describe_back(sherd_call *call)
{
    const sherd__taps_attributes *a = call->attributes;
    const sherd_tensor *dy = call->in[0];

    for (int d = 0; d < dy->ndim; d++)
        call->shape[0][d] = d < SHERD__SPACE ? dy->shape[d] : a->from[d - SHERD__SPACE];
    sherd_call_shape(call, 0, dy->ndim, NULL);
    return NULL;
}

sherd__taps_attributes sherd__taps_back(sherd_node *node)
{
    sherd__taps_attributes a = *(const sherd__taps_attributes *)sherd_node_attributes(node);
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    for (int d = SHERD__SPACE; d < ndim; d++)
        a.from[d - SHERD__SPACE] = shape[d];
    return a;
}

/* ---- what is read around --------------------------------------------------------------------- */

void sherd__taps_reads(const sherd_call *call, int i, int d, int64_t lo, int64_t hi, int64_t *first,
                       int64_t *end)
{
    if (d < SHERD__SPACE)
        return;
    sherd__taps t = sherd__taps_of(call->attributes, d - SHERD__SPACE, call->in[i]->shape[d],
                                   call->out[0]->shape[d], call->in[i]->dtype);
    sherd__reading r = sherd__taps_around(&t, lo, hi);
    *first = r.first;
    *end = r.end;
}

void sherd__taps_reads_back(const sherd_call *call, int i, int d, int64_t lo, int64_t hi,
                            int64_t *first, int64_t *end)
{
    if (d < SHERD__SPACE)
        return;
    sherd__taps t = sherd__taps_of(call->attributes, d - SHERD__SPACE, call->out[0]->shape[d],
                                   call->in[i]->shape[d], call->out[0]->dtype);
    sherd__reading r = sherd__taps_readers(&t, lo, hi);
    *first = r.first;
    *end = r.end;
}

/* ---- layouts --------------------------------------------------------------------------------- */

static sherd_status lay_big(const sherd_layout **out, const sherd_call *call, const sherd_layout *x,
                            unsigned pending)
{
    sherd__sketch s;

    sherd__sketch_begin_sums(&s, x, pending);
    return sherd__sketch_end(out, &s, call->op->name);
}

/* The layout of the result for an x with this layout; `shape` is the result's. */
static sherd_status lay_small(const sherd_layout **out, const sherd_call *call,
                              const sherd_layout *x, const int64_t *shape, unsigned pending)
{
    sherd__sketch s;

    sherd__sketch_begin_sums(&s, x, pending);
    for (int d = SHERD__SPACE; d < s.spec.ndim; d++) {
        sherd__dim *dim = &s.spec.dim[d];
        sherd__taps t = sherd__taps_of(call->attributes, d - SHERD__SPACE, s.spec.shape[d],
                                       shape[d], call->in[0]->dtype);
        int64_t *cuts = dim->axes ? sherd__sketch_cuts(&s, d) : NULL;
        int64_t parts = sherd__dim_parts(s.spec.mesh, dim);
        for (int64_t i = 0; cuts && i <= parts; i++)
            cuts[i] = sherd__taps_cut(&t, sherd__dim_cut(s.spec.mesh, dim, s.spec.shape[d], i));
        dim->cuts = cuts;
        s.spec.shape[d] = shape[d];
    }
    return sherd__sketch_end(out, &s, call->op->name);
}

sherd_status sherd__taps_ways(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *x = sherd__way_given(ways, 0), *big = NULL,
                       *small[SHERD_MAX_RESULTS] = {NULL};
    unsigned pending = call->op->linearity == SHERD_LINEAR ? sherd__sums_of(x) : 0;
    sherd_status status = lay_big(&big, call, x, pending);

    if (!status)
        status = lay_small(&small[0], call, x, call->shape[0], pending);
    for (int j = 1; j < call->results; j++)
        small[j] = small[0];
    return status ? status : sherd_way_add(ways, &big, small);
}

/* The layout of x; unknown only if x was plain: then nothing is sharded. */
static sherd_status layout_of_x(const sherd_layout **out, const sherd_call *call,
                                const sherd_layout *like, const sherd_layout *dy)
{
    sherd__sketch s;

    if (like)
        return lay_big(out, call, like, 0);
    sherd__sketch_begin_sums(&s, dy, 0);
    for (int d = 0; d < s.spec.ndim; d++) {
        s.spec.dim[d] = (sherd__dim){0};
        s.spec.shape[d] = call->shape[0][d];
    }
    return sherd__sketch_end(out, &s, call->op->name);
}

sherd_status sherd__taps_ways_back(const sherd_call *call, sherd_ways *ways)
{
    int last = call->operands - 1;
    const sherd_layout *like = sherd__way_given(ways, last), *dy = sherd__way_given(ways, 0);
    const sherd_layout *x = NULL, *big = NULL, *operand[SHERD_MAX_OPERANDS] = {NULL};
    sherd_status status = layout_of_x(&x, call, like, dy);

    if (status)
        return status;
    unsigned pending = sherd__sums_of(dy) & ~x->shard_axes;
    status = lay_big(&big, call, x, pending);
    for (int i = 0; i < last && !status; i++)
        status = lay_small(&operand[i], call, x, call->in[0]->shape, i ? 0 : pending);
    operand[last] = like;
    return status ? status : sherd_way_add(ways, operand, &big);
}
