/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Storing elements by index along a dim, or adding them. A rank stores those that it has; or, if
 * that moves less, elements go to their owners (owners.c).
 */
#include "pick.h"
#include "apply/sketch.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "device/tables.h"
#include "kernels/cast.h"
#include "world/doing.h"

typedef sherd__picking pick;
typedef sherd__pick_parties parties;

enum { A, INDEX, SOURCE };

static const parties put_parties = {A, INDEX, SOURCE};

static const char *describe_put(sherd_call *call)
{
    const pick *at = call->attributes;
    int ndim = call->in[A]->ndim, dim = sherd__dim_of(at->dim, ndim);
    char whole[SHERD_MAX_DIMS + 1], part[SHERD_MAX_DIMS + 1];

    if (sherd__pick_fault(call))
        return sherd__pick_fault(call);
    const char *fault =
        call->in[SOURCE] ? NULL : sherd__value_fault(call, call->in[A]->dtype, at->value);
    if (fault)
        return fault;
    sherd__pick_label(whole, ndim, dim, 'v');
    sherd__pick_label(part, ndim, dim, 'n');
    snprintf(call->rule, sizeof call->rule, "%s,%s,%s->%s", whole, at->flat ? "n" : part, part,
             whole);
    return NULL;
}

/* The initial values of the result: a, or zeros if another rank adds a to the sum. */
static bool begin_put(sherd_call *call)
{
    const pick *at = call->attributes;
    const sherd_tensor *a = call->in[A], *y = call->out[0];
    size_t bytes = sherd__bytes(y->count) * sherd_dtype_bytes(y->dtype);
    sherd__device *device = sherd__device_in(call);

    if (!sherd__check_indices(call, INDEX, a->shape[sherd__dim_of(at->dim, a->ndim)]))
        return false;
    if (sherd__is_dry(call->world))
        return true;
    if (y->count && device && call->once >> A & 1)
        sherd__device_set(device, call->to[0], 0, (int64_t)bytes);
    else if (y->count && device)
        sherd__device_move(device, call->to[0], call->from[A], (int64_t)bytes);
    else if (y->count && call->once >> A & 1)
        memset(call->to[0], 0, bytes);
    else if (y->count)
        memcpy(call->to[0], call->from[A], bytes);
    return true;
}

static bool put(sherd_call *call)
{
    const pick *at = call->attributes;
    const sherd_tensor *y = call->out[0];
    sherd__pick p = sherd__pick_pieces(call, y, INDEX);
    unsigned char value[8];

    if (!begin_put(call))
        return false;
    sherd__cast(y->dtype, SHERD_F64, 1, value, &at->value);
    if (y->count == 0 || call->in[INDEX]->count == 0)
        return true;
    const void *source = call->in[SOURCE] ? call->from[SOURCE] : NULL;
    if (sherd__device_in(call))
        sherd__device_scatter(sherd__device_in(call), sherd_dtype_bytes(y->dtype), &p, call->to[0],
                              source, value);
    else
        sherd__scatter(sherd_dtype_bytes(y->dtype), &p, call->to[0], source, value);
    return true;
}

static bool put_and_add(sherd_call *call)
{
    return sherd__pick_settle_place(call, call->in[A]->layout, put_parties) && begin_put(call) &&
           sherd__pick_add(call, call->in[A]->layout, put_parties);
}

static sherd_status lie_add(const sherd_call *call, sherd_ways *ways)
{
    return sherd__pick_ways(call, ways, put_parties);
}

/* ---- the gradient: of several elements stored at one place, only the last one has one -------- */

static const char *describe_last(sherd_call *call)
{
    const pick *at = call->attributes;
    int ndim = call->in[A]->ndim, dim = sherd__dim_of(at->dim, ndim);
    char whole[SHERD_MAX_DIMS + 1], part[SHERD_MAX_DIMS + 1];

    sherd__pick_label(whole, ndim, dim, 'v');
    sherd__pick_label(part, ndim, dim, 'n');
    snprintf(call->rule, sizeof call->rule, "%s,%s->%s", whole, at->flat ? "n" : part, part);
    return NULL;
}

static bool take_last(sherd_call *call)
{
    const sherd_tensor *a = call->in[A];
    sherd__pick p = sherd__pick_pieces(call, a, INDEX);

    if (call->out[0]->count == 0)
        return true;
    if (sherd__device_in(call)) {
        sherd__device_gather_last(sherd__device_in(call), sherd_dtype_bytes(a->dtype), &p,
                                  call->to[0], call->from[A]);
        return true;
    }
    int32_t *winner = sherd_call_scratch(call, p.entries * p.inner * (int64_t)sizeof *winner);
    if (!winner || sherd__is_dry(call->world))
        return winner != NULL;
    sherd__gather_last(sherd_dtype_bytes(a->dtype), &p, call->to[0], call->from[A], winner);
    return true;
}

/*
 * The elements that were taken have gradients, at the places that they came from; the rest of dy
 * has none.
 */
static void put_last(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);
    sherd_tensor *nothing = sherd__zeros_like_operand(node, 0);

    grad_in[0] = (at->flat ? sherd__put_slices : sherd_scatter)(
        nothing, at->dim, sherd_node_operand(node, 1), grad_out[0]);
}

static const sherd_op last_op = {.name = "sherd_scatter backward",
                                 .operand = {{"dy", 0}, {"index", SHERD_OP_INDEX}},
                                 .result = {{"dsource", 0}},
                                 .field = SHERD__PICK_FIELDS,
                                 .attributes = sizeof(pick),
                                 .whole = "n",
                                 .linearity = SHERD_LINEAR,
                                 .describe = describe_last,
                                 .forward = take_last,
                                 .dry = take_last,
                                 .on_device = sherd__copies_there,
                                 .backward = put_last,
                                 .needs = {SHERD_NEEDS_OPERAND(1)}};

static void put_back_of(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);
    sherd_tensor *g = grad_out[0], *index = sherd_node_operand(node, INDEX);

    if (sherd_node_wants(node, A))
        grad_in[A] = (at->flat ? sherd__fill_slices : sherd_scatter_fill)(g, at->dim, index, 0);
    if (sherd_node_wants(node, SOURCE))
        grad_in[SOURCE] = sherd_apply(&last_op, (sherd_tensor *[]){g, index}, 2, at);
}

static void add_back_of(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);

    grad_in[A] = grad_out[0];
    if (sherd_node_wants(node, SOURCE))
        grad_in[SOURCE] = (at->flat ? sherd_index_select : sherd_gather)(
            grad_out[0], at->dim, sherd_node_operand(node, INDEX));
}

/* The index is gathered along the dim: only then does a rank know which of equal ones is last. */
const sherd_op sherd__scatter_op = {
    .name = "sherd_scatter",
    .summary = "store elements along a dim by index",
    .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}, {"source", SHERD_OP_OPTIONAL}},
    .result = {{"y", 0}},
    .field = SHERD__PICK_FIELDS,
    .attributes = sizeof(pick),
    .whole = "n",
    .numbers = SHERD_EVERYTHING,
    .describe = describe_put,
    .forward = put,
    .on_device = sherd__copies_there,
    .backward = put_back_of,
    .needs = {[A] = SHERD_NEEDS_OPERAND(INDEX), [SOURCE] = SHERD_NEEDS_OPERAND(INDEX)}};

const sherd_op sherd__scatter_add_op = {
    .name = "sherd_scatter_add",
    .summary = "add elements along a dim by index",
    .operand = {{"a", SHERD_OP_TERM}, {"index", SHERD_OP_INDEX}, {"source", 0}},
    .result = {{"y", 0}},
    .field = SHERD__PICK_FIELDS,
    .attributes = sizeof(pick),
    .linearity = SHERD_LINEAR,
    .numbers = SHERD_NUMBERS,
    .describe = describe_put,
    .ways = lie_add,
    .forward = put_and_add,
    .dry = put_and_add,
    .on_device = sherd__fractions_there,
    .backward = add_back_of,
    .takes_pending = true,
    .needs = {[SOURCE] = SHERD_NEEDS_OPERAND(INDEX)}};

/* With an index for each element, or, where that is one, with an index of slices. */
static sherd_tensor *put_at(const sherd_op *op, sherd_tensor *const in[3], const pick *how)
{
    sherd_tensor *column = sherd__pick_column(in[INDEX], in[A], how->dim);
    pick at = *how;

    at.flat = column != NULL;
    return sherd_apply(op, (sherd_tensor *[]){in[A], column ? column : in[INDEX], in[SOURCE]}, 3,
                       &at);
}

sherd_tensor *sherd_scatter(sherd_tensor *a, int dim, sherd_tensor *index, sherd_tensor *source)
{
    /* Without a source it would be another operator. */
    if (!source && a && index && !sherd_tensor_failed(a) && !sherd_tensor_failed(index))
        return sherd__fail_tensor(a->world, a->layout || index->layout, SHERD_EINVAL,
                                  "sherd_scatter: source is NULL: a is %s", sherd_tensor_text(a));
    sherd_tensor *in[] = {a, index, source ? sherd__pick_within(source, index, INT32_MAX) : NULL};
    return put_at(&sherd__scatter_op, in, &(pick){.dim = dim});
}

sherd_tensor *sherd_scatter_fill(sherd_tensor *a, int dim, sherd_tensor *index, double value)
{
    sherd_world *world = sherd_tensor_world(a ? a : index);
    bool begun = sherd__doing_begin(world, "sherd_scatter_fill");
    sherd_tensor *y = put_at(&sherd__scatter_op, (sherd_tensor *[]){a, index, NULL},
                             &(pick){.dim = dim, .value = value});

    sherd__doing_end(world, begun);
    return y;
}

sherd_tensor *sherd_scatter_add(sherd_tensor *a, int dim, sherd_tensor *index, sherd_tensor *source)
{
    sherd_tensor *in[] = {a, index, sherd__pick_within(source, index, INT32_MAX)};

    return put_at(&sherd__scatter_add_op, in, &(pick){.dim = dim});
}

sherd_tensor *sherd__put_slices(sherd_tensor *a, int dim, sherd_tensor *index, sherd_tensor *source)
{
    return sherd_apply(&sherd__scatter_op, (sherd_tensor *[]){a, index, source}, 3,
                       &(pick){.dim = dim, .flat = 1});
}

sherd_tensor *sherd__fill_slices(sherd_tensor *a, int dim, sherd_tensor *index, double value)
{
    return sherd_apply(&sherd__scatter_op, (sherd_tensor *[]){a, index, NULL}, 3,
                       &(pick){.dim = dim, .value = value, .flat = 1});
}

sherd_tensor *sherd__add_slices(sherd_tensor *a, int dim, sherd_tensor *index, sherd_tensor *source)
{
    return sherd_apply(&sherd__scatter_add_op, (sherd_tensor *[]){a, index, source}, 3,
                       &(pick){.dim = dim, .flat = 1});
}
