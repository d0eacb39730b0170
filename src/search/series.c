/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks from state to state, one axis at a time, as PyTorch plans; and their way into a path of
 * layouts. Arithmetic on a few bytes, but for the layouts, which are interned.
 */
#include "series.h"
#include "base/num.h"

#include <string.h>

void sherd__series_begin(sherd__series *series, const sherd__problem *problem)
{
    const sherd__layout_spec *spec = &problem->from->spec;

    series->mesh = spec->mesh;
    series->ndim = spec->ndim;
    memcpy(series->shape, spec->shape, sizeof series->shape);
    series->cost = 0;
    series->hops = series->misses = 0;
    sherd__state_of(&series->state[0], problem->from);
}

sherd_placement sherd__state_placement(const sherd__state *state, int ndim, int axis)
{
    if (state->pending[axis] >= 0)
        return sherd_partial((sherd_reduce_op)state->pending[axis]);
    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < state->axes[d]; i++)
            if (state->axis[d][i] == axis)
                return sherd_shard(d);
    return sherd_replicate();
}

static void put_on(sherd__state *state, int axis, sherd_placement to)
{
    if (to.kind == SHERD_PARTIAL)
        state->pending[axis] = (int8_t)to.op;
    if (to.kind == SHERD_SHARD)
        state->axis[to.dim][state->axes[to.dim]++] = (int8_t)axis;
}

/* The first rank has the largest shard of each dim: however axes nest, that is one rounding up. */
static void seen_shape(sherd__hop *hop, const sherd__series *series, const sherd__state *seen,
                       unsigned unseen)
{
    memcpy(hop->shape, series->shape, sizeof hop->shape);
    for (int d = 0; d < series->ndim; d++)
        for (int i = 0; i < seen->axes[d]; i++)
            if (!(unseen >> seen->axis[d][i] & 1))
                hop->shape[d] =
                    sherd__ceil_div(hop->shape[d], series->mesh->extent[seen->axis[d][i]]);
}

void sherd__series_on(sherd__series *series, int axis, sherd_placement to, const sherd__state *seen,
                      unsigned unseen)
{
    sherd__hop *hop = &series->hop[series->hops];
    const sherd__state *here = &series->state[series->hops];
    sherd__state *next = &series->state[series->hops + 1];

    sherd__assert(-1, series->hops < SHERD__HOPS);
    hop->axes = 1u << axis;
    hop->from = sherd__state_placement(here, series->ndim, axis);
    hop->to = to;
    hop->divisor = 1;
    seen_shape(hop, series, seen, unseen);
    *next = *here;
    sherd__state_drop(next, axis);
    put_on(next, axis, to);
    series->hops++;
}

sherd_status sherd__series_answer(sherd__answer *out, const sherd__problem *problem,
                                  sherd__series *series)
{
    sherd__path *path = &out->path;

    sherd__series_merge(series, problem->request->flattened, problem->request->flattened_count);
    path->stops = 1;
    path->at[0] = problem->from;
    out->cost = series->cost;
    out->proven = false;
    for (int i = 0; i < series->hops; i++) {
        path->merged[path->stops] = (series->hop[i].axes & (series->hop[i].axes - 1)) != 0;
        sherd_status status = sherd__state_layout(&path->at[path->stops], &series->state[i + 1],
                                                  problem->from, problem->to);
        if (status != SHERD_OK)
            return status;
        path->stops++;
    }
    return SHERD_OK;
}
