/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A planner of its own, for a handful of ranks: it lists every state, counts what every rank gets
 * from every other one in every step between two of them, prices that, and finds the cheapest way
 * from one state to all others (Dijkstra). It leaves nothing out and estimates nothing.
 *
 * It is written from docs/planning.md and sherd/plan.h alone. Of the library it takes the arena's
 * time of so many elements, the slices of an all-reduce, and, under torch's model and where links
 * work by stages, the price of one step: tests/test_plan_links.c and tests/test_plan_torch.c
 * compute these again.
 */
#ifndef SHERD_EXHAUSTIVE_H
#define SHERD_EXHAUSTIVE_H

#include "moves.h"

enum { AXES = 3, DIMS = 3, RANKS = 8, STATES = 512 };

typedef struct cost {
    int64_t time, bytes, steps;
} cost;

static const cost never = {INT64_MAX, INT64_MAX, INT64_MAX};

/* How a dim is cut: the axes, outermost first, and where; without `listed`, by the chunk rule. */
typedef struct cuts {
    int axes, axis[AXES];
    bool listed;
    int64_t at[RANKS + 1];
} cuts;

typedef struct state {
    cuts dim[DIMS];
    int pending[AXES]; /* -1, or an op */
    int64_t lo[RANKS][DIMS], hi[RANKS][DIMS];
    const sherd_layout *layout;
} state;

typedef struct universe {
    paper p;
    const sherd_mesh *mesh;
    int axes, extent[AXES], ranks, at[RANKS][AXES];
    int ndim;
    int64_t shape[DIMS];
    sherd_price price;
    sherd_link link[AXES]; /* of each axis, for this tensor */
    int states;
    state state[STATES]; /* the source, the target, then all there are */
    cost step[STATES][STATES];
    cost from[STATES]; /* the cheapest way from one of them */
} universe;

/* ---- where things are ------------------------------------------------------------------------ */

static inline void universe_open(universe *u, const char *mesh, int ndim, const int64_t *shape,
                                 const sherd_price *price)
{
    paper_open(&u->p, RANKS);
    u->mesh = paper_mesh(&u->p, mesh);
    u->axes = sherd_mesh_axes(u->mesh);
    u->ranks = 1;
    u->ndim = ndim;
    u->price = *price;
    u->states = 0;
    for (int i = 0; i < u->axes; i++)
        u->ranks *= u->extent[i] = (int)sherd_mesh_extent(u->mesh, i);
    memcpy(u->shape, shape, (size_t)ndim * sizeof *shape);
    for (int r = 0; r < u->ranks; r++)
        for (int i = u->axes - 1, left = r; i >= 0; left /= u->extent[i--])
            u->at[r][i] = left % u->extent[i];
}

/* The chunk rule: each part has ceil(n / p) elements, as far as there are any. */
static inline void cut_chunk(int64_t *lo, int64_t *hi, int64_t p, int64_t i)
{
    int64_t n = *hi - *lo, chunk = (n + p - 1) / p, end = *hi;

    *lo = *lo + i * chunk < end ? *lo + i * chunk : end;
    *hi = *lo + chunk < end ? *lo + chunk : end;
}

/*
 * The interval of a rank by the list of `c`, of which the first `keep` axes are cut as `model` says,
 * and the others by the chunk rule.
 */
static inline void cut_dim(const universe *u, int rank, int64_t n, const cuts *c, const cuts *model,
                           int keep, int64_t *lo, int64_t *hi)
{
    int64_t shard = 0, below = 1;

    *lo = 0;
    *hi = n;
    if (model->listed && keep > 0) {
        for (int i = 0; i < model->axes; i++) {
            shard =
                i < keep ? shard * u->extent[model->axis[i]] + u->at[rank][model->axis[i]] : shard;
            below *= i < keep ? 1 : u->extent[model->axis[i]];
        }
        *lo = model->at[shard * below];
        *hi = model->at[(shard + 1) * below];
    } else {
        keep = 0;
    }
    for (int i = keep; i < c->axes; i++)
        cut_chunk(lo, hi, u->extent[c->axis[i]], u->at[rank][c->axis[i]]);
}

static inline int shared_axes(const cuts *a, const cuts *b)
{
    int i = 0;

    while (i < a->axes && i < b->axes && a->axis[i] == b->axis[i])
        i++;
    return i;
}

/*
 * The boxes of a state. If its list of a dim begins the source's list, it has its cuts; else, if it
 * begins the target's, those; else what it shares with the source's keeps the cuts of the source.
 */
static inline void place(const universe *u, state *s, const state *source, const state *target)
{
    for (int d = 0; d < u->ndim; d++) {
        const cuts *c = &s->dim[d], *model = &source->dim[d];
        int keep = shared_axes(c, model);
        if (keep < c->axes && shared_axes(c, &target->dim[d]) == c->axes) {
            model = &target->dim[d];
            keep = c->axes;
        }
        for (int r = 0; r < u->ranks; r++)
            cut_dim(u, r, u->shape[d], c, model, keep, &s->lo[r][d], &s->hi[r][d]);
    }
}

static inline bool is_cut_by(const universe *u, const state *s, int axis)
{
    for (int d = 0; d < u->ndim; d++)
        for (int i = 0; i < s->dim[d].axes; i++)
            if (s->dim[d].axis[i] == axis)
                return true;
    return false;
}

/* ---- as layouts of the library --------------------------------------------------------------- */

/* Sizes of shards, where these are not those of the chunk rule, or the state says so. */
static inline void write_sizes(const universe *u, const state *s, int d, sherd__writer *w)
{
    const cuts *c = &s->dim[d], none = {0};
    bool listed = c->listed;
    int64_t size[RANKS] = {0};
    int parts = 1;

    for (int i = 0; i < c->axes; i++)
        parts *= u->extent[c->axis[i]];
    for (int r = 0; r < u->ranks; r++) {
        int64_t lo, hi, shard = 0;
        cut_dim(u, r, u->shape[d], c, &none, 0, &lo, &hi);
        listed = listed || lo != s->lo[r][d] || hi != s->hi[r][d];
        for (int i = 0; i < c->axes; i++)
            shard = shard * u->extent[c->axis[i]] + u->at[r][c->axis[i]];
        size[shard] = s->hi[r][d] - s->lo[r][d];
    }
    for (int i = 0; i < parts && listed; i++)
        sherd__write(w, "%c%lld", i ? ',' : ':', (long long)size[i]);
}

static inline const sherd_layout *layout_of(universe *u, const state *s)
{
    char text[512];
    sherd__writer w = {text, sizeof text, 0};

    for (int d = 0; d < u->ndim; d++) {
        sherd__write(&w, "%c%lld", d ? ',' : '[', (long long)u->shape[d]);
        for (int i = 0; i < s->dim[d].axes; i++)
            sherd__write(&w, "%ca%d", i ? ',' : '(', s->dim[d].axis[i]);
        if (s->dim[d].axes) {
            write_sizes(u, s, d, &w);
            sherd__write(&w, ")");
        }
    }
    sherd__write(&w, "]");
    for (int i = 0; i < u->axes; i++)
        if (s->pending[i] >= 0)
            sherd__write(&w, " P(%s:a%d)", sherd__reduce_op_name((sherd_reduce_op)s->pending[i]),
                         i);
    sherd__write(&w, " on (%s)", sherd_mesh_text(u->mesh));
    return paper_layout(&u->p, text);
}

/* ---- all states ------------------------------------------------------------------------------ */

static inline void add_state(universe *u, const state *s)
{
    if (!CHECK(u->states < STATES))
        return;
    u->state[u->states] = *s;
    place(u, &u->state[u->states], &u->state[0], &u->state[1]);
    u->state[u->states].layout = layout_of(u, s->layout ? s : &u->state[u->states]);
    u->states++;
}

/* Axes from `axis` on: replicated, pending if the source is, or at any place of any list. */
static inline void list_states(universe *u, state *s, int axis)
{
    if (axis == u->axes) {
        add_state(u, s);
        return;
    }
    list_states(u, s, axis + 1);
    s->pending[axis] = u->state[0].pending[axis];
    if (s->pending[axis] >= 0)
        list_states(u, s, axis + 1);
    s->pending[axis] = -1;
    for (int d = 0; d < u->ndim; d++)
        for (int place = 0; place <= s->dim[d].axes; place++) {
            state next = *s;
            cuts *c = &next.dim[d];
            for (int i = c->axes++; i > place; i--)
                c->axis[i] = c->axis[i - 1];
            c->axis[place] = axis;
            list_states(u, &next, axis + 1);
        }
}

/* ---- the links of the axes ------------------------------------------------------------------- */

static inline int64_t tensor_bytes(const universe *u)
{
    int64_t bytes = sizeof(double);

    for (int d = 0; d < u->ndim; d++)
        bytes *= u->shape[d];
    return bytes;
}

/* Femtoseconds: numbers of these tests are small enough. */
static inline int64_t femto_of(const sherd_link *link, int64_t messages, int64_t bytes)
{
    return messages * link->alpha_picoseconds * 1000 + bytes * link->beta_femtoseconds;
}

/* By a message with all bytes of the tensor, then by beta. */
static inline bool is_slower(const universe *u, const sherd_link *a, const sherd_link *b)
{
    int64_t x = femto_of(a, 1, tensor_bytes(u)), y = femto_of(b, 1, tensor_bytes(u));

    return x > y || (x == y && a->beta_femtoseconds > b->beta_femtoseconds);
}

/* The line of an axis with the lowest limit that is enough; else the one with the highest. */
static inline const sherd_link *line_of(const universe *u, const char *axis)
{
    const sherd_link *fits = NULL, *highest = NULL;

    for (int i = 0; i < u->price.links; i++) {
        const sherd_link *l = &u->price.link[i];
        int64_t limit = l->upto_bytes ? l->upto_bytes : INT64_MAX;
        if (strcmp(l->axis, axis) != 0)
            continue;
        if (limit >= tensor_bytes(u) &&
            (!fits || (uint64_t)limit - 1 < (uint64_t)fits->upto_bytes - 1))
            fits = l;
        if (!highest || (uint64_t)l->upto_bytes - 1 > (uint64_t)highest->upto_bytes - 1)
            highest = l;
    }
    return fits ? fits : highest;
}

static inline void find_links(universe *u)
{
    const sherd_link none = {.axis = ""}, *slowest = NULL;

    for (int i = 0; i < u->price.links; i++) {
        const sherd_link *l = line_of(u, u->price.link[i].axis);
        slowest = !slowest || is_slower(u, l, slowest) ? l : slowest;
    }
    for (int i = 0; i < u->axes; i++) {
        char name[8];
        snprintf(name, sizeof name, "a%d", i);
        const sherd_link *own = line_of(u, name), *star = line_of(u, "*");
        u->link[i] = own ? *own : star ? *star : slowest ? *slowest : none;
    }
}

/* ---- one step -------------------------------------------------------------------------------- */

/* What comes to a rank or goes from it, by the slowest axis that a message crosses. */
typedef struct traffic {
    int64_t messages[AXES], elements[AXES];
} traffic;

/* What is to be known of a step. */
typedef struct facts {
    unsigned reduced;
    bool same;                                /* lists and cuts of all dims are */
    int64_t addends;                          /* of an element */
    int64_t received, target_max, target_all; /* elements */
    traffic in[RANKS], out[RANKS];
} facts;

static inline int64_t size_of(const universe *u, const state *s, int rank)
{
    int64_t n = 1;

    for (int d = 0; d < u->ndim; d++)
        n *= s->hi[rank][d] - s->lo[rank][d];
    return n;
}

/* How many elements of what rank r needs in b rank q has in a. */
static inline int64_t shared_of(const universe *u, const state *a, int q, const state *b, int r)
{
    int64_t n = 1;

    for (int d = 0; d < u->ndim; d++) {
        int64_t lo = a->lo[q][d] > b->lo[r][d] ? a->lo[q][d] : b->lo[r][d];
        int64_t hi = a->hi[q][d] < b->hi[r][d] ? a->hi[q][d] : b->hi[r][d];
        n *= hi > lo ? hi - lo : 0;
    }
    return n;
}

/*
 * Rank r asks the replica of a source that is at its own coordinates of all axes along which the
 * source is replicated, and each addend. The class of the message; -1: it does not ask q.
 */
static inline int class_of(const universe *u, const state *a, unsigned reduced, int q, int r)
{
    int slowest = -1;

    for (int i = 0; i < u->axes; i++) {
        if (u->at[q][i] == u->at[r][i])
            continue;
        if (!is_cut_by(u, a, i) && !(reduced >> i & 1))
            return -1;
        if (slowest < 0 || !is_slower(u, &u->link[slowest], &u->link[i]))
            slowest = i;
    }
    return slowest;
}

static inline bool same_cuts(const universe *u, const state *a, const state *b)
{
    for (int d = 0; d < u->ndim; d++)
        if (shared_axes(&a->dim[d], &b->dim[d]) < a->dim[d].axes || a->dim[d].axes < b->dim[d].axes)
            return false;
    return memcmp(a->lo, b->lo, sizeof a->lo) == 0 && memcmp(a->hi, b->hi, sizeof a->hi) == 0;
}

static inline void find_facts(facts *f, const universe *u, const state *a, const state *b)
{
    memset(f, 0, sizeof *f);
    f->addends = 1;
    f->same = same_cuts(u, a, b);
    for (int i = 0; i < u->axes; i++)
        if (a->pending[i] >= 0 && b->pending[i] < 0) {
            f->reduced |= 1u << i;
            f->addends *= u->extent[i];
        }
    for (int r = 0; r < u->ranks; r++) {
        int64_t needs = size_of(u, b, r);
        f->target_max = needs > f->target_max ? needs : f->target_max;
        f->target_all += needs;
        for (int q = 0; q < u->ranks; q++) {
            int by = class_of(u, a, f->reduced, q, r);
            int64_t n = by < 0 ? 0 : shared_of(u, a, q, b, r);
            if (n == 0)
                continue;
            f->received += n;
            f->in[r].messages[by]++;
            f->in[r].elements[by] += n;
            f->out[q].messages[by]++;
            f->out[q].elements[by] += n;
        }
    }
}

static inline int64_t join(int64_t sum, int64_t femto, bool overlap)
{
    return !overlap ? sum + femto : femto > sum ? femto : sum;
}

/* The busiest rank's messages one after the other, or each class beside the others. */
static inline int64_t direct_femto(const universe *u, const facts *f)
{
    int64_t most = 0;

    for (int r = 0; r < u->ranks; r++) {
        int64_t in = 0, out = 0;
        for (int i = 0; i < u->axes; i++) {
            sherd_link link = u->link[i];
            link.beta_femtoseconds += f->reduced ? link.gamma_femtoseconds : 0;
            in = join(in, femto_of(&link, f->in[r].messages[i], 8 * f->in[r].elements[i]),
                      u->price.overlap);
            out = join(out, femto_of(&link, f->out[r].messages[i], 8 * f->out[r].elements[i]),
                       u->price.overlap);
        }
        in = in > out ? in : out;
        most = in > most ? in : most;
    }
    return most;
}

/* Two phases: each addend of a slice to the rank that adds it up, then the slice to all. */
static inline int64_t sliced_femto(const universe *u, const facts *f)
{
    int64_t peers[AXES] = {0}, lo, slice, adding = 0, sending = 0;

    sherd__slice_of(f->target_max, f->addends, 0, &lo, &slice);
    for (int q = 1; q < u->ranks; q++) {
        unsigned apart = 0;
        for (int i = 0; i < u->axes; i++)
            apart |= u->at[q][i] ? 1u << i : 0;
        if (!(apart & ~f->reduced))
            peers[class_of(u, &(state){.pending = {0}}, f->reduced, q, 0)]++;
    }
    for (int i = 0; i < u->axes; i++) {
        int64_t get = femto_of(&u->link[i], peers[i], 8 * slice * peers[i]);
        int64_t add = get + 8 * slice * peers[i] * u->link[i].gamma_femtoseconds;
        adding = join(adding, add, u->price.overlap);
        sending = join(sending, get, u->price.overlap);
    }
    return adding + sending;
}

static inline int64_t picoseconds(int64_t femto)
{
    return (femto + 999) / 1000;
}

/* By the library: torch's model, and links by stages. */
static inline int64_t library_time(const universe *u, const state *a, const state *b, bool *sliced)
{
    const sherd__request request = {.price = u->price};
    sherd__priced step;
    const sherd__problem problem = sherd__problem_of((sherd__space *)(uintptr_t)&u->p.space,
                                                     a->layout, b->layout, 8, &request);

    CHECK_OK(sherd__step_price(&step, &problem, a->layout, b->layout));
    *sliced = step.step.sliced;
    return step.step.picoseconds;
}

static inline int64_t time_of(const universe *u, const state *a, const state *b, const facts *f,
                              bool *sliced)
{
    bool all_reduce = f->reduced && f->same && f->received;
    sherd_step_kind kind = f->received == 0 ? SHERD_STEP_SLICE
                           : all_reduce     ? SHERD_STEP_ALL_REDUCE
                           : f->reduced     ? SHERD_STEP_REDUCE_EXCHANGE
                                            : SHERD_STEP_EXCHANGE;

    *sliced = false;
    if (u->price.kind == SHERD_PRICE_ARENA)
        return sherd__arena_time(sliced, kind, f->same, f->target_max, f->addends, 8);
    if (u->price.kind == SHERD_PRICE_TORCH || !u->price.straight)
        return library_time(u, a, b, sliced);
    int64_t direct = direct_femto(u, f), slices = all_reduce ? sliced_femto(u, f) : direct;
    *sliced = slices < direct;
    return picoseconds(*sliced ? slices : direct);
}

/* A step reduces or leaves pending, and nothing becomes pending. */
static inline bool leads(const universe *u, const state *a, const state *b)
{
    for (int i = 0; i < u->axes; i++)
        if (b->pending[i] >= 0 && b->pending[i] != a->pending[i])
            return false;
    return a != b;
}

static inline cost step_cost(const universe *u, const state *a, const state *b)
{
    facts f;
    bool sliced;

    find_facts(&f, u, a, b);
    cost c = {time_of(u, a, b, &f, &sliced), 8 * f.received, 1};
    if (sliced)
        c.bytes = 8 * (f.target_all / f.addends * 2 * (f.addends - 1));
    return c;
}

/* ---- the cheapest ways ----------------------------------------------------------------------- */

static inline bool is_cheaper(cost a, cost b)
{
    if (a.time != b.time)
        return a.time < b.time;
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.steps < b.steps;
}

/* List all states between the two that are there, and price all steps. */
static inline void universe_fill(universe *u)
{
    state any = {.pending = {-1, -1, -1}};

    find_links(u);
    list_states(u, &any, 0);
    for (int i = 0; i < u->states; i++)
        for (int j = 0; j < u->states; j++)
            u->step[i][j] = leads(u, &u->state[i], &u->state[j])
                                ? step_cost(u, &u->state[i], &u->state[j])
                                : never;
}

/* Dijkstra: `from` gets the cheapest cost from a state to each. */
static inline void universe_search(universe *u, int source)
{
    bool done[STATES] = {false};

    for (int i = 0; i < u->states; i++)
        u->from[i] = never;
    u->from[source] = (cost){0, 0, 0};
    for (;;) {
        int next = -1;
        for (int i = 0; i < u->states; i++)
            if (!done[i] && u->from[i].steps != never.steps &&
                (next < 0 || is_cheaper(u->from[i], u->from[next])))
                next = i;
        if (next < 0)
            return;
        done[next] = true;
        for (int j = 0; j < u->states; j++) {
            cost way = u->step[next][j];
            if (way.steps == never.steps)
                continue;
            way = (cost){way.time + u->from[next].time, way.bytes + u->from[next].bytes,
                         way.steps + u->from[next].steps};
            u->from[j] = is_cheaper(way, u->from[j]) ? way : u->from[j];
        }
    }
}

#endif
