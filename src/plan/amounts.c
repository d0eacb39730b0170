/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many elements a direct move receives, sends and holds, on the worst rank and in all; exact.
 *
 * Ranks are not walked. A box is a product over dims, and a dim's interval depends only on the
 * axes of its own lists. So per dim: the shards at the common depth fall into a few classes of
 * equal length (explicit cuts: one class per shard), and within one only the coordinates of the
 * axes that take part matter. Dims that share such an axis form a component, which is walked over
 * its classes and these axes; from each component come the sum and the distinct extremes, and the
 * components multiply. Replicas and common axes cost nothing. What is left is the product of the
 * extents of the axes that dims exchange among each other: 1,024 x 1,024 ranks that swap two dims
 * take a tenth of a second, a move along one axis of them some microseconds.
 */
#include "pieces.h"
#include "base/num.h"

#include <string.h>

#define LIMIT (((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) - 1)

/* Below 2^62 elements, 2^31 ranks and 2^31 addends: every exact number here is below 2^124. */
__extension__ typedef __int128 wide;

static int64_t cut(wide value)
{
    return value < LIMIT ? (int64_t)value : LIMIT;
}

int64_t sherd__mul_cut(int64_t a, int64_t b)
{
    int64_t product;

    return sherd__mul(a, b, &product) ? product : LIMIT;
}

int64_t sherd__add_cut(int64_t a, int64_t b)
{
    int64_t sum;

    return sherd__add(a, b, &sum) ? sum : LIMIT;
}

/* Of all points with one target count: what else is extreme. */
typedef struct target_point {
    int64_t target, kept_min, source_max;
} target_point;

typedef struct asked_point {
    int64_t asked, kept_min;
} asked_point;

/* Some dims that are linked by moving axes. */
typedef struct component {
    unsigned dims, axes;
    wide kept; /* sum over the component's points and classes */
    int targets, askeds, target_room, asked_room;
    target_point *target;
    asked_point *asked;
} component;

typedef struct tally {
    sherd__space *space;
    const sherd__change *change;
    const int64_t *shape;
    sherd__pieces dim[SHERD_MAX_DIMS];
    int components;
    component component[SHERD_MAX_DIMS];
} tally;

/* ---- components ----------------------------------------------------------------------------- */

static void find_components(tally *t)
{
    unsigned left = (1u << t->change->ndim) - 1;

    while (left) {
        component *c = &t->component[t->components++];
        bool grown = true;
        c->dims = left & -left;
        while (grown) {
            grown = false;
            for (int d = 0; d < t->change->ndim; d++)
                if (c->dims >> d & 1)
                    c->axes |= t->dim[d].axes;
            for (int d = 0; d < t->change->ndim; d++)
                if (!(c->dims >> d & 1) && t->dim[d].axes & c->axes) {
                    c->dims |= 1u << d;
                    grown = true;
                }
        }
        left &= ~c->dims;
    }
}

static bool room_for(sherd__heap *heap, void **list, int count, int *room, size_t bytes)
{
    if (count < *room)
        return true;
    int more = *room ? 2 * *room : 8;
    void *larger = sherd__grow(heap, *list, (size_t)*room, (size_t)more, bytes);
    if (!larger)
        return false;
    *list = larger;
    *room = more;
    return true;
}

/* Lists are searched from the end: neighbouring points are mostly alike. */
static bool note_target(sherd__heap *heap, component *c, target_point p)
{
    for (int i = c->targets - 1; i >= 0; i--)
        if (c->target[i].target == p.target) {
            c->target[i].kept_min = sherd__min(c->target[i].kept_min, p.kept_min);
            c->target[i].source_max = sherd__max(c->target[i].source_max, p.source_max);
            return true;
        }
    void *list = c->target;
    if (!room_for(heap, &list, c->targets, &c->target_room, sizeof p))
        return false;
    c->target = list;
    c->target[c->targets++] = p;
    return true;
}

static bool note_asked(sherd__heap *heap, component *c, asked_point p)
{
    for (int i = c->askeds - 1; i >= 0; i--)
        if (c->asked[i].asked == p.asked) {
            c->asked[i].kept_min = sherd__min(c->asked[i].kept_min, p.kept_min);
            return true;
        }
    void *list = c->asked;
    if (!room_for(heap, &list, c->askeds, &c->asked_room, sizeof p))
        return false;
    c->asked = list;
    c->asked[c->askeds++] = p;
    return true;
}

/* Where the coordinate `at` stands in a dim's table: row-major over its axes. */
static int64_t point_of(const sherd_mesh *mesh, const sherd__pieces *table, const int64_t *at)
{
    int64_t point = 0;

    for (int i = 0; i < mesh->axes; i++)
        if (table->axes >> i & 1)
            point = point * mesh->extent[i] + at[i];
    return point;
}

/* All points of a component for one choice of a class per dim. */
static bool walk_points(tally *t, component *c, const int *chosen)
{
    const sherd_mesh *mesh = t->change->mesh;
    int64_t at[SHERD_MAX_AXES] = {0};
    wide times = 1;

    for (int d = 0; d < t->change->ndim; d++)
        if (c->dims >> d & 1)
            times *= t->dim[d].class[chosen[d]].count;
    do {
        sherd__piece all = {1, 1, 1, 1};
        for (int d = 0; d < t->change->ndim; d++) {
            const sherd__pieces *table = &t->dim[d];
            if (!(c->dims >> d & 1))
                continue;
            const sherd__piece *p =
                &table->piece[chosen[d] * table->points + point_of(mesh, table, at)];
            all.source *= p->source;
            all.target *= p->target;
            all.kept *= p->kept;
            all.asked *= p->asked;
        }
        c->kept += all.kept * times;
        if (!note_target(t->space->heap, c, (target_point){all.target, all.kept, all.source}) ||
            !note_asked(t->space->heap, c, (asked_point){all.asked, all.kept}))
            return false;
    } while (sherd__next(mesh, c->axes, at));
    return true;
}

static sherd_status walk(tally *t, component *c)
{
    int chosen[SHERD_MAX_DIMS] = {0}, d = 0;

    while (d < t->change->ndim) {
        if (!walk_points(t, c, chosen))
            return SHERD_ENOMEM;
        for (d = 0; d < t->change->ndim; d++) { /* next choice of classes */
            if (!(c->dims >> d & 1))
                continue;
            if (++chosen[d] < t->dim[d].classes)
                break;
            chosen[d] = 0;
        }
    }
    return SHERD_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

/*
 * Next choice of one entry per component out of lists of these lengths; false when all were seen.
 */
static bool next_choice(const tally *t, bool asked, int *chosen)
{
    for (int i = 0; i < t->components; i++) {
        int count = asked ? t->component[i].askeds : t->component[i].targets;
        if (++chosen[i] < count)
            return true;
        chosen[i] = 0;
    }
    return false;
}

/*
 * Extremes over all ranks: products of one entry per component. Of entries with one target count
 * only the smallest kept and the largest source count matter, whatever the other components
 * choose.
 */
static void find_extremes(const tally *t, sherd__amounts *out)
{
    const sherd__change *change = t->change;
    int chosen[SHERD_MAX_DIMS] = {0};
    int64_t copies =
        sherd__extent_of(change->mesh, (change->gathered | change->reduced) & ~change->cut);

    do {
        int64_t target = 1, kept = 1, source = 1;
        for (int i = 0; i < t->components; i++) {
            const target_point *p = &t->component[i].target[chosen[i]];
            target *= p->target;
            kept *= p->kept_min;
            source *= p->source_max;
        }
        out->target_max = sherd__max(out->target_max, target);
        out->source_max = sherd__max(out->source_max, source);
        out->both_max = sherd__max(out->both_max, sherd__add_cut(source, target));
        out->receive_max = sherd__max(out->receive_max, cut((wide)target * change->addends - kept));
    } while (next_choice(t, false, chosen));
    memset(chosen, 0, sizeof chosen);
    do {
        int64_t asked = 1, kept = 1;
        for (int i = 0; i < t->components; i++) {
            asked *= t->component[i].asked[chosen[i]].asked;
            kept *= t->component[i].asked[chosen[i]].kept_min;
        }
        out->send_max = sherd__max(out->send_max, cut((wide)asked * copies - kept));
    } while (next_choice(t, true, chosen));
}

static unsigned listed_axes(const sherd__dim *dim, int ndim)
{
    unsigned bits = 0;

    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < dim[d].axes; i++)
            bits |= 1u << dim[d].axis[i];
    return bits;
}

/*
 * With k addends of an element and T ranks that want the sum, any way to move them sends at least
 * one last message to each of the T, and k - 1 more to bring the addends together, one less where
 * a target rank holds an addend. Axes that stay pending repeat the problem.
 */
static void find_totals(const tally *t, sherd__amounts *out)
{
    const sherd__change *change = t->change;
    unsigned all = (1u << change->mesh->axes) - 1;
    unsigned targets = listed_axes(change->target, change->ndim);
    unsigned sources = listed_axes(change->source, change->ndim);
    wide n = 1, kept = 1;

    for (int d = 0; d < change->ndim; d++)
        n *= t->shape[d];
    for (int i = 0; i < t->components; i++)
        kept *= t->component[i].kept;
    wide kept_total = kept * sherd__extent_of(change->mesh, all & ~(targets | sources));
    wide target_total = n * sherd__extent_of(change->mesh, all & ~targets);
    out->target_total = cut(target_total);
    out->receive_total = cut(target_total * change->addends - kept_total);
    out->bound_total = out->receive_total;
    if (change->reduced == 0)
        return;
    int64_t wanted = sherd__extent_of(change->mesh, all & ~targets & ~change->pending);
    out->bound_total = cut((n * (change->addends - 1 + wanted) - kept) *
                           sherd__extent_of(change->mesh, change->pending));
}

static void clear(tally *t)
{
    for (int d = 0; d < t->change->ndim; d++)
        sherd__pieces_clear(&t->dim[d], t->space->heap);
    for (int i = 0; i < t->components; i++) {
        sherd__free(t->space->heap, t->component[i].target);
        sherd__free(t->space->heap, t->component[i].asked);
    }
}

sherd_status sherd__amounts_find(sherd__amounts *out, sherd__space *space,
                                 const sherd__change *change, const int64_t *shape)
{
    tally t = {.space = space, .change = change, .shape = shape};
    sherd_status status = SHERD_OK;

    memset(out, 0, sizeof *out);
    for (int d = 0; d < change->ndim && status == SHERD_OK; d++) {
        status = sherd__pieces_find(&t.dim[d], space->heap, change, d, shape[d]);
    }
    if (status == SHERD_OK)
        find_components(&t);
    for (int i = 0; i < t.components && status == SHERD_OK; i++)
        status = walk(&t, &t.component[i]);
    if (status == SHERD_OK) {
        find_extremes(&t, out);
        find_totals(&t, out);
    } else {
        status = sherd__no_memory(space->diag, "sherd_plan_create");
    }
    clear(&t);
    return status;
}
