/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step decomposed for counting. A box is a product over dims, and a dim's interval depends only
 * on the axes of its own lists, so only these need to be known:
 *
 * - The axes with which both lists of a dim begin, with equal cuts, take no part. With default
 *   cuts, what is inside a shard depends on its length alone, so the shards there fall into a few
 *   classes; with explicit cuts each shard is a class.
 * - If only one of the lists continues, the other side's interval is the whole shard, and only
 *   lengths matter: full chunks, a short one, empty ones. Such an axis has a few runs of
 *   coordinates, for all dims that list it together.
 * - If both lists continue, positions matter, and each coordinate stands for itself.
 *
 * Costs some hundred nanoseconds whatever the extents; with explicit cuts their length, for the
 * longest shard.
 */
#include "pieces.h"
#include "base/num.h"

#include <string.h>

/* ---- classes -------------------------------------------------------------------------------- */

static void add_class(sherd__class *list, int *count, int64_t length, int64_t times)
{
    if (times == 0)
        return;
    for (int i = 0; i < *count; i++)
        if (list[i].length == length) {
            list[i].count += times;
            return;
        }
    list[*count] = (sherd__class){length, times};
    ++*count;
}

/* Default cuts: full chunks, a short one and empty ones at each level; the longest come first. */
static int split_classes(sherd__class *list, int count, int64_t p)
{
    sherd__class before[SHERD__LENGTH_CLASSES];
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
    return count;
}

static void find_classes(sherd__grid *grid, const sherd__change *change, int d)
{
    sherd__pieces *p = &grid->dim[d];
    const sherd__dim *source = &change->source[d], *target = &change->target[d];
    const sherd__dim *listed = source->cuts ? source : target;
    int count = 1;

    p->cuts = listed->cuts;
    p->first = grid->pooled;
    p->classes = 1;
    if (!p->cuts)
        grid->pool[p->first] = (sherd__class){p->n, 1};
    for (int i = 0; i < change->common[d]; i++) {
        int64_t extent = grid->mesh->extent[source->axis[i]];
        p->classes *= extent;
        if (!p->cuts)
            count = split_classes(&grid->pool[p->first], count, extent);
    }
    if (p->cuts) {
        p->below = sherd__dim_parts(grid->mesh, listed) / p->classes;
        return;
    }
    sherd__assert(-1, grid->pooled + count <= SHERD__LENGTH_CLASSES);
    grid->pooled += count;
    p->classes = count;
}

void sherd__class_place(const sherd__grid *grid, int d, int64_t i, sherd__place *out,
                        int64_t *count)
{
    const sherd__pieces *p = &grid->dim[d];

    if (p->cuts) {
        *out = (sherd__place){0, p->cuts[i * p->below], p->cuts[(i + 1) * p->below], i};
        *count = 1;
        return;
    }
    const sherd__class *c = &grid->pool[p->first + i];
    *out = (sherd__place){0, 0, c->length, 0};
    *count = c->count;
}

/* ---- lists ---------------------------------------------------------------------------------- */

void sherd__list_make(sherd__list *list, const sherd_mesh *mesh, const sherd__dim *dim, int first,
                      int64_t n)
{
    int64_t below = 1;

    list->levels = dim->axes - first;
    list->cuts = dim->cuts;
    list->longest = sherd__dim_longest(mesh, dim, n);
    for (int i = list->levels - 1; i >= 0; i--) {
        list->axis[i] = dim->axis[first + i];
        list->extent[i] = mesh->extent[list->axis[i]];
        list->below[i] = below;
        below *= list->extent[i];
    }
}

static void make_lists(sherd__grid *grid, const sherd__change *change, int d)
{
    sherd__pieces *p = &grid->dim[d];

    sherd__list_make(&p->side[SHERD__SOURCE], grid->mesh, &change->source[d], change->common[d],
                     p->n);
    sherd__list_make(&p->side[SHERD__TARGET], grid->mesh, &change->target[d], change->common[d],
                     p->n);
    for (int side = 0; side < 2; side++)
        for (int i = 0; i < p->side[side].levels; i++) {
            int axis = p->side[side].axis[i];
            p->axes |= 1u << axis;
            grid->dim_of[side][axis] = (int8_t)d;
        }
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void split_at(sherd__runs *runs, int axis, int64_t at)
{
    int64_t *split = runs->split[axis];
    int i = runs->splits[axis];

    if (at <= 0 || at >= runs->mesh->extent[axis] || runs->positional >> axis & 1)
        return;
    for (int j = 0; j < i; j++)
        if (split[j] == at)
            return;
    if (i == SHERD__SPLITS) {
        runs->positional |= 1u << axis; /* always right, only more to walk */
        return;
    }
    for (; i > 0 && split[i - 1] > at; i--)
        split[i] = split[i - 1];
    split[i] = at;
    runs->splits[axis]++;
}

static void add_length(int64_t *length, int *count, int64_t value)
{
    if (*count > SHERD__LENGTHS)
        return;
    for (int i = 0; i < *count; i++)
        if (length[i] == value)
            return;
    if (*count < SHERD__LENGTHS)
        length[*count] = value;
    ++*count;
}

/* Children of shards of one length. */
static void split_length(sherd__runs *runs, int axis, int64_t length, int64_t *next, int *more)
{
    int64_t extent = runs->mesh->extent[axis];
    int64_t chunk = sherd__ceil_div(length, extent);
    int64_t full = chunk ? length / chunk : 0, rest = chunk ? length % chunk : 0;

    split_at(runs, axis, full);
    split_at(runs, axis, full + (rest > 0));
    if (chunk)
        add_length(next, more, chunk);
    if (rest)
        add_length(next, more, rest);
    if (full + (rest > 0) < extent)
        add_length(next, more, 0);
}

void sherd__runs_list(sherd__runs *runs, const sherd__list *list, int64_t *length, int *count)
{
    int64_t next[SHERD__LENGTHS];

    for (int level = 0; level < list->levels; level++) {
        int more = 0;
        if (*count > SHERD__LENGTHS) { /* so many lengths that coordinates are hardly alike */
            runs->positional |= 1u << list->axis[level];
            continue;
        }
        for (int i = 0; i < *count; i++)
            split_length(runs, list->axis[level], length[i], next, &more);
        *count = more;
        memcpy(length, next, (size_t)sherd__min(more, SHERD__LENGTHS) * sizeof *next);
    }
}

static void find_runs(sherd__grid *grid)
{
    for (int d = 0; d < grid->ndim; d++) {
        const sherd__pieces *p = &grid->dim[d];
        bool both = p->side[0].levels && p->side[1].levels;
        if (both || p->side[0].cuts || p->side[1].cuts)
            grid->runs.positional |= p->axes;
    }
    for (int d = 0; d < grid->ndim; d++) {
        const sherd__pieces *p = &grid->dim[d];
        int64_t length[SHERD__LENGTHS];
        int count = 0;
        if ((p->axes & ~grid->runs.positional) == 0)
            continue;
        for (int64_t i = 0; i < p->classes; i++)
            add_length(length, &count, grid->pool[p->first + i].length);
        sherd__runs_list(&grid->runs, &p->side[p->side[0].levels == 0], length, &count);
    }
}

int64_t sherd__runs_next(const sherd__runs *runs, int axis, int64_t at)
{
    if (runs->positional >> axis & 1)
        return at + 1;
    for (int i = 0; i < runs->splits[axis]; i++)
        if (runs->split[axis][i] > at)
            return runs->split[axis][i];
    return runs->mesh->extent[axis];
}

/* ---- components ----------------------------------------------------------------------------- */

static int depth_of(const sherd__list *list, unsigned known)
{
    int depth = 0;

    while (depth < list->levels && known >> list->axis[depth] & 1)
        depth++;
    return depth;
}

/*
 * How useful it is to walk this axis next: more if it is the next one of a list, and still more if
 * the other list is further down already, since then few of its coordinates meet that interval.
 */
static int leads(const sherd__grid *grid, int axis, unsigned known)
{
    int score = 0;

    for (int side = 0; side < 2; side++) {
        int d = grid->dim_of[side][axis];
        if (d < 0)
            continue;
        const sherd__list *list = &grid->dim[d].side[side];
        int depth = depth_of(list, known), other = depth_of(&grid->dim[d].side[1 - side], known);
        if (depth < list->levels && list->axis[depth] == axis)
            score += other > depth ? 5 : 2;
    }
    return score;
}

/* Of some axes the one to walk next. */
static int next_axis(const sherd__grid *grid, unsigned axes, unsigned known)
{
    int best = -1, most = -1;

    for (int i = 0; i < grid->mesh->axes; i++) {
        int score = axes >> i & 1 ? leads(grid, i, known) : -1;
        if (score > most) {
            most = score;
            best = i;
        }
    }
    return best;
}

void sherd__component_order(const sherd__grid *grid, sherd__component *c, unsigned first)
{
    unsigned known = 0;

    c->length = 0;
    for (int d = 0; d < grid->ndim; d++)
        if (c->dims >> d & 1)
            c->order[c->length++] = (int8_t)d;
    while (known != c->axes) {
        unsigned left = c->axes & ~known;
        int axis = next_axis(grid, left & first ? left & first : left, known);
        known |= 1u << axis;
        c->order[c->length++] = (int8_t)(SHERD_MAX_DIMS + axis);
    }
}

static void find_components(sherd__grid *grid)
{
    unsigned left = 0;

    for (int d = 0; d < grid->ndim; d++)
        left |= grid->dim[d].axes ? 1u << d : 0;
    while (left) {
        sherd__component *c = &grid->component[grid->components++];
        unsigned before = 0;
        c->dims = left & -left;
        c->axes = 0;
        while (before != c->dims) {
            before = c->dims;
            for (int d = 0; d < grid->ndim; d++)
                if (c->dims >> d & 1 || grid->dim[d].axes & c->axes) {
                    c->dims |= 1u << d;
                    c->axes |= grid->dim[d].axes;
                }
        }
        left &= ~c->dims;
        sherd__component_order(grid, c, c->axes);
    }
}

void sherd__grid_join(const sherd__grid *grid, sherd__component *out)
{
    out->dims = out->axes = 0;
    for (int i = 0; i < grid->components; i++) {
        out->dims |= grid->component[i].dims;
        out->axes |= grid->component[i].axes;
    }
}

void sherd__grid_make(sherd__grid *grid, const sherd__change *change, const int64_t *shape)
{
    grid->mesh = change->mesh;
    grid->ndim = change->ndim;
    grid->runs.mesh = change->mesh;
    grid->runs.positional = 0;
    memset(grid->runs.splits, 0, sizeof grid->runs.splits);
    grid->components = grid->pooled = 0;
    memset(grid->dim_of, -1, sizeof grid->dim_of);
    for (int d = 0; d < grid->ndim; d++) {
        grid->dim[d].n = shape[d];
        grid->dim[d].axes = 0;
        find_classes(grid, change, d);
        make_lists(grid, change, d);
    }
    find_runs(grid);
    find_components(grid);
}
