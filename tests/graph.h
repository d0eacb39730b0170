/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that a plan may go through, as a graph: every state of a small mesh, every step between two
 * of them priced, and the cheapest paths by relaxing edges until nothing changes. It knows nothing
 * of how the planner searches. And layouts at random, and a price under which messages matter.
 */
#ifndef SHERD_GRAPH_H
#define SHERD_GRAPH_H

#include "moves.h"

enum { STATES = 400 };

typedef struct cost {
    int64_t time, bytes, steps;
} cost;

static const cost none = {INT64_MAX, INT64_MAX, INT64_MAX};

static inline int compare(cost a, cost b)
{
    if (a.time != b.time)
        return a.time < b.time ? -1 : 1;
    if (a.bytes != b.bytes)
        return a.bytes < b.bytes ? -1 : 1;
    return (a.steps > b.steps) - (a.steps < b.steps);
}

static inline cost sum(cost a, cost b)
{
    return (cost){a.time + b.time, a.bytes + b.bytes, a.steps + b.steps};
}

/* All states that a plan may go through, and the steps between them. */
typedef struct graph {
    paper *p;
    const sherd_layout *from, *to; /* whose cuts the states have */
    sherd_plan_options options;
    sherd__request request;
    sherd_reduce_op op;
    int count;
    const sherd_layout *state[STATES];
    uint64_t key[STATES];
    cost step[STATES][STATES];
} graph;

static inline void note_state(graph *g, const sherd_layout *layout)
{
    sherd__state state;

    for (int i = 0; i < g->count; i++)
        if (g->state[i] == layout)
            return;
    if (!CHECK(g->count < STATES))
        return;
    sherd__state_of(&state, layout);
    g->key[g->count] = sherd__state_key(&state, layout->spec.mesh->axes, layout->spec.ndim);
    g->state[g->count++] = layout;
}

/* Axes from `axis` on anywhere: replicated, pending, or at any place of the list of any dim. */
static inline void list_states(graph *g, sherd__state *state, int axis)
{
    const sherd__layout_spec *spec = &g->from->spec;

    if (axis == spec->mesh->axes) {
        const sherd_layout *layout = NULL;
        bool across = g->from->spec.mesh != g->to->spec.mesh;
        CHECK_OK(sherd__state_layout(&layout, state, g->from, across ? g->from : g->to));
        note_state(g, layout);
        return;
    }
    list_states(g, state, axis + 1);
    state->pending[axis] = (int8_t)g->op;
    list_states(g, state, axis + 1);
    state->pending[axis] = -1;
    for (int d = 0; d < spec->ndim; d++)
        for (int place = 0; place <= state->axes[d]; place++) {
            sherd__state next = *state;
            for (int i = next.axes[d]++; i > place; i--)
                next.axis[d][i] = next.axis[d][i - 1];
            next.axis[d][place] = (int8_t)axis;
            list_states(g, &next, axis + 1);
        }
}

/* A step reduces or leaves pending; and from another mesh no step comes back. */
static inline bool leads(const graph *g, const sherd_layout *a, const sherd_layout *b)
{
    return a != b && !(b->pending_axes & ~a->pending_axes) && a->spec.mesh == g->from->spec.mesh;
}

/* What the fullest rank holds in a step, all ranks asked. */
static inline int64_t peak(const sherd_layout *source, const sherd__priced *step)
{
    bool shares = sherd__step_shares(&step->step, &step->change);
    const sherd_mesh *mesh = source->spec.mesh;
    int64_t worst = 0;

    for (int64_t r = 0; r < mesh->count; r++) {
        int rank = mesh->ranks ? mesh->ranks[r] : (int)r;
        sherd_box a = sherd_layout_box(source, rank, 0);
        sherd_box b = sherd_layout_box(step->step.from, rank, 0);
        sherd_box c = sherd_layout_box(step->step.to, rank, 0);
        int64_t held = sherd__box_count(&a);
        held += step->step.from == source ? 0 : sherd__box_count(&b);
        held += shares ? 0 : sherd__box_count(&c);
        worst = held > worst ? held : worst;
    }
    return worst * 8;
}

/* Price every step; with limits, as seen from one source. */
static inline void price_all(graph *g, const sherd_layout *source)
{
    const sherd__problem problem = sherd__problem_of(&g->p->space, g->from, g->to, 8, &g->request);

    for (int i = 0; i < g->count; i++)
        for (int j = 0; j < g->count; j++) {
            sherd__priced step;
            g->step[i][j] = none;
            if (!leads(g, g->state[i], g->state[j]))
                continue;
            CHECK_OK(sherd__step_price(&step, &problem, g->state[i], g->state[j]));
            if (g->request.forbidden >> step.step.kind & 1)
                continue;
            if (g->request.max_bytes && peak(source, &step) > g->request.max_bytes)
                continue;
            g->step[i][j] = (cost){step.step.picoseconds, step.step.recv_total_bytes, 1};
        }
}

static inline void graph_open(graph *g, paper *p, const sherd_layout *from, const sherd_layout *to,
                              sherd_reduce_op op, const sherd_plan_options *options)
{
    sherd__state state;

    g->p = p;
    g->from = from;
    g->to = to;
    g->op = op;
    g->count = 0;
    g->options = *options;
    CHECK_OK(sherd__request_make(&g->request, from, to, options));
    note_state(g, from);
    note_state(g, to);
    memset(&state, 0, sizeof state);
    memset(state.pending, -1, sizeof state.pending);
    list_states(g, &state, 0);
    price_all(g, from);
}

static inline int find_state(const graph *g, const sherd_layout *layout)
{
    int i = 0;

    while (i < g->count && g->state[i] != layout)
        i++;
    CHECK(i < g->count);
    return i;
}

/* Cheapest costs to `to` from everywhere, by relaxing until nothing changes. */
static inline void relax(const graph *g, int to, cost *left)
{
    bool changed = true;

    for (int i = 0; i < g->count; i++)
        left[i] = none;
    left[to] = (cost){0, 0, 0};
    while (changed) {
        changed = false;
        for (int i = 0; i < g->count; i++)
            for (int j = 0; j < g->count; j++) {
                if (left[j].steps == INT64_MAX || g->step[i][j].steps == INT64_MAX)
                    continue;
                cost way = sum(g->step[i][j], left[j]);
                if (compare(way, left[i]) < 0) {
                    left[i] = way;
                    changed = true;
                }
            }
    }
}

/* Of the cheapest paths the one with the smallest keys in order; the number of its stops. */
static inline int first_path(const graph *g, int from, int to, const cost *left, int *stop)
{
    int stops = 0;

    stop[stops++] = from;
    while (from != to && stops < 32) {
        int best = -1;
        for (int j = 0; j < g->count; j++)
            if (g->step[from][j].steps != INT64_MAX && left[j].steps != INT64_MAX &&
                compare(sum(g->step[from][j], left[j]), left[from]) == 0 &&
                (best < 0 || g->key[j] < g->key[best]))
                best = j;
        from = best;
        stop[stops++] = best;
    }
    return stops;
}

typedef struct tally {
    int64_t pairs, longer, refused;
} tally;

static inline bool has_ones(const sherd_mesh *mesh)
{
    for (int i = 0; i < mesh->axes; i++)
        if (mesh->extent[i] == 1)
            return true;
    return false;
}

/* The plan of one pair of states against the graph. */
static inline void compare_pair(const graph *g, const sherd_layout *from, const sherd_layout *to,
                                const cost *left, tally *t)
{
    int a = find_state(g, from), b = find_state(g, to), stop[32];
    const sherd_plan *plan = NULL;

    sherd_status status = sherd_plan_create(&plan, from, to, SHERD_F64, &g->options);
    t->pairs++;
    if (left[a].steps == INT64_MAX) {
        CHECK_EQ(status, SHERD_ELIMIT);
        t->refused++;
        return;
    }
    if (!CHECK_OK(status)) {
        fprintf(stderr, "%s -> %s: %s\n", from->text, to->text, g->p->diag.text);
        return;
    }
    int stops = first_path(g, a, b, left, stop);
    bool good = CHECK_EQ(plan->price.picoseconds, left[a].time);
    good = CHECK_EQ(plan->price.recv_total_bytes, left[a].bytes) && good;
    good = CHECK_EQ(plan->steps, left[a].steps) && good;
    good = CHECK(plan->price.proven) && good;
    /* an axis of extent 1 may stand anywhere on the way; the planner puts it where the target has
     * it */
    for (int i = 0; i < plan->steps && good && !has_ones(from->spec.mesh); i++)
        good = CHECK(plan->step[i].from == g->state[stop[i]] &&
                     plan->step[i].to == g->state[stop[i + 1]]);
    t->longer += plan->steps > 1;
    if (good)
        return;
    fprintf(stderr, "%s: %s; but\n", plan->what, plan->trace);
    for (int i = 0; i < stops; i++)
        fprintf(stderr, "  %s\n", g->state[stop[i]]->text);
}

/* All pairs of states, every `stride`-th. Only with default cuts, where states are the same for all
 * pairs. */
static inline void compare_all(graph *g, int stride, tally *t)
{
    static cost left[STATES];
    static const sherd_layout *state[STATES];
    int64_t turn = 0;

    memcpy(state, g->state, sizeof state);
    for (int j = 0; j < g->count; j++) {
        relax(g, j, left);
        for (int i = 0; i < g->count; i++)
            if (leads(g, state[i], state[j]) && turn++ % stride == 0)
                compare_pair(g, state[i], state[j], left, t);
    }
}

/* ---- questions ------------------------------------------------------------------------------- */

static inline sherd_price slow_messages(void)
{
    return (sherd_price){
        .kind = SHERD_PRICE_LINKS,
        .links = 2,
        .link = {{"a0", 5000000, 100000, 20000, 0}, {"*", 400000, 10000, 20000, 0}}};
}

/* What is slow by its messages is not what is slow by its bytes. */
static inline sherd_price slow_in_two_ways(void)
{
    return (sherd_price){.kind = SHERD_PRICE_LINKS,
                         .links = 3,
                         .link = {{"a0", 5000000, 10000, 20000, 0},
                                  {"a1", 0, 100000, 5000, 0},
                                  {"*", 400000, 40000, 1000, 0}}};
}

/* Any placements in any order; half of the dims have cuts of their own, a third of their shards
 * empty. */
static const sherd_layout *any_layout(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                      bool cuts, int op, uint64_t *state)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES], axes = mesh->axes;
    int64_t sizes[3][64], parts[3] = {1, 1, 1};
    const int64_t *views[3] = {NULL};
    const sherd_layout *layout = NULL;

    for (int i = 0; i < axes; i++) {
        int choice = (int)(paper_random(state) % (uint64_t)(ndim + 1 + (op >= 0)));
        placement[i] = choice < ndim    ? sherd_shard(choice)
                       : choice == ndim ? sherd_replicate()
                                        : sherd_partial((sherd_reduce_op)op);
        if (choice < ndim)
            parts[choice] *= mesh->extent[i];
    }
    for (int d = 0; d < ndim; d++) {
        paper_sizes(state, shape[d], parts[d], sizes[d]);
        if (cuts && paper_random(state) & 1)
            views[d] = sizes[d];
    }
    paper_permutation((int64_t)(paper_random(state) % 6), axes, rank_of);
    paper_order(placement, rank_of, axes, order);
    const sherd_layout_options options = {order, views};
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placement, &options));
    return layout;
}

#endif
