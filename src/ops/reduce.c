/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums. Each rank adds up what it holds; if a summed dim is sharded, the result is a pending sum,
 * so uneven and empty shards are right.
 */
#include "shared.h"
#include "vector/choose.h"

#include <string.h>

#include "base/num.h"
#include "device/reduce.h"
#include "sherd/ops_reductions.h"
#include "layout/shape.h"

/* ---- the sum to a smaller shape, for gradients of what was broadcast ------------------------- */

/*
 * The shape to sum to, aligned at the last dim: a dim of size 1 in it, and larger in the operand,
 * is summed.
 */
typedef struct target {
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} target;

/* Whether dim d of `t` is summed. */
static bool is_summed(const sherd_tensor *t, int d, const target *to)
{
    int at = d - (t->ndim - to->ndim);

    return at < 0 || to->shape[at] != t->shape[d];
}

/* "abc->1c": a letter for a dim that stays, '1' for one that shrinks to size 1. */
static const char *describe_sum_to(sherd_call *call)
{
    const target *to = call->attributes;
    const sherd_tensor *t = call->in[0];
    int skipped = t->ndim - to->ndim, n = 0;

    for (int d = 0; d < t->ndim; d++)
        call->rule[n++] = (char)('a' + d);
    call->rule[n++] = '-';
    call->rule[n++] = '>';
    for (int d = skipped; d < t->ndim; d++)
        call->rule[n++] = is_summed(t, d, to) ? '1' : (char)('a' + d);
    call->rule[n] = '\0';
    return NULL;
}

/* The dims of more than one local element. Returns how many there are. */
static int dims_of(const sherd_tensor *t, int *dim)
{
    int n = 0;

    for (int d = 0; d < t->ndim; d++)
        if (t->local[d] != 1)
            dim[n++] = d;
    return n;
}

/* Sort them as they lie in memory, outermost first. False: the piece has holes or overlaps. */
static bool sort_dims(const sherd_tensor *t, int n, int *dim)
{
    int64_t run = 1;

    for (int i = 1; i < n; i++) {
        int at = i, d = dim[i];
        for (; at > 0 && t->stride[dim[at - 1]] < t->stride[d]; at--)
            dim[at] = dim[at - 1];
        dim[at] = d;
    }
    for (int i = n - 1; i >= 0; run *= t->local[dim[i--]])
        if (t->stride[dim[i]] != run)
            return false;
    return true;
}

int sherd__dims_in_memory(const sherd_tensor *t, int *dim)
{
    int n = dims_of(t, dim);

    return sort_dims(t, n, dim) ? n : -1;
}

/* Neighbouring dims that are all kept or all summed. */
typedef struct run {
    int64_t size;
    bool summed;
} run;

/* The runs of dims in this order; -1: it would turn those of the result. */
static int runs_of(const sherd_tensor *t, unsigned dims, int n, const int *dim, run *runs)
{
    int count = 0, kept = -1;

    for (int i = 0; i < n; i++) {
        bool summed = dims >> dim[i] & 1;
        if (!summed && dim[i] < kept)
            return -1;
        kept = summed ? kept : dim[i];
        if (count && runs[count - 1].summed == summed)
            runs[count - 1].size *= t->local[dim[i]];
        else
            runs[count++] = (run){t->local[dim[i]], summed};
    }
    return count;
}

bool sherd__compact_operand(sherd_call *call)
{
    const sherd_tensor *t = call->in[0];
    size_t element = sherd_dtype_bytes(t->dtype);
    int64_t stride[SHERD_MAX_DIMS], bytes = t->count * (int64_t)element;

    if (t->count == 0 || sherd__is_contiguous(t))
        return true;
    void *to = sherd__device_in(call) ? sherd__device_scratch(call, bytes)
                                      : sherd_call_scratch(call, bytes);
    if (!to)
        return false;
    sherd__row_major(t->ndim, t->local, stride);
    if (!sherd__is_dry(call->world))
        sherd__copy_in(call, element, t->ndim, t->local, to, stride, call->from[0], t->stride);
    call->from[0] = to;
    return true;
}

/* The runs of operand 0 as it lies in memory, or else of its copy. -1: no memory. */
static int runs_in_memory(sherd_call *call, unsigned dims, run *runs)
{
    const sherd_tensor *t = call->in[0];
    int dim[SHERD_MAX_DIMS], n = sherd__dims_in_memory(t, dim);
    int count = n >= 0 ? runs_of(t, dims, n, dim, runs) : -1;

    if (count < 0 && sherd__compact_operand(call))
        count = runs_of(t, dims, dims_of(t, dim), dim, runs);
    return count;
}

static int64_t product(const run *runs, int first, int end)
{
    int64_t n = 1;

    for (int i = first; i < end; i++)
        n *= runs[i].size;
    return n;
}

/* Which run is summed next, -1 = none is left; and how many are left. */
static int next_run(const run *runs, int count, int *left)
{
    int next = -1;

    *left = 0;
    for (int i = count - 1; i >= 0; i--)
        if (runs[i].summed) {
            next = i;
            ++*left;
        }
    return next;
}

/* On the GPU: one run of neighbouring dims after the other, the last one into the result. */
static bool sum_there(sherd_call *call, run *runs, int count)
{
    sherd__device *device = sherd__device_in(call);
    sherd_dtype dtype = call->out[0]->dtype, from = dtype, sums = sherd__statistics_dtype(dtype);
    const void *src = call->from[0];
    int left, i = next_run(runs, count, &left);

    if (i < 0)
        sherd__device_move(device, call->to[0], src,
                           call->out[0]->count * (int64_t)sherd_dtype_bytes(dtype));
    for (; i >= 0; i = next_run(runs, count, &left)) {
        int64_t outer = product(runs, 0, i), inner = product(runs, i + 1, count);
        int64_t bytes = outer * inner * (int64_t)sherd_dtype_bytes(sums);
        void *to = left == 1 ? call->to[0] : sherd__device_scratch(call, bytes);
        if (!to)
            return false;
        sherd__device_sum_to(device, left == 1 ? dtype : sums, from, to, src, outer, runs[i].size,
                             inner, false);
        runs[i] = (run){1, false};
        src = to;
        from = sums;
    }
    return true;
}

/*
 * One pass sums one run, the first run first; all passes but the last write to scratch. For 16-bit
 * types intermediate results are f32, so that each sum is rounded once. Sums of nothing are 0.
 */
bool sherd__sum_dims(sherd_call *call, unsigned dims)
{
    const sherd_tensor *in = call->in[0], *out = call->out[0];
    const sherd__kernels *kernels = sherd__kernels_in(call);
    run runs[SHERD_MAX_DIMS];
    void *dst = call->to[0];

    if (out->count == 0)
        return true;
    bool dry = sherd__is_dry(call->world);
    if (in->count == 0) { /* sizes beside a 0 multiply to anything */
        if (!dry)
            sherd__fill_in(call, 0, 0);
        return true;
    }
    int count = runs_in_memory(call, dims, runs), left, i = next_run(runs, count, &left);
    const void *src = call->from[0];
    if (count < 0)
        return false;
    bool widen = left > 1 && sherd__is_half(out->dtype); /* so that the sum is rounded once */
    if (sherd__device_in(call))
        return sum_there(call, runs, count);
    if (i < 0 && !dry)
        memcpy(dst, src, (size_t)out->count * sherd_dtype_bytes(out->dtype));
    if (i < 0)
        return true;
    if (widen) {
        float *wide = sherd_call_scratch(call, in->count * (int64_t)sizeof *wide);
        dst = sherd_call_scratch(call, out->count * (int64_t)sizeof *wide);
        if (!wide || !dst)
            return false;
        if (!dry)
            kernels->widen(in->count, wide, src);
        src = wide;
        kernels = sherd__kernels_of(sherd__world_kernels(call->world), SHERD_F32);
    }
    size_t element = widen ? sizeof(float) : sherd_dtype_bytes(out->dtype);
    for (; i >= 0; i = next_run(runs, count, &left)) {
        int64_t outer = product(runs, 0, i), inner = product(runs, i + 1, count);
        void *to = left == 1 ? dst : sherd_call_scratch(call, outer * inner * (int64_t)element);
        if (!to)
            return false;
        if (!dry)
            kernels->sum(to, src, outer, runs[i].size, inner, false);
        runs[i] = (run){1, false};
        src = to;
    }
    if (widen && !dry)
        sherd__kernels_in(call)->narrow(out->count, call->to[0], dst);
    return true;
}

static bool sum_to(sherd_call *call)
{
    unsigned dims = 0;

    for (int d = 0; d < call->in[0]->ndim; d++)
        dims |= (unsigned)is_summed(call->in[0], d, call->attributes) << d;
    return sherd__sum_dims(call, dims);
}

static void sum_to_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);

    grad_in[0] = sherd_expand(grad_out[0], shape, ndim);
}

static const sherd_op sum_to_op = {
    .name = "sum of a gradient",
    .operand = {{"t", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(target, ndim, INT), SHERD_FIELDS(target, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(target),
    .linearity = SHERD_LINEAR,
    .describe = describe_sum_to,
    .forward = sum_to,
    .dry = sum_to,
    .on_device = sherd__fractions_there,
    .backward = sum_to_back};

sherd_tensor *sherd__sum_to(sherd_tensor *t, int ndim, const int64_t *shape)
{
    target to = {.ndim = ndim};

    if (sherd_tensor_failed(t) || sherd__same_shape(t->ndim, t->shape, ndim, shape))
        return t;
    memcpy(to.shape, shape, (size_t)ndim * sizeof *shape);
    return sherd_apply(&sum_to_op, &t, 1, &to);
}

sherd_tensor *sherd__sum_to_operand(sherd_node *node, int i, sherd_tensor *t)
{
    const int64_t *shape;
    int ndim = sherd_node_shape(node, i, &shape);

    return sherd__sum_to(t, ndim, shape);
}

/* ---- the sum and the mean of everything ------------------------------------------------------ */

/* Every element has the gradient of the sum: a fill, in the layout of the operand. */
typedef struct whole {
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
} whole;

static const char *describe_spread(sherd_call *call)
{
    const whole *to = call->attributes;
    int n = 0;

    call->rule[n++] = ',';
    for (int d = 0; d < to->ndim; d++)
        call->rule[n++] = (char)('a' + d);
    call->rule[n++] = '-';
    call->rule[n++] = '>';
    for (int d = 0; d < to->ndim; d++) {
        call->rule[n++] = (char)('a' + d);
        call->shape[0][d] = to->shape[d];
    }
    call->rule[n] = '\0';
    return NULL;
}

static bool spread(sherd_call *call)
{
    double value;

    if (sherd__device_in(call)) {
        const int64_t one = 1, none = 0;
        if (call->out[0]->count)
            sherd__copy_in(call, sherd_dtype_bytes(call->out[0]->dtype), 1, &call->out[0]->count,
                           call->to[0], &one, call->from[0], &none);
        return true;
    }
    if (!sherd__scalar_value(call->in[0], &value))
        return false;
    sherd__kernels_in(call)->fill(call->to[0], call->out[0]->count, value);
    return true;
}

static void spread_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    (void)node;
    grad_in[0] = sherd_sum(grad_out[0]);
}

/* The second operand is its layout alone. */
static const sherd_op spread_op = {
    .name = "sherd_sum backward",
    .operand = {{"dy", 0}, {"a", SHERD_OP_OPTIONAL}},
    .result = {{"da", 0}},
    .field = {SHERD_FIELD(whole, ndim, INT), SHERD_FIELDS(whole, shape, INT64, SHERD_MAX_DIMS)},
    .attributes = sizeof(whole),
    .describe = describe_spread,
    .forward = spread,
    .on_device = sherd__fractions_there,
    .backward = spread_back};

static void sum_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_layout *layout = sherd_node_layout(node, 0), *like[2] = {NULL, NULL};
    sherd_tensor *in[] = {grad_out[0], NULL};
    const int64_t *shape;
    whole to = {.ndim = sherd_node_shape(node, 0, &shape)};

    memcpy(to.shape, shape, sherd__bytes(to.ndim) * sizeof *shape);
    grad_in[0] = sherd__failed(sherd__node_world(node));
    if (layout && sherd__layout_settle(&like[1], layout) != SHERD_OK)
        sherd__fail_diag(sherd__node_world(node), true);
    else
        sherd__apply_like(grad_in, &spread_op, in, 2, &to, like);
}

/* In whatever order the elements lie. */
static bool sum(sherd_call *call)
{
    const sherd_tensor *in = call->in[0];
    sherd__device *device = sherd__device_in(call);
    int dim[SHERD_MAX_DIMS];

    if (sherd__dims_in_memory(in, dim) < 0 && !sherd__compact_operand(call))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    if (call->out[0]->count && device)
        sherd__device_sum(device, in->dtype, call->to[0], call->from[0], 1, in->count, 1, false);
    else if (call->out[0]->count)
        sherd__kernels_in(call)->sum(call->to[0], call->from[0], 1, in->count, 1, false);
    return true;
}

const sherd_op sherd__sum_op = {.name = "sherd_sum",
                                .autocast = SHERD_AUTOCAST_FULL,
                                .summary = "sum of all elements",
                                .operand = {{"a", 0}},
                                .result = {{"y", 0}},
                                .rule = "...->",
                                .linearity = SHERD_LINEAR,
                                .strided = true,
                                .forward = sum,
                                .dry = sum,
                                .on_device = sherd__fractions_there,
                                .backward = sum_back};

sherd_tensor *sherd_sum(sherd_tensor *a)
{
    if (a && a->dtype >= SHERD_I32)
        return sherd_sum_over(a, NULL, 0, false);
    return sherd_apply(&sherd__sum_op, &a, 1, NULL);
}

/* Divided, not multiplied by 1 / n: the mean of equal numbers is that number. */
sherd_tensor *sherd__mean_of(sherd_tensor *total, int64_t n)
{
    return sherd__unary(SHERD__DIVIDED, total, (double)n);
}

/* In 16 bits the sum of many numbers may overflow where their mean does not. */
static bool mean(sherd_call *call)
{
    sherd_tensor *a = call->in[0];
    bool half = sherd__is_half(a->dtype);
    sherd_tensor *total = sherd_sum(half ? sherd_cast(a, SHERD_F32) : a);

    call->out[0] = sherd__mean_of(total, sherd_tensor_count(a));
    if (half)
        call->out[0] = sherd_cast(call->out[0], a->dtype);
    return true;
}

const sherd_op sherd__mean_op = {.name = "sherd_mean",
                                 .autocast = SHERD_AUTOCAST_FULL,
                                 .summary = "mean of all elements",
                                 .operand = {{"a", 0}},
                                 .result = {{"y", 0}},
                                 .compose = mean};

sherd_tensor *sherd_mean(sherd_tensor *a)
{
    return sherd_apply(&sherd__mean_op, &a, 1, NULL);
}
