/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plays plans message by message, to compare prices with. A machine of links: each rank has, for
 * each axis of the mesh, one port out and one port in, and in and out work at once. A message keeps
 * a port of its sender and one of its receiver busy for alpha + beta * bytes, and for gamma * bytes
 * more if it is added. It goes over the slowest axis on which the two ranks differ: the one on
 * which all bytes of the tensor would take longest. A rank uses the ports of one axis at a time,
 * or, if the price lets classes overlap, all. Nothing here knows how steps are priced: what travels
 * is found from the boxes of all ranks.
 *
 * A step that goes straight: each rank gets what it lacks from whoever has it; of several that have
 * it, and are equally near, the one that has sent least. Messages start when both ports are free,
 * in the best of three orders: by distance, by size, or in packets between the busiest ports.
 * Collectives go axis by axis, in a ring, or in rounds of doubling distance, or straight, whichever
 * is over first; but all goes straight, and nobody shares, if the price says so. A step begins when
 * the one before is over. Times are femtoseconds.
 *
 * Costs some hundred nanoseconds a message, and a look at each pair of ranks.
 */
#ifndef SHERD_SIMULATOR_H
#define SHERD_SIMULATOR_H

#include "simulator_ports.h"

/* ---- straight -------------------------------------------------------------------------------- */

/* How far apart two ranks are on each axis, around, as one number. */
static inline int sim_turn(const simulator *s, int from, int to)
{
    int64_t turn = 0;

    for (int i = 0; i < s->mesh->axes; i++) {
        int64_t p = s->mesh->extent[i];
        turn = turn * p + (s->at[to][i] - s->at[from][i] + p) % p;
    }
    return (int)turn;
}

/* What ranks are asked to send, over an axis if those overlap, else in all. */
static inline int64_t *sim_loads(const simulator *s, int axis)
{
    return s->load + (s->overlap ? axis : 0) * s->ranks;
}

static inline void sim_send(simulator *s, int from, int to, int axis, int64_t bytes)
{
    if (s->messages == s->room) {
        s->room = s->room ? 2 * s->room : 1024;
        s->message = realloc(s->message, (size_t)s->room * sizeof *s->message);
    }
    s->message[s->messages++] = (sim_message){from, to, axis, 0, bytes, 0};
    sim_loads(s, axis)[from] += sim_time(&s->link[axis], bytes, false);
}

static inline int64_t sim_meet(const sherd_box *a, const sherd_box *b)
{
    int64_t n = 1;

    for (int d = 0; d < a->ndim && n > 0; d++) {
        int64_t lo = a->offset[d] > b->offset[d] ? a->offset[d] : b->offset[d];
        int64_t end = a->offset[d] + a->size[d], other = b->offset[d] + b->size[d];
        end = end < other ? end : other;
        n *= end > lo ? end - lo : 0;
    }
    return n;
}

/* The slowest axis on which a rank's coordinates differ from these; -1 = none. */
static inline int sim_apart(const simulator *s, int rank, const int64_t *at)
{
    int axis = -1;

    for (int i = 0; i < s->mesh->axes; i++)
        if (at[i] != s->at[rank][i] && (axis < 0 || s->pace[i] < s->pace[axis]))
            axis = i;
    return axis;
}

/* Of the replicas of what a message brings, equally near, the one that has to send least. */
static inline int sim_least(const simulator *s, const sim_message *m, unsigned spare)
{
    int64_t at[SHERD_MAX_AXES];
    const int64_t *load = sim_loads(s, m->axis);
    int best = m->from;

    for (int i = 0; i < s->mesh->axes; i++)
        if (s->pace[i] < s->pace[m->axis])
            spare &= ~(1u << i);
    sim_first(at, s->at[m->from], spare);
    do {
        int rank = sim_rank(s, at);
        best = load[rank] < load[best] ? rank : best;
    } while (sim_next(s, spare, at));
    return best;
}

/* Who has to send more than anybody receives gives some of it to replicas. */
static inline void sim_share(simulator *s, unsigned spare)
{
    int64_t *asked = calloc((size_t)s->ranks * SHERD_MAX_AXES, sizeof *asked);
    int64_t most[SHERD_MAX_AXES] = {0};

    for (int i = 0; i < s->messages; i++) {
        const sim_message *m = &s->message[i];
        int64_t *sum = &asked[(s->overlap ? m->axis : 0) * s->ranks + m->to];
        *sum += sim_time(&s->link[m->axis], m->bytes, false);
        int64_t *top = &most[s->overlap ? m->axis : 0];
        *top = *sum > *top ? *sum : *top;
    }
    for (int i = 0; i < 3 * s->messages; i++) { /* a second time round others have less */
        sim_message *m = &s->message[i % s->messages];
        int64_t *load = sim_loads(s, m->axis), size = sim_time(&s->link[m->axis], m->bytes, false);
        int least =
            load[m->from] > most[s->overlap ? m->axis : 0] ? sim_least(s, m, spare) : m->from;
        if (load[least] + size >= load[m->from])
            continue;
        load[m->from] -= size;
        load[least] += size;
        m->from = least;
    }
    free(asked);
}

static inline unsigned sim_pending(const sherd_layout *layout)
{
    unsigned axes = 0;

    for (int i = 0; i < layout->spec.mesh->axes; i++)
        axes |= layout->spec.pending[i] >= 0 ? 1u << i : 0;
    return axes;
}

/* Who gets what from whom: the addends of all parts of its target that a rank does not hold. */
static inline void sim_address(simulator *s)
{
    unsigned all = (1u << s->mesh->axes) - 1;
    unsigned reduced = sim_pending(s->step->from) & ~sim_pending(s->step->to);
    unsigned cut = s->step->from->shard_axes, held = cut | sim_pending(s->step->from);
    unsigned spare = all & ~held & s->step->to->shard_axes;

    s->messages = 0;
    memset(s->load, 0, (size_t)s->ranks * SHERD_MAX_AXES * sizeof *s->load);
    for (int r = 0, axis; r < s->ranks; r++) {
        int64_t at[SHERD_MAX_AXES];
        sim_first(at, s->at[r], cut | reduced);
        do {
            int64_t n = sim_meet(&s->source[sim_rank(s, at)], &s->target[r]);
            do
                if (n > 0 && (axis = sim_apart(s, r, at)) >= 0)
                    sim_send(s, sim_rank(s, at), r, axis, n * s->element_bytes);
            while (n > 0 && sim_next(s, reduced, at));
        } while (sim_next(s, cut, at));
    }
    if (spare && !s->straight)
        sim_share(s, spare);
}

/* All that is addressed. */
static inline int64_t sim_play(simulator *s, bool adds)
{
    int64_t longest = 0;

    for (int i = 0; i < s->messages; i++)
        s->message[i].turn = sim_turn(s, s->message[i].from, s->message[i].to);
    if (!s->overlap)
        return s->messages ? sim_class(s, -1, adds) : 0;
    for (int i = 0; i < s->mesh->axes; i++) {
        int64_t each = s->messages ? sim_class(s, i, adds) : 0;
        longest = each > longest ? each : longest;
    }
    return longest;
}

static inline int64_t sim_straight(simulator *s)
{
    sim_address(s);
    return sim_play(s, sherd__step_reduces(s->step));
}

/* One half of a sliced all-reduce: addends of its slice come to each rank, or the slices that
 * others have added up. */
static inline int64_t sim_slices(simulator *s, bool adds)
{
    unsigned reduced = s->step->axes;
    int64_t at[SHERD_MAX_AXES], lo, hi;

    s->messages = 0;
    memset(s->load, 0, (size_t)s->ranks * SHERD_MAX_AXES * sizeof *s->load);
    for (int r = 0, axis; r < s->ranks; r++) {
        sim_first(at, s->at[r], reduced);
        do {
            int64_t k = 1, i = 0;
            for (int a = 0; a < s->mesh->axes; a++)
                if (reduced >> a & 1) {
                    i = i * s->mesh->extent[a] + (adds ? s->at[r][a] : at[a]);
                    k *= s->mesh->extent[a];
                }
            sherd__slice_of(sherd__box_count(&s->target[r]), k, i, &lo, &hi);
            if (hi > lo && (axis = sim_apart(s, r, at)) >= 0)
                sim_send(s, sim_rank(s, at), r, axis, (hi - lo) * s->element_bytes);
        } while (sim_next(s, reduced, at));
    }
    return sim_play(s, adds);
}

/* ---- axis by axis ---------------------------------------------------------------------------- */

/* Elements that each rank has, or its part of the result; and when it is ready. */
typedef struct sim_stage {
    simulator *s;
    int64_t *has, *ready, *then; /* [ranks] */
    int axis;
    bool adds;
} sim_stage;

/* The rank that stands `by` places further along an axis, around. */
static inline int sim_beside(const simulator *s, int rank, int axis, int64_t by)
{
    int64_t at[SHERD_MAX_AXES], p = s->mesh->extent[axis];

    memcpy(at, s->at[rank], sizeof at);
    at[axis] = ((at[axis] + by) % p + p) % p;
    return sim_rank(s, at);
}

/* One round: all ranks send `count` blocks, from the one `first` places on, to the rank `by` places
 * on. */
static inline void sim_round(sim_stage *g, int64_t by, int64_t first, int64_t count)
{
    const simulator *s = g->s;

    memcpy(g->then, g->ready, (size_t)s->ranks * sizeof *g->then);
    for (int r = 0; r < s->ranks; r++) {
        int64_t n = 0;
        int to = sim_beside(s, r, g->axis, by);
        for (int64_t k = 0; k < count; k++)
            n += g->has[sim_beside(s, r, g->axis, first + k)];
        int64_t start = g->ready[r] > g->ready[to] ? g->ready[r] : g->ready[to];
        int64_t end = start + sim_time(&s->link[g->axis], n * s->element_bytes, g->adds);
        g->then[r] = end > g->then[r] ? end : g->then[r];
        g->then[to] = end > g->then[to] ? end : g->then[to];
    }
    memcpy(g->ready, g->then, (size_t)s->ranks * sizeof *g->ready);
}

/*
 * Along one axis. Gathering by doubling, rank r gets from r + w the w blocks that begin there;
 * scattering is that backwards: the rank sends what it has added up for them.
 */
static inline void sim_line(sim_stage *g, bool ring)
{
    int64_t p = g->s->mesh->extent[g->axis], width = 1;

    if (ring) {
        for (int64_t k = 0; k < p - 1; k++)
            sim_round(g, 1, g->adds ? k + 1 : -k, 1);
        return;
    }
    while (g->adds && 2 * width < p)
        width *= 2;
    for (; width >= 1 && width < p; width = g->adds ? width / 2 : width * 2) {
        int64_t count = width < p - width ? width : p - width;
        sim_round(g, g->adds ? width : -width, g->adds ? width : 0, count);
    }
}

/* What a rank has once its line has gathered: the blocks of all. */
static inline void sim_join(sim_stage *g)
{
    const simulator *s = g->s;

    for (int r = 0; r < s->ranks; r++) {
        g->then[r] = 0;
        for (int64_t k = 0; k < s->mesh->extent[g->axis]; k++)
            g->then[r] += g->has[sim_beside(s, r, g->axis, k)];
    }
    memcpy(g->has, g->then, (size_t)s->ranks * sizeof *g->has);
}

/* The axes of the step, slowest first. */
static inline int sim_axes(const simulator *s, int *axis)
{
    int count = 0;

    for (int k = 0; k < s->mesh->axes; k++)
        if (s->step->axes >> s->axis[k] & 1)
            axis[count++] = s->axis[k];
    return count;
}

/* Scatter: `has` is what each rank gets in the end, and the fastest axis comes first. */
static inline void sim_stages(sim_stage *g, bool ring, bool adds, int64_t *blocks)
{
    int axis[SHERD_MAX_AXES], count = sim_axes(g->s, axis);

    g->adds = adds;
    for (int i = 0; i < count; i++) {
        memcpy(g->has, blocks, (size_t)g->s->ranks * sizeof *blocks);
        int last = adds ? count - 1 - i : i;
        for (int k = 0; k < last; k++) {
            g->axis = axis[k];
            sim_join(g);
        }
        g->axis = axis[last];
        sim_line(g, ring);
    }
}

/* What each rank begins with, gathering, or ends with, scattering. */
static inline void sim_blocks(simulator *s, int64_t *blocks)
{
    for (int r = 0; r < s->ranks; r++) {
        const sherd_box *box =
            s->step->kind == SHERD_STEP_ALL_GATHER ? &s->source[r] : &s->target[r];
        int64_t n = sherd__box_count(box), i = 0, k = 1, lo, hi;
        for (int a = 0; a < s->mesh->axes; a++)
            if (s->step->axes >> a & 1) {
                i = i * s->mesh->extent[a] + s->at[r][a];
                k *= s->mesh->extent[a];
            }
        sherd__slice_of(n, k, i, &lo, &hi);
        blocks[r] = s->step->kind == SHERD_STEP_ALL_REDUCE ? hi - lo : n;
    }
}

static inline int64_t sim_collective(simulator *s, bool ring)
{
    size_t n = (size_t)s->ranks;
    int64_t *memory = calloc(4 * n, sizeof *memory), *blocks = memory + 3 * n, last = 0;
    sim_stage g = {s, memory, memory + n, memory + 2 * n, 0, false};

    sim_blocks(s, blocks);
    if (s->step->kind != SHERD_STEP_ALL_GATHER)
        sim_stages(&g, ring, true, blocks);
    if (s->step->kind != SHERD_STEP_REDUCE_SCATTER)
        sim_stages(&g, ring, false, blocks);
    for (int r = 0; r < s->ranks; r++)
        last = g.ready[r] > last ? g.ready[r] : last;
    free(memory);
    return last;
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Femtoseconds of one step within a mesh. */
static inline int64_t sim_step(simulator *s, const sherd_step *step, size_t element_bytes)
{
    s->step = step;
    s->element_bytes = (int64_t)element_bytes;
    if (step->kind == SHERD_STEP_SLICE || step->kind == SHERD_STEP_PARTITION)
        return 0;
    for (int r = 0; r < s->ranks; r++) {
        sherd__layout_box(step->from, s->at[r], &s->source[r]);
        sherd__layout_box(step->to, s->at[r], &s->target[r]);
    }
    if (s->straight && step->sliced)
        return sim_slices(s, true) + sim_slices(s, false);
    if (s->straight)
        return sim_straight(s);
    if (step->kind != SHERD_STEP_ALL_GATHER && step->kind != SHERD_STEP_REDUCE_SCATTER &&
        step->kind != SHERD_STEP_ALL_REDUCE)
        return sim_straight(s);
    int64_t best = sim_collective(s, false), other = sim_collective(s, true);
    best = other < best ? other : best;
    other = sim_straight(s);
    return other < best ? other : best;
}

static inline int64_t sim_plan(simulator *s, const sherd_plan *plan)
{
    int64_t sum = 0;

    for (int i = 0; i < plan->steps; i++)
        sum += sim_step(s, &plan->step[i], plan->element_bytes);
    return sum;
}

#endif
