/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The amounts of a whole plan on the worst rank. For a plan of one step they are the step's maxima.
 * With several steps the busiest rank may be another one each time, so the largest sums are
 * searched for among the ranks, first by lengths, then by positions:
 *
 * - Runs of coordinates that give equal lengths in all layouts are taken at once, axis by axis;
 *   there are few. They determine all boxes, and what steps move, except for overlaps where a dim
 *   is cut along other axes than before.
 * - The best case of these is taken as a bound; only where that exceeds the best found so far,
 *   coordinates are tried one by one, and each overlap is exact as soon as its axes are known.
 *
 * Mostly some rank soon reaches its bound, and some hundred points are visited, on any number of
 * ranks. The search ends after MOST_POINTS (some tenths of a second); then the answer is the sum of
 * the steps' maxima, which no rank exceeds. Up to as many ranks it is exact.
 */
#include "price.h"
#include "plan/pieces.h"
#include "base/num.h"

#include <string.h>

enum { MOST_POINTS = 1 << 18 };

/* Elements of one rank, or what no rank exceeds. */
typedef struct amount {
    sherd__wide receive, send, peak;
} amount;

/* One layout of the chain. */
typedef struct stop {
    sherd__list list[SHERD_MAX_DIMS];
    unsigned axes;
    sherd__wide held; /* by the rank at the known coordinates, or at most */
} stop;

/* One step of it. */
typedef struct move {
    const sherd__priced *priced;
    unsigned crossed; /* axes that pulls cross */
    int64_t copies;   /* how often a group asks for the same */
    bool local;       /* nothing travels */
    bool shares;      /* its result shares the storage of its source */
    sherd__wide most_received, most_sent;
    /*
     * per dim: axes on whose coordinates the overlaps depend; what a rank keeps (if these are not
     * known yet, at least); what is asked of it (then at most)
     */
    unsigned placed[SHERD_MAX_DIMS];
    int64_t kept[SHERD_MAX_DIMS], asked[SHERD_MAX_DIMS];
} move;

typedef struct chain {
    const sherd_mesh *mesh;
    const sherd_layout *from;
    int count;
    stop *stop; /* [count + 1] */
    move *move; /* [count] */
    sherd__runs runs;
    int axes, order[SHERD_MAX_AXES];                 /* axes on which lengths depend */
    int placed, placed_order[SHERD_MAX_AXES];        /* of these, those on which overlaps do */
    int64_t at[SHERD_MAX_AXES], end[SHERD_MAX_AXES]; /* the run of coordinates [at, end) */
    unsigned known, fixed; /* axes that have a run; axes whose coordinate is `at` */
    int64_t points;        /* visited so far */
    amount best;
} chain;

static int64_t cut_bytes(sherd__wide elements, size_t element_bytes)
{
    return sherd__mul_cut(sherd__cut(elements), (int64_t)element_bytes);
}

static sherd__wide larger(sherd__wide a, sherd__wide b)
{
    return a > b ? a : b;
}

static sherd__wide smaller(sherd__wide a, sherd__wide b)
{
    return a < b ? a : b;
}

/* ---- what a rank has ------------------------------------------------------------------------ */

static sherd__place place_of(const chain *c, const stop *s, int d, unsigned crossed)
{
    sherd__place place = {0, 0, c->from->spec.shape[d], 0};

    sherd__place_descend(&s->list[d], &place, c->at, c->known, crossed);
    return place;
}

/* What a rank holds at this stop; at most, if some axes have no run yet. */
static void find_held(const chain *c, stop *s)
{
    s->held = 1;
    for (int d = 0; d < c->from->spec.ndim; d++) {
        sherd__place place = place_of(c, s, d, 0);
        s->held *= sherd__place_longest(&s->list[d], &place);
    }
}

/*
 * What a rank receives, and also sends, in a sliced all-reduce: the others' addends of its slice,
 * and all other slices. No slice is longer than the one before, so the first coordinates of a run
 * have the most.
 */
static sherd__wide slice_received(const chain *c, const move *m, sherd__wide held)
{
    int64_t n = (int64_t)held, k = m->priced->change.addends, i = 0, lo, hi;

    for (int a = 0; a < c->mesh->axes; a++)
        if (m->priced->change.reduced >> a & 1)
            i = i * c->mesh->extent[a] + c->at[a];
    sherd__slice_of(n, k, i, &lo, &hi);
    return (sherd__wide)(hi - lo) * (k - 2) + n;
}

/* One dim of a step: exact if its coordinates are fixed, else the most that its lengths allow. */
static void count_dim(const chain *c, int i, int d)
{
    move *m = &c->move[i];
    const stop *to = &c->stop[i + 1];
    sherd__place mine = place_of(c, &c->stop[i], d, 0);

    if (m->placed[d] & ~c->fixed) {
        sherd__place fence = place_of(c, to, d, m->crossed);
        m->kept[d] = 0;
        m->asked[d] = sherd__min(mine.hi - mine.lo, fence.hi - fence.lo);
        return;
    }
    const sherd__place whole = {0, 0, c->from->spec.shape[d], 0};
    const sherd__look look = {m->crossed, c->at, false};
    sherd__place target = place_of(c, to, d, 0);
    m->kept[d] = sherd__max(sherd__min(mine.hi, target.hi) - sherd__max(mine.lo, target.lo), 0);
    m->asked[d] = sherd__place_gather(&to->list[d], whole, mine.lo, mine.hi, &look);
}

/* Received and sent in one step at coordinates that all have a run. */
static void add_move(const chain *c, int i, amount *sum)
{
    const move *m = &c->move[i];
    sherd__wide kept = 1, asked = 1, held = c->stop[i + 1].held;

    if (m->local)
        return;
    if (m->priced->step.sliced) {
        sum->receive += slice_received(c, m, held);
        sum->send += slice_received(c, m, held);
        return;
    }
    for (int d = 0; d < c->from->spec.ndim; d++) {
        kept *= m->kept[d];
        asked *= m->asked[d];
    }
    sum->receive += smaller(m->most_received, held * m->priced->change.addends - kept);
    sum->send += smaller(m->most_sent, asked * m->copies - kept);
}

/* What no rank with the known coordinates exceeds; exact if all coordinates are fixed. */
static amount bound(const chain *c)
{
    amount all = {0, 0, c->stop[0].held};
    bool lengths = c->axes == 0 || c->known >> c->order[c->axes - 1] & 1;
    bool fresh = false; /* the step's input has other storage than the plan's source */

    for (int i = 0; i < c->count; i++) {
        const move *m = &c->move[i];
        sherd__wide in = c->stop[i].held, out = c->stop[i + 1].held;
        if (lengths) {
            add_move(c, i, &all);
        } else {
            all.receive += smaller(m->most_received, out * m->priced->change.addends);
            all.send += smaller(m->most_sent, in * m->copies);
        }
        all.peak = larger(all.peak, c->stop[0].held + (fresh ? in : 0) + (m->shares ? 0 : out));
        fresh = fresh || !m->shares;
    }
    return all;
}

/* ---- the search ----------------------------------------------------------------------------- */

/* Whether a rank with these coordinates may exceed the best; `last`: take what it has instead. */
static bool go_on(chain *c, bool last)
{
    if (c->points++ >= MOST_POINTS)
        return false;
    amount most = bound(c);
    if (last) {
        c->best.receive = larger(c->best.receive, most.receive);
        c->best.send = larger(c->best.send, most.send);
        c->best.peak = larger(c->best.peak, most.peak);
    }
    return !last &&
           (most.receive > c->best.receive || most.send > c->best.send || most.peak > c->best.peak);
}

/* Dims whose overlaps depend on the position of this axis. */
static void count_dims(const chain *c, int axis)
{
    for (int i = 0; i < c->count; i++)
        for (int d = 0; d < c->from->spec.ndim; d++)
            if (c->move[i].placed[d] >> axis & 1)
                count_dim(c, i, d);
}

/* The coordinates of the runs, one by one. */
static void search_positions(chain *c, int depth)
{
    if (!go_on(c, depth == c->placed))
        return;
    int axis = c->placed_order[depth];
    int64_t first = c->at[axis];
    c->fixed |= 1u << axis;
    for (; c->at[axis] < c->end[axis]; c->at[axis]++) {
        count_dims(c, axis);
        search_positions(c, depth + 1);
    }
    c->fixed &= ~(1u << axis);
    c->at[axis] = first;
    count_dims(c, axis);
}

static void find_held_by(const chain *c, int axis)
{
    for (int i = 0; i <= c->count; i++)
        if (c->stop[i].axes >> axis & 1)
            find_held(c, &c->stop[i]);
}

/* Runs of equal lengths. */
static void search(chain *c, int depth)
{
    if (depth == c->axes) {
        for (int i = 0; i < c->count; i++)
            for (int d = 0; d < c->from->spec.ndim && !c->move[i].local; d++)
                count_dim(c, i, d);
        search_positions(c, 0);
        return;
    }
    if (!go_on(c, false))
        return;
    int axis = c->order[depth];
    c->known |= 1u << axis;
    for (int64_t i = 0; i < c->mesh->extent[axis]; i = c->end[axis]) {
        c->at[axis] = i;
        c->end[axis] = sherd__runs_next(&c->runs, axis, i);
        find_held_by(c, axis);
        search(c, depth + 1);
    }
    c->known &= ~(1u << axis);
    find_held_by(c, axis);
}

/* ---- what is alike -------------------------------------------------------------------------- */

/* Runs of coordinates that give equal lengths in a layout; of explicit cuts each is its own. */
static void split_stop(chain *c, const stop *s)
{
    for (int d = 0; d < c->from->spec.ndim; d++) {
        int64_t length[SHERD__LENGTHS] = {c->from->spec.shape[d]};
        int count = 1;
        if (s->list[d].cuts)
            for (int i = 0; i < s->list[d].levels; i++)
                c->runs.positional |= 1u << s->list[d].axis[i];
        else
            sherd__runs_list(&c->runs, &s->list[d], length, &count);
    }
}

/* Where both lists of a dim go on after what they share, positions count. */
static void find_placed(move *m, const sherd__change *change)
{
    for (int d = 0; d < change->ndim; d++) {
        const sherd__dim *source = &change->source[d], *target = &change->target[d];
        int common = change->common[d];
        if (common == source->axes || common == target->axes)
            continue;
        for (int i = common; i < source->axes; i++)
            m->placed[d] |= 1u << source->axis[i];
        for (int i = common; i < target->axes; i++)
            m->placed[d] |= 1u << target->axis[i];
    }
}

static void set_order(chain *c)
{
    unsigned axes = c->stop[0].axes, placed = 0;

    for (int i = 0; i < c->count; i++) {
        axes |= c->stop[i + 1].axes;
        if (c->move[i].priced->step.sliced)
            axes |= c->move[i].priced->change.reduced;
        for (int d = 0; d < c->from->spec.ndim; d++)
            placed |= c->move[i].placed[d];
    }
    for (int a = 0; a < c->mesh->axes; a++) {
        if (axes >> a & 1)
            c->order[c->axes++] = a;
        if (placed >> a & 1)
            c->placed_order[c->placed++] = a;
    }
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void make_stop(const chain *c, stop *s, const sherd__dim *dim)
{
    for (int d = 0; d < c->from->spec.ndim; d++) {
        sherd__list_make(&s->list[d], c->mesh, &dim[d], 0, c->from->spec.shape[d]);
        for (int i = 0; i < s->list[d].levels; i++)
            s->axes |= 1u << s->list[d].axis[i];
    }
    find_held(c, s);
}

static void make_move(const chain *c, move *m, const sherd__priced *priced, size_t element_bytes)
{
    const sherd__change *change = &priced->change;
    int64_t bytes = (int64_t)element_bytes;

    m->priced = priced;
    m->local = priced->step.kind == SHERD_STEP_SLICE || priced->step.kind == SHERD_STEP_PARTITION;
    m->shares = sherd__step_shares(&priced->step, change);
    if (m->local)
        return;
    m->crossed = change->gathered | change->reduced;
    m->copies = sherd__extent_of(c->mesh, m->crossed & ~change->cut);
    m->most_received = priced->amounts.receive_max;
    m->most_sent = priced->amounts.send_max;
    if (priced->step.sliced) { /* which has its own extremes */
        m->most_received = sherd__ceil_div(priced->step.recv_max_bytes, bytes);
        m->most_sent = sherd__ceil_div(priced->send_max_bytes, bytes);
        m->copies = change->addends;
    }
    find_placed(m, change);
}

static void make(chain *c, const sherd__priced *steps, size_t element_bytes)
{
    make_stop(c, &c->stop[0], steps[0].change.source);
    for (int i = 0; i < c->count; i++) {
        make_stop(c, &c->stop[i + 1], steps[i].change.target);
        make_move(c, &c->move[i], &steps[i], element_bytes);
    }
    for (int i = 0; i <= c->count; i++)
        split_stop(c, &c->stop[i]);
    set_order(c);
}

/* Of steps within one mesh. */
static sherd_status find(sherd__chain *out, const sherd__problem *problem,
                         const sherd__priced *steps, int count)
{
    sherd__heap *heap = problem->space->heap;
    chain c = {.mesh = problem->from->spec.mesh, .from = problem->from, .count = count};

    c.runs.mesh = c.mesh;
    c.stop = sherd__alloc(heap, (size_t)count + 1, sizeof *c.stop);
    c.move = sherd__alloc(heap, (size_t)count, sizeof *c.move);
    if (!c.stop || !c.move) {
        sherd__free(heap, c.stop);
        sherd__free(heap, c.move);
        return sherd__no_memory(problem->space->diag, "sherd_plan_create");
    }
    make(&c, steps, problem->element_bytes);
    c.best = (amount){-1, -1, -1};
    amount most = bound(&c);
    search(&c, 0);
    if (c.points > MOST_POINTS)
        c.best = most;
    out->receive_max = cut_bytes(c.best.receive, problem->element_bytes);
    out->send_max = cut_bytes(c.best.send, problem->element_bytes);
    out->peak = cut_bytes(c.best.peak, problem->element_bytes);
    sherd__free(heap, c.stop);
    sherd__free(heap, c.move);
    return SHERD_OK;
}

sherd_status sherd__chain_find(sherd__chain *out, const sherd__problem *problem,
                               const sherd__priced *steps, int count)
{
    memset(out, 0, sizeof *out);
    if (count > 1 && steps[count - 1].change.across)
        return sherd__across_chain(out, problem, steps, count);
    if (count > 1)
        return find(out, problem, steps, count);
    if (count == 0) {
        out->peak = cut_bytes(sherd__layout_largest(problem->from), problem->element_bytes);
        return SHERD_OK;
    }
    bool shares = sherd__step_shares(&steps->step, &steps->change);
    out->receive_max = steps->step.recv_max_bytes;
    out->send_max = steps->send_max_bytes;
    out->peak = cut_bytes(shares ? steps->amounts.source_max : steps->amounts.both_max,
                          problem->element_bytes);
    return SHERD_OK;
}
