/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements put together by index along a dim (sherd_scatter_reduce): sums and averages are composed
 * of sherd_scatter_add, the largest and smallest are found here. Where indices are sharded, ranks
 * find those of what they have; the result is pending, and settled at once. The gradient goes to
 * all elements that are as large as the result, in equal parts, as in PyTorch.
 */
#include "pick.h"
#include "apply/sketch.h"
#include "sherd/ops_elements.h"
#include "sherd/ops_shape.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "world/doing.h"

typedef sherd__picking pick;

/* ---- without a gradient ---------------------------------------------------------------------- */

enum { A, INDEX, SOURCE };

static const sherd__pick_parties parties = {A, INDEX, SOURCE};

static const char *describe_most(sherd_call *call)
{
    const pick *at = call->attributes;
    int ndim = call->in[A]->ndim, dim = sherd__dim_of(at->dim, ndim);
    char whole[SHERD_MAX_DIMS + 1], part[SHERD_MAX_DIMS + 1];

    if (sherd__pick_fault(call))
        return sherd__pick_fault(call);
    if (at->reduce != SHERD_MAX && at->reduce != SHERD_MIN)
        return "elements are put together by SHERD_MAX or SHERD_MIN";
    sherd__pick_label(whole, ndim, dim, 'v');
    sherd__pick_label(part, ndim, dim, 'n');
    snprintf(call->rule, sizeof call->rule, "%s,%s,%s->%s", whole, part, part, whole);
    call->reduces = (sherd_reduce_op)at->reduce;
    return NULL;
}

static sherd_status lie_most(const sherd_call *call, sherd_ways *ways)
{
    return sherd__pick_ways(call, ways, parties);
}

static bool find_most(sherd_call *call)
{
    const pick *at = call->attributes;
    const sherd_tensor *a = call->in[A], *y = call->out[0];

    if (!sherd__check_indices(call, INDEX, a->shape[sherd__dim_of(at->dim, a->ndim)]))
        return false;
    if (y->count && !sherd__is_dry(call->world))
        memcpy(call->to[0], call->from[A], sherd__bytes(y->count) * sherd_dtype_bytes(y->dtype));
    return sherd__pick_add(call, a->layout, parties);
}

const sherd_op sherd__scatter_most_op = {
    .name = "sherd_scatter_most",
    .summary = "the largest or smallest elements along a dim by index",
    .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    .field = SHERD__PICK_FIELDS,
    .attributes = sizeof(pick),
    .numbers = SHERD_NUMBERS,
    .describe = describe_most,
    .ways = lie_most,
    .forward = find_most,
    .dry = find_most};

/* ---- the gradient ---------------------------------------------------------------------------- */

/* Operands of the recorded operator: the result itself, and the operands that it was found in. */
enum { FOUND, AMONG_A, AMONG_INDEX, AMONG_SOURCE };

static const char *describe_found(sherd_call *call)
{
    const sherd_tensor *y = call->in[FOUND];

    if (sherd__pick_fault(call))
        return sherd__pick_fault(call);
    sherd_call_shape(call, 0, y->ndim, y->shape);
    return NULL;
}

/* All stays where it is. */
static sherd_status lie_found(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *operand[4];

    (void)call;
    for (int i = 0; i < 4; i++)
        operand[i] = sherd__way_given(ways, i);
    return sherd_way_add(ways, operand, &operand[FOUND]);
}

static bool pass_found(sherd_call *call)
{
    const sherd_tensor *y = call->out[0];

    if (y->count && !sherd__is_dry(call->world))
        memcpy(call->to[0], call->from[FOUND],
               sherd__bytes(y->count) * sherd_dtype_bytes(y->dtype));
    return true;
}

/* 1 where both are equal, else 0. */
static sherd_tensor *equal(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_cast(sherd_eq(a, b), a->dtype);
}

static void found_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);
    sherd_tensor *a = sherd_node_operand(node, AMONG_A), *y = sherd_node_operand(node, FOUND);
    sherd_tensor *index = sherd_node_operand(node, AMONG_INDEX);
    sherd_tensor *source = sherd_node_operand(node, AMONG_SOURCE);

    sherd_tensor *own = equal(a, y), *given = equal(source, sherd_gather(y, at->dim, index));
    sherd_tensor *each = sherd_div(grad_out[0], sherd_scatter_add(own, at->dim, index, given));
    if (sherd_node_wants(node, AMONG_A))
        grad_in[AMONG_A] = sherd_mul(own, each);
    if (sherd_node_wants(node, AMONG_SOURCE))
        grad_in[AMONG_SOURCE] = sherd_mul(given, sherd_gather(each, at->dim, index));
}

#define NEEDED                                                   \
    (SHERD_NEEDS_OPERAND(FOUND) | SHERD_NEEDS_OPERAND(AMONG_A) | \
     SHERD_NEEDS_OPERAND(AMONG_INDEX) | SHERD_NEEDS_OPERAND(AMONG_SOURCE))

const sherd_op sherd__scatter_reduce_op = {
    .name = "sherd_scatter_reduce",
    .summary = "elements that were found among others, for the gradient",
    .layouts = "nothing moves; y as found",
    .operand = {{"found", 0}, {"a", 0}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    .field = SHERD__PICK_FIELDS,
    .attributes = sizeof(pick),
    .describe = describe_found,
    .ways = lie_found,
    .forward = pass_found,
    .dry = pass_found,
    .backward = found_back,
    .needs = {[AMONG_A] = NEEDED, [AMONG_SOURCE] = NEEDED}};

/* ---- the function ---------------------------------------------------------------------------- */

typedef struct gathering {
    int dim;
    sherd_tensor *index, *source;
    sherd_reduce_op reduce;
} gathering;

/* An integer everywhere, in the shape and layout of t. */
static sherd_tensor *integer_like(const sherd_tensor *t, double value)
{
    const sherd_layout *layout;

    if (!t->layout)
        return sherd_mark_equal(sherd_constant(t->world, SHERD_I64, t->shape, t->ndim, value));
    if (sherd__layout_settle(&layout, t->layout) != SHERD_OK)
        return sherd__fail_diag(t->world, true);
    return sherd_constant_on(layout, SHERD_I64, value);
}

/* How many elements of the source come to each place of a. */
static sherd_tensor *counts(const sherd_tensor *a, const gathering *g)
{
    return sherd_scatter_add(integer_like(a, 0), g->dim, g->index, integer_like(g->index, 1));
}

/* The neutral element of a reduction. */
static double identity(sherd_reduce_op reduce, sherd_dtype dtype)
{
    bool least = reduce == SHERD_MIN;

    if (reduce != SHERD_MAX && !least)
        return 0;
    if (sherd__has_fractions(dtype))
        return least ? INFINITY : -INFINITY;
    if (dtype == SHERD_U8)
        return least ? 255 : 0;
    if (dtype == SHERD_I32)
        return least ? INT32_MAX : INT32_MIN;
    return least ? 0x1.fffffffffffffp+62 : -0x1p+63;
}

static sherd_tensor *mean(sherd_tensor *total, sherd_tensor *count)
{
    sherd_dtype dtype = total->dtype, wide = sherd__is_half(dtype) ? SHERD_F32 : dtype;

    return sherd_cast(sherd_div(sherd_cast(total, wide), sherd_cast(count, wide)), dtype);
}

static sherd_tensor *most(sherd_tensor *a, const gathering *g)
{
    const pick at = {.dim = g->dim, .reduce = (int)g->reduce};
    sherd_tensor *source = sherd__pick_within(g->source, g->index, INT32_MAX);
    sherd_tensor *in[] = {sherd_detach(a), g->index, sherd_detach(source)};
    sherd_tensor *y = sherd_apply(&sherd__scatter_most_op, in, 3, &at);

    if (sherd_tensor_failed(y))
        return y;
    y = sherd__without_pending(y);
    if (!sherd_requires_grad(a) && !sherd_requires_grad(source))
        return y;
    return sherd_apply(&sherd__scatter_reduce_op, (sherd_tensor *[]){y, a, g->index, source}, 4,
                       &at);
}

static sherd_tensor *put_together(sherd_tensor *a, const gathering *g, bool include_self)
{
    bool divided = g->reduce == SHERD_AVG;
    sherd_tensor *count = divided || !include_self ? counts(a, g) : NULL;

    if (!include_self)
        a = sherd_masked_fill(a, sherd_gt_scalar(count, 0), identity(g->reduce, a->dtype));
    if (sherd_tensor_failed(a) || g->reduce == SHERD_MAX || g->reduce == SHERD_MIN)
        return sherd_tensor_failed(a) ? a : most(a, g);
    sherd_tensor *total = sherd_scatter_add(a, g->dim, g->index, g->source);
    if (!divided || sherd_tensor_failed(total))
        return total;
    return mean(total, include_self ? sherd_add_scalar(count, 1)
                                    : sherd_masked_fill(count, sherd_eq_scalar(count, 0), 1));
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
    const char *fault = reduce > SHERD_MAX || reduce < SHERD_SUM
                            ? "it sums, averages, or finds max or min"
                        : a->dtype == SHERD_BOOL ? "bool has no order: cast it (sherd_cast)"
                        : reduce == SHERD_AVG && !sherd__has_fractions(a->dtype)
                            ? "integers have no average: cast them (sherd_cast)"
                            : NULL;
    if (fault)
        return sherd__fail_tensor(world, a->layout || index->layout || source->layout, SHERD_EINVAL,
                                  "sherd_scatter_reduce: %s: a is %s", fault, sherd_tensor_text(a));
    bool begun = sherd__doing_begin(world, "sherd_scatter_reduce");
    y = put_together(a, &(gathering){dim, index, source, reduce}, include_self);
    sherd__doing_end(world, begun);
    return y;
}
