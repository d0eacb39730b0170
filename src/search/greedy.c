/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch's default planner. First from the inner axes to the outer: each axis takes its target's
 * placement, but is replicated if the axes outside it on that dim are not yet those of the target.
 * Then from the outer to the inner, what is left. At most two steps an axis; it does not use
 * prices.
 *
 * PyTorch runs it if both shard orders are the mesh's, and there the steps are PyTorch's. Here
 * inner and outer are positions in the lists of axes, so it works for all orders. One more
 * difference: a replica becomes a pending reduction only once no incompatible reduction is pending;
 * PyTorch mixes them.
 */
#include "series.h"

typedef struct greedy {
    sherd__series *series;
    const sherd_mesh *mesh;
    int ndim;
    double gib;
    sherd__ring rings[SHERD_MAX_AXES];
    sherd__state source, target;
} greedy;

static const sherd__state *here(const greedy *g)
{
    return &g->series->state[g->series->hops];
}

/* How many axes of the dim's list lie outside of `axis`: all, if it is not in it. */
static int outside(const sherd__state *state, int d, int axis)
{
    int i = 0;

    while (i < state->axes[d] && state->axis[d][i] != axis)
        i++;
    return i;
}

/* Whether the same axes lie outside of `axis` on the dim now and in the target. */
static bool aligned(const greedy *g, int d, int axis)
{
    const sherd__state *now = here(g);
    int count = outside(now, d, axis);

    if (count != outside(&g->target, d, axis))
        return false;
    for (int i = 0; i < count; i++)
        if (now->axis[d][i] != g->target.axis[d][i])
            return false;
    return true;
}

/* Whether a reduction may become pending beside those that are. */
static bool goes_with(const greedy *g, sherd_reduce_op op)
{
    for (int i = 0; i < g->mesh->axes; i++) {
        int other = here(g)->pending[i];
        if (other >= 0 && !sherd__reduce_ops_mix(op, (sherd_reduce_op)other))
            return false;
    }
    return true;
}

/* Upstream takes the shape that the outer axes of the source leave, at every step. */
static void step_to(greedy *g, int axis, sherd_placement to)
{
    sherd_placement from = sherd__state_placement(here(g), g->ndim, axis);
    bool parts = from.kind == SHERD_REPLICATE && to.kind == SHERD_PARTIAL;

    if (sherd__placement_equal(from, to) || (parts && !goes_with(g, to.op)))
        return;
    g->series->cost += sherd__ring_time(&g->rings[axis], sherd__collective_of(from, to), &g->gib);
    sherd__series_on(g->series, axis, to, &g->source, ~0u << axis);
}

/*
 * The next axis of those not in `done`: the last one whose inner axes in the source are done, or
 * the first one whose outer axes in the target are done.
 */
static int next_axis(const greedy *g, unsigned done, bool inward)
{
    const sherd__state *order = inward ? &g->target : &g->source;
    unsigned waits = 0;
    int found = -1;

    for (int d = 0; d < g->ndim; d++) {
        bool blocked = false;
        for (int i = 0; i < order->axes[d]; i++) {
            int axis = order->axis[d][inward ? i : order->axes[d] - 1 - i];
            if (blocked)
                waits |= 1u << axis;
            blocked = blocked || !(done >> axis & 1);
        }
    }
    for (int i = 0; i < g->mesh->axes; i++)
        if (!((done | waits) >> i & 1) && (found < 0 || !inward))
            found = i;
    return found;
}

static void go_outward(greedy *g)
{
    unsigned done = 0;

    for (int i = 0; i < g->mesh->axes; i++) {
        int axis = next_axis(g, done, false);
        sherd_placement to = sherd__state_placement(&g->target, g->ndim, axis);
        if (to.kind == SHERD_SHARD && !aligned(g, to.dim, axis))
            to = sherd_replicate();
        step_to(g, axis, to);
        done |= 1u << axis;
    }
}

static void go_inward(greedy *g)
{
    unsigned done = 0;

    for (int i = 0; i < g->mesh->axes; i++) {
        int axis = next_axis(g, done, true);
        step_to(g, axis, sherd__state_placement(&g->target, g->ndim, axis));
        done |= 1u << axis;
    }
}

void sherd__greedy_series(sherd__series *series, const sherd__problem *problem)
{
    const sherd_layout *from = problem->from;
    const sherd_mesh *mesh = from->spec.mesh;
    greedy g = {.series = series, .mesh = mesh, .ndim = from->spec.ndim};
    int64_t shards = sherd__extent_of(mesh, from->shard_axes);

    g.gib = sherd__ring_gib(sherd__tensor_bytes(from, problem->element_bytes), (double)shards);
    sherd__rings_find(g.rings, mesh, problem->request->per_host);
    sherd__state_of(&g.source, from);
    sherd__state_of(&g.target, problem->to);
    sherd__series_begin(series, problem);
    if (shards > 1)
        go_outward(&g);
    go_inward(&g);
    go_inward(&g); /* what had to wait for other reductions */
    /* with no shard but of axes of extent 1, these may have come in another order */
    if (series->hops > 0)
        series->state[series->hops] = g.target;
}

sherd_status sherd__greedy_find(sherd__answer *out, const sherd__problem *problem)
{
    sherd__series series;

    sherd__greedy_series(&series, problem);
    return sherd__series_answer(out, problem, &series);
}
