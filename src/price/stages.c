/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of collectives on links. An all-gather goes axis by axis, the slowest first, while
 * little has been gathered. Along an axis of p ranks it takes ceil(log2 p) rounds, in which each
 * rank gets what the rank 1, 2, 4, ... places further has by then: all blocks but its own once, for
 * any p. A reduce-scatter is the same in reverse, and adds what it receives; a sliced all-reduce is
 * both. A ring sends as much in p - 1 rounds, so it is never better.
 *
 * The lengths of blocks do not increase with the coordinate, so the ranks at coordinate 0 of the
 * other axes, and the run of blocks that begins at 0, decide. With explicit cuts all blocks count
 * as the longest. Costs some tens of nanoseconds a round.
 */
#include "links.h"
#include "base/num.h"

/*
 * How many coordinates of each axis are taken, from 0 on: all of an axis that is done, 1 of others.
 */
typedef struct taken {
    const sherd_mesh *mesh;
    int64_t count[SHERD_MAX_AXES];
} taken;

static void take_own(taken *t, const sherd_mesh *mesh)
{
    t->mesh = mesh;
    for (int i = 0; i < mesh->axes; i++)
        t->count[i] = 1;
}

/* What the taken coordinates have of n elements of a dim, from a level of its list on. */
static int64_t part_of(const taken *t, const sherd__dim *dim, int level, int64_t n)
{
    if (n == 0 || level == dim->axes)
        return n;
    int64_t chunk = sherd__ceil_div(n, t->mesh->extent[dim->axis[level]]), full = n / chunk;
    int64_t count = t->count[dim->axis[level]], whole = part_of(t, dim, level + 1, chunk);

    if (count <= full)
        return count * whole;
    return full * whole + part_of(t, dim, level + 1, n % chunk);
}

static int64_t part_with_cuts(const taken *t, const sherd__dim *dim, int64_t n)
{
    int64_t length = sherd__dim_longest(t->mesh, dim, n);

    for (int i = 0; i < dim->axes; i++)
        length = sherd__mul_cut(length, t->count[dim->axis[i]]);
    return sherd__min(length, n);
}

int64_t sherd__stages_part(const sherd_mesh *mesh, const sherd__dim *dim, int64_t n,
                           unsigned crossed)
{
    taken t;

    take_own(&t, mesh);
    for (int i = 0; i < mesh->axes; i++)
        t.count[i] = crossed >> i & 1 ? mesh->extent[i] : 1;
    return dim->cuts ? part_with_cuts(&t, dim, n) : part_of(&t, dim, 0, n);
}

/* ---- what is gathered or scattered ---------------------------------------------------------- */

typedef struct boxes {
    const sherd__dim *dim; /* [ndim] */
    const int64_t *shape;
    int ndim;
} boxes;

static int64_t volume_of_boxes(const taken *t, const void *what)
{
    const boxes *b = what;
    int64_t volume = 1;

    for (int d = 0; d < b->ndim; d++)
        volume *= b->dim[d].cuts ? part_with_cuts(t, &b->dim[d], b->shape[d])
                                 : part_of(t, &b->dim[d], 0, b->shape[d]);
    return volume;
}

/*
 * Slices of one box over a group: the first `full` ranks have `slice` elements, the next one
 * `rest`, the others none. A rank's number has its coordinates as digits, the last axis lowest.
 */
typedef struct slices {
    unsigned axes;
    int64_t full, slice, rest;
} slices;

/* How many of the taken ranks have a number below `end`. */
static int64_t taken_below(const taken *t, unsigned axes, int64_t end)
{
    int64_t below = sherd__extent_of(t->mesh, axes), each = 1, count = 0;

    for (int i = 0; i < t->mesh->axes; i++)
        each *= axes >> i & 1 ? t->count[i] : 1;
    for (int i = 0; i < t->mesh->axes; i++) {
        if (!(axes >> i & 1))
            continue;
        below /= t->mesh->extent[i];
        each /= t->count[i];
        int64_t digit = end / below;
        count += sherd__min(digit, t->count[i]) * each;
        if (digit >= t->count[i])
            return count;
        end -= digit * below;
    }
    return count;
}

static int64_t volume_of_slices(const taken *t, const void *what)
{
    const slices *s = what;
    int64_t full = taken_below(t, s->axes, s->full);
    int64_t more = taken_below(t, s->axes, s->full + 1) - full;

    return sherd__add_cut(sherd__mul_cut(full, s->slice), more * s->rest);
}

/* ---- stages --------------------------------------------------------------------------------- */

typedef int64_t volume_fn(const taken *t, const void *what);

/*
 * A collective that gathers, reduces, or does both; `volume` of `what`: the elements of a message.
 */
typedef struct collective {
    volume_fn *volume;
    const void *what;
    int64_t element_bytes;
    bool gathers, reduces;
} collective;

/* The rounds along one axis, after which all coordinates of it are taken. */
static sherd__span time_axis(const collective *c, taken *t, int axis, const sherd_link *link)
{
    int64_t p = t->mesh->extent[axis];
    sherd__span sum = 0;

    for (int64_t width = 1; width < p; width *= 2) {
        t->count[axis] = sherd__min(width, p - width);
        int64_t bytes = sherd__mul_cut(c->volume(t, c->what), c->element_bytes);
        sum += (c->gathers + c->reduces) * sherd__span_sent(link, 1, bytes);
        sum += c->reduces ? sherd__span_added(link, bytes) : 0;
    }
    t->count[axis] = p;
    return sum;
}

/* All axes, the slowest first. */
static sherd__span time_axes(const collective *c, const sherd_mesh *mesh, const sherd__lanes *lanes)
{
    sherd__span sum = 0;
    taken t;

    take_own(&t, mesh);
    for (int j = lanes->axes - 1; j >= 0; j--)
        sum += time_axis(c, &t, lanes->axis[j], &lanes->link[j]);
    return sum;
}

sherd__span sherd__stages_time(const sherd__change *change, const int64_t *shape,
                               int64_t element_bytes, const sherd__lanes *lanes)
{
    bool reduces = change->reduced;
    const boxes b = {reduces ? change->target : change->source, shape, change->ndim};
    const collective c = {volume_of_boxes, &b, element_bytes, !reduces, reduces};

    return time_axes(&c, change->mesh, lanes);
}

sherd__span sherd__stages_time_sliced(const sherd__change *change, int64_t n, int64_t element_bytes,
                                      const sherd__lanes *lanes)
{
    slices s = {.axes = change->reduced};
    const collective c = {volume_of_slices, &s, element_bytes, true, true};
    int64_t lo;

    sherd__slice_of(n, change->addends, 0, &lo, &s.slice);
    s.full = n / s.slice;
    s.rest = n % s.slice;
    return time_axes(&c, change->mesh, lanes);
}
