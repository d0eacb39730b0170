/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The walk over a step's ranks, computing what an interval finds on the other side.
 *
 * Axes are walked one after the other, in an order in which the lists of the dims are descended
 * together. At each axis only the children that meet the other side's interval are entered, so two
 * partitions of a dim into p and q shards cost p + q points, not p * q; equal children are entered
 * once. A caller that looks for a maximum says where nothing larger can follow.
 */
#include "pieces.h"
#include "base/num.h"

#include <string.h>

/* ---- places --------------------------------------------------------------------------------- */

/* One level down, to child i. */
static void enter(const sherd__list *list, sherd__place *place, int64_t i)
{
    int level = place->level++;

    if (list->cuts) {
        place->number = place->number * list->extent[level] + i;
        place->lo = list->cuts[place->number * list->below[level]];
        place->hi = list->cuts[(place->number + 1) * list->below[level]];
        return;
    }
    int64_t chunk = sherd__ceil_div(place->hi - place->lo, list->extent[level]);
    place->lo = sherd__min(place->lo + chunk * i, place->hi);
    place->hi = sherd__min(place->lo + chunk, place->hi);
}

void sherd__place_descend(const sherd__list *list, sherd__place *place, const int64_t *at,
                          unsigned known, unsigned crossed)
{
    while (place->level < list->levels && known & ~crossed & 1u << list->axis[place->level])
        enter(list, place, at[list->axis[place->level]]);
}

/* First child of which the end (or the beginning) lies beyond `at`. */
static int64_t child_beyond(const sherd__list *list, const sherd__place *place, int64_t at, int end)
{
    int64_t lo = 0, hi = list->extent[place->level], below = list->below[place->level];
    const int64_t *cuts = list->cuts + place->number * list->extent[place->level] * below;

    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (cuts[(middle + end) * below] > at)
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

void sherd__place_meeting(const sherd__list *list, const sherd__place *place, int64_t lo,
                          int64_t hi, int64_t *first, int64_t *end)
{
    lo = sherd__max(lo, place->lo);
    hi = sherd__min(hi, place->hi);
    *first = *end = 0;
    if (lo >= hi)
        return;
    if (list->cuts) {
        *first = child_beyond(list, place, lo, 1);
        *end = child_beyond(list, place, hi - 1, 0);
        return;
    }
    int64_t chunk = sherd__ceil_div(place->hi - place->lo, list->extent[place->level]);
    *first = (lo - place->lo) / chunk;
    *end = (hi - 1 - place->lo) / chunk + 1;
}

int64_t sherd__place_longest(const sherd__list *list, const sherd__place *place)
{
    int64_t length = place->hi - place->lo;

    for (int i = place->level; i < list->levels && !list->cuts; i++)
        length = sherd__ceil_div(length, list->extent[i]);
    return sherd__min(length, list->longest);
}

/* ---- gathering ------------------------------------------------------------------------------ */

static bool all_crossed(const sherd__list *list, int level, unsigned crossed)
{
    for (; level < list->levels; level++)
        if (!(crossed >> list->axis[level] & 1))
            return false;
    return true;
}

int64_t sherd__place_gather(const sherd__list *list, sherd__place place, int64_t lo, int64_t hi,
                            const sherd__look *look)
{
    int64_t sum = 0, first, end;

    sherd__place_descend(list, &place, look->at, ~0u, look->crossed);
    int64_t met = sherd__min(hi, place.hi) - sherd__max(lo, place.lo);
    if (met <= 0)
        return 0;
    if (place.level == list->levels)
        return look->counting ? 1 : met;
    if (!look->counting && all_crossed(list, place.level, look->crossed))
        return met; /* the children partition it */
    sherd__place_meeting(list, &place, lo, hi, &first, &end);
    for (int64_t i = first, alike; i < end; i += alike) {
        sherd__place child = place;
        enter(list, &child, i);
        alike = 1;
        if (!list->cuts && child.lo >= lo && child.hi <= hi) /* whole, as those that follow */
            alike = (sherd__min(hi, place.hi) - child.lo) / (child.hi - child.lo);
        sum += alike * sherd__place_gather(list, child, lo, hi, look);
    }
    return sum;
}

/* ---- the walk ------------------------------------------------------------------------------- */

/* The dim of the component in whose list an axis is on a side; -1 = none. */
static int dim_in(const sherd__sweep *w, int side, int axis)
{
    int d = w->grid->dim_of[side][axis];

    return d >= 0 && w->component->dims >> d & 1 ? d : -1;
}

/* Follow the known axes down the lists of a dim; whether my interval still finds something. */
static bool descend(sherd__sweep *w, int d)
{
    const sherd__list *mine = &w->grid->dim[d].side[w->near];
    const sherd__list *far = &w->grid->dim[d].side[1 - w->near];

    sherd__place_descend(mine, &w->mine[d], w->at, w->known, 0);
    sherd__place_descend(far, &w->fence[d], w->at, w->known, w->through);
    sherd__place_descend(far, &w->inner[d], w->at, w->known, w->own);
    return w->everything ||
           sherd__min(w->mine[d].hi, w->fence[d].hi) > sherd__max(w->mine[d].lo, w->fence[d].lo);
}

/* Leave out coordinates of an axis whose intervals do not meet the other side. */
static void narrow(const sherd__sweep *w, int axis, int64_t *first, int64_t *end)
{
    for (int side = 0; side < 2 && !w->everything; side++) {
        int d = dim_in(w, side, axis);
        if (d < 0)
            continue;
        const sherd__list *list = &w->grid->dim[d].side[side];
        const sherd__place *from = side == w->near ? &w->mine[d] : &w->fence[d];
        const sherd__place *to = side == w->near ? &w->fence[d] : &w->mine[d];
        int64_t a, b;
        if (from->level == list->levels || list->axis[from->level] != axis ||
            (side != w->near && w->through >> axis & 1))
            continue;
        sherd__place_meeting(list, from, to->lo, to->hi, &a, &b);
        *first = sherd__max(*first, a);
        *end = sherd__min(*end, b);
    }
}

/* Children from i on that lie whole in [lo, hi) and are as long as child i. */
static int64_t whole_from(const sherd__list *list, const sherd__place *place, int64_t i, int64_t lo,
                          int64_t hi)
{
    sherd__place child = *place;

    enter(list, &child, i);
    if (child.lo < lo || child.lo == child.hi)
        return 0;
    return (sherd__min(hi, place->hi) - child.lo) / (child.hi - child.lo);
}

/*
 * How many coordinates from i on are alike in one list: their intervals are equally long, and lie
 * within one interval of the other side that no further axis cuts, so that their places do not
 * matter.
 */
static int64_t alike_in(const sherd__sweep *w, int side, int axis, int64_t i)
{
    int d = dim_in(w, side, axis);
    if (d < 0)
        return w->grid->runs.mesh->extent[axis];
    const sherd__list *list = &w->grid->dim[d].side[side];
    const sherd__list *other = &w->grid->dim[d].side[1 - side];
    bool near = side == w->near;
    const sherd__place *from = near ? &w->mine[d] : &w->inner[d];
    const sherd__place *to = near ? &w->inner[d] : &w->mine[d];
    if (list->cuts || from->level == list->levels || list->axis[from->level] != axis ||
        to->level != other->levels)
        return 1;
    if (!near && !(w->through >> axis & 1) && w->fence[d].level != from->level)
        return 1;
    return sherd__max(whole_from(list, from, i, to->lo, to->hi), 1);
}

/* The next coordinate that is not like this one. */
static int64_t next_of(const sherd__sweep *w, int axis, int64_t i)
{
    if (w->everything || !(w->grid->runs.positional >> axis & 1))
        return sherd__runs_next(&w->grid->runs, axis, i);
    int64_t a = alike_in(w, SHERD__SOURCE, axis, i);

    return i + (a == 1 ? 1 : sherd__min(a, alike_in(w, SHERD__TARGET, axis, i)));
}

static void visit(sherd__sweep *w, int depth, int64_t times);

static void visit_classes(sherd__sweep *w, int d, int depth, int64_t times)
{
    for (int64_t i = 0; i < w->grid->dim[d].classes && !w->done; i++) {
        int64_t count;
        sherd__class_place(w->grid, d, i, &w->mine[d], &count);
        w->fence[d] = w->inner[d] = w->mine[d];
        if (w->everything || w->mine[d].hi > w->mine[d].lo)
            visit(w, depth + 1, times * count);
    }
    w->mine[d] = w->fence[d] = (sherd__place){0, 0, w->grid->dim[d].n, 0};
}

/* What is known about one dim, saved while an axis is walked. */
typedef struct saved {
    int d;
    sherd__place mine, fence, inner;
} saved;

static saved save(const sherd__sweep *w, int d)
{
    if (d < 0)
        return (saved){.d = -1};
    return (saved){d, w->mine[d], w->fence[d], w->inner[d]};
}

static void restore(sherd__sweep *w, const saved *s)
{
    if (s->d < 0)
        return;
    w->mine[s->d] = s->mine;
    w->fence[s->d] = s->fence;
    w->inner[s->d] = s->inner;
}

static void visit_axis(sherd__sweep *w, int axis, int depth, int64_t times)
{
    int a = dim_in(w, 0, axis), b = dim_in(w, 1, axis);
    const saved first_dim = save(w, a >= 0 ? a : b),
                second_dim = save(w, a >= 0 && b != a ? b : -1);
    int64_t end = w->grid->mesh->extent[axis], i = 0;

    narrow(w, axis, &i, &end);
    while (i < end && !w->done) {
        int64_t next = sherd__min(next_of(w, axis, i), end);
        w->at[axis] = i;
        w->known |= 1u << axis;
        bool finds = descend(w, first_dim.d);
        if (second_dim.d >= 0)
            finds = descend(w, second_dim.d) && finds;
        if (finds)
            visit(w, depth + 1, times * (next - i));
        restore(w, &first_dim);
        restore(w, &second_dim);
        w->known &= ~(1u << axis);
        i = next;
    }
}

static void visit(sherd__sweep *w, int depth, int64_t times)
{
    if (w->worth && !w->worth(w))
        return;
    if (depth == w->component->length) {
        w->leaf(w, times);
        return;
    }
    int what = w->component->order[depth];
    if (what < SHERD_MAX_DIMS)
        visit_classes(w, what, depth, times);
    else
        visit_axis(w, what - SHERD_MAX_DIMS, depth, times);
}

void sherd__sweep_run(sherd__sweep *w)
{
    w->done = false;
    w->known = 0;
    for (int d = 0; d < w->grid->ndim; d++)
        w->mine[d] = w->fence[d] = (sherd__place){0, 0, w->grid->dim[d].n, 0};
    visit(w, 0, 1);
}
