/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, its logarithm, and the logarithm of a sum of exponentials, over one dim, which may be
 * sharded: ranks exchange two numbers per position (the maximum, the sum of exponentials), in
 * backward one; the elements are never gathered. For 16-bit types these numbers are f32.
 */
#include "ops/dims.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "vector/choose.h"

#include <math.h>
#include <string.h>

#include "base/saturate.h"
#include "device/folds.h"
#include "device/shared_rows.h"

/*
 * The local piece as [outer, mid, inner] around the dim. Only for pieces with a result: beside a
 * size of 0, the product of other sizes may overflow.
 */
typedef sherd__soft_slab slab;

/* How an operand has the dim: as it is, with size 1, not at all. */
enum { WHOLE, KEPT, DROPPED };

static const sherd_op spread_op;

static slab slab_of(const sherd_tensor *t, unsigned bits)
{
    slab s = {1, 1, 1};

    for (int d = 0; d < t->ndim; d++)
        if (bits >> d & 1)
            s.mid = t->local[d];
        else if (bits >> d)
            s.outer *= t->local[d];
        else
            s.inner *= t->local[d];
    return s;
}

static void write_label(sherd_call *call, const char *before, unsigned bits, int ndim, int how)
{
    size_t n = strlen(call->rule);

    while (*before)
        call->rule[n++] = *before++;
    for (int d = 0; d < ndim; d++)
        if (how == WHOLE || !(bits >> d & 1))
            call->rule[n++] = (char)((bits >> d & 1 ? 'p' : 'a') + d);
        else if (how == KEPT)
            call->rule[n++] = '1';
    call->rule[n] = '\0';
}

/*
 * Operands and results have all dims of operand 0, except those that the operator declares without
 * the reduced dim.
 */
static const char *describe(sherd_call *call)
{
    const sherd__dims *dims = call->attributes;
    const char *reason = sherd__dims_rule(call, dims);
    int ndim = call->in[0]->ndim, short_form = dims->keepdim ? KEPT : DROPPED;
    bool sums = call->op == &sherd__logsumexp_op, spreads = call->op == &spread_op;

    if (reason)
        return reason;
    unsigned bits = sherd__dims_bits(dims, ndim);
    call->rule[0] = '\0';
    for (int i = 0; i < call->operands; i++)
        write_label(call, i ? "," : "", bits, ndim, i && spreads ? short_form : WHOLE);
    for (int j = 0; j < call->results; j++)
        write_label(call, j ? "," : "->", bits, ndim, sums ? short_form : WHOLE);
    return NULL;
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Room for n numbers, where the call runs. NULL: failed. */
static void *room(sherd_call *call, sherd_dtype dtype, int64_t n)
{
    int64_t bytes = sherd__times(sherd__max(n, 1), (int64_t)sherd_dtype_bytes(dtype));

    return sherd__device_in(call) ? sherd__device_scratch(call, bytes)
                                  : sherd_call_scratch(call, bytes);
}

/* The maximum and the sum of exponentials per position, combined over all shards. False: failed. */
static bool exchange(sherd_call *call, unsigned bits, void **most, void **total)
{
    sherd_dtype dtype = sherd__statistics_dtype(call->in[0]->dtype);
    const sherd__kernels *kernels = sherd__kernels_in(call);
    sherd__device *device = sherd__device_in(call);
    slab s = slab_of(call->in[0], bits);
    int64_t n = s.outer * s.inner, parts;
    sherd_tensor *mine = sherd__new_parts(call, bits, dtype, 2);
    bool computes = mine && mine->count && !sherd__is_dry(call->world);

    *most = room(call, dtype, n);
    *total = room(call, dtype, n);
    if (!mine || !*most || !*total)
        return false;
    char *most_here = device ? sherd__device_fresh(mine) : sherd__fresh(mine);
    char *total_here = most_here + n * (int64_t)sherd_dtype_bytes(dtype);
    if (computes && device)
        sherd__device_soft_stats(device, call->in[0]->dtype, &s, most_here, total_here,
                                 call->from[0]);
    else if (computes)
        kernels->soft_stats(s.outer, s.mid, s.inner, most_here, total_here, call->from[0]);
    const void *all = sherd__all_parts(call, bits, mine, 2, &parts);
    if (all && computes && device)
        sherd__device_soft_join(device, dtype, parts, n, *most, *total, all);
    else if (all && computes)
        kernels->soft_join(parts, n, *most, *total, all);
    return all != NULL;
}

/* Whether ranks share the dim. */
static bool is_cut(const sherd_tensor *t, unsigned bits)
{
    for (int d = 0; t->layout && d < t->ndim; d++)
        if (bits >> d & 1 && sherd__dim_parts(t->layout->spec.mesh, &t->layout->spec.dim[d]) > 1)
            return true;
    return false;
}

/* On the GPU: [outer,mid,inner] as rows [outer,inner,mid], or back. */
static void turn(sherd_call *call, slab s, bool back, void *dst, const void *src)
{
    const int64_t size[] = {s.outer, s.inner, s.mid}, n = s.mid * s.inner;
    const int64_t slabs[] = {n, 1, s.inner}, rows[] = {n, s.mid, 1};

    sherd__device_copy_box(sherd__device_in(call), sherd_dtype_bytes(call->out[0]->dtype), 3, size,
                           dst, back ? slabs : rows, src, back ? rows : slabs);
}

/* On the GPU, of a dim that is whole here. */
static bool soft_there(sherd_call *call, slab s)
{
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *y = call->out[0];
    sherd__soft_kind kind = call->op == &sherd__softmax_op ? SHERD__SOFTMAX : SHERD__LOG_SOFTMAX;
    int64_t bytes = y->count * (int64_t)sherd_dtype_bytes(y->dtype);
    void *rows = NULL;

    if (y->count == 0)
        return true;
    if (s.inner == 1) {
        sherd__device_softmax(device, y->dtype, kind, s.outer, s.mid, call->to[0], call->from[0]);
        return true;
    }
    if (!(rows = sherd__device_scratch(call, bytes)))
        return false;
    turn(call, s, false, call->to[0], call->from[0]);
    sherd__device_softmax(device, y->dtype, kind, s.outer * s.inner, s.mid, rows, call->to[0]);
    turn(call, s, true, call->to[0], rows);
    return true;
}

/* On the CPU, of a dim that is whole here: a few rows at a time, so that they are read once. */
static bool soft_here(sherd_call *call, slab s, sherd__soft_kind kind)
{
    enum { BLOCK = 32 << 10 }; /* bytes; 8 to 128 KiB are as fast */
    const sherd__kernels *k = sherd__kernels_in(call);
    sherd_dtype dtype = sherd__statistics_dtype(call->out[0]->dtype);
    int64_t row = s.mid * s.inner * (int64_t)sherd_dtype_bytes(call->out[0]->dtype);
    int64_t rows = sherd__min(sherd__max(BLOCK / row, 1), s.outer);
    int64_t bytes = rows * s.inner * (int64_t)sherd_dtype_bytes(dtype); /* of the maxima */
    char *most = room(call, dtype, 4 * rows * s.inner), *total = most + bytes,
         *part = total + bytes;

    for (int64_t n, o = 0; most && o < s.outer && !sherd__is_dry(call->world); o += n) {
        const char *x = (const char *)call->from[0] + o * row;
        n = sherd__min(rows, s.outer - o);
        k->soft_stats(n, s.mid, s.inner, part, part + bytes / rows * n, x);
        k->soft_join(1, n * s.inner, most, total, part);
        k->soft(kind, n, s.mid, s.inner, (char *)call->to[0] + o * row, x, most, total);
    }
    return most != NULL;
}

static bool soft(sherd_call *call)
{
    unsigned bits = sherd__dims_bits(call->attributes, call->in[0]->ndim);
    sherd__soft_kind kind = call->op == &sherd__softmax_op ? SHERD__SOFTMAX : SHERD__LOG_SOFTMAX;
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *y = call->out[0];
    void *most, *total;

    if (sherd_tensor_count(y) == 0)
        return true;
    slab s = slab_of(y, bits);
    if (!is_cut(y, bits) && (device || y->count))
        return device ? soft_there(call, s) : soft_here(call, s, kind);
    if (!exchange(call, bits, &most, &total))
        return false;
    bool dry = sherd__is_dry(call->world);
    if (y->count && device && !dry)
        sherd__device_soft(device, y->dtype, kind, &s, call->to[0], call->from[0], most, total);
    else if (y->count && !dry)
        sherd__kernels_in(call)->soft(kind, s.outer, s.mid, s.inner, call->to[0], call->from[0],
                                      most, total);
    return true;
}

/* On the GPU, of a dim that is whole here. */
static void log_sum_there(sherd_call *call, slab s)
{
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *y = call->out[0];

    if (y->count == 0)
        return;
    sherd__device_fold(device, y->dtype, SHERD__FOLD_LOG_SUM, call->to[1], call->from[0], s.outer,
                       s.mid, s.inner);
    sherd__device_convert(device, y->dtype, call->out[1]->dtype, y->count, call->to[0],
                          call->to[1]);
}

/* max + log(sum), into the hidden result, and rounded into the other one. */
static bool logsumexp(sherd_call *call)
{
    unsigned bits = sherd__dims_bits(call->attributes, call->in[0]->ndim);
    const sherd_tensor *y = call->out[0], *log_sum = call->out[1];
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    const sherd__kernels *kernels = sherd__kernels_of(set, log_sum->dtype);
    const int64_t one = 1;
    void *most, *total;

    if (sherd_tensor_count(y) == 0)
        return true;
    if (sherd__device_in(call) && !is_cut(call->in[0], bits)) {
        log_sum_there(call, slab_of(call->in[0], bits));
        return true;
    }
    if (!exchange(call, bits, &most, &total))
        return false;
    if (y->count == 0 || sherd__is_dry(call->world))
        return true;
    if (sherd__device_in(call)) {
        sherd__device_log_sum(sherd__device_in(call), y->dtype, y->count, call->to[0], call->to[1],
                              most, total);
        return true;
    }
    kernels->unary(SHERD__LOG, y->count, total, total, NULL);
    kernels->binary(SHERD__ADD, 1, &y->count, call->to[1], most, &one, total, &one);
    sherd__convert(set, y->dtype, log_sum->dtype, y->count, call->to[0], call->to[1]);
    return true;
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { G_DY, G_Y };

static sherd__soft_kind kind_of_gradient(const sherd_op *op);

/* Backward of a dim that is sharded: ranks exchange the sums of their parts. */
static bool differentiate_parts(sherd_call *call, unsigned bits, sherd_tensor *mine)
{
    const sherd__kernels *kernels = sherd__kernels_in(call);
    sherd_dtype dtype = mine->dtype;
    sherd__soft_kind kind = kind_of_gradient(call->op);
    slab s = slab_of(call->in[0], bits);
    int64_t n = s.outer * s.inner, parts;
    void *total = room(call, dtype, n);
    bool dry = sherd__is_dry(call->world);

    if (!total)
        return false;
    if (mine->count && !dry)
        kernels->soft_grad_sum(kind, s.outer, s.mid, s.inner, sherd__fresh(mine), call->from[G_DY],
                               call->from[G_Y]);
    const void *all = sherd__all_parts(call, bits, mine, 1, &parts);
    if (!all || call->in[0]->count == 0 || dry)
        return all != NULL;
    sherd__kernels_of(sherd__world_kernels(call->world), dtype)
        ->sum(total, all, 1, parts, n, false);
    kernels->soft_grad(kind, s.outer, s.mid, s.inner, call->to[0], call->from[G_DY],
                       call->from[G_Y], total);
    return true;
}

/* The same on the GPU. */
static bool differentiate_parts_there(sherd_call *call, unsigned bits)
{
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *dx = call->out[0];
    sherd_dtype dtype = sherd__statistics_dtype(dx->dtype);
    sherd__soft_kind kind = kind_of_gradient(call->op);
    slab s = slab_of(dx, bits);
    int64_t n = s.outer * s.inner, parts;
    sherd_tensor *mine = sherd__new_parts(call, bits, dtype, 1);
    void *total = room(call, dtype, n);

    if (!mine || !total)
        return false;
    if (mine->count)
        sherd__device_soft_grad_sum(device, dx->dtype, kind, &s, sherd__device_fresh(mine),
                                    call->from[G_DY], call->from[G_Y]);
    const void *all = sherd__all_parts(call, bits, mine, 1, &parts);
    if (!all || dx->count == 0)
        return all != NULL;
    sherd__device_sum(device, dtype, total, all, 1, parts, n, false);
    sherd__device_soft_grad(device, dx->dtype, kind, &s, call->to[0], call->from[G_DY],
                            call->from[G_Y], total);
    return true;
}

/* Of a dim that is whole here. */
static bool differentiate_there(sherd_call *call, slab s)
{
    sherd__device *device = sherd__device_in(call);
    const sherd_tensor *dx = call->out[0];
    sherd__soft_kind kind = kind_of_gradient(call->op);
    int64_t bytes = dx->count * (int64_t)sherd_dtype_bytes(dx->dtype);

    if (dx->count == 0)
        return true;
    if (s.inner == 1) {
        sherd__device_softmax_grad(device, dx->dtype, kind, s.outer, s.mid, call->to[0],
                                   call->from[G_DY], call->from[G_Y]);
        return true;
    }
    void *y = sherd__device_scratch(call, bytes), *rows = sherd__device_scratch(call, bytes);
    if (!y || !rows)
        return false;
    turn(call, s, false, call->to[0], call->from[G_DY]);
    turn(call, s, false, y, call->from[G_Y]);
    sherd__device_softmax_grad(device, dx->dtype, kind, s.outer * s.inner, s.mid, rows, call->to[0],
                               y);
    turn(call, s, true, call->to[0], rows);
    return true;
}

static bool differentiate(sherd_call *call)
{
    const sherd_tensor *dy = call->in[G_DY];
    unsigned bits = sherd__dims_bits(call->attributes, dy->ndim);

    if (sherd_tensor_count(dy) == 0)
        return true;
    if (sherd__device_in(call))
        return is_cut(dy, bits) ? differentiate_parts_there(call, bits)
                                : differentiate_there(call, slab_of(dy, bits));
    sherd_tensor *mine = sherd__new_parts(call, bits, sherd__statistics_dtype(dy->dtype), 1);
    if (!mine)
        return false;
    if (sherd__parts_count(call, mine, 1) > 1)
        return differentiate_parts(call, bits, mine);
    if (dy->count == 0 || sherd__is_dry(call->world))
        return true;
    slab s = slab_of(dy, bits);
    sherd__soft_grad_whole(sherd__kernels_in(call), sherd_dtype_bytes(dy->dtype),
                           kind_of_gradient(call->op), s.outer, s.mid, s.inner, call->to[0],
                           call->from[G_DY], call->from[G_Y], sherd__fresh(mine));
    return true;
}

#define GRADIENT(name_)                                                                     \
    {                                                                                       \
        .name = name_, .operand = {{"dy", 0}, {"y", 0}}, .result = {{"dx", 0}},             \
        SHERD__DIMS_FIELDS, .joined = SHERD__REDUCED, .describe = describe,                 \
        .forward = differentiate, .dry = differentiate, .on_device = sherd__fractions_there \
    }

static const sherd_op gradient_op = GRADIENT("sherd_softmax backward");
static const sherd_op log_gradient_op = GRADIENT("sherd_log_softmax backward");

static sherd__soft_kind kind_of_gradient(const sherd_op *op)
{
    return op == &gradient_op ? SHERD__SOFTMAX : SHERD__LOG_SOFTMAX;
}

/* The same made of operators, for a backward that is recorded; 16-bit types compute in f32. */
static sherd_tensor *soft_gradient(sherd_node *node, sherd_tensor *dy, sherd_tensor *y, bool of_log)
{
    sherd__dims dims = *(const sherd__dims *)sherd_node_attributes(node);
    sherd_dtype own = sherd__node_dtype(node, 0), dtype = sherd__statistics_dtype(own);

    dims.keepdim = true;
    dy = sherd_cast(dy, dtype);
    y = sherd_cast(y, dtype);
    sherd_tensor *sum = sherd__sum_over(of_log ? dy : sherd_mul(dy, y), &dims);
    sherd_tensor *dx =
        of_log ? sherd_sub(dy, sherd_mul(sherd_exp(y), sum)) : sherd_mul(y, sherd_sub(dy, sum));
    return sherd_cast(dx, own);
}

static void back_by(const sherd_op *op, sherd_node *node, sherd_tensor *dy, sherd_tensor **dx)
{
    sherd_tensor *in[] = {dy, sherd_node_result(node, 0)};

    *dx = sherd__makes_graph(dy->world) ? soft_gradient(node, dy, in[1], op == &log_gradient_op)
                                        : sherd_apply(op, in, 2, sherd_node_attributes(node));
}

static void softmax_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    back_by(&gradient_op, node, grad_out[0], grad_in);
}

static void log_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    back_by(&log_gradient_op, node, grad_out[0], grad_in);
}

enum { S_X, S_LOG_SUM, S_DY };

static bool spread(sherd_call *call)
{
    const sherd_tensor *x = call->in[S_X];

    if (x->count == 0)
        return true;
    slab s = slab_of(x, sherd__dims_bits(call->attributes, x->ndim));
    if (sherd__device_in(call)) {
        sherd__device_soft_spread(sherd__device_in(call), x->dtype, &s, call->to[0],
                                  call->from[S_X], call->from[S_LOG_SUM], call->from[S_DY]);
        return true;
    }
    sherd__kernels_in(call)->soft_spread(s.outer, s.mid, s.inner, call->to[0], call->from[S_X],
                                         call->from[S_LOG_SUM], call->from[S_DY]);
    return true;
}

static const sherd_op spread_op = {.name = "sherd_logsumexp backward",
                                   .operand = {{"x", 0}, {"log_sum", SHERD_OP_ANY}, {"dy", 0}},
                                   .result = {{"dx", 0}},
                                   SHERD__DIMS_FIELDS,
                                   .describe = describe,
                                   .forward = spread,
                                   .on_device = sherd__fractions_there};

/* The same made of operators. The sum of nothing but -inf has no gradient. */
static sherd_tensor *log_sum_gradient(sherd_node *node, sherd_tensor *dy)
{
    sherd_dtype own = sherd__node_dtype(node, 0), dtype = sherd__statistics_dtype(own);
    const sherd__dims *dims = sherd_node_attributes(node);
    sherd_tensor *x = sherd_cast(sherd_node_operand(node, 0), dtype);
    sherd_tensor *nothing =
        sherd_eq_scalar(sherd_logsumexp(sherd_detach(x), dims->dim[0], true), -(double)INFINITY);
    sherd_tensor *part = sherd_softmax(sherd_masked_fill(x, nothing, 0), dims->dim[0]);

    dy = sherd_cast(sherd__dims_kept(node, dy), dtype);
    return sherd_cast(sherd_masked_fill(sherd_mul(part, dy), nothing, 0), own);
}

static void logsumexp_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    if (sherd__makes_graph(sherd__node_world(node))) {
        grad_in[0] = log_sum_gradient(node, grad_out[0]);
        return;
    }
    sherd_tensor *in[] = {sherd_node_operand(node, 0), sherd_node_result(node, 1), grad_out[0]};
    grad_in[0] = sherd_apply(&spread_op, in, 3, sherd_node_attributes(node));
}

/* ---- operators ------------------------------------------------------------------------------- */

#define SOFT(name_, text, ...)                                                           \
    {                                                                                    \
        .name = name_, .summary = text, .operand = {{"a", 0}}, SHERD__DIMS_FIELDS,       \
        .autocast = SHERD_AUTOCAST_FULL, .joined = SHERD__REDUCED, .describe = describe, \
        __VA_ARGS__                                                                      \
    }

const sherd_op sherd__softmax_op =
    SOFT("sherd_softmax", "e^a / sum of e^a over a dim", .result = {{"y", 0}}, .forward = soft,
         .dry = soft, .on_device = sherd__fractions_there, .backward = softmax_back,
         .needs = {SHERD_NEEDS_RESULT(0)});

const sherd_op sherd__log_softmax_op =
    SOFT("sherd_log_softmax", "a - log of the sum of e^a over a dim", .result = {{"y", 0}},
         .forward = soft, .dry = soft, .on_device = sherd__fractions_there, .backward = log_back,
         .needs = {SHERD_NEEDS_RESULT(0)});

const sherd_op sherd__logsumexp_op =
    SOFT("sherd_logsumexp", "log of the sum of e^a over a dim",
         .result = {{"y", 0}, {"log_sum", SHERD_OP_STATISTIC | SHERD_OP_HIDDEN}},
         .forward = logsumexp, .dry = logsumexp, .on_device = sherd__fractions_there,
         .backward = logsumexp_back, .needs = {SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_RESULT(1)});

sherd_tensor *sherd_softmax(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__softmax_op, &a, 1, &(sherd__dims){.count = 1, .dim = {dim}});
}

sherd_tensor *sherd_log_softmax(sherd_tensor *a, int dim)
{
    return sherd_apply(&sherd__log_softmax_op, &a, 1, &(sherd__dims){.count = 1, .dim = {dim}});
}

sherd_tensor *sherd_logsumexp(sherd_tensor *a, int dim, bool keepdim)
{
    return sherd_apply(&sherd__logsumexp_op, &a, 1,
                       &(sherd__dims){.count = 1, .dim = {dim}, .keepdim = keepdim});
}
