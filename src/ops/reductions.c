/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions over some dims. Each rank reduces what it holds. If a reduced dim is sharded, the
 * result is pending with the same reduction, so uneven and empty shards are right; an operand that
 * is pending with it stays so. Maximum, minimum, product, any and all are one family, with a row of
 * `folds` each.
 */
#include "dims.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_reductions.h"
#include "sherd/ops_shape.h"
#include "vector/choose.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "device/folds.h"
#include "kernels/sums.h"

/* ---- sums ------------------------------------------------------------------------------------ */

/* Sums and products of integers are i64. */
static void widen_integers(sherd_call *call)
{
    if (!sherd__has_fractions(call->in[0]->dtype))
        call->dtype[0] = SHERD_I64;
}

/*
 * A pending sum of integers wraps around in its own dtype (of bool it is an or), so it must be
 * settled before it is added in i64.
 */
static const char *describe_sum(sherd_call *call)
{
    widen_integers(call);
    if (call->dtype[0] == SHERD_I64 && call->in[0]->dtype != SHERD_I64)
        call->linearity = SHERD_NONLINEAR;
    return sherd__dims_rule(call, call->attributes);
}

/* The neutral element: the result of reducing nothing. */
static double identity_of(sherd_reduce_op op, sherd_dtype dtype)
{
    if (op == SHERD_PRODUCT)
        return 1;
    if (op == SHERD_MAX)
        return dtype == SHERD_BOOL ? 0 : -(double)INFINITY;
    if (op == SHERD_MIN)
        return dtype == SHERD_BOOL ? 1 : (double)INFINITY;
    return 0;
}

/* Elements that are converted at a time; they stay in the first cache. */
enum { FOLD_BLOCK = 1024 };

/* An operand in one dtype that is folded in another. */
typedef struct folding {
    const sherd__kernel_set *set;
    sherd_reduce_op op;
    sherd_dtype from, in;
    int ndim;
    int64_t size[SHERD_MAX_DIMS + 1],
        stride[SHERD_MAX_DIMS + 1]; /* a dim of one element ends them */
    void *block;
} folding;

/* Reduce dims d, d + 1, .. at `src`: as many indices of dim d at a time as a block has room for. */
static void fold_part(folding *f, int d, const char *src, char *to)
{
    int64_t n = f->size[d], inner = 1;

    for (int i = d + 1; i < f->ndim; i++)
        inner *= f->size[i];
    int64_t some = inner < FOLD_BLOCK ? FOLD_BLOCK / inner : 1;
    for (int64_t i = 0; i < n; i += some) {
        f->size[d] = sherd__min(some, n - i);
        if (inner > FOLD_BLOCK) {
            fold_part(f, d + 1, src, to);
        } else {
            sherd__convert(f->set, f->in, f->from, f->size[d] * inner, f->block, src);
            sherd__kernels_of_any(f->set, f->in)
                ->fold(f->op, f->ndim - d, f->size + d, to, f->stride + d, f->block);
        }
        src += f->size[d] * inner * (int64_t)sherd_dtype_bytes(f->from);
        to += f->size[d] * f->stride[d] * (int64_t)sherd_dtype_bytes(f->in);
    }
    f->size[d] = n;
}

/* So that operand 0 has no holes: as it lies, or a copy. By the CPU it is reduced in any order of
 * its dims, so turned ones are read along memory. False: no memory. */
static bool without_holes(sherd_call *call)
{
    int dim[SHERD_MAX_DIMS];
    bool lies = !sherd__device_in(call) && sherd__dims_in_memory(call->in[0], dim) >= 0;

    return lies || sherd__compact_operand(call);
}

/* The dims of the operand, `without_holes`, as they lie in memory. */
static void set_dims(folding *f, const sherd_tensor *t, unsigned reduced)
{
    int64_t stride[SHERD_MAX_DIMS];
    int dim[SHERD_MAX_DIMS], n = sherd__dims_in_memory(t, dim);

    sherd__dims_strides(t, reduced, stride);
    for (int i = 0; i < t->ndim && n < 0; i++)
        dim[i] = i;
    f->ndim = n < 0 ? t->ndim : n;
    for (int i = 0; i < f->ndim; i++) {
        f->size[i] = t->local[dim[i]];
        f->stride[i] = stride[dim[i]];
    }
    f->size[f->ndim] = 1;
}

/*
 * Reduce the local operand, elements of `dtype`, into `to`, elements of `in`. By blocks if they
 * differ: a mask takes an eighth of the memory of the integers that count it. False: failed.
 */
static bool fold_local(sherd_call *call, sherd_reduce_op op, sherd_dtype in, void *to,
                       sherd_dtype dtype, const void *from)
{
    const sherd_tensor *t = call->in[0];
    folding f = {.set = sherd__world_kernels(call->world), .op = op, .from = dtype, .in = in};

    set_dims(&f, t, sherd__dims_bits(call->attributes, t->ndim));
    bool dry = sherd__is_dry(call->world);
    if (dtype == in && !dry)
        sherd__kernels_of_any(f.set, in)->fold(op, f.ndim, f.size, to, f.stride, from);
    if (dtype == in)
        return true;
    f.ndim++; /* the dim of one element */
    f.block = sherd_call_scratch(call, FOLD_BLOCK * (int64_t)sherd_dtype_bytes(in));
    if (f.block && !dry)
        fold_part(&f, 0, from, to);
    return f.block != NULL;
}

/*
 * Reduce the local operand, elements of `dtype`, into the result, computing in `in`. False: failed.
 */
static bool fold_in(sherd_call *call, sherd_reduce_op op, sherd_dtype in, sherd_dtype dtype,
                    const void *from)
{
    const sherd_tensor *out = call->out[0];
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    int64_t bytes = out->count * (int64_t)sherd_dtype_bytes(in);
    void *to = out->dtype == in ? call->to[0] : sherd_call_scratch(call, bytes);

    if (!to && out->count)
        return false;
    bool dry = sherd__is_dry(call->world);
    if (!dry)
        sherd__kernels_of_any(set, in)->fill(to, out->count, identity_of(op, in));
    if (call->in[0]->count && !fold_local(call, op, in, to, dtype, from))
        return false;
    if (to != call->to[0] && !dry)
        sherd__convert(set, out->dtype, in, out->count, call->to[0], to);
    return true;
}

/* The same on the GPU, in one pass. */
static bool fold_there(sherd_call *call, sherd__fold_kind kind)
{
    const sherd_tensor *in = call->in[0], *out = call->out[0];
    sherd__dims_box slab = {NULL, out->count, 0, 1};

    if (in->count && !sherd__dims_slab(call, sherd__dims_bits(call->attributes, in->ndim), &slab))
        return false;
    if (out->count)
        sherd__device_fold(sherd__device_in(call), in->dtype, kind, call->to[0], slab.data,
                           slab.outer, slab.mid, slab.inner);
    return true;
}

/* Compute in a dtype that can hold intermediate values: i64 for integers, f32 for 16 bits, f64 for
 * products of many. */
static bool fold_widely(sherd_call *call, sherd_reduce_op op)
{
    const sherd_tensor *t = call->in[0];
    sherd_dtype in = sherd__has_fractions(t->dtype) ? sherd__statistics_dtype(t->dtype) : SHERD_I64;
    bool many = t->count / SHERD__ROWS_OF_SUM > call->out[0]->count;

    return fold_in(call, op, in == SHERD_F32 && many ? SHERD_F64 : in, t->dtype, call->from[0]);
}

static bool sum_over(sherd_call *call)
{
    if (!sherd__has_fractions(call->in[0]->dtype) && !without_holes(call))
        return false;
    if (sherd__device_in(call) && !sherd__has_fractions(call->in[0]->dtype))
        return fold_there(call, SHERD__FOLD_SUM);
    return sherd__has_fractions(call->in[0]->dtype)
               ? sherd__sum_dims(call, sherd__dims_bits(call->attributes, call->in[0]->ndim))
               : fold_widely(call, SHERD_SUM);
}

static void sum_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    grad_in[0] = sherd__dims_spread(node, grad_out[0]);
}

const sherd_op sherd__sum_over_op = {.name = "sherd_sum_over",
                                     .autocast = SHERD_AUTOCAST_FULL,
                                     .summary = "sum over dims",
                                     .operand = {{"a", 0}},
                                     .result = {{"y", 0}},
                                     SHERD__DIMS_FIELDS,
                                     .linearity = SHERD_LINEAR,
                                     .numbers = SHERD_EVERYTHING,
                                     .strided = true,
                                     .describe = describe_sum,
                                     .forward = sum_over,
                                     .dry = sum_over,
                                     .on_device = sherd__numbers_there,
                                     .backward = sum_back};

sherd_tensor *sherd__sum_over(sherd_tensor *a, const sherd__dims *dims)
{
    return sherd_apply(&sherd__sum_over_op, &a, 1, dims);
}

sherd_tensor *sherd_sum_over(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    const sherd__dims d = sherd__dims_given(a, dims, count, keepdim);

    return sherd__sum_over(a, &d);
}

/* ---- largest, least, product, any, all ------------------------------------------------------- */

typedef enum fold_kind { FOLD_MAX, FOLD_MIN, FOLD_PROD, FOLD_ANY, FOLD_ALL, FOLDS } fold_kind;

static const sherd_reduce_op reduction_of[FOLDS] = {
    SHERD_MAX, SHERD_MIN, SHERD_PRODUCT, SHERD_MAX, SHERD_MIN,
};

static const sherd__fold_kind there[FOLDS] = {SHERD__FOLD_MAX, SHERD__FOLD_MIN, SHERD__FOLD_PRODUCT,
                                              SHERD__FOLD_ANY, SHERD__FOLD_ALL};

static fold_kind kind_of(const sherd_op *op)
{
    return (fold_kind)(op - sherd__fold_ops);
}

/* Whether all pending reductions are by `op`. */
static bool is_pending_with(const sherd_tensor *t, sherd_reduce_op op)
{
    for (int a = 0; t->layout && a < t->layout->spec.mesh->axes; a++)
        if (t->layout->spec.pending[a] >= 0 && t->layout->spec.pending[a] != (int)op)
            return false;
    return true;
}

/* A reduction passes a pending reduction of its own kind, if the dtype does not change. */
static const char *describe_fold(sherd_call *call)
{
    const sherd_tensor *a = call->in[0];
    fold_kind kind = kind_of(call->op);
    const char *reason = sherd__dims_rule(call, call->attributes);
    bool same = kind < FOLD_PROD || a->dtype == SHERD_BOOL || sherd__has_fractions(a->dtype);

    call->reduces = reduction_of[kind];
    if (kind >= FOLD_ANY)
        same = a->dtype == SHERD_BOOL;
    else if (kind == FOLD_PROD)
        widen_integers(call);
    call->linearity = same && is_pending_with(a, call->reduces) ? SHERD_UNCHANGED : SHERD_NONLINEAR;
    if (!reason && kind <= FOLD_MIN && sherd__dims_count(call->attributes, a) == 0)
        reason = "there are no elements to choose from";
    return reason;
}

/* Each element as 0 or 1: whether it is nonzero. */
static const void *truths(sherd_call *call)
{
    const sherd_tensor *in = call->in[0];
    const int64_t one = 1, none = 0;
    const uint64_t zero = 0;

    if (in->dtype == SHERD_BOOL)
        return call->from[0];
    void *to = sherd_call_scratch(call, in->count);
    if (to && in->count && !sherd__is_dry(call->world))
        sherd__kernels_in(call)->compare(SHERD__NE, 1, &in->count, to, call->from[0], &one, &zero,
                                         &none);
    return to;
}

static bool fold(sherd_call *call)
{
    fold_kind kind = kind_of(call->op);
    sherd_reduce_op op = reduction_of[kind];

    if (!without_holes(call))
        return false;
    if (sherd__device_in(call))
        return fold_there(call, there[kind]);
    if (kind == FOLD_PROD)
        return fold_widely(call, op);
    if (kind <= FOLD_MIN)
        return fold_in(call, op, call->in[0]->dtype, call->in[0]->dtype, call->from[0]);
    const void *from = truths(call);
    return (from || call->in[0]->count == 0) && fold_in(call, op, SHERD_BOOL, SHERD_BOOL, from);
}

/* Equal elements share the gradient equally; counted in f32 for 16 bits. */
static void extreme_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__dims dims = *(const sherd__dims *)sherd_node_attributes(node);
    sherd_tensor *x = sherd_node_operand(node, 0);
    sherd_dtype dtype = sherd__statistics_dtype(sherd__node_dtype(node, 0));
    sherd_tensor *y = sherd__dims_kept(node, sherd__without_pending(sherd_node_result(node, 0)));
    sherd_tensor *dy = sherd__dims_kept(node, sherd_cast(grad_out[0], dtype));

    dims.keepdim = true;
    sherd_tensor *equal = sherd_cast(sherd_eq(x, y), dtype);
    sherd_tensor *part = sherd_div(dy, sherd__sum_over(equal, &dims));
    grad_in[0] = sherd_cast(sherd_mul(equal, part), sherd__node_dtype(node, 0));
}

/* The product over a dim, multiplied in pairs. */
static sherd_tensor *multiplied(sherd_tensor *x, int dim)
{
    sherd_tensor *rest = NULL;

    for (int64_t n = x->shape[dim]; n > 1; n /= 2) {
        sherd_tensor *last = n % 2 ? sherd_narrow(x, dim, n - 1, 1) : NULL;
        x = sherd_mul(sherd_narrow(x, dim, 0, n / 2), sherd_narrow(x, dim, n / 2, n / 2));
        rest = rest && last ? sherd_mul(rest, last) : last ? last : rest;
    }
    return rest ? sherd_mul(x, rest) : x;
}

/*
 * The same made of operators, for a backward that is recorded. Quotients would not do: at an
 * element that is 0, or nearly so, it is lost how they depend on it.
 */
static sherd_tensor *product_formula(sherd_node *node, sherd_tensor *const *in, int result)
{
    const sherd__dims *dims = sherd_node_attributes(node);
    sherd_tensor *x = sherd_cast(in[0], sherd__statistics_dtype(in[0]->dtype));
    unsigned reduced = sherd__dims_bits(dims, in[0]->ndim);
    int64_t shape[SHERD_MAX_DIMS];
    int ndim = 0;

    (void)result;
    for (int d = 0; d < in[0]->ndim; d++) {
        if (reduced >> d & 1)
            x = multiplied(x, d);
        if (dims->keepdim || !(reduced >> d & 1))
            shape[ndim++] = reduced >> d & 1 ? 1 : in[0]->shape[d];
    }
    return sherd_view(x, shape, ndim);
}

/* Whether a product over these dims has one factor. */
static bool has_one_factor(const sherd_tensor *x, const sherd__dims *dims)
{
    unsigned reduced = sherd__dims_bits(dims, x->ndim);
    bool one = true;

    for (int d = 0; d < x->ndim; d++)
        one = one && (!(reduced >> d & 1) || x->shape[d] == 1);
    return one;
}

/* dy as x, on which it depends, with gradients that are 0: as of a product with more factors. */
static sherd_tensor *beside(sherd_tensor *dy, sherd_tensor *x)
{
    sherd_tensor *zero = sherd_eq_scalar(x, 0);
    sherd_tensor *all = sherd_logical_or(zero, sherd_logical_not(zero));

    return sherd_add(dy, sherd_masked_fill(x, all, 0));
}

/*
 * dy times the product of all other elements: p / element, where p is the product of the nonzero
 * elements. If exactly one element is 0 it gets p; beside a 0 all others get 0.
 */
static void product_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd__dims dims = *(const sherd__dims *)sherd_node_attributes(node);
    sherd_dtype own = sherd__node_dtype(node, 0), dtype = sherd__statistics_dtype(own);
    sherd_tensor *x = sherd_node_operand(node, 0);

    if (sherd__makes_graph(x->world) && sherd_tensor_count(x) > 0 && !has_one_factor(x, &dims)) {
        sherd__differentiate(node, 1, product_formula, grad_out, grad_in);
        return;
    }
    x = sherd_cast(x, dtype);
    sherd_tensor *dy =
        sherd__without_pending(sherd__dims_kept(node, sherd_cast(grad_out[0], dtype)));
    if (sherd__makes_graph(x->world) && has_one_factor(x, &dims)) {
        grad_in[0] = sherd_cast(beside(dy, x), own);
        return;
    }
    dims.keepdim = true;
    sherd_tensor *zero = sherd_eq_scalar(x, 0);
    sherd_tensor *zeroes = sherd__without_pending(sherd__sum_over(sherd_cast(zero, dtype), &dims));
    sherd_tensor *others = sherd_masked_fill(x, zero, 1);
    sherd_tensor *p = sherd_apply(&sherd__fold_ops[FOLD_PROD], &others, 1, &dims);
    p = sherd__without_pending(p);
    /* What depends on the slice alone is made of its numbers, before it meets the elements. But p
     * meets dy after its quotient: p dy may be too large, or too small, for the dtype. */
    sherd_tensor *beside_none = sherd_masked_fill(p, sherd_ne_scalar(zeroes, 0), 0);
    sherd_tensor *of_only = sherd_mul(sherd_masked_fill(p, sherd_ne_scalar(zeroes, 1), 0), dy);
    sherd_tensor *of_each = sherd_mul(sherd_div(beside_none, others), dy);
    grad_in[0] = sherd_cast(sherd_where(zero, of_only, of_each), own);
}

#define FOLD(kind, name_, text, ...)             \
    [kind] = {.name = name_,                     \
              .summary = text,                   \
              .operand = {{"a", 0}},             \
              SHERD__DIMS_FIELDS,                \
              .numbers = SHERD_EVERYTHING,       \
              .strided = true,                   \
              .describe = describe_fold,         \
              .forward = fold,                   \
              .dry = fold,                       \
              .on_device = sherd__numbers_there, \
              __VA_ARGS__}
#define EXTREME                                     \
    .result = {{"y", 0}}, .backward = extreme_back, \
    .needs = {SHERD_NEEDS_OPERAND(0) | SHERD_NEEDS_RESULT(0)}

const sherd_op sherd__fold_ops[FOLDS + 1] = {
    FOLD(FOLD_MAX, "sherd_max", "maximum over dims", EXTREME),
    FOLD(FOLD_MIN, "sherd_min", "minimum over dims", EXTREME),
    FOLD(FOLD_PROD, "sherd_prod", "product over dims", .autocast = SHERD_AUTOCAST_FULL,
         .result = {{"y", 0}}, .backward = product_back, .needs = {SHERD_NEEDS_OPERAND(0)}),
    FOLD(FOLD_ANY, "sherd_any", "whether any element over dims is nonzero",
         .result = {{"y", SHERD_OP_BOOL}}),
    FOLD(FOLD_ALL, "sherd_all", "whether all elements over dims are nonzero",
         .result = {{"y", SHERD_OP_BOOL}}),
};

sherd_tensor *sherd__extreme_over(sherd_tensor *a, bool least, const sherd__dims *dims)
{
    return sherd_apply(&sherd__fold_ops[least ? FOLD_MIN : FOLD_MAX], &a, 1, dims);
}

static sherd_tensor *fold_over(fold_kind kind, sherd_tensor *a, const int *dims, int count,
                               bool keepdim)
{
    const sherd__dims d = sherd__dims_given(a, dims, count, keepdim);

    return sherd_apply(&sherd__fold_ops[kind], &a, 1, &d);
}

sherd_tensor *sherd_max(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return fold_over(FOLD_MAX, a, dims, count, keepdim);
}

sherd_tensor *sherd_min(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return fold_over(FOLD_MIN, a, dims, count, keepdim);
}

sherd_tensor *sherd_prod(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return fold_over(FOLD_PROD, a, dims, count, keepdim);
}

sherd_tensor *sherd_any(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return fold_over(FOLD_ANY, a, dims, count, keepdim);
}

sherd_tensor *sherd_all(sherd_tensor *a, const int *dims, int count, bool keepdim)
{
    return fold_over(FOLD_ALL, a, dims, count, keepdim);
}
