/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merging steps into one over several axes, as PyTorch does if a flattened mesh of these axes
 * exists. Consecutive steps merge if they are all-gathers, all-reduces or reduce-scatters from the
 * same placement to the same (sums and averages count as the same); all of them, or none. Gathers
 * must go from the last axis to the first, scatters from the first to the last, and a scattered dim
 * must divide evenly, as the first rank sees it.
 *
 * PyTorch's merged gather treats an uneven dim as an even one and returns wrong rows. Here a merged
 * step is a step between two layouts like any other: boxes move, so the result is right.
 */
#include "series.h"

/* A collective that merges with others of its kind, or NEVER. */
static sherd__collective mergeable(const sherd__hop *hop)
{
    sherd__collective what = sherd__collective_of(hop->from, hop->to);
    bool good =
        what == SHERD__ALL_GATHER || what == SHERD__ALL_REDUCE || what == SHERD__REDUCE_SCATTER;

    return good ? what : SHERD__NEVER;
}

static bool alike(const sherd__hop *a, const sherd__hop *b)
{
    bool pending = a->from.kind == SHERD_PARTIAL && b->from.kind == SHERD_PARTIAL;

    return sherd__placement_equal(a->to, b->to) &&
           (pending ? sherd__reduce_ops_mix(a->from.op, b->from.op)
                    : sherd__placement_equal(a->from, b->from));
}

/* Steps that follow each other and are alike. */
typedef struct group {
    const sherd__series *series;
    const sherd__hop *hop;
    int count;
    sherd__collective what;
    unsigned axes;
} group;

static group group_at(const sherd__series *series, int first)
{
    group g = {series, &series->hop[first], 1, mergeable(&series->hop[first]),
               series->hop[first].axes};

    while (g.what != SHERD__NEVER && first + g.count < series->hops &&
           mergeable(&g.hop[g.count]) != SHERD__NEVER && alike(&g.hop[0], &g.hop[g.count]))
        g.axes |= g.hop[g.count++].axes;
    return g;
}

static bool in_order(const group *g)
{
    for (int i = 1; i < g->count; i++) {
        bool rising = g->hop[i].axes > g->hop[i - 1].axes;
        if ((g->what == SHERD__REDUCE_SCATTER && !rising) ||
            (g->what == SHERD__ALL_GATHER && rising))
            return false;
    }
    return true;
}

/* Sets of axes make the same flattened mesh if they differ in axes of extent 1 only. */
static bool has_mesh(const group *g, const unsigned *flattened, int count)
{
    const sherd_mesh *mesh = g->series->mesh;
    unsigned ones = 0;

    for (int i = 0; i < mesh->axes; i++)
        if (mesh->extent[i] == 1)
            ones |= 1u << i;
    for (int i = 0; i < count; i++)
        if ((flattened[i] | ones) == (g->axes | ones))
            return true;
    return false;
}

/* The step that sees most of the dim that is cut or gathered. */
static const sherd__hop *outermost(const group *g)
{
    const sherd__hop *most = g->hop;
    int d = g->what == SHERD__ALL_GATHER ? g->hop->from.dim : g->hop->to.dim;

    for (int i = 1; i < g->count && g->what != SHERD__ALL_REDUCE; i++)
        if (g->hop[i].shape[d] > most->shape[d])
            most = &g->hop[i];
    return most;
}

/* Whether the group may become one step; else *why not. */
static bool may_merge(sherd__missed *why, const group *g, const unsigned *flattened, int count)
{
    if (!in_order(g))
        *why = SHERD__NOT_IN_ORDER;
    else if (!has_mesh(g, flattened, count))
        *why = SHERD__NO_FLATTENED_MESH;
    else if (g->what == SHERD__REDUCE_SCATTER &&
             outermost(g)->shape[g->hop->to.dim] % sherd__extent_of(g->series->mesh, g->axes) != 0)
        *why = SHERD__UNEVEN;
    else
        return true;
    return false;
}

static sherd__hop merged(const group *g)
{
    sherd__hop hop = *outermost(g);

    hop.from = g->hop->from;
    hop.axes = g->axes;
    hop.divisor = 1;
    for (int i = 0; i < g->count; i++)
        if (g->hop[i].from.kind == SHERD_PARTIAL && g->hop[i].from.op == SHERD_AVG)
            hop.divisor *= sherd__extent_of(g->series->mesh, g->hop[i].axes);
    if (hop.divisor > 1)
        hop.from = sherd_partial(SHERD_SUM);
    return hop;
}

void sherd__series_merge(sherd__series *series, const unsigned *flattened, int count)
{
    int kept = 0;

    series->misses = 0;
    for (int first = 0; first < series->hops;) {
        group g = group_at(series, first);
        sherd__missed why;
        first += g.count;
        if (g.count > 1 && may_merge(&why, &g, flattened, count)) {
            series->hop[kept] = merged(&g);
            series->state[++kept] = series->state[first];
            continue;
        }
        if (g.count > 1)
            series->miss[series->misses++] = (sherd__miss){g.axes, g.what, why};
        for (int i = first - g.count; i < first; i++) {
            series->hop[kept] = series->hop[i];
            series->state[++kept] = series->state[i + 1];
        }
    }
    series->hops = kept;
}
