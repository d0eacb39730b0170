/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators on what the slots hold. Which layout a result has is the library's choice, so it has to
 * be moved, or made whole, before it can be compared.
 */
#include "writer.h"

#include <string.h>

static bool is_known(const writer *w, int i)
{
    const slot_plan *s = &w->slot[i];

    return s->value >= 0 && value_of(w, i)->kind == VALUE_KNOWN;
}

static bool can_compute(const writer *w, int i, const void *what)
{
    (void)what;
    return is_known(w, i) && w->slot[i].layout != LAYOUT_PLAIN &&
           dtype_has_fractions(w->slot[i].dtype);
}

/* An operation on slot a (and b, if there is one) with a result of its own; NULL where it can not
 * be exact. */
static op *apply(writer *w, op_kind kind, int a, int b, int value)
{
    slot_plan what = w->slot[a];
    int dst;

    if (value < 0)
        return NULL;
    make_room(w, 1);
    if (!w->slot[a].used || (b >= 0 && !w->slot[b].used))
        return NULL;
    dst = take_slot(w);
    what.layout = LAYOUT_UNKNOWN;
    what.value = value;
    what.storage = w->storages++;
    what.shared = what.flies = false;
    what.writable = true;
    what.members |= b >= 0 && w->slot[b].members;
    op *o = emit(w, kind);
    o->mesh = what.mesh;
    o->members = what.members;
    o->src[0] = a;
    o->src[1] = b;
    o->own = one_in(&w->d, 2);
    o->shows = true;
    fill_slot(w, o, dst, what);
    return o;
}

bool write_cast(writer *w)
{
    int a = pick_slot(w, can_compute, NULL);
    sherd_dtype dtype = any_dtype(w, !one_in(&w->d, 4));

    if (a < 0 || dtype == w->slot[a].dtype || dtype == SHERD_U8 || dtype == SHERD_BOOL ||
        value_of(w, a)->bound > dtype_limit(dtype))
        return false;
    op *o = apply(w, OP_CAST, a, -1, w->slot[a].value);
    if (o)
        w->slot[o->dst[0]].dtype = o->dtype = dtype;
    return o != NULL;
}

/* Of the same dtype and shape (or a scalar), on the same mesh, or plain and equal everywhere. */
static bool goes_with(const writer *w, int i, const void *what)
{
    const slot_plan *a = &w->slot[*(const int *)what], *b = &w->slot[i];
    bool plain =
        b->layout == LAYOUT_PLAIN && (b->mesh < 0 || w->s->mesh[b->mesh].members == all_ranks(w));

    if (!is_known(w, i) || b->dtype != a->dtype ||
        !(plain || (b->mesh == a->mesh && b->layout != LAYOUT_PLAIN)))
        return false;
    const numbers *v = value_of(w, *(const int *)what), *u = value_of(w, i);
    return u->ndim == 0 || (u->ndim == v->ndim &&
                            memcmp(u->shape, v->shape, (size_t)v->ndim * sizeof *v->shape) == 0);
}

bool write_binary(writer *w)
{
    static const op_kind kinds[] = {OP_ADD, OP_SUB, OP_MUL};
    op_kind kind = kinds[roll(&w->d, 3)];
    int a = pick_slot(w, can_compute, NULL);
    int b = a < 0 ? -1 : pick_slot(w, goes_with, &a);

    if (b < 0)
        return false;
    int v = w->slot[a].value, u = w->slot[b].value;
    sherd_dtype dtype = w->slot[a].dtype;
    int value = kind == OP_MUL ? value_product_of(w->p, v, u, dtype)
                               : value_sum_of(w->p, v, u, kind == OP_ADD ? 1 : -1, dtype);
    return apply(w, kind, a, b, value) != NULL;
}

bool write_unary(writer *w)
{
    static const double factors[] = {-1, 2, 3, -2, 5};
    int a = pick_slot(w, can_compute, NULL);
    double factor = factors[roll(&w->d, 5)];

    if (a < 0)
        return false;
    if (one_in(&w->d, 3))
        return apply(w, OP_RELU, a, -1, value_relu(w->p, w->slot[a].value)) != NULL;
    op *o =
        apply(w, OP_SCALE, a, -1, value_scaled(w->p, w->slot[a].value, factor, w->slot[a].dtype));
    if (o)
        o->number = factor;
    return o != NULL;
}

bool write_dropout(writer *w)
{
    int a = pick_slot(w, can_compute, NULL);
    uint64_t name = dice_next(&w->d), call = (uint64_t)roll(&w->d, 3);
    double p = one_in(&w->d, 2) ? 0.5 : 0.75; /* exact, and so where a sum is pending */

    if (a < 0)
        return false;
    op *o = apply(w, OP_DROPOUT, a, -1, value_dropped(w->p, w->slot[a].value, p, name, call));
    if (!o)
        return false;
    o->number = p;
    o->key = name;
    o->call = call;
    return true;
}

bool write_sum(writer *w)
{
    int a = pick_slot(w, can_compute, NULL);

    return a >= 0 &&
           apply(w, OP_SUM, a, -1, value_sum(w->p, w->slot[a].value, w->slot[a].dtype)) != NULL;
}

static bool is_matrix(const writer *w, int i, const void *what)
{
    return can_compute(w, i, what) && value_of(w, i)->ndim == 2;
}

static bool multiplies(const writer *w, int i, const void *what)
{
    const slot_plan *a = &w->slot[*(const int *)what], *b = &w->slot[i];

    return is_matrix(w, i, NULL) && a->mesh == b->mesh && a->dtype == b->dtype &&
           value_of(w, *(const int *)what)->shape[1] == value_of(w, i)->shape[0];
}

bool write_matmul(writer *w)
{
    int a = pick_slot(w, is_matrix, NULL), b = a < 0 ? -1 : pick_slot(w, multiplies, &a);

    return b >= 0 &&
           apply(w, OP_MATMUL, a, b,
                 value_matmul(w->p, w->slot[a].value, w->slot[b].value, w->slot[a].dtype)) != NULL;
}

/* Transposed, or [a,b] as [a b]: the last dim must not be sharded for that. */
bool write_view(writer *w)
{
    int a = pick_slot(w, is_matrix, NULL);

    if (a < 0)
        return false;
    const numbers *v = value_of(w, a);
    const layout_plan *l = w->slot[a].layout >= 0 ? &w->p->layout[w->slot[a].layout] : NULL;
    bool flat = l && one_in(&w->d, 2);
    for (int i = 0; flat && i < sherd_mesh_axes(sherd_layout_mesh(l->paper)); i++) {
        sherd_placement q = sherd_layout_placement(l->paper, i);
        flat = q.kind == SHERD_REPLICATE || (q.kind == SHERD_SHARD && q.dim == 0);
    }
    int value = flat ? value_reshaped(w->p, w->slot[a].value, 1, &v->count)
                     : value_transposed(w->p, w->slot[a].value, 0, 1);
    int storage = w->slot[a].storage;
    bool flies = w->slot[a].flies;
    op *o = apply(w, flat ? OP_VIEW : OP_TRANSPOSE, a, -1, value);
    if (!o)
        return false;
    w->slot[o->dst[0]].storage = storage;
    w->slot[a].shared = w->slot[o->dst[0]].shared = true;
    w->slot[o->dst[0]].flies = o->flies = flies;
    w->slot[o->dst[0]].writable = false;
    o->layout[0] = -1;
    return true;
}
