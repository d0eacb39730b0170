/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The largest, the smallest and the product of elements, or of slices, with one index (for
 * reducing.c). Where indices are sharded, ranks find those of what they have: the result is pending
 * and settled at once, or they send them to the owners. The gradient goes to all elements that are
 * as large as the result, in equal parts, as in PyTorch; of a product to each the product of the
 * others.
 */
#include "reducing.h"
#include "apply/sketch.h"
#include "sherd/ops_elements.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

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
    if (at->reduce != SHERD_MAX && at->reduce != SHERD_MIN && at->reduce != SHERD_PRODUCT)
        return "elements are put together by SHERD_MAX, SHERD_MIN or SHERD_PRODUCT";
    sherd__pick_label(whole, ndim, dim, 'v');
    sherd__pick_label(part, ndim, dim, 'n');
    snprintf(call->rule, sizeof call->rule, "%s,%s,%s->%s", whole, at->flat ? "n" : part, part,
             whole);
    call->reduces = (sherd_reduce_op)at->reduce;
    return NULL;
}

static sherd_status lie_most(const sherd_call *call, sherd_ways *ways)
{
    return sherd__pick_ways(call, ways, parties);
}

/* All ranks that the result is pending among begin with `a`: the same counts once. A product would
 * count it several times, so it begins with 1. */
static bool find_most(sherd_call *call)
{
    const pick *at = call->attributes;
    const sherd_tensor *a = call->in[A], *y = call->out[0];

    if (!sherd__check_indices(call, INDEX, a->shape[sherd__dim_of(at->dim, a->ndim)]))
        return false;
    if (y->count && !sherd__is_dry(call->world) && at->reduce == SHERD_PRODUCT)
        sherd__fill_in(call, 0, 1);
    else if (y->count && !sherd__is_dry(call->world))
        memcpy(call->to[0], call->from[A], sherd__bytes(y->count) * sherd_dtype_bytes(y->dtype));
    return sherd__pick_add(call, a->layout, parties);
}

const sherd_op sherd__scatter_most_op = {
    .name = "sherd_scatter_most",
    .summary = "the largest or smallest elements, or products, along a dim by index",
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
    const sherd_layout *found = sherd__way_given(ways, FOUND);

    (void)call;
    return sherd__way_as_given(ways, &found);
}

/* A view of what was found. */
static bool pass_found(sherd_call *call)
{
    (void)call;
    return true;
}

sherd_tensor *sherd__add_at(sherd_tensor *a, const sherd__reducing *g, sherd_tensor *source)
{
    return (g->flat ? sherd__add_slices : sherd_scatter_add)(a, g->dim, g->index, source);
}

sherd_tensor *sherd__take_at(sherd_tensor *a, const sherd__reducing *g)
{
    return (g->flat ? sherd_index_select : sherd_gather)(a, g->dim, g->index);
}

/* 1 where a condition holds, else 0. */
static sherd_tensor *ones_where(sherd_tensor *condition, sherd_dtype dtype)
{
    return sherd_cast(condition, dtype);
}

static void most_back(sherd_node *node, const sherd__reducing *g, sherd_tensor *dy,
                      sherd_tensor **grad_in)
{
    sherd_tensor *a = sherd_node_operand(node, AMONG_A), *y = sherd_node_result(node, 0);
    sherd_tensor *source = sherd_node_operand(node, AMONG_SOURCE);
    sherd_tensor *own = ones_where(sherd_eq(a, y), a->dtype);
    sherd_tensor *given = ones_where(sherd_eq(source, sherd__take_at(y, g)), a->dtype);
    sherd_tensor *each = sherd_div(dy, sherd__add_at(own, g, given));

    if (sherd_node_wants(node, AMONG_A))
        grad_in[AMONG_A] = sherd_mul(own, each);
    if (sherd_node_wants(node, AMONG_SOURCE))
        grad_in[AMONG_SOURCE] = sherd_mul(given, sherd__take_at(each, g));
}

/*
 * The product divided by each factor; at a factor that is 0, the product of the others, which is
 * not 0 only if none of them is. In f32 for 16 bits: times dy it may be more than f16 holds.
 */
static sherd_tensor *product_back(sherd_node *node, const sherd__reducing *g, sherd_tensor *dy)
{
    sherd_tensor *source = sherd_node_operand(node, AMONG_SOURCE);
    sherd_dtype own = source->dtype, wide = sherd__statistics_dtype(own);
    sherd_tensor *y = sherd_cast(sherd_node_result(node, 0), wide);
    sherd_tensor *none = sherd_eq_scalar(source, 0);
    sherd_tensor *rest = sherd_masked_fill(sherd_cast(source, wide), none, 1);
    sherd_tensor *nothing = sherd_cast(sherd__zeros_like_operand(node, FOUND), wide);

    dy = sherd_cast(dy, wide);
    sherd_tensor *zeros = sherd__add_at(nothing, g, ones_where(none, wide));
    sherd_tensor *others = sherd__most_at(nothing, g, rest);
    sherd_tensor *single = sherd_masked_fill(sherd_mul(dy, others), sherd_ne_scalar(zeros, 1), 0);
    sherd_tensor *each = sherd_div(sherd__take_at(sherd_mul(dy, y), g), rest);
    return sherd_cast(sherd_where(none, sherd__take_at(single, g), each), own);
}

static void found_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);
    const sherd__reducing g = {at->dim, at->flat, sherd_node_operand(node, AMONG_INDEX),
                               (sherd_reduce_op)at->reduce};

    if (g.reduce != SHERD_PRODUCT)
        most_back(node, &g, grad_out[0], grad_in);
    else if (sherd_node_wants(node, AMONG_SOURCE))
        grad_in[AMONG_SOURCE] = product_back(node, &g, grad_out[0]);
}

#define NEEDED                                                                                 \
    (SHERD_NEEDS_RESULT(0) | SHERD_NEEDS_OPERAND(AMONG_A) | SHERD_NEEDS_OPERAND(AMONG_INDEX) | \
     SHERD_NEEDS_OPERAND(AMONG_SOURCE))

const sherd_op sherd__scatter_reduce_op = {
    .name = "sherd_scatter_reduce",
    .summary = "elements that were found among others, for the gradient",
    .layouts = "nothing moves; y as found",
    .operand = {{"found", 0}, {"a", 0}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    .field = SHERD__PICK_FIELDS,
    .attributes = sizeof(pick),
    .views = true,
    .describe = describe_found,
    .ways = lie_found,
    .forward = pass_found,
    .backward = found_back,
    .needs = {[AMONG_A] = NEEDED, [AMONG_SOURCE] = NEEDED}};

/* ---- both ------------------------------------------------------------------------------------ */

sherd_tensor *sherd__find_at(sherd_tensor *a, const sherd__reducing *g, sherd_tensor *source)
{
    const pick at = {.dim = g->dim, .flat = g->flat, .reduce = (int)g->reduce};

    return sherd_apply(&sherd__scatter_most_op,
                       (sherd_tensor *[]){sherd_detach(a), g->index, sherd_detach(source)}, 3, &at);
}

sherd_tensor *sherd__most_at(sherd_tensor *a, const sherd__reducing *g, sherd_tensor *source)
{
    const pick at = {.dim = g->dim, .flat = g->flat, .reduce = (int)g->reduce};

    if (!g->flat)
        source = sherd__pick_within(source, g->index, INT32_MAX);
    sherd_tensor *y = sherd__find_at(a, g, source);
    if (sherd_tensor_failed(y))
        return y;
    y = sherd__without_pending(y);
    if (g->reduce == SHERD_PRODUCT)
        a = y; /* it took no part */
    if (!sherd_requires_grad(a) && !sherd_requires_grad(source))
        return y;
    return sherd_apply(&sherd__scatter_reduce_op, (sherd_tensor *[]){y, a, g->index, source}, 4,
                       &at);
}
