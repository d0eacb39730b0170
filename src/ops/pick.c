/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking elements by index along a dim, and its gradient (storing them: put.c). If that moves less,
 * they are exchanged with their owners (owners.c). Otherwise a rank takes zeros for elements that
 * it does not have, so the result is pending. Indices are checked against the whole dim.
 */
#include "pick.h"
#include "owners.h"
#include "apply/sketch.h"
#include "vector/choose.h"

#include <stdio.h>
#include <string.h>

#include "device/tables.h"
#include "kernels/pick.h"

typedef sherd__picking pick;
typedef sherd__pick_parties parties;

/* "abvd": all dims but `dim`, which has this letter. */
const char *sherd__pick_label(char out[SHERD_MAX_DIMS + 1], int ndim, int dim, char letter)
{
    for (int d = 0; d < ndim; d++)
        out[d] = d == dim ? letter : (char)('a' + d);
    out[ndim] = '\0';
    return out;
}

/* [outer, n, inner] of this rank's pieces; `whole` is the operand or result that is indexed. */
sherd__pick sherd__pick_pieces(const sherd_call *call, const sherd_tensor *whole, int index)
{
    const pick *at = call->attributes;
    const sherd_tensor *t = call->in[index];
    int dim = sherd__dim_of(at->dim, whole->ndim);

    return (sherd__pick){.outer = sherd__local_count(whole, 0, dim),
                         .n = at->flat ? t->count : t->local[dim],
                         .inner = sherd__local_count(whole, dim + 1, whole->ndim),
                         .entries = whole->local[dim],
                         .first = sherd_tensor_box(whole).offset[dim],
                         .index = call->from[index],
                         .flat = at->flat};
}

const char *sherd__pick_fault(sherd_call *call)
{
    const pick *at = call->attributes;

    return sherd__dim_of(at->dim, call->in[0]->ndim) < 0
               ? sherd_call_reason(call, "no dim %d", at->dim)
               : NULL;
}

/* ---- owners ---------------------------------------------------------------------------------- */

static int dim_of(const sherd_call *call, const sherd_layout *a)
{
    const pick *at = call->attributes;

    return sherd__dim_of(at->dim, a->spec.ndim);
}

/* Add the way by an exchange with owners, if it pays. */
sherd_status sherd__pick_ways(const sherd_call *call, sherd_ways *ways, parties p)
{
    const pick *at = call->attributes;
    const sherd_layout *operand[SHERD_OP_SLOTS] = {NULL}, *a = sherd__way_given(ways, p.a);
    const sherd_layout *source = p.source < 0 ? NULL : sherd__way_given(ways, p.source);
    sherd__owned owned;

    if (!a || (source && source->pending_axes))
        return SHERD_OK;
    sherd_status status = sherd__owned_lie(
        &owned, &(sherd__owned_question){a, sherd__way_given(ways, p.index), dim_of(call, a),
                                         at->flat, p.source >= 0, (sherd_reduce_op)at->reduce,
                                         sherd__world_device(call->world) != NULL});
    if (status || !owned.index)
        return status;
    operand[p.a] = a;
    operand[p.index] = owned.index;
    if (source)
        operand[p.source] = owned.taken;
    return sherd_way_add(ways, operand, source ? &owned.given : &owned.taken);
}

/* Whether the operands have layouts for that; no rule shards the dim and the index by one axis. */
static bool by_owners(const sherd_call *call, const sherd_layout *a, parties p)
{
    const sherd_layout *index = call->in[p.index]->layout, *y = call->out[0]->layout;
    const pick *at = call->attributes;

    if (!a)
        return false;
    int dim = dim_of(call, a);
    unsigned owners = sherd__dim_bits(&a->spec.dim[dim]);
    if (sherd__dim_parts(a->spec.mesh, &a->spec.dim[dim]) < 2)
        return false;
    return p.source < 0 ? !(y->pending_axes & owners)
                        : owners & sherd__dim_bits(&index->spec.dim[at->flat ? 0 : dim]);
}

bool sherd__pick_settle_place(sherd_call *call, const sherd_layout *a, parties p)
{
    const sherd_tensor *y = call->out[0];
    const sherd__pick pieces = sherd__pick_pieces(call, y, p.index);

    if (!by_owners(call, a, p) && sherd__device_scatter_adds(y->dtype, &pieces))
        return true;
    return sherd__leave_device(call);
}

/* ---- putting: the gradient of taking --------------------------------------------------------- */

enum { B_INDEX, B_GRAD, B_LIKE };

static const parties put_back_parties = {B_LIKE, B_INDEX, B_GRAD};

static sherd_status lie_back(const sherd_call *call, sherd_ways *ways)
{
    return sherd__pick_ways(call, ways, put_back_parties);
}

static const char *describe_back(sherd_call *call)
{
    const pick *at = call->attributes;
    int ndim = call->in[B_GRAD]->ndim, dim = sherd__dim_of(at->dim, ndim);
    char grad[SHERD_MAX_DIMS + 1], whole[SHERD_MAX_DIMS + 1];

    sherd__pick_label(grad, ndim, dim, 'n');
    sherd__pick_label(whole, ndim, dim, 'v');
    snprintf(call->rule, sizeof call->rule, "%s,%s,%s->%s", at->flat ? "n" : grad, grad, whole,
             whole);
    call->shape[0][dim] = at->entries;
    return NULL;
}

/*
 * Scratch for scattering in a dtype: f32 for 16 bits, else that of y. *out is NULL if it takes
 * none. False: no memory.
 */
static bool take_scratch(sherd_call *call, sherd_dtype dtype, const sherd__pick *p, void **out)
{
    const pick *at = call->attributes;
    int64_t bytes = sherd__scatter_scratch(dtype, (sherd_reduce_op)at->reduce, p);

    *out = bytes ? sherd_call_scratch(call, bytes) : NULL;
    return *out || !bytes;
}

/*
 * y += the indexed elements, or max, min; by way of f32 for 16 bits; y holds the initial values.
 * False: no memory.
 */
static bool add_here(sherd_call *call, const sherd__pick *p, int source)
{
    const pick *at = call->attributes;
    sherd_reduce_op reduces = (sherd_reduce_op)at->reduce;
    const sherd_tensor *src = call->in[source], *y = call->out[0];
    const sherd__kernel_set *set = sherd__world_kernels(call->world);
    bool dry = sherd__is_dry(call->world), half = sherd__is_half(y->dtype);
    void *total, *addend, *room;

    if (!take_scratch(call, half ? SHERD_F32 : y->dtype, p, &room))
        return false;
    if (!half) {
        if (!dry)
            sherd__scatter_reduce(y->dtype, reduces, p, call->to[0], call->from[source], room);
        return true;
    }
    total = sherd_call_scratch(call, y->count * (int64_t)sizeof(float));
    addend = sherd_call_scratch(call, src->count * (int64_t)sizeof(float));
    if (!total || !addend || dry)
        return total && addend;
    sherd__convert(set, SHERD_F32, y->dtype, y->count, total, call->to[0]);
    sherd__convert(set, SHERD_F32, y->dtype, src->count, addend, call->from[source]);
    sherd__scatter_reduce(SHERD_F32, reduces, p, total, addend, room);
    sherd__convert(set, y->dtype, SHERD_F32, y->count, call->to[0], total);
    return true;
}

/* The same if some elements go to other ranks, and some come from them. */
static bool give(sherd_call *call, parties p)
{
    const pick *at = call->attributes;
    const sherd_tensor *y = call->out[0];
    const sherd__wants w = {.call = call,
                            .a = y,
                            .taken = call->in[p.source],
                            .index = call->from[p.index],
                            .dim = sherd__dim_of(at->dim, y->ndim),
                            .flat = at->flat,
                            .reduces = (sherd_reduce_op)at->reduce};

    return sherd__give_to_owners(&w, call->to[0], call->from[p.source]);
}

bool sherd__pick_add(sherd_call *call, const sherd_layout *a, parties p)
{
    const sherd_tensor *y = call->out[0];
    sherd__pick pieces = sherd__pick_pieces(call, y, p.index);

    if (by_owners(call, a, p))
        return give(call, p);
    if (sherd__device_in(call)) {
        if (y->count && call->in[p.source]->count)
            sherd__device_scatter_add(sherd__device_in(call), y->dtype, &pieces, call->to[0],
                                      call->from[p.source]);
        return true;
    }
    return y->count == 0 || call->in[p.source]->count == 0 || add_here(call, &pieces, p.source);
}

static bool put_back(sherd_call *call)
{
    sherd_tensor *y = call->out[0];

    if (!sherd__pick_settle_place(call, y->layout, put_back_parties))
        return false;
    if (y->count && !sherd__is_dry(call->world))
        sherd__fill_in(call, 0, 0);
    return sherd__pick_add(call, y->layout, put_back_parties);
}

static void take_again(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);
    sherd_tensor *index = sherd_node_operand(node, B_INDEX);

    grad_in[B_GRAD] = at->flat ? sherd_index_select(grad_out[0], at->dim, index)
                               : sherd_gather(grad_out[0], at->dim, index);
}

/* The last operand is its layout alone, that of the gradient; pending where indices are sharded. */
static const sherd_op back_op = {
    .name = "sherd_gather backward",
    .operand = {{"index", SHERD_OP_INDEX}, {"dy", 0}, {"a", SHERD_OP_OPTIONAL}},
    .result = {{"da", 0}},
    .field = SHERD__PICK_FIELDS,
    .attributes = sizeof(pick),
    .linearity = SHERD_LINEAR,
    .describe = describe_back,
    .ways = lie_back,
    .forward = put_back,
    .dry = put_back,
    .on_device = sherd__fractions_there,
    .backward = take_again,
    .needs = {[B_GRAD] = SHERD_NEEDS_OPERAND(B_INDEX)}};

sherd_tensor *sherd__gather_back(sherd_node *node, sherd_tensor *index, sherd_tensor *dy, int dim,
                                 bool flat)
{
    const sherd_layout *from = sherd_node_layout(node, 0), *like[] = {NULL, NULL, NULL};
    sherd_tensor *in[] = {index, dy, NULL}, *out = NULL;
    const int64_t *shape;
    int ndim = sherd_node_shape(node, 0, &shape);
    pick at = {.entries = shape[sherd__dim_of(dim, ndim)], .dim = dim, .flat = flat};

    /* The gradient has the layout of the operand, but is not pending where the operand is. */
    if (from && sherd__layout_settle(&like[B_LIKE], from) != SHERD_OK)
        return sherd__fail_diag(dy->world, true);
    sherd__apply_like(&out, &back_op, in, 3, &at, like);
    return out;
}

sherd_tensor *sherd__apply_indexed(const sherd_op *op, sherd_tensor *const *in, int count,
                                   const void *attributes, sherd_tensor **indices)
{
    sherd_tensor *out[2] = {NULL, NULL};

    sherd_apply_all(out, op, in, count, attributes);
    if (indices)
        *indices = out[1];
    return out[0];
}

/* ---- taking ---------------------------------------------------------------------------------- */

enum { A, INDEX };

/* Settling the results' sum costs about twice their size later; gathering costs the dim's now. */
static bool is_less_whole(const sherd_tensor *a, int dim, int64_t n)
{
    return a->layout && a->layout->spec.dim[dim].axes && 2 * n > a->shape[dim];
}

static const char *describe_take(sherd_call *call)
{
    const pick *at = call->attributes;
    const sherd_tensor *a = call->in[A], *index = call->in[INDEX];
    int dim = sherd__dim_of(at->dim, a->ndim);
    char whole[SHERD_MAX_DIMS + 1], part[SHERD_MAX_DIMS + 1];

    if (sherd__pick_fault(call))
        return sherd__pick_fault(call);
    if (index->ndim != (at->flat ? 1 : a->ndim))
        return sherd_call_reason(call, "index must have %d dim%s", at->flat ? 1 : a->ndim,
                                 at->flat || a->ndim == 1 ? "" : "s");
    int64_t n = index->shape[at->flat ? 0 : dim];
    sherd__pick_label(whole, a->ndim, dim, is_less_whole(a, dim, n) ? '*' : 'v');
    sherd__pick_label(part, a->ndim, dim, 'n');
    snprintf(call->rule, sizeof call->rule, "%s,%s->%s", whole, at->flat ? "n" : part, part);
    return NULL;
}

static const parties take_parties = {A, INDEX, -1};

static sherd_status lie_take(const sherd_call *call, sherd_ways *ways)
{
    return sherd__pick_ways(call, ways, take_parties);
}

static bool take(sherd_call *call)
{
    const pick *at = call->attributes;
    const sherd_tensor *a = call->in[A];
    int dim = sherd__dim_of(at->dim, a->ndim);
    bool exchanged = by_owners(call, a->layout, take_parties);

    if (!sherd__check_indices(call, INDEX, a->shape[dim]))
        return false;
    if (exchanged && !sherd__leave_device(call))
        return false;
    sherd__pick p = sherd__pick_pieces(call, a, INDEX);
    if (exchanged)
        return sherd__take_from_owners(&(sherd__wants){.call = call,
                                                       .a = a,
                                                       .taken = call->out[0],
                                                       .index = call->from[INDEX],
                                                       .dim = dim,
                                                       .flat = at->flat},
                                       call->to[0], call->from[A]);
    if (call->out[0]->count && sherd__device_in(call))
        sherd__device_gather(sherd__device_in(call), sherd_dtype_bytes(a->dtype), &p, call->to[0],
                             call->from[A]);
    else if (call->out[0]->count && !sherd__is_dry(call->world))
        sherd__gather(sherd_dtype_bytes(a->dtype), &p, call->to[0], call->from[A]);
    return true;
}

static void take_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const pick *at = sherd_node_attributes(node);

    grad_in[A] =
        sherd__gather_back(node, sherd_node_operand(node, INDEX), grad_out[0], at->dim, at->flat);
}

#define TAKE(label, text)                                                                  \
    {                                                                                      \
        .name = label, .summary = text, .operand = {{"a", 0}, {"index", SHERD_OP_INDEX}},  \
        .result = {{"y", 0}}, .field = SHERD__PICK_FIELDS, .attributes = sizeof(pick),     \
        .linearity = SHERD_LINEAR, .numbers = SHERD_EVERYTHING, .describe = describe_take, \
        .ways = lie_take, .forward = take, .dry = take, .on_device = sherd__copies_there,  \
        .backward = take_back, .takes_pending = true, .needs = {                           \
            [A] = SHERD_NEEDS_OPERAND(INDEX)                                               \
        }                                                                                  \
    }

const sherd_op sherd__index_select_op =
    TAKE("sherd_index_select", "select indices of a dim, in any order");
const sherd_op sherd__gather_op = TAKE("sherd_gather", "elements along a dim by index");

sherd_tensor *sherd_index_select(sherd_tensor *a, int dim, sherd_tensor *index)
{
    return sherd_apply(&sherd__index_select_op, (sherd_tensor *[]){a, index}, 2,
                       &(pick){.dim = dim, .flat = 1});
}

sherd_tensor *sherd__pick_within(sherd_tensor *t, const sherd_tensor *index, int dim)
{
    if (sherd_tensor_failed(t) || sherd_tensor_failed(index) || t->ndim != index->ndim)
        return t;
    dim = sherd__dim_of(dim, t->ndim);
    for (int d = 0; d < index->ndim; d++)
        if (d != dim && index->shape[d] < t->shape[d])
            t = sherd_narrow(t, d, 0, index->shape[d]);
    return t;
}

/*
 * Messages of a graph are often gathered and added so in PyTorch, where index_add is slower. Not
 * known by its strides alone: on ranks without elements these mean nothing.
 */
sherd_tensor *sherd__pick_column(sherd_tensor *index, const sherd_tensor *a, int dim)
{
    if (sherd_tensor_failed(index) || sherd_tensor_failed(a) || index->ndim != a->ndim ||
        index->dtype != SHERD_I32)
        return NULL;
    int ndim = index->ndim, along = sherd__dim_of(dim, ndim);
    for (int d = 0; d < ndim && along >= 0; d++)
        if (d != along && (index->shape[d] != a->shape[d] || index->shape[d] < 1 ||
                           (index->layout && index->layout->spec.dim[d].axes) ||
                           (index->shape[d] > 1 && !(index->stretched >> d & 1))))
            return NULL;
    for (int d = ndim - 1; d >= 0 && along >= 0; d--)
        index = d == along ? index : sherd_select(index, d, 0);
    return along < 0 ? NULL : index;
}

sherd_tensor *sherd_gather(sherd_tensor *a, int dim, sherd_tensor *index)
{
    a = sherd__pick_within(a, index, dim);
    sherd_tensor *column = sherd__pick_column(index, a, dim);
    return sherd_apply(&sherd__gather_op, (sherd_tensor *[]){a, column ? column : index}, 2,
                       &(pick){.dim = dim, .flat = column != NULL});
}
