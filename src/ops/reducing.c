/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements or slices put together by index along a dim (sherd_scatter_reduce, sherd_index_reduce):
 * sums and averages are composed of sherd_scatter_add, the largest, the smallest and products of
 * what extremes.c finds. What counts elements counts slices where an index is of slices.
 */
#include "reducing.h"

#include <math.h>
#include <string.h>

#include "apply/sketch.h"
#include "sherd/ops_bits.h"
#include "sherd/ops_elements.h"
#include "world/doing.h"

typedef sherd__reducing reducing;

sherd__layout_spec sherd__settled_spec(const sherd_tensor *t)
{
    sherd__layout_spec spec = {.ndim = t->ndim};

    if (!t->layout) {
        memcpy(spec.shape, t->shape, sizeof spec.shape);
        return spec;
    }
    spec = t->layout->spec;
    sherd__spec_settle(&spec);
    return spec;
}

sherd_tensor *sherd__constant_of(sherd_world *world, const sherd__layout_spec *spec,
                                 sherd_dtype dtype, double value)
{
    const sherd_layout *layout;

    if (!spec->mesh)
        return sherd_mark_equal(sherd_constant(world, dtype, spec->shape, spec->ndim, value));
    if (sherd__layout_intern(&layout, spec) != SHERD_OK)
        return sherd__fail_diag(world, true);
    return sherd_constant_on(layout, dtype, value);
}

/* A whole number everywhere, in the shape and layout of t; of one dim alone if `flat`. */
static sherd_tensor *integer_like(const sherd_tensor *t, int dim, bool flat, double value)
{
    sherd__layout_spec spec = sherd__settled_spec(t);

    if (flat) {
        spec.dim[0] = spec.dim[dim];
        spec.shape[0] = spec.shape[dim];
        spec.ndim = 1;
    }
    return sherd__constant_of(t->world, &spec, SHERD_I64, value);
}

/* How many elements of the source come to each place of a; of slices [.., 1, n, 1, ..]. */
static sherd_tensor *counts(const sherd_tensor *a, const reducing *g)
{
    int dim = sherd__dim_of(g->dim, a->ndim);
    reducing alone = *g;

    if (dim < 0 || sherd_tensor_failed(g->index)) /* the first operator refuses it */
        return NULL;
    if (g->flat)
        alone.dim = 0;
    sherd_tensor *ones = integer_like(g->index, 0, false, 1);
    sherd_tensor *count = sherd__add_at(integer_like(a, dim, g->flat, 0), &alone, ones);
    for (int d = 0; d < a->ndim && g->flat; d++)
        count = d == dim ? count : sherd_unsqueeze(count, d);
    return count;
}

double sherd__neutral(sherd_reduce_op reduce, sherd_dtype dtype)
{
    bool least = reduce == SHERD_MIN;

    if (reduce == SHERD_PRODUCT)
        return 1;
    if (reduce != SHERD_MAX && !least)
        return 0;
    if (sherd__has_fractions(dtype))
        return least ? INFINITY : -INFINITY;
    if (dtype == SHERD_U8)
        return least ? 255 : 0;
    if (dtype == SHERD_I8)
        return least ? INT8_MAX : INT8_MIN;
    if (dtype == SHERD_I32)
        return least ? INT32_MAX : INT32_MIN;
    return least ? 0x1p+63 : -0x1p+63;
}

/* `a` without its elements where `mask` is set: they do not count in the reduction. */
static sherd_tensor *without(sherd_tensor *a, sherd_tensor *mask, sherd_reduce_op reduce)
{
    /* No f64 is the largest i64, which has all bits but those of the smallest. */
    if (a->dtype == SHERD_I64 && reduce == SHERD_MIN)
        return sherd_bitwise_not(
            sherd_masked_fill(sherd_bitwise_not(a), mask, sherd__neutral(SHERD_MAX, SHERD_I64)));
    return sherd_masked_fill(a, mask, sherd__neutral(reduce, a->dtype));
}

/* All reductions, as sherd_scatter_reduce and sherd_index_reduce. */
static sherd_tensor *put_together(sherd_tensor *a, const reducing *g, sherd_tensor *source,
                                  bool include_self)
{
    bool divided = g->reduce == SHERD_AVG;
    sherd_tensor *count = divided || !include_self ? counts(a, g) : NULL;
    sherd_dtype dtype = a->dtype;

    if (!include_self && count)
        a = without(a, sherd_gt_scalar(count, 0), g->reduce);
    if (sherd_tensor_failed(a))
        return a;
    if (g->reduce == SHERD_PRODUCT)
        return sherd_mul(a, sherd__most_at(a, g, source));
    if (g->reduce == SHERD_MAX || g->reduce == SHERD_MIN)
        return sherd__most_at(a, g, source);
    /* In 16 bits the sum of many numbers may overflow where their mean does not. */
    if (divided && sherd__is_half(dtype) && !sherd_tensor_failed(source) &&
        source->dtype == dtype) {
        a = sherd_cast(a, SHERD_F32);
        source = sherd_cast(source, SHERD_F32);
    }
    sherd_tensor *total = sherd__add_at(a, g, source);
    if (!divided || sherd_tensor_failed(total))
        return total;
    count = include_self ? sherd_add_scalar(count, 1)
                         : sherd_masked_fill(count, sherd_eq_scalar(count, 0), 1);
    return sherd_cast(sherd_div(total, sherd_cast(count, total->dtype)), dtype);
}

/* Why a dtype has no such reduction; NULL = it has. */
static const char *together_fault(sherd_dtype dtype, sherd_reduce_op reduce)
{
    return reduce > SHERD_PRODUCT || reduce < SHERD_SUM
               ? "it sums, averages, multiplies, or finds max or min"
           : dtype == SHERD_BOOL ? reduce == SHERD_MAX || reduce == SHERD_MIN
                                       ? "bool has no order: cast it (sherd_cast)"
                                       : "bool has no sums or products: cast it (sherd_cast)"
           : reduce == SHERD_AVG && !sherd__has_fractions(dtype)
               ? "integers have no average: cast them (sherd_cast)"
               : NULL;
}

sherd_tensor *sherd_scatter_reduce(sherd_tensor *a, int dim, sherd_tensor *index,
                                   sherd_tensor *source, sherd_reduce_op reduce, bool include_self)
{
    const sherd__argument need[] = {{"a", a}, {"index", index}, {"source", source}, {NULL, NULL}};
    sherd_world *world = sherd_tensor_world(a ? a : index ? index : source);
    sherd_tensor *y;

    if (!sherd__given(world, "sherd_scatter_reduce", need, &y))
        return y;
    if (sherd__stop(world, "sherd_scatter_reduce", (sherd_tensor *[]){a, index, source}, 3))
        return sherd__failed(world);
    const char *fault = together_fault(a->dtype, reduce);
    if (fault)
        return sherd__fail_tensor(world, a->layout || index->layout || source->layout, SHERD_EINVAL,
                                  "sherd_scatter_reduce: %s: a is %s", fault, sherd_tensor_text(a));
    bool begun = sherd__doing_begin(world, "sherd_scatter_reduce");
    sherd_tensor *column = sherd__pick_column(index, a, dim);
    if (column)
        source = sherd__pick_within(source, index, INT32_MAX);
    y = put_together(a, &(reducing){dim, column != NULL, column ? column : index, reduce}, source,
                     include_self);
    sherd__doing_end(world, begun);
    return y;
}

/* ---- slices ---------------------------------------------------------------------------------- */

typedef struct slices {
    int dim;
    int reduce; /* a sherd_reduce_op */
    bool include_self;
} slices;

enum { A, INDEX, SOURCE };

static const char *describe_slices(sherd_call *call)
{
    const slices *at = call->attributes;
    const sherd_tensor *a = call->in[A], *index = call->in[INDEX], *source = call->in[SOURCE];
    int dim = sherd__dim_of(at->dim, a->ndim);
    const char *fault = together_fault(a->dtype, (sherd_reduce_op)at->reduce);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (fault)
        return fault;
    if (index->ndim != 1)
        return "index must have 1 dim";
    bool fits = source->ndim == a->ndim;
    for (int d = 0; d < a->ndim && fits; d++)
        fits = source->shape[d] == (d == dim ? index->shape[0] : a->shape[d]);
    return fits ? NULL
                : sherd_call_reason(call, "source must be as a, with %lld along dim %d",
                                    (long long)index->shape[0], at->dim);
}

static bool reduce_slices(sherd_call *call)
{
    const slices *at = call->attributes;

    call->out[0] = put_together(
        call->in[A], &(reducing){at->dim, true, call->in[INDEX], (sherd_reduce_op)at->reduce},
        call->in[SOURCE], at->include_self);
    return true;
}

const sherd_op sherd__index_reduce_op = {
    .name = "sherd_index_reduce",
    .summary = "slices put together by index",
    .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(slices, dim, INT), SHERD__CHOICE(slices, reduce, SHERD__REDUCE_OP_NAMES),
              SHERD_FIELD(slices, include_self, BOOL)},
    .attributes = sizeof(slices),
    .numbers = SHERD_NUMBERS,
    .describe = describe_slices,
    .compose = reduce_slices};

sherd_tensor *sherd_index_reduce(sherd_tensor *a, int dim, sherd_tensor *index,
                                 sherd_tensor *source, sherd_reduce_op reduce, bool include_self)
{
    return sherd_apply(&sherd__index_reduce_op, (sherd_tensor *[]){a, index, source}, 3,
                       &(slices){dim, (int)reduce, include_self});
}
