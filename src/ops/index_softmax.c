/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax over the elements that have one index, as in attention on graphs: the largest of each
 * group is found and taken off, exponentials are added up by index, and divided by what they add up
 * to. Composed without a record; backward adds up once, and takes once: it costs half of forward.
 */
#include "reducing.h"

#include "apply/sketch.h"
#include "sherd/ops_elements.h"

typedef struct grouping {
    int dim;
    int64_t groups;
} grouping;

#define GROUPING_FIELDS                                                               \
    .field = {SHERD_FIELD(grouping, dim, INT), SHERD_FIELD(grouping, groups, INT64)}, \
    .attributes = sizeof(grouping)

/* A number for each group, instead of the dim of t; groups are cut evenly. */
static sherd_tensor *of_groups(const sherd_tensor *t, const grouping *at, double value)
{
    sherd__layout_spec spec = sherd__settled_spec(t);
    int dim = sherd__dim_of(at->dim, t->ndim);

    spec.shape[dim] = at->groups;
    spec.dim[dim].cuts = NULL;
    return sherd__constant_of(t->world, &spec, t->dtype, value);
}

/* Of each element: what its group's elements are together. */
static sherd_tensor *together(sherd_tensor *t, sherd_tensor *index, const grouping *at,
                              sherd_reduce_op reduce)
{
    const sherd__reducing g = {at->dim, true, index, reduce};

    if (sherd_tensor_failed(t))
        return t;
    sherd_tensor *none = of_groups(t, at, sherd__neutral(reduce, t->dtype));
    return sherd__take_at(reduce == SHERD_SUM ? sherd__add_at(none, &g, t)
                                              : sherd__without_pending(sherd__find_at(none, &g, t)),
                          &g);
}

static sherd_tensor *wide(sherd_tensor *t)
{
    return sherd__is_half(t->dtype) ? sherd_cast(t, SHERD_F32) : t;
}

/* ---- the record ------------------------------------------------------------------------------ */

enum { FOUND, OF, OF_INDEX };

static const char *describe_found(sherd_call *call)
{
    sherd_call_shape(call, 0, call->in[FOUND]->ndim, call->in[FOUND]->shape);
    return NULL;
}

/* All stays where it is. */
static sherd_status lie_found(const sherd_call *call, sherd_ways *ways)
{
    const sherd_layout *found = sherd__way_given(ways, FOUND);

    (void)call;
    return sherd__way_as_given(ways, &found);
}

static bool pass(sherd_call *call)
{
    (void)call;
    return true;
}

/* dx = y (dy - the sum of y dy of its group). */
static void softmax_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *y = wide(sherd_node_result(node, 0)), *dy = wide(grad_out[0]);
    sherd_tensor *part = sherd_mul(y, dy);
    sherd_tensor *sums =
        together(part, sherd_node_operand(node, OF_INDEX), sherd_node_attributes(node), SHERD_SUM);

    if (sherd_node_wants(node, OF))
        grad_in[OF] = sherd_cast(sherd_sub(part, sherd_mul(y, sums)), grad_out[0]->dtype);
}

static const sherd_op found_op = {
    .name = "sherd_index_softmax result",
    .operand = {{"found", 0}, {"a", 0}, {"index", SHERD_OP_INDEX}},
    .result = {{"y", 0}},
    GROUPING_FIELDS,
    .views = true,
    .describe = describe_found,
    .ways = lie_found,
    .forward = pass,
    .backward = softmax_back,
    .needs = {[OF] = SHERD_NEEDS_RESULT(0) | SHERD_NEEDS_OPERAND(OF_INDEX)}};

/* ---- the operator ---------------------------------------------------------------------------- */

enum { A, INDEX };

static const char *describe(sherd_call *call)
{
    const grouping *at = call->attributes;
    const sherd_tensor *a = call->in[A], *index = call->in[INDEX];
    int dim = sherd__dim_of(at->dim, a->ndim);

    if (dim < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    if (at->groups < 0)
        return sherd_call_reason(call, "%lld groups", (long long)at->groups);
    return index->ndim != 1 || index->shape[0] != a->shape[dim]
               ? sherd_call_reason(call, "index must be [%lld]", (long long)a->shape[dim])
               : NULL;
}

static bool softmax(sherd_call *call)
{
    const grouping *at = call->attributes;
    sherd_tensor *a = call->in[A], *index = call->in[INDEX];
    sherd_tensor *x = sherd__without_pending(wide(sherd_detach(a)));

    sherd_tensor *e = sherd_exp(sherd_sub(x, together(x, index, at, SHERD_MAX)));
    sherd_tensor *y = sherd_cast(sherd_div(e, together(e, index, at, SHERD_SUM)), a->dtype);
    if (!sherd_tensor_failed(y) && sherd_requires_grad(a))
        y = sherd_apply(&found_op, (sherd_tensor *[]){y, a, index}, 3, at);
    call->out[0] = y;
    return true;
}

const sherd_op sherd__index_softmax_op = {.name = "sherd_index_softmax",
                                          .summary = "softmax over elements with one index",
                                          .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}},
                                          .result = {{"y", 0}},
                                          GROUPING_FIELDS,
                                          .autocast = SHERD_AUTOCAST_FULL,
                                          .describe = describe,
                                          .compose = softmax};

sherd_tensor *sherd_index_softmax(sherd_tensor *a, int dim, sherd_tensor *index, int64_t groups)
{
    return sherd_apply(&sherd__index_softmax_op, (sherd_tensor *[]){a, index}, 2,
                       &(grouping){dim, groups});
}
