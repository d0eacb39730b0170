/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PyTorch 2.13's time model, by which its planners choose, and as a price for any plan.
 *
 * Every collective is a ring over one axis: 6.6 us to start, a latency for each hop, and the bytes
 * that pass one rank divided by a bandwidth. Axes within a host have 0.6 us and 87.7 GiB/s, the
 * others 2.7 us and 22 % of that. Bytes follow from the number of shards, not from boxes: uneven
 * shards are taken as even. All-to-all is an all-gather of one shard plus 1 us. Sums are in doubles
 * and in PyTorch's order of operations, one operation a statement where a compiler might fuse two:
 * costs agree to the last bit, on all machines.
 *
 * As a price it must also cover steps that PyTorch does not have. Several axes are one ring over
 * the product of their extents, with the slowest of their links. An exchange is priced as an
 * all-to-all, a reduce-exchange as a reduce-scatter, both of what a rank has before or of all that
 * it gets, whichever is more: otherwise a step that sheds shards would gather for next to nothing.
 * A step between meshes is a ring over the world. Steps over axes of extent 1 alone cost nothing,
 * as in PyTorch's executor (its planners charge the start). Picoseconds, rounded.
 */
#include "torch.h"
#include "base/num.h"

#include <math.h>

enum { LIMIT_LOG2 = 61 }; /* picoseconds are cut to 2^61 */

static const double start_us = 6.6, all_to_all_us = 1.0;
static const double near_gib = 87.7, near_us = 0.6, far_share = 0.22, far_us = 2.7;

sherd__collective sherd__collective_of(sherd_placement from, sherd_placement to)
{
    if (to.kind == SHERD_PARTIAL)
        return from.kind == SHERD_REPLICATE ? SHERD__PART : SHERD__NEVER;
    if (from.kind == SHERD_PARTIAL)
        return to.kind == SHERD_SHARD ? SHERD__REDUCE_SCATTER : SHERD__ALL_REDUCE;
    if (from.kind == SHERD_SHARD)
        return to.kind == SHERD_SHARD ? SHERD__ALL_TO_ALL : SHERD__ALL_GATHER;
    return SHERD__CHUNK;
}

static sherd__ring ring_of(int64_t ranks, bool far)
{
    sherd__ring ring = {(double)ranks, near_gib, near_us};

    if (far) {
        ring.bandwidth *= far_share;
        ring.latency = far_us;
    }
    return ring;
}

void sherd__rings_find(sherd__ring *rings, const sherd_mesh *mesh, int64_t per_host)
{
    int64_t ranks = 1;

    for (int i = mesh->axes - 1; i >= 0; i--) {
        ranks = sherd__mul_cut(ranks, mesh->extent[i]);
        rings[i] = ring_of(mesh->extent[i], ranks > per_host);
    }
}

double sherd__tensor_bytes(const sherd_layout *layout, size_t element_bytes)
{
    double bytes = (double)element_bytes;

    for (int d = 0; d < layout->spec.ndim; d++)
        bytes *= (double)layout->spec.shape[d];
    return bytes;
}

double sherd__ring_gib(double bytes, double shards)
{
    return bytes / shards / 1024 / 1024 / 1024;
}

static double round_trip(const sherd__ring *ring, double hops, double gib)
{
    double wait = hops * ring->latency;
    double seconds = gib * hops / ring->ranks / ring->bandwidth;
    double flow = seconds * 1e6;

    wait += start_us;
    return wait + flow;
}

double sherd__ring_time(const sherd__ring *ring, sherd__collective what, double *gib)
{
    double hops = ring->ranks - 1, before = *gib;

    switch (what) {
    case SHERD__ALL_REDUCE:
        return round_trip(ring, 2 * hops, before);
    case SHERD__ALL_TO_ALL:
        return round_trip(ring, hops, before) + all_to_all_us;
    case SHERD__ALL_GATHER:
        *gib = before * ring->ranks;
        return round_trip(ring, hops, *gib);
    case SHERD__REDUCE_SCATTER:
        *gib = before / ring->ranks;
        return round_trip(ring, hops, before);
    case SHERD__CHUNK:
        *gib = before / ring->ranks;
        return 0;
    case SHERD__PART:
        return 0;
    case SHERD__NEVER:
        break;
    }
    return INFINITY;
}

/* ---- the price ------------------------------------------------------------------------------ */

static sherd__collective like(sherd_step_kind kind)
{
    switch (kind) {
    case SHERD_STEP_EXCHANGE:
    case SHERD_STEP_ALL_TO_ALL:
        return SHERD__ALL_TO_ALL;
    case SHERD_STEP_ALL_GATHER:
        return SHERD__ALL_GATHER;
    case SHERD_STEP_REDUCE_SCATTER:
    case SHERD_STEP_REDUCE_EXCHANGE:
        return SHERD__REDUCE_SCATTER;
    case SHERD_STEP_ALL_REDUCE:
        return SHERD__ALL_REDUCE;
    case SHERD_STEP_SLICE:
    case SHERD_STEP_PARTITION:
        break;
    }
    return SHERD__CHUNK;
}

static int64_t per_host_of(const sherd__problem *problem)
{
    return sherd__max(problem->request->price.per_host, 1);
}

static sherd__ring world_ring(const sherd__problem *problem)
{
    return ring_of(problem->space->ranks, problem->space->ranks > per_host_of(problem));
}

/* All these axes as one ring. None: the step is between two meshes. */
static sherd__ring ring_over(const sherd__problem *problem, const sherd_mesh *mesh, unsigned axes)
{
    sherd__ring rings[SHERD_MAX_AXES], all;

    if (!axes)
        return world_ring(problem);
    sherd__rings_find(rings, mesh, per_host_of(problem));
    all = ring_of(sherd__extent_of(mesh, axes), false);
    for (int i = 0; i < mesh->axes; i++)
        if (axes >> i & 1 && rings[i].latency > all.latency) {
            all.latency = rings[i].latency;
            all.bandwidth = rings[i].bandwidth;
        }
    return all;
}

static int64_t picoseconds(double microseconds)
{
    double most = ldexp(1, LIMIT_LOG2);

    return (int64_t)fmin(round(microseconds * 1e6), most);
}

static double share_gib(const sherd_layout *layout, size_t element_bytes)
{
    return sherd__ring_gib(sherd__tensor_bytes(layout, element_bytes),
                           (double)sherd__extent_of(layout->spec.mesh, layout->shard_axes));
}

/*
 * What passes a rank: its even share before the step. In a direct step at least the addends of what
 * it has afterwards, too; for the collectives that PyTorch has that is never more.
 */
static double gib_of(const sherd__priced *p, size_t element_bytes)
{
    double before = share_gib(p->step.from, element_bytes);

    if (p->step.kind != SHERD_STEP_EXCHANGE && p->step.kind != SHERD_STEP_REDUCE_EXCHANGE)
        return before;
    return fmax(before, (double)p->change.addends * share_gib(p->step.to, element_bytes));
}

static void price_torch(sherd__priced *p, const sherd__problem *problem)
{
    const sherd_mesh *mesh = p->step.from->spec.mesh;
    sherd__collective what = like(p->step.kind);

    p->step.sliced = what == SHERD__ALL_REDUCE; /* a ring's all-reduce is one */
    p->rounds = what == SHERD__CHUNK ? 0 : p->step.sliced ? 2 : 1;
    p->step.picoseconds = 0;
    if (what == SHERD__CHUNK)
        return;
    sherd__ring ring = ring_over(problem, mesh, p->step.axes);
    double gib = gib_of(p, problem->element_bytes);
    p->step.picoseconds = picoseconds(sherd__ring_time(&ring, what, &gib));
}

/*
 * The start and the hops alone: the model's bytes are means over ranks, and the largest box says
 * nothing about a mean. A ring that adds k addends has at least k ranks.
 */
static int64_t floor_torch(const sherd__problem *problem, int64_t target_max, int64_t addends)
{
    const sherd_mesh *mesh = problem->from->spec.mesh;
    sherd__ring rings[SHERD_MAX_AXES], least = {2, near_gib, far_us};
    double nothing = 0;

    (void)target_max;
    sherd__rings_find(rings, mesh, per_host_of(problem));
    for (int i = 0; i < mesh->axes; i++)
        if (rings[i].ranks > 1)
            least.latency = fmin(least.latency, rings[i].latency);
    if (problem->to->spec.mesh != mesh)
        least.latency = fmin(least.latency, world_ring(problem).latency);
    least.ranks = (double)sherd__max(addends, 2);
    return picoseconds(sherd__ring_time(&least, SHERD__REDUCE_SCATTER, &nothing));
}

const sherd__price_model sherd__price_torch = {"torch", price_torch, floor_torch, NULL, true};
