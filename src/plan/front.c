/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The most that any rank has of something, exact, by components.
 *
 * A rank's number is times * (product of u over the components) - less * (product of v), with v <= u
 * everywhere. In the u and u - v of one component that is linear with factors that are not negative, so of a
 * component only the points matter that no other one exceeds in both: mostly one. They multiply.
 * Should a component have more of them than there is room for, all are walked as one, looking at the
 * number itself. Costs the points that are walked until nothing larger can come: mostly a few.
 */
#include "front.h"
#include "base/num.h"

enum { ROOM = 64 };

typedef struct point {
    int64_t u, v;
} point;

typedef struct front {
    const sherd__question *asked;
    int count;
    bool full;
    point point[ROOM];
    /* one walk over everything: the number itself */
    bool joint;
    sherd__wide best;
    sherd__wide times, less;        /* with the dims that stay */
    unsigned found[SHERD_MAX_DIMS]; /* axes that u depends on by position */
    point top;                      /* nothing in it exceeds it */
} front;

/* Whether a is as good as b whatever the other components are. */
static bool covers(const front *f, point a, point b)
{
    if (f->asked->kind == SHERD__BOTH_BOXES)
        return a.u >= b.u && a.v >= b.v;
    return a.u >= b.u && a.u - a.v >= b.u - b.v;
}

static sherd__wide value_of(const front *f, point p)
{
    sherd__wide u = f->times * p.u, v = f->less * p.v;

    return f->asked->kind == SHERD__BOTH_BOXES ? u + v : u - v;
}

static void add(front *f, point p)
{
    int left = 0;

    for (int i = 0; i < f->count; i++)
        if (covers(f, f->point[i], p))
            return;
    for (int i = 0; i < f->count; i++)
        if (!covers(f, p, f->point[i]))
            f->point[left++] = f->point[i];
    f->count = left;
    if (left == ROOM)
        f->full = true;
    else
        f->point[f->count++] = p;
}

/* ---- one component -------------------------------------------------------------------------- */

/*
 * Axes that what is found in a dim depends on, and not by lengths alone: 0 where all of the far side is crossed, and
 * so all that is mine is found.
 */
static unsigned axes_found(const sherd__question *q, int d)
{
    const sherd__list *near = &q->grid->dim[d].side[q->near];
    const sherd__list *far = &q->grid->dim[d].side[1 - q->near];
    unsigned mine = 0, own = 0;

    for (int i = 0; i < near->levels; i++)
        mine |= 1u << near->axis[i];
    for (int i = 0; i < far->levels; i++)
        own |= 1u << far->axis[i];
    if (q->kind != SHERD__MESSAGES)
        own &= ~q->through;
    return own ? mine | (own & ~q->through) : 0;
}

static int64_t shards_through(const sherd__list *list, unsigned axes)
{
    int64_t shards = 1;

    for (int i = 0; i < list->levels; i++)
        shards *= axes >> list->axis[i] & 1 ? list->extent[i] : 1;
    return shards;
}

/* What a rank below this point finds in one dim at most. */
static int64_t most_found(const sherd__walk *w, int d)
{
    const front *f = w->what;
    const sherd__pieces *dim = &w->grid->dim[d];
    const sherd__list *far = &dim->side[1 - w->near];
    int64_t longest = sherd__place_longest(&dim->side[w->near], &w->mine[d]);

    if (f->asked->kind == SHERD__BOTH_BOXES)
        return longest;
    if (f->found[d] && (f->found[d] & ~w->known) == 0) { /* exact */
        const sherd__look look = {w->through, w->at, f->asked->kind == SHERD__MESSAGES};
        return sherd__place_gather(far, w->fence[d], w->mine[d].lo, w->mine[d].hi, &look);
    }
    if (f->asked->kind == SHERD__MESSAGES)
        return sherd__min(longest, shards_through(far, w->through));
    return sherd__place_most(far, &w->fence[d], w->through, longest);
}

/* What no rank below this point exceeds. */
static point most(const sherd__walk *w)
{
    const front *f = w->what;
    point p = {1, 0};
    int64_t far = 1;

    for (int d = 0; d < w->grid->ndim; d++) {
        if (!(w->component->dims >> d & 1))
            continue;
        p.u *= most_found(w, d);
        if (f->asked->kind == SHERD__BOTH_BOXES)
            far *= sherd__place_longest(&w->grid->dim[d].side[1 - w->near], &w->fence[d]);
    }
    if (f->asked->kind == SHERD__BOTH_BOXES)
        p.v = far;
    return p;
}

static bool worth(const sherd__walk *w)
{
    const front *f = w->what;

    if (!f->joint && f->count == 0)
        return true;
    point p = most(w);
    if (f->joint)
        return value_of(f, p) > f->best;
    for (int i = 0; i < f->count; i++)
        if (covers(f, f->point[i], p))
            return false;
    return true;
}

static void leaf(sherd__walk *w, int64_t times)
{
    front *f = w->what;
    const bool counting = f->asked->kind == SHERD__MESSAGES;
    const sherd__look out = {w->through, w->at, counting}, in = {w->own, w->at, counting};
    point p = {1, 1};

    (void)times;
    for (int d = 0; d < w->grid->ndim; d++) {
        if (!(w->component->dims >> d & 1))
            continue;
        const sherd__list *far = &w->grid->dim[d].side[1 - w->near];
        int64_t lo = w->mine[d].lo, hi = w->mine[d].hi;
        if (f->asked->kind == SHERD__BOTH_BOXES) {
            p.u *= hi - lo;
            p.v *= w->fence[d].hi - w->fence[d].lo;
            continue;
        }
        p.u *= sherd__place_gather(far, w->fence[d], lo, hi, &out);
        p.v *= sherd__place_gather(far, w->inner[d], lo, hi, &in);
    }
    if (f->joint) {
        if (value_of(f, p) > f->best)
            f->best = value_of(f, p);
        return;
    }
    add(f, p);
    w->done = f->full || covers(f, p, f->top);
}

static void walk(front *f, const sherd__component *c)
{
    sherd__component ordered = *c;
    sherd__walk w = {.grid = f->asked->grid,
                     .component = &ordered,
                     .near = f->asked->near,
                     .through = f->asked->through,
                     .own = f->asked->own,
                     .everything = f->asked->kind == SHERD__BOTH_BOXES,
                     .worth = worth,
                     .leaf = leaf,
                     .what = f};

    unsigned first = 0;

    for (int d = 0; d < w.grid->ndim; d++) {
        f->found[d] = c->dims >> d & 1 ? axes_found(f->asked, d) : 0;
        first |= f->found[d];
    }
    sherd__component_order(w.grid, &ordered, first);
    for (int d = 0; d < w.grid->ndim; d++)
        w.mine[d] = w.fence[d] = (sherd__place){0, 0, w.grid->dim[d].n, 0};
    f->top = most(&w);
    sherd__walk_run(&w);
    if (f->count == 0 && !f->full)
        add(f, (point){0, 0}); /* nobody finds anything */
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Of dims that stay only the longest shard counts: all of it is mine on both sides. */
static void take_staying(front *f)
{
    const sherd__grid *grid = f->asked->grid;

    for (int d = 0; d < grid->ndim; d++) {
        int64_t longest = grid->dim[d].side[0].longest;
        if (grid->dim[d].axes)
            continue;
        if (f->asked->kind == SHERD__MESSAGES)
            longest = longest > 0;
        f->times *= longest;
        f->less *= longest;
    }
}

static void multiply(front *product, const front *a, const front *b)
{
    product->count = 0;
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++)
            add(product, (point){a->point[i].u * b->point[j].u, a->point[i].v * b->point[j].v});
}

static int64_t cut(sherd__wide value)
{
    const int64_t limit = ((int64_t)1 << SHERD__SIZE_LIMIT_LOG2) - 1;

    return value < limit ? (int64_t)value : limit;
}

static int64_t walk_jointly(front *f)
{
    sherd__component all;

    sherd__grid_join(f->asked->grid, &all);
    f->joint = true;
    f->full = false;
    f->best = 0;
    walk(f, &all);
    return cut(f->best);
}

int64_t sherd__most(const sherd__question *question, int64_t times, int64_t less)
{
    const sherd__grid *grid = question->grid;
    front all = {.asked = question, .count = 1, .point = {{1, 1}}}, one, product;
    sherd__wide best = 0;

    all.times = times;
    all.less = less;
    take_staying(&all);
    one = product = all;
    for (int i = 0; i < grid->components; i++) {
        one.count = 0;
        walk(&one, &grid->component[i]);
        multiply(&product, &all, &one);
        if (one.full || product.full)
            return walk_jointly(&one);
        all.count = product.count;
        for (int j = 0; j < product.count; j++)
            all.point[j] = product.point[j];
    }
    for (int i = 0; i < all.count; i++)
        if (value_of(&all, all.point[i]) > best)
            best = value_of(&all, all.point[i]);
    return cut(best);
}
