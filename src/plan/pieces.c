/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of lengths behind the price of a move. With default cuts what lies within a shard
 * depends on its length alone, so the shards at the common depth of a dim fall into a few classes;
 * with explicit cuts each is one. Costs classes x the product of the extents of the dim's own
 * moving axes.
 */
#include "pieces.h"
#include "base/num.h"

#include <string.h>

/* ---- classes -------------------------------------------------------------------------------- */

/* Each axis turns a length into at most two others and 0, so 8 axes make at most 2^8 + 1. */
enum { CLASS_ROOM = 264 };

static void add_class(sherd__class *list, int *count, int64_t length, int64_t times)
{
    if (times == 0)
        return;
    for (int i = 0; i < *count; i++)
        if (list[i].length == length) {
            list[i].count += times;
            return;
        }
    sherd__assert(-1, *count < CLASS_ROOM);
    list[*count] = (sherd__class){0, 0, length, times};
    ++*count;
}

/* Default cuts: full chunks, a short one and empty ones at each level. */
static int default_classes(const sherd__change *change, int d, int64_t n, sherd__class *list)
{
    sherd__class before[CLASS_ROOM];
    int count = 1;

    list[0] = (sherd__class){0, 0, n, 1};
    for (int i = 0; i < change->common[d]; i++) {
        int64_t p = change->mesh->extent[change->source[d].axis[i]];
        int old = count;
        memcpy(before, list, (size_t)old * sizeof *list);
        count = 0;
        for (int j = 0; j < old; j++) {
            int64_t length = before[j].length, chunk = sherd__ceil_div(length, p);
            int64_t full = chunk ? length / chunk : 0, rest = chunk ? length % chunk : 0;
            add_class(list, &count, chunk, full * before[j].count);
            add_class(list, &count, rest, rest ? before[j].count : 0);
            add_class(list, &count, 0, (p - full - (rest > 0)) * before[j].count);
        }
    }
    return count;
}

/* Explicit cuts on either side: each shard at the common depth by itself. */
static void list_classes(const sherd__change *change, int d, sherd__class *list, int64_t count)
{
    const sherd__dim *dim = change->source[d].cuts ? &change->source[d] : &change->target[d];
    int64_t below = sherd__dim_parts(change->mesh, dim) / count;

    for (int64_t i = 0; i < count; i++) {
        int64_t lo = dim->cuts[i * below];
        list[i] = (sherd__class){i, lo, dim->cuts[(i + 1) * below] - lo, 1};
    }
}

static sherd_status find_classes(sherd__pieces *out, sherd__heap *heap, const sherd__change *change,
                                 int d, int64_t n)
{
    sherd__class few[CLASS_ROOM];
    bool listed = change->source[d].cuts || change->target[d].cuts;
    int64_t count = 1;

    if (!listed)
        count = default_classes(change, d, n, few);
    for (int i = 0; listed && i < change->common[d]; i++)
        count *= change->mesh->extent[change->source[d].axis[i]];
    out->classes = sherd__int(count);
    out->class = sherd__alloc(heap, (size_t)count, sizeof *out->class);
    if (!out->class)
        return SHERD_ENOMEM;
    if (listed)
        list_classes(change, d, out->class, count);
    else
        memcpy(out->class, few, (size_t)count * sizeof *few);
    return SHERD_OK;
}

/* ---- pieces --------------------------------------------------------------------------------- */

/* Interval of a dim within one class at a coordinate of the axes beyond the common depth. */
static void interval_in(const sherd_mesh *mesh, const sherd__dim *dim, int common,
                        const sherd__class *kind, const int64_t *coordinate, int64_t *lo,
                        int64_t *hi)
{
    int64_t number = kind->number;

    *lo = kind->lo;
    *hi = kind->lo + kind->length;
    for (int i = common; i < dim->axes; i++) {
        int64_t extent = mesh->extent[dim->axis[i]], at = coordinate[dim->axis[i]], a, b;
        number = number * extent + at;
        sherd__chunk(*hi - *lo, extent, at, &a, &b);
        *hi = *lo + b;
        *lo += a;
    }
    if (dim->cuts) {
        *lo = dim->cuts[number];
        *hi = dim->cuts[number + 1];
    }
}

static int64_t overlap(int64_t lo, int64_t hi, int64_t lo2, int64_t hi2)
{
    return sherd__max(sherd__min(hi, hi2) - sherd__max(lo, lo2), 0);
}

/*
 * What all ranks of the group ask for of [lo, hi) on this dim: their target intervals, mine on the
 * axes not crossed.
 */
static int64_t asked_for(const sherd__change *change, int d, const sherd__class *kind,
                         const int64_t *coordinate, int64_t lo, int64_t hi)
{
    const sherd__dim *target = &change->target[d];
    unsigned crossed = 0;
    int64_t at[SHERD_MAX_AXES], sum = 0, a, b;

    for (int i = change->common[d]; i < target->axes; i++)
        crossed |= 1u << target->axis[i];
    unsigned mine = crossed & ~(change->gathered | change->reduced);
    if (mine == 0)
        return hi - lo; /* target intervals of the whole group partition the class */
    crossed &= ~mine;
    memcpy(at, coordinate, sizeof at);
    for (int i = 0; i < change->mesh->axes; i++)
        if (crossed >> i & 1)
            at[i] = 0;
    do {
        interval_in(change->mesh, target, change->common[d], kind, at, &a, &b);
        sum += overlap(a, b, lo, hi);
    } while (sherd__next(change->mesh, crossed, at));
    return sum;
}

static sherd_status find_table(sherd__pieces *out, sherd__heap *heap, const sherd__change *change,
                               int d)
{
    const sherd_mesh *mesh = change->mesh;
    const sherd__dim *source = &change->source[d], *target = &change->target[d];
    int common = change->common[d];
    int64_t count;

    for (int i = common; i < source->axes; i++)
        out->axes |= 1u << source->axis[i];
    for (int i = common; i < target->axes; i++)
        out->axes |= 1u << target->axis[i];
    out->points = sherd__extent_of(mesh, out->axes);
    if (sherd__mul(out->points, out->classes, &count))
        out->piece = sherd__alloc(heap, (size_t)count, sizeof *out->piece);
    if (!out->piece)
        return SHERD_ENOMEM;
    sherd__piece *p = out->piece;
    for (int c = 0; c < out->classes; c++) {
        int64_t at[SHERD_MAX_AXES] = {0}, lo, hi, lo2, hi2;
        do {
            interval_in(mesh, source, common, &out->class[c], at, &lo, &hi);
            interval_in(mesh, target, common, &out->class[c], at, &lo2, &hi2);
            p->source = hi - lo;
            p->target = hi2 - lo2;
            p->kept = overlap(lo, hi, lo2, hi2);
            p->asked = asked_for(change, d, &out->class[c], at, lo, hi);
            p++;
        } while (sherd__next(mesh, out->axes, at));
    }
    return SHERD_OK;
}

sherd_status sherd__pieces_find(sherd__pieces *out, sherd__heap *heap, const sherd__change *change,
                                int d, int64_t n)
{
    sherd_status status = find_classes(out, heap, change, d, n);

    return status == SHERD_OK ? find_table(out, heap, change, d) : status;
}

void sherd__pieces_clear(sherd__pieces *pieces, sherd__heap *heap)
{
    sherd__free(heap, pieces->class);
    sherd__free(heap, pieces->piece);
}
