/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The amounts of a step between two meshes, and of a chain of steps that ends in one.
 *
 * Unlike within a mesh, the coordinates of the two sides are unrelated, so ranks are walked: this
 * costs the ranks of both meshes in time and memory, and, if the source has replicas, the pairs of
 * ranks whose boxes meet, up to MOST_PAIRS; with more pairs, the bytes of the busiest sender are an
 * upper bound.
 */
#include "price.h"
#include "plan/across.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_PAIRS = 1 << 22, /* dealt out exactly; a fraction of a second */
    MOST_RANKS = 1 << 12  /* walked exactly through all steps of a chain */
};

/* A part of the tensor that lies within one shard of either side, which some rank has on both. */
typedef struct cell {
    int64_t source, target; /* numbers of the shards */
    int64_t elements;
} cell;

typedef struct tally {
    sherd__across across;
    sherd__amounts *out;
    sherd__wide kept; /* what ranks hold of their targets, in all */
    int64_t cells;
    cell *cell; /* [ranks of the target] */
    sherd__load *load;
    sherd__wide *saved; /* [addends * copies of the source] */
} tally;

/* ---- what is held --------------------------------------------------------------------------- */

static int64_t linear(const sherd__side *side, const int64_t *shard)
{
    int64_t number = 0;

    for (int d = 0; d < side->layout->spec.ndim; d++)
        number = number * side->parts[d] + shard[d];
    return number;
}

/* One rank of the target's mesh. */
static void count_target(tally *t, int rank)
{
    const sherd__across *a = &t->across;
    sherd__stand source, target;
    sherd_box own;
    int64_t kept = 0;

    bool inside = sherd__stand_of(&source, &a->from, rank);
    sherd__stand_of(&target, &a->to, rank);
    int64_t n = sherd__box_count(&target.box);
    if (inside && sherd__box_meet(&source.box, &target.box, &own))
        kept = sherd__box_count(&own);
    int64_t held = inside ? sherd__box_count(&source.box) : 0;
    t->kept += kept;
    t->out->both_max = sherd__max(t->out->both_max, sherd__add_cut(n, held));
    t->out->receive_max =
        sherd__max(t->out->receive_max, sherd__cut((sherd__wide)n * a->change.addends - kept));
    if (kept > 0)
        t->cell[t->cells++] =
            (cell){linear(&a->from, source.shard), linear(&a->to, target.shard), kept};
}

static int by_shards(const void *a, const void *b)
{
    const cell *x = a, *y = b;

    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    return (x->target > y->target) - (x->target < y->target);
}

/* Elements of which some target rank holds an addend, each once. */
static sherd__wide held_somewhere(tally *t)
{
    sherd__wide sum = 0;

    qsort(t->cell, (size_t)t->cells, sizeof *t->cell, by_shards);
    for (int64_t i = 0; i < t->cells; i++)
        if (i == 0 || by_shards(&t->cell[i - 1], &t->cell[i]) != 0)
            sum += t->cell[i].elements;
    return sum;
}

static void find_totals(tally *t)
{
    const sherd__across *a = &t->across;
    int64_t addends = a->change.addends;
    sherd__wide n = 1;

    for (int d = 0; d < a->ndim; d++)
        n *= a->from.layout->spec.shape[d];
    t->out->target_total = sherd__cut(n * a->to.copies);
    t->out->receive_total = sherd__cut(n * a->to.copies * addends - t->kept);
    t->out->bound_total = t->out->receive_total;
    if (addends > 1) /* see the formula in amounts.c */
        t->out->bound_total = sherd__cut(n * (addends - 1 + a->to.copies) - held_somewhere(t));
}

/* ---- what is sent --------------------------------------------------------------------------- */

/* Without replicas each source rank is asked for its box by every replica of the target. */
static void send_of_all(tally *t)
{
    const sherd__across *a = &t->across;
    const sherd_mesh *mesh = a->from.mesh;
    int64_t at[SHERD_MAX_AXES] = {0};
    sherd__stand source, target;
    sherd_box own;

    do {
        int rank = sherd__mesh_rank_at(mesh, at);
        sherd__stand_of(&source, &a->from, rank);
        sherd__wide asked = (sherd__wide)sherd__box_count(&source.box) * a->to.copies;
        if (sherd__stand_of(&target, &a->to, rank) &&
            sherd__box_meet(&source.box, &target.box, &own))
            asked -= sherd__box_count(&own);
        t->out->send_max = sherd__max(t->out->send_max, sherd__cut(asked));
    } while (sherd__next(mesh, (1u << mesh->axes) - 1, at));
}

/* Pairs of a source's shard and a target rank that meet, at most: dim by dim they multiply. */
static int64_t pairs(const sherd__across *a)
{
    int64_t count = a->to.copies, first, end;

    for (int d = 0; d < a->ndim; d++) {
        int64_t meet = 0;
        for (int64_t i = 0; i < a->from.parts[d]; i++) {
            sherd__shards_of(&a->to, d, a->from.cuts[d][i], a->from.cuts[d][i + 1], &first, &end);
            meet += end - first;
        }
        count = sherd__mul_cut(count, meet);
    }
    return count;
}

/*
 * Whoever gets more is the least loaded: so nobody is above the mean by more than one part, and no
 * part is larger than a target.
 */
static void send_at_most(tally *t)
{
    const sherd__across *a = &t->across;
    int64_t asked = sherd__mul_cut(t->out->source_max, a->to.copies);

    t->out->send_max = sherd__min(
        asked, sherd__add_cut(sherd__ceil_div(asked, a->from.copies), t->out->target_max));
}

/* One shard dealt out. Who takes its own addend from itself spares the replica it was given. */
static void deal_shard(tally *t, const int64_t *shard)
{
    const sherd__across *a = &t->across;
    int64_t addends = a->change.addends, copies = a->from.copies;
    sherd__deal deal;

    memset(t->saved, 0, (size_t)(addends * copies) * sizeof *t->saved);
    sherd__deal_begin(&deal, a, shard, t->load);
    while (sherd__deal_next(&deal))
        if (deal.holds && deal.copy >= 0)
            t->saved[sherd__number_on(a->from.mesh, a->change.reduced, deal.held.at) * copies +
                     deal.copy] += deal.elements;
    for (int64_t i = 0; i < copies; i++)
        for (int64_t k = 0; k < addends; k++)
            t->out->send_max =
                sherd__max(t->out->send_max, sherd__cut(t->load[i].elements -
                                                        t->saved[k * copies + t->load[i].copy]));
}

static void send_of_replicas(tally *t)
{
    const sherd__across *a = &t->across;
    int64_t shard[SHERD_MAX_DIMS] = {0};
    const int64_t first[SHERD_MAX_DIMS] = {0};

    if (pairs(a) > MOST_PAIRS) {
        send_at_most(t);
        return;
    }
    do
        deal_shard(t, shard);
    while (sherd__next_shard(a->ndim, first, a->from.parts, shard));
}

/* ---- the step ------------------------------------------------------------------------------- */

static bool allocate(tally *t)
{
    const sherd__across *a = &t->across;
    sherd__heap *heap = a->space->heap;
    int64_t copies = a->from.copies;

    t->cell = sherd__alloc(heap, (size_t)a->to.mesh->count, sizeof *t->cell);
    t->load = sherd__alloc(heap, (size_t)copies, sizeof *t->load);
    t->saved = sherd__alloc(heap, (size_t)(copies * a->change.addends), sizeof *t->saved);
    return t->cell && t->load && t->saved;
}

static void count(tally *t)
{
    const sherd__across *a = &t->across;
    int64_t at[SHERD_MAX_AXES] = {0};

    t->out->source_max = t->out->both_max = sherd__layout_largest(a->from.layout);
    t->out->target_max = sherd__layout_largest(a->to.layout);
    do
        count_target(t, sherd__mesh_rank_at(a->to.mesh, at));
    while (sherd__next(a->to.mesh, (1u << a->to.mesh->axes) - 1, at));
    find_totals(t);
    if (a->from.copies == 1)
        send_of_all(t);
    else
        send_of_replicas(t);
}

sherd_status sherd__across_find(sherd__change *change, sherd__amounts *amounts, sherd__space *space,
                                const sherd_layout *from, const sherd_layout *to)
{
    tally t = {.out = amounts};

    memset(amounts, 0, sizeof *amounts);
    sherd_status status = sherd__across_open(&t.across, space, from, to);
    if (status == SHERD_OK && !allocate(&t))
        status = sherd__no_memory(space->diag, "sherd_plan_create");
    if (status == SHERD_OK)
        count(&t);
    *change = t.across.change;
    change->gathered = (1u << from->spec.mesh->axes) - 1;
    change->cut = (1u << to->spec.mesh->axes) - 1;
    sherd__free(space->heap, t.cell);
    sherd__free(space->heap, t.load);
    sherd__free(space->heap, t.saved);
    sherd__across_close(&t.across);
    return status;
}

/* ---- chains --------------------------------------------------------------------------------- */

static int64_t held(const sherd_layout *layout, int rank)
{
    sherd_box box = sherd_layout_box(layout, rank, 0);

    return sherd_layout_boxes(layout, rank) ? sherd__box_count(&box) : 0;
}

/* What the result of a step takes. */
static int64_t held_after(const sherd__priced *step, int rank)
{
    return sherd__step_shares(&step->step, &step->change) ? 0 : held(step->step.to, rank);
}

/* Elements that a rank holds during a step; it still has the source. */
static int64_t held_during(const sherd__problem *problem, const sherd__priced *step, bool first,
                           int rank)
{
    int64_t in = first ? 0 : held(step->step.from, rank);

    return sherd__add_cut(held(problem->from, rank), sherd__add_cut(in, held_after(step, rank)));
}

/* The same of a rank that is the fullest of all in all of it. */
static int64_t held_at_most(int64_t source, const sherd__priced *step, bool first)
{
    bool shares = sherd__step_shares(&step->step, &step->change);
    int64_t both = shares ? step->amounts.source_max : step->amounts.both_max;

    return first ? both : sherd__add_cut(source, both);
}

int64_t sherd__across_peak(const sherd__problem *problem, const sherd__priced *step)
{
    bool first = step->step.from == problem->from;
    int64_t most = 0;

    if (problem->space->ranks > MOST_RANKS)
        most = held_at_most(sherd__layout_largest(problem->from), step, first);
    for (int r = 0; r < problem->space->ranks && problem->space->ranks <= MOST_RANKS; r++)
        most = sherd__max(most, held_during(problem, step, first, r));
    return sherd__mul_cut(most, (int64_t)problem->element_bytes);
}

/* Elements that a rank holds at most. */
static int64_t peak_of(const sherd__problem *problem, const sherd__priced *steps, int count,
                       int rank)
{
    int64_t peak = held(problem->from, rank);

    for (int i = 0; i < count; i++)
        peak = sherd__max(peak, held_during(problem, &steps[i], i == 0, rank));
    return peak;
}

static sherd_status walk(sherd__chain *out, const sherd__problem *problem,
                         const sherd__priced *steps, int count, int64_t *sent)
{
    sherd__space *space = problem->space;

    for (int r = 0; r < space->ranks; r++) {
        int64_t received = 0, held_most = peak_of(problem, steps, count, r);
        for (int i = 0; i < count; i++) {
            sherd__schedule *s;
            sherd_status status =
                sherd__schedule_create(&s, space, &steps[i].step, problem->element_bytes, r);
            if (status != SHERD_OK)
                return status;
            received = sherd__add_cut(received, s ? s->recv_bytes : 0);
            sherd__schedule_add_sent(s, r, problem->element_bytes, sent);
            sherd__schedule_destroy(space, s);
        }
        out->receive_max = sherd__max(out->receive_max, received);
        out->peak =
            sherd__max(out->peak, sherd__mul_cut(held_most, (int64_t)problem->element_bytes));
    }
    for (int r = 0; r < space->ranks; r++)
        out->send_max = sherd__max(out->send_max, sent[r]);
    return SHERD_OK;
}

/* Of very many ranks: as if one were the busiest in every step. */
static void add_maxima(sherd__chain *out, const sherd__problem *problem, const sherd__priced *steps,
                       int count)
{
    int64_t bytes = (int64_t)problem->element_bytes, source = steps->amounts.source_max;

    for (int i = 0; i < count; i++) {
        int64_t all = held_at_most(source, &steps[i], i == 0);
        out->receive_max = sherd__add_cut(out->receive_max, steps[i].step.recv_max_bytes);
        out->send_max = sherd__add_cut(out->send_max, steps[i].send_max_bytes);
        out->peak = sherd__max(out->peak, sherd__mul_cut(all, bytes));
    }
}

sherd_status sherd__across_chain(sherd__chain *out, const sherd__problem *problem,
                                 const sherd__priced *steps, int count)
{
    sherd__space *space = problem->space;

    memset(out, 0, sizeof *out);
    if (space->ranks > MOST_RANKS) {
        add_maxima(out, problem, steps, count);
        return SHERD_OK;
    }
    int64_t *sent = sherd__alloc(space->heap, (size_t)space->ranks, sizeof *sent);
    if (!sent)
        return sherd__no_memory(space->diag, "sherd_plan_create");
    sherd_status status = walk(out, problem, steps, count, sent);
    sherd__free(space->heap, sent);
    return status;
}
