/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The maximum over all ranks of a quantity, exact, by components.
 *
 * A rank's number is times * (product of u over the components) - less * (product of v), with v <=
 * u everywhere. In the u and u - v of one component that is linear with non-negative factors. So in
 * a component only those points matter that no other point exceeds in both; mostly there is one.
 * The points of different components multiply. If a component has more such points than there is
 * room for, all components are walked as one, computing the number itself. Costs the points walked
 * until no larger number can follow: mostly a few.
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
    unsigned found[SHERD_MAX_DIMS]; /* see axes_found */
    int64_t limit[SHERD_MAX_DIMS];  /* the most that any rank finds in a dim */
    bool same;                      /* u and v are equal */
    point top;                      /* no rank of the component exceeds it */
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

/* ---- what a rank finds ---------------------------------------------------------------------- */

/*
 * The axes on whose coordinates it depends what is found in a dim. None, if all axes of the far
 * side are crossed: then all of my interval is found, whatever its place.
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

static int64_t found_in(const front *f, const sherd__sweep *w, int d)
{
    const sherd__list *far = &w->grid->dim[d].side[1 - w->near];
    const sherd__look look = {f->asked->through, w->at, f->asked->kind == SHERD__MESSAGES};

    return sherd__place_gather(far, w->fence[d], w->mine[d].lo, w->mine[d].hi, &look);
}

/* How long a part of the far side may be that has my coordinates so far, or a little more. */
static int64_t longest_fence(const sherd__list *far, const sherd__place *fence, unsigned through)
{
    int64_t length = fence->hi - fence->lo;

    for (int i = fence->level; i < far->levels && !far->cuts; i++) {
        if (through >> far->axis[i] & 1)
            break;
        length = sherd__ceil_div(length, far->extent[i]);
    }
    return length;
}

/* What a rank with the coordinates so far finds in one dim at most. */
static int64_t most_found(const front *f, const sherd__sweep *w, int d)
{
    const sherd__pieces *dim = &w->grid->dim[d];
    const sherd__list *far = &dim->side[1 - w->near];
    int64_t longest = sherd__place_longest(&dim->side[w->near], &w->mine[d]);

    if (f->asked->kind == SHERD__BOTH_BOXES)
        return longest;
    if (f->found[d] && (f->found[d] & ~w->known) == 0)
        return found_in(f, w, d); /* exact */
    if (f->asked->kind == SHERD__MESSAGES)
        longest = sherd__min(longest, shards_through(far, f->asked->through));
    else
        longest = sherd__min(longest, longest_fence(far, &w->fence[d], f->asked->through));
    return sherd__min(longest, f->limit[d]);
}

/* ---- one dim alone -------------------------------------------------------------------------- */

/* A walk over the axes that what is found in one dim depends on. */
typedef struct alone {
    const front *front;
    int d;
    int64_t most;
} alone;

static bool worth_alone(const sherd__sweep *w)
{
    const alone *a = w->what;

    return most_found(a->front, w, a->d) > a->most;
}

static void leaf_alone(sherd__sweep *w, int64_t times)
{
    alone *a = w->what;

    (void)times;
    a->most = sherd__max(a->most, found_in(a->front, w, a->d));
}

/*
 * Whether lengths alone are a bad bound of what is found in a dim: shards of the far side are
 * counted, or what is crossed of them lies in stripes, of which an interval may meet more or fewer.
 */
static bool needs_limit(const front *f, int d)
{
    const sherd__list *far = &f->asked->grid->dim[d].side[1 - f->asked->near];
    unsigned through = f->asked->through;
    bool crossed = false, striped = false;

    for (int i = 0; i < far->levels; i++) {
        striped = striped || (crossed && !(through >> far->axis[i] & 1));
        crossed = crossed || through >> far->axis[i] & 1;
    }
    return f->asked->kind == SHERD__MESSAGES ? crossed : striped;
}

static int64_t find_limit(const front *f, int d)
{
    alone a = {f, d, 0};
    sherd__component c = {.dims = 1u << d, .axes = f->found[d]};
    sherd__sweep w = {.grid = f->asked->grid,
                      .component = &c,
                      .near = f->asked->near,
                      .through = f->asked->through,
                      .own = f->asked->through,
                      .worth = worth_alone,
                      .leaf = leaf_alone,
                      .what = &a};

    sherd__component_order(w.grid, &c, c.axes);
    sherd__sweep_run(&w);
    return a.most;
}

/* ---- one component -------------------------------------------------------------------------- */

/* What no rank with the coordinates so far exceeds. */
static point most(const sherd__sweep *w)
{
    const front *f = w->what;
    point p = {1, 0};
    int64_t far = 1;

    for (int d = 0; d < w->grid->ndim; d++) {
        if (!(w->component->dims >> d & 1))
            continue;
        p.u *= most_found(f, w, d);
        if (f->asked->kind == SHERD__BOTH_BOXES)
            far *= sherd__place_longest(&w->grid->dim[d].side[1 - w->near], &w->fence[d]);
    }
    if (f->asked->kind == SHERD__BOTH_BOXES)
        p.v = far;
    else if (f->same)
        p.v = p.u;
    return p;
}

static bool worth(const sherd__sweep *w)
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

static void leaf(sherd__sweep *w, int64_t times)
{
    front *f = w->what;
    const sherd__look in = {w->own, w->at, f->asked->kind == SHERD__MESSAGES};
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
        p.u *= found_in(f, w, d);
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

/* Find what is known of a component before its walk; returns the axes to walk first. */
static unsigned prepare(front *f, const sherd__component *c)
{
    const sherd__question *q = f->asked;
    unsigned first = 0;

    f->same = true;
    for (int d = 0; d < q->grid->ndim; d++) {
        const sherd__list *far = &q->grid->dim[d].side[1 - q->near];
        if (!(c->dims >> d & 1))
            continue;
        f->found[d] = axes_found(q, d);
        first |= f->found[d];
        for (int i = 0; i < far->levels; i++)
            f->same = f->same && !(q->through & ~q->own & 1u << far->axis[i]);
        f->limit[d] = INT64_MAX;
        if (q->kind != SHERD__BOTH_BOXES && needs_limit(f, d))
            f->limit[d] = find_limit(f, d);
    }
    return first;
}

static void walk(front *f, const sherd__component *c)
{
    sherd__component ordered = *c;
    sherd__sweep w = {.grid = f->asked->grid,
                      .component = &ordered,
                      .near = f->asked->near,
                      .through = f->asked->through,
                      .own = f->asked->own,
                      .everything = f->asked->kind == SHERD__BOTH_BOXES,
                      .worth = worth,
                      .leaf = leaf,
                      .what = f};

    sherd__component_order(w.grid, &ordered, prepare(f, c));
    for (int d = 0; d < w.grid->ndim; d++)
        w.mine[d] = w.fence[d] = (sherd__place){0, 0, w.grid->dim[d].n, 0};
    f->top = most(&w);
    sherd__sweep_run(&w);
    if (f->count == 0 && !f->full)
        add(f, (point){0, 0}); /* nobody finds anything */
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* Of dims that stay only the longest shard counts: a rank has all of it on both sides. */
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

static int64_t walk_jointly(front *f)
{
    sherd__component all;

    sherd__grid_join(f->asked->grid, &all);
    f->joint = true;
    f->full = false;
    f->best = 0;
    walk(f, &all);
    return sherd__cut(f->best);
}

int64_t sherd__most(const sherd__question *question, int64_t times)
{
    const sherd__grid *grid = question->grid;
    front all = {.asked = question, .count = 1, .point = {{1, 1}}}, one, product;
    sherd__wide best = 0;

    all.times = times;
    all.less = 1;
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
    return sherd__cut(best);
}
