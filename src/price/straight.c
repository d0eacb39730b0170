/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of a direct step on links, in which each rank gets what it lacks straight from a rank
 * that has it: the time of the busiest rank.
 *
 * A message uses the slowest axis that it crosses. A rank sends one message after the other, and
 * receives likewise: its time is the sum over its messages of alpha, and for each byte of beta, and
 * of gamma if it is added, in the slower of both directions. If classes of messages overlap, it is
 * the time of the slowest class. Ranks that hold the same part, at equal distance from its reader,
 * take turns at sending it, message by message, unless the price says that they do not.
 *
 * First some ranks are priced, up to 64 for each direction. Where intervals of the two sides nest,
 * only whether they meet matters: mostly they do at the first coordinate of an axis, and do not at
 * the last. Otherwise, or where a message of a faster axis takes longer than one of a slower (who
 * has few of the latter may be the busiest), some coordinates in between are priced too. That is
 * enough for a search. For the final price all coordinates follow that may matter (in that case,
 * and of axes along which shards are not alike, do not nest, or move to another place), unless some
 * rank already has as much to do as any can have. Of steps with more than 4,096 such ranks only a
 * selection is priced. Costs some tens of nanoseconds for each class, dim and rank: 22 us for 64
 * ranks of four axes, 3 ms for 4,096.
 */
#include "links.h"
#include "plan/pieces.h"
#include "base/num.h"

#include <string.h>

enum { RANKS = 64, MIDDLES = 9, ALL = 4096 };

typedef struct walk {
    const sherd__change *change;
    /* of the axes crossed and of the sharers; in a reduction beta includes gamma */
    sherd__lanes lanes;
    const int64_t *shape;
    int64_t element_bytes;
    unsigned crossed, sharers; /* sharers: axes whose ranks take turns at sending the same */
    /* by side: axes along which others want the same of a rank; axes whose addends it wants */
    unsigned copied[2];
    int8_t dim_of[2][SHERD_MAX_AXES];    /* by side: the dim whose list has the axis; -1 = none */
    sherd__list list[2][SHERD_MAX_DIMS]; /* source, target */
    unsigned listed[2];                  /* axes in them */
    int64_t unit[SHERD_MAX_DIMS];        /* if intervals of the dim nest: the shorter; else 0 */
    int64_t longest[2][SHERD_MAX_AXES];  /* coordinates of the longest shards */
    /* Axes: more than the coordinate of the longest shard counts; intervals do not nest; */
    unsigned placed, odd;
    unsigned uneven;          /* each coordinate may count; */
    unsigned moved;           /* both lists of a dim have it, behind what these share. */
    bool overlap;             /* of classes of messages */
    bool all;                 /* look at all coordinates of uneven axes */
    sherd__span most, enough; /* the most so far; beyond this no more ranks are looked at */
} walk;

/* ---- where to look -------------------------------------------------------------------------- */

static int64_t shards_of(const sherd__list *list)
{
    return list->levels ? list->below[0] * list->extent[0] : 1;
}

/* The first one of the longest shards; with default cuts it is shard 0. */
static void find_longest(walk *w, int side, const sherd__list *list)
{
    int64_t best = 0, count = shards_of(list);

    for (int64_t i = 1; list->cuts && i < count; i++)
        if (list->cuts[i + 1] - list->cuts[i] > list->cuts[best + 1] - list->cuts[best])
            best = i;
    for (int i = 0; i < list->levels; i++)
        w->longest[side][list->axis[i]] = best / list->below[i] % list->extent[i];
}

static void make_lists(walk *w)
{
    memset(w->dim_of, -1, sizeof w->dim_of);
    for (int side = 0; side < 2; side++)
        for (int d = 0; d < w->change->ndim; d++) {
            const sherd__dim *dim = side ? &w->change->target[d] : &w->change->source[d];
            sherd__list *list = &w->list[side][d];
            sherd__list_make(list, w->change->mesh, dim, 0, w->shape[d]);
            find_longest(w, side, list);
            for (int i = 0; i < list->levels; i++) {
                w->listed[side] |= 1u << list->axis[i];
                w->dim_of[side][list->axis[i]] = (int8_t)d;
            }
        }
}

/* ---- one rank ------------------------------------------------------------------------------- */

/*
 * A rank, and per dim how many elements and boxes the other side has of its box, at all coordinates
 * of `crossed`, and at the rank's own of all other axes.
 */
typedef struct place {
    int near; /* the side of the box: SHERD__SOURCE, what it sends, or SHERD__TARGET */
    int64_t at[SHERD_MAX_AXES];
    unsigned crossed;
    int64_t elements[SHERD_MAX_DIMS], messages[SHERD_MAX_DIMS];
    int64_t lo[SHERD_MAX_DIMS], hi[SHERD_MAX_DIMS];
    int64_t times, shares; /* copies or addends, and replicas that take turns, among those axes */
} place;

static void find_in(const walk *w, place *p, int d)
{
    const sherd__list *far = &w->list[1 - p->near][d];
    const sherd__place whole = {0, 0, w->shape[d], 0};
    const sherd__look length = {p->crossed, p->at, false}, count = {p->crossed, p->at, true};

    p->elements[d] = sherd__place_gather(far, whole, p->lo[d], p->hi[d], &length);
    p->messages[d] = w->unit[d] ? p->elements[d] / w->unit[d]
                                : sherd__place_gather(far, whole, p->lo[d], p->hi[d], &count);
}

/* Begin with the rank at p->at, with no axis crossed. */
static void stand(const walk *w, place *p)
{
    p->crossed = 0;
    p->times = p->shares = 1;
    for (int d = 0; d < w->change->ndim; d++) {
        sherd__place whole = {0, 0, w->shape[d], 0};
        sherd__place_descend(&w->list[p->near][d], &whole, p->at, ~0u, 0);
        p->lo[d] = whole.lo;
        p->hi[d] = whole.hi;
        find_in(w, p, d);
    }
}

static void cross(const walk *w, place *p, int axis)
{
    int d = w->dim_of[1 - p->near][axis];

    p->crossed |= 1u << axis;
    if (w->copied[p->near] >> axis & 1)
        p->times *= w->change->mesh->extent[axis];
    if (d >= 0)
        find_in(w, p, d);
}

/* What the other side has, each copy or addend of it. */
typedef struct load {
    sherd__wide elements, messages;
} load;

static load load_of(const walk *w, const place *p)
{
    int64_t elements = 1, messages = 1; /* no more than the tensor has */

    for (int d = 0; d < w->change->ndim; d++) {
        elements *= p->elements[d];
        messages *= p->messages[d];
    }
    return (load){(sherd__wide)elements * p->times, (sherd__wide)messages * p->times};
}

static int64_t share_of(sherd__wide n, int64_t shares)
{
    return sherd__cut(shares == 1 ? n : (n + shares - 1) / shares);
}

/* Cross one axis more: what is found in addition goes over its link. */
static load cross_class(const walk *w, place *p, int j)
{
    load less = load_of(w, p);

    cross(w, p, w->lanes.axis[j]);
    load all = load_of(w, p);
    return (load){all.elements - less.elements, all.messages - less.messages};
}

/* The time of a class, shared evenly. */
static sherd__span time_class(const walk *w, const load *l, int64_t shares, int j)
{
    int64_t messages = l->elements ? sherd__cut(l->messages) : 0;
    sherd__span all = sherd__span_sent(&w->lanes.link[j], messages,
                                       sherd__mul_cut(sherd__cut(l->elements), w->element_bytes));

    return shares == 1 ? all : (all + shares - 1) / shares;
}

/* By class: what replicas take turns at, and how many replicas. */
typedef struct turns {
    load load[SHERD_MAX_AXES];
    int64_t shares[SHERD_MAX_AXES];
} turns;

static sherd__span add_class(const walk *w, sherd__span time, sherd__span each)
{
    return !w->overlap ? time + each : each > time ? each : time;
}

/* The class not yet done whose messages cost most; of equal ones the slowest; -1 = none. */
static int dearest(const walk *w, const turns *t, unsigned done)
{
    sherd__span most = -1;
    int found = -1;

    for (int j = w->lanes.axes - 1; j >= 0; j--) {
        const load *l = &t->load[j];
        if (done >> j & 1 || l->elements == 0)
            continue;
        int64_t bytes = sherd__mul_cut(sherd__cut(l->elements / l->messages), w->element_bytes);
        sherd__span each = sherd__span_sent(&w->lanes.link[j], 1, bytes);
        if (each > most) {
            most = each;
            found = j;
        }
    }
    return found;
}

/*
 * The time of replicas that take turns, message by message: of n messages each of p sends n / p,
 * rounded up. Ranks that have no message in the last turn begin with the next class.
 */
static sherd__span time_turns(const walk *w, const turns *t)
{
    int64_t idle = 0, of = 1;
    sherd__span time = 0;
    unsigned done = 0;

    for (int j = dearest(w, t, 0); j >= 0; j = dearest(w, t, done)) {
        const load *l = &t->load[j];
        int64_t p = t->shares[j], begun = w->overlap ? 0 : idle * p / of;
        int64_t n = sherd__cut(l->messages), left = sherd__max(n - begun, 0);
        int64_t each = sherd__ceil_div(left, p), elements = share_of(l->elements * each, n);
        idle = left ? each * p - left : begun - n;
        of = p;
        done |= 1u << j;
        time = add_class(
            w, time,
            sherd__span_sent(&w->lanes.link[j], each, sherd__mul_cut(elements, w->element_bytes)));
    }
    return time;
}

/* Compare the time of one rank with the most so far. */
static void look_at(walk *w, place *p)
{
    const sherd__lanes *lanes = &w->lanes;
    bool shared = p->near == SHERD__SOURCE && w->sharers;
    sherd__span time = 0, whole = 0;
    turns t;

    stand(w, p);
    for (int j = 0; j < lanes->axes; j++) {
        int axis = lanes->axis[j];
        t.load[j].elements = 0;
        if (w->crossed >> axis & 1) {
            t.load[j] = cross_class(w, p, j);
            t.shares[j] = p->shares;
            time = add_class(w, time, time_class(w, &t.load[j], p->shares, j));
        } else if (shared && w->sharers >> axis & 1) {
            cross(w, p, axis);
            p->shares *= w->change->mesh->extent[axis];
        }
    }
    if (shared)
        whole = time_turns(w, &t);
    time = whole > time ? whole : time;
    w->most = time > w->most ? time : w->most;
}

/* ---- all ------------------------------------------------------------------------------------ */

static bool is_even(const walk *w, int d)
{
    for (int side = 0; side < 2; side++) {
        const sherd__list *list = &w->list[side][d];
        if (list->cuts || w->shape[d] % shards_of(list))
            return false;
    }
    return true;
}

/*
 * Whether each interval of one side lies in one of the other: each depth's shards divide those of
 * the other side, or are divided.
 */
static bool is_nested(const walk *w, int d)
{
    const sherd__list *list[2] = {&w->list[0][d], &w->list[1][d]};
    int64_t parts = 1;

    for (int i = 0; i < list[0]->levels; i++) {
        int64_t other = 1;
        parts *= list[0]->extent[i];
        for (int j = 0; j < list[1]->levels; j++) {
            other *= list[1]->extent[j];
            if (parts % other && other % parts)
                return false;
        }
    }
    return is_even(w, d);
}

/* Axes of a list from one level to another. */
static unsigned axes_of(const sherd__list *list, int first, int end)
{
    unsigned axes = 0;

    for (int i = first; i < end; i++)
        axes |= 1u << list->axis[i];
    return axes;
}

/* If all coordinates of an axis count, so do those of the other axes in its dims' lists. */
static void join_uneven(walk *w)
{
    unsigned before = 0;

    while (before != w->uneven) {
        before = w->uneven;
        for (int d = 0; d < w->change->ndim; d++) {
            int common = w->change->common[d];
            unsigned axes = axes_of(&w->list[0][d], common, w->list[0][d].levels) |
                            axes_of(&w->list[1][d], common, w->list[1][d].levels);
            w->uneven |= axes & w->uneven ? axes : 0;
        }
    }
}

/*
 * Find which coordinates count. If only one list of a dim goes on behind what both share, only the
 * lengths of shards do, which may all be equal. If they are not, shorter shards of what both share
 * count too: they may be cut into more shards that are not empty.
 */
static void find_positions(walk *w)
{
    for (int d = 0; d < w->change->ndim; d++) {
        const sherd__list *list[2] = {&w->list[0][d], &w->list[1][d]};
        int common = w->change->common[d];
        unsigned source = axes_of(list[0], common, list[0]->levels);
        unsigned target = axes_of(list[1], common, list[1]->levels);
        bool even = is_even(w, d), nested = is_nested(w, d);
        if (nested)
            w->unit[d] = w->shape[d] / sherd__max(shards_of(list[0]), shards_of(list[1]));
        if (source && target && !nested)
            w->odd |= source | target;
        if ((source || target) && !even)
            w->uneven |= source | target | axes_of(list[0], 0, common);
        if ((source && target) || !even)
            w->placed |= source | target;
        if ((source || target) && !even)
            w->placed |= axes_of(list[0], 0, common);
        w->moved |= source & target;
        if (source & target)
            w->uneven |= source | target;
    }
    w->uneven |= w->odd;
    join_uneven(w);
}

/*
 * Whether the shortest message over some link takes longer than so many over a slower link: one
 * element, or what nested intervals have in common.
 */
static bool is_mixed(const walk *w, int times)
{
    int64_t bytes = w->element_bytes;
    sherd__span most = 0;

    for (int d = 0; d < w->change->ndim; d++)
        bytes = sherd__mul_cut(bytes, sherd__max(w->unit[d], 1));
    for (int j = 0; j < w->lanes.axes; j++) {
        sherd__span each = sherd__span_sent(&w->lanes.link[j], 1, bytes);
        if (!(w->crossed >> w->lanes.axis[j] & 1))
            continue;
        if (each < most / times)
            return true;
        most = each > most ? each : most;
    }
    return false;
}

/*
 * The coordinates of an axis to look at: that of the longest shard; if more count, also the last
 * one; if intervals do not nest, also some between. Of an axis that both lists of a dim have also
 * the second: ranks at both ends may already have what others are asked for.
 */
static int choose(const walk *w, int near, int axis, int64_t *out)
{
    int64_t last = w->change->mesh->extent[axis] - 1, step;
    bool mine = w->listed[near] >> axis & 1, odd = w->odd >> axis & 1;
    int count = 0, most = odd ? MIDDLES : w->moved >> axis & 1 ? 3 : 2;

    out[count++] = w->longest[mine ? near : 1 - near][axis];
    if (!(w->placed >> axis & 1) || last == 0)
        return count;
    out[count++] = last;
    step = !odd || last < MIDDLES ? 1 : last / MIDDLES;
    for (int64_t at = step; at < last && count < most; at += step)
        out[count++] = at;
    return count;
}

/* Look at the chosen coordinates of all axes from `axis` on, at `room` ranks at most. */
static void look_around(walk *w, place *p, int axis, int64_t room)
{
    int64_t at[MIDDLES];

    if (axis == w->change->mesh->axes) {
        look_at(w, p);
        return;
    }
    if (w->most > w->enough)
        return;
    if (w->all && w->uneven >> axis & 1) {
        for (p->at[axis] = 0; p->at[axis] < w->change->mesh->extent[axis]; p->at[axis]++)
            look_around(w, p, axis + 1, room);
        return;
    }
    int count = choose(w, p->near, axis, at);
    int64_t used = count > 2 ? sherd__max(sherd__min(count, room), 2) : count;
    for (int64_t i = 0; i < used; i++) { /* the last one first, which is often the busiest */
        p->at[axis] = at[used > 1 && i < 2 ? 1 - i : i];
        look_around(w, p, axis + 1, room / used);
    }
}

/*
 * A time that no rank exceeds, known only if all intervals nest: all that a rank asks for, or is
 * asked for, in the shortest messages, over the link on which these take longest.
 */
static sherd__span most_of(const walk *w, int near)
{
    place p = {.near = near};
    int64_t bytes = w->element_bytes;
    sherd__span most = 0;

    for (int d = 0; d < w->change->ndim; d++) {
        if (!w->unit[d])
            return (sherd__span)SHERD__MOST * SHERD__FEMTO;
        bytes = sherd__mul_cut(bytes, w->unit[d]);
    }
    if (near == SHERD__SOURCE && w->sharers)
        return (sherd__span)SHERD__MOST * SHERD__FEMTO;
    stand(w, &p);
    p.crossed = ~0u;
    p.times = sherd__extent_of(w->change->mesh, w->copied[near]);
    for (int d = 0; d < w->change->ndim; d++)
        find_in(w, &p, d);
    int64_t messages = sherd__cut(load_of(w, &p).messages);
    for (int j = 0; j < w->lanes.axes; j++)
        if (w->crossed >> w->lanes.axis[j] & 1) {
            sherd__span each =
                sherd__span_sent(&w->lanes.link[j], messages, sherd__mul_cut(messages, bytes));
            most = each > most ? each : most;
        }
    return most;
}

/* Look at ranks from one side, until one takes more than is enough. */
static void look_from(walk *w, int near, sherd__span enough)
{
    place p = {.near = near};

    w->enough = enough;
    look_around(w, &p, 0, RANKS);
}

sherd__span sherd__straight_time(const sherd__priced *step, int64_t element_bytes,
                                 const sherd__lanes *lanes, const sherd_price *price)
{
    const sherd__change *change = &step->change;
    walk w = {.change = change, .lanes = *lanes, .element_bytes = element_bytes};
    sherd__span most[2];

    for (int j = 0; change->reduced && j < lanes->axes; j++)
        w.lanes.link[j].beta_femtoseconds =
            sherd__add_cut(lanes->link[j].beta_femtoseconds, lanes->link[j].gamma_femtoseconds);
    w.shape = step->step.from->spec.shape;
    w.overlap = price->overlap;
    const sherd__span enough =
        (sherd__span)(step->enough ? step->enough : SHERD__MOST) * SHERD__FEMTO;
    w.crossed = change->gathered | change->reduced;
    w.sharers = price->straight ? 0 : change->cut & ~w.crossed;
    w.copied[SHERD__SOURCE] = w.crossed & ~change->cut;
    w.copied[SHERD__TARGET] = change->reduced;
    make_lists(&w);
    find_positions(&w);
    if (is_mixed(&w, 1)) {
        w.uneven |= w.placed;
        /* A search is content with less: what it finds is priced over all ranks. */
        w.odd |= is_mixed(&w, 2) ? w.placed : 0;
    }
    for (int near = 0; near < 2; near++) {
        most[near] = most_of(&w, near);
        look_from(&w, near, most[near] - 1 < enough ? most[near] - 1 : enough);
    }
    w.all = !step->some && sherd__extent_of(change->mesh, w.uneven) <= ALL;
    for (int near = 0; near < 2 && w.all && w.uneven; near++)
        look_from(&w, near, most[near] - 1 < enough ? most[near] - 1 : enough);
    return w.most;
}
