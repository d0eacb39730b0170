/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks of a move simulated in one process: their schedules are run on plain memory, and
 * everything that a plan says is counted again from the boxes. Each element holds its global
 * index; where a reduction is pending the addends differ per rank and add up exactly.
 */
#ifndef SHERD_MOVES_H
#define SHERD_MOVES_H

#include "boxes.h"
#include "paper.h"
#include "search/planners.h"
#include "search/plans.h"
#include "vector/choose.h"

enum { MOVE_RANKS = 64 };

typedef struct move {
    paper *p;
    const sherd_step *step;
    const sherd_mesh *mesh;
    const sherd__kernels *kernels; /* of f64 */
    int ranks;
    unsigned reduced; /* axes of extent > 1 */
    sherd__schedule *schedule[MOVE_RANKS];
    sherd_box from[MOVE_RANKS], to[MOVE_RANKS];
    int64_t coordinate[MOVE_RANKS][SHERD_MAX_AXES];
    double *source[MOVE_RANKS], *result[MOVE_RANKS];
    int64_t received[MOVE_RANKS], sent[MOVE_RANKS]; /* elements */
} move;

/*
 * Number of a rank among the addends of its elements; axes where the source is not pending do not
 * count.
 */
static inline int64_t move_addend(const move *m, const int64_t *coordinate)
{
    int64_t number = 0;

    for (int i = 0; i < m->mesh->axes; i++)
        if (m->step->from->spec.pending[i] >= 0)
            number = number * m->mesh->extent[i] + coordinate[i];
    return number;
}

/* Walk over the elements of a box; `index` is the row-major global index of each. */
static inline bool move_next(const sherd_box *box, const int64_t *shape, int64_t *at,
                             int64_t *index)
{
    for (int d = box->ndim - 1; d >= 0; d--) {
        if (++at[d] < box->size[d])
            break;
        at[d] = 0;
        if (d == 0)
            return false;
    }
    if (box->ndim == 0)
        return false;
    *index = 0;
    for (int d = 0; d < box->ndim; d++)
        *index = *index * shape[d] + box->offset[d] + at[d];
    return true;
}

static inline int64_t move_first(const sherd_box *box, const int64_t *shape)
{
    int64_t index = 0;

    for (int d = 0; d < box->ndim; d++)
        index = index * shape[d] + box->offset[d];
    return index;
}

static inline void move_fill(move *m, int rank)
{
    const int64_t *shape = m->step->from->spec.shape;
    int64_t at[SHERD_MAX_DIMS] = {0}, index = move_first(&m->from[rank], shape), i = 0;
    int64_t number = move_addend(m, m->coordinate[rank]);

    if (sherd__box_count(&m->from[rank]) == 0)
        return;
    do
        m->source[rank][i++] = (double)((index + 1) * (number + 1) + 7919 * number);
    while (move_next(&m->from[rank], shape, at, &index));
}

/* Where everybody's boxes are, and what is reduced; no data yet. */
static inline void move_place(move *m, paper *p, const sherd_step *step,
                              const sherd__kernels *kernels)
{
    memset(m, 0, sizeof *m);
    m->p = p;
    m->step = step;
    m->mesh = step->from->spec.mesh;
    m->kernels = kernels;
    m->ranks = (int)m->mesh->count;
    for (int i = 0; i < m->mesh->axes; i++)
        if (step->from->spec.pending[i] >= 0 && step->to->spec.pending[i] < 0 &&
            m->mesh->extent[i] > 1)
            m->reduced |= 1u << i;
    for (int r = 0; r < m->ranks; r++) {
        CHECK(sherd_mesh_coordinate(m->mesh, r, m->coordinate[r]));
        m->from[r] = sherd_layout_box(step->from, r, 0);
        m->to[r] = sherd_layout_box(step->to, r, 0);
    }
}

/* Schedules and results; `held`: what the ranks hold, taken over, or NULL = filled with the
 * indices. */
static inline void move_open(move *m, paper *p, const sherd_step *step,
                             const sherd__kernels *kernels, double **held)
{
    move_place(m, p, step, kernels);
    for (int r = 0; r < m->ranks; r++) {
        CHECK_OK(sherd__schedule_create(&m->schedule[r], &p->space, step, sizeof(double), r));
        size_t target = (size_t)sherd__box_count(&m->to[r]);
        m->source[r] =
            held ? held[r] : malloc((size_t)sherd__box_count(&m->from[r]) * sizeof(double) + 8);
        m->result[r] = malloc(target * sizeof(double) + 8);
        for (size_t i = 0; i < target; i++)
            m->result[r][i] = -1.5; /* nothing that could be right */
        if (!held)
            move_fill(m, r);
    }
}

static inline void move_close(move *m)
{
    for (int r = 0; r < m->ranks; r++) {
        sherd__schedule_destroy(&m->p->space, m->schedule[r]);
        free(m->source[r]);
        free(m->result[r]);
    }
}

/* Write a finished slice of an all-reduce to the others. */
static inline void move_share(move *m, int rank, const sherd__region *region)
{
    const sherd__schedule *s = m->schedule[rank];

    for (int i = 0; i < s->sharers; i++) {
        int peer = s->sharer[i];
        memcpy(m->result[peer] + region->offset[0], m->result[rank] + region->offset[0],
               (size_t)region->size[0] * sizeof(double));
        m->received[peer] += region->size[0];
        m->sent[rank] += region->size[0];
    }
}

static inline void move_run_rank(move *m, int rank)
{
    const sherd__schedule *s = m->schedule[rank];
    bool flat = m->step->sliced;

    for (int i = 0; i < s->regions; i++) {
        const sherd__region *region = &s->region[i];
        sherd__source sources[MOVE_RANKS];
        int64_t count = 1;
        for (int d = 0; d < s->ndim; d++)
            count *= region->size[d];
        CHECK(count > 0);
        for (int j = 0; j < region->count; j++) {
            int peer = s->pull[region->first + j].rank;
            sources[j].data = m->source[peer];
            sources[j].stride[0] = 1;
            if (!flat)
                sherd__row_major(s->ndim, m->from[peer].size, sources[j].stride);
            m->received[rank] += peer == rank ? 0 : count;
            m->sent[peer] += peer == rank ? 0 : count;
        }
        sherd__region_run(s, region, m->result[rank], sources, sizeof(double), m->kernels);
        if (flat)
            move_share(m, rank, region);
    }
}

/* Elements of all target boxes that are not what they must be. */
static inline int64_t move_wrong(const move *m)
{
    const int64_t *shape = m->step->from->spec.shape;
    int64_t wrong = 0;

    for (int r = 0; r < m->ranks; r++) {
        int64_t at[SHERD_MAX_DIMS] = {0}, index = move_first(&m->to[r], shape), i = 0;
        int64_t factor = 0, offset = 0, holder[SHERD_MAX_AXES];
        double divisor = 1;
        if (sherd__box_count(&m->to[r]) == 0)
            continue;
        for (int peer = 0; peer < m->ranks;
             peer++) { /* my addends: all that differ in reduced axes only */
            bool addend = true;
            memcpy(holder, m->coordinate[peer], sizeof holder);
            for (int k = 0; k < m->mesh->axes; k++)
                addend = addend && (m->reduced >> k & 1 || holder[k] == m->coordinate[r][k]);
            int64_t number = move_addend(m, holder);
            factor += addend ? number + 1 : 0;
            offset += addend ? 7919 * number : 0;
        }
        for (int k = 0; k < m->mesh->axes; k++)
            if (m->reduced >> k & 1 && m->step->from->spec.pending[k] == SHERD_AVG)
                divisor *= (double)m->mesh->extent[k];
        do
            wrong += m->result[r][i++] != (double)((index + 1) * factor + offset) / divisor;
        while (move_next(&m->to[r], shape, at, &index));
    }
    return wrong;
}

static inline bool move_lists(const int *list, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (list[i] == rank)
            return true;
    return false;
}

/*
 * Sources and readers are each other's converse, ascending, without oneself, and within the step's
 * group.
 */
static inline int move_crooked(const move *m)
{
    int crooked = 0;

    for (int r = 0; r < m->ranks; r++) {
        const sherd__schedule *s = m->schedule[r];
        const int *lists[] = {s->source, s->reader, s->sharer};
        const int counts[] = {s->sources, s->readers, s->sharers};
        for (int l = 0; l < 3; l++)
            for (int i = 0; i < counts[l]; i++) {
                int peer = lists[l][i];
                crooked += peer == r || (i && lists[l][i - 1] >= peer);
                for (int k = 0; k < m->mesh->axes; k++)
                    crooked +=
                        !(m->step->axes >> k & 1) && m->coordinate[peer][k] != m->coordinate[r][k];
            }
        for (int peer = 0; peer < m->ranks; peer++) {
            const sherd__schedule *o = m->schedule[peer];
            crooked +=
                move_lists(s->source, s->sources, peer) != move_lists(o->reader, o->readers, r);
            crooked +=
                move_lists(s->sharer, s->sharers, peer) != move_lists(o->sharer, o->sharers, r);
        }
    }
    return crooked;
}

/* The bound of a move with a pending reduction, counted element by element from its definition. */
static inline int64_t move_bound(const move *m)
{
    const sherd__layout_spec *from = &m->step->from->spec, *to = &m->step->to->spec;
    sherd_box all = {.ndim = from->ndim};
    int64_t at[SHERD_MAX_DIMS] = {0}, index, n, bound = 0, addends = 1;
    unsigned stay = 0;

    for (int i = 0; i < m->mesh->axes; i++) {
        addends *= m->reduced >> i & 1 ? m->mesh->extent[i] : 1;
        stay |= to->pending[i] >= 0 ? 1u << i : 0;
    }
    memcpy(all.size, from->shape, sizeof all.size);
    n = sherd__box_count(&all);
    index = 0;
    for (int64_t i = 0; i < n; i++, move_next(&all, from->shape, at, &index))
        for (int lead = 0; lead < m->ranks;
             lead++) { /* one problem per coordinate of the axes that stay */
            bool first = true, holds = false;
            int64_t wanted = 0;
            for (int k = 0; k < m->mesh->axes; k++)
                first = first && (stay >> k & 1 || m->coordinate[lead][k] == 0);
            for (int r = 0; first && r < m->ranks; r++) {
                bool in_from = true, in_to = true;
                for (int k = 0; k < m->mesh->axes; k++)
                    in_to = in_to &&
                            (!(stay >> k & 1) || m->coordinate[r][k] == m->coordinate[lead][k]);
                for (int d = 0; d < all.ndim; d++) {
                    in_from = in_from && at[d] >= m->from[r].offset[d] &&
                              at[d] < m->from[r].offset[d] + m->from[r].size[d];
                    in_to = in_to && at[d] >= m->to[r].offset[d] &&
                            at[d] < m->to[r].offset[d] + m->to[r].size[d];
                }
                wanted += in_to;
                holds = holds || (in_to && in_from);
            }
            bound += first ? addends - 1 - holds + wanted : 0;
        }
    return bound;
}

/* ---- whole plans ----------------------------------------------------------------------------- */

/* Elements that each rank received and sent in all steps, and held at most. */
typedef struct move_counts {
    int64_t received[MOVE_RANKS], sent[MOVE_RANKS], peak[MOVE_RANKS];
    bool fresh[MOVE_RANKS]; /* it has other storage than that of the source by now */
} move_counts;

/* Source, and input and output of the step, each once. */
static inline void move_count(move_counts *c, const move *m, const sherd_layout *source)
{
    bool shares = m->schedule[0]->shares; /* so all do, and none has another box afterwards */

    for (int r = 0; r < m->ranks; r++) {
        sherd_box held = sherd_layout_box(source, r, 0);
        CHECK_EQ(m->schedule[r]->shares, shares);
        CHECK(!shares || boxes_are_equal(&m->from[r], &m->to[r]));
        int64_t in = sherd__box_count(&m->from[r]), out = sherd__box_count(&m->to[r]);
        int64_t all = sherd__box_count(&held) + (c->fresh[r] ? in : 0) + (shares ? 0 : out);
        c->fresh[r] |= !shares;
        c->received[r] += m->received[r];
        c->sent[r] += m->sent[r];
        c->peak[r] = all > c->peak[r] ? all : c->peak[r];
        CHECK_EQ(m->schedule[r]->recv_bytes, m->received[r] * (int64_t)sizeof(double));
    }
}

static inline void move_check_step(const move *m)
{
    int64_t total = 0, most = 0;

    for (int r = 0; r < m->ranks; r++) {
        total += m->received[r];
        most = m->received[r] > most ? m->received[r] : most;
    }
    CHECK_EQ(m->step->recv_total_bytes, total * (int64_t)sizeof(double));
    CHECK_EQ(m->step->recv_max_bytes, most * (int64_t)sizeof(double));
    if (m->step->kind == SHERD_STEP_SLICE || m->step->kind == SHERD_STEP_PARTITION)
        CHECK(m->step->axes == 0 && total == 0);
    else
        CHECK(m->step->axes != 0 && total > 0);
    CHECK_EQ(move_crooked(m), 0);
}

/*
 * Run all steps on all ranks; `counts` may be NULL where the steps' own figures are not to be
 * checked. The number of wrong elements at the end.
 */
static inline int64_t move_run(paper *p, const sherd_step *step, int steps,
                               const sherd__kernels *kernels, move_counts *counts)
{
    double *held[MOVE_RANKS];
    const sherd_step all = {.from = step[0].from, .to = step[steps - 1].to};
    move m, whole;

    for (int i = 0; i < steps; i++) {
        move_open(&m, p, &step[i], kernels, i ? held : NULL);
        for (int r = 0; r < m.ranks; r++)
            move_run_rank(&m, r);
        if (counts) {
            move_check_step(&m);
            move_count(counts, &m, all.from);
        }
        for (int r = 0; r < m.ranks; r++) {
            held[r] = m.result[r];
            m.result[r] = NULL;
        }
        move_close(&m);
    }
    move_place(&whole, p, &all, kernels);
    memcpy(whole.result, held, sizeof held);
    int64_t wrong = move_wrong(&whole);
    move_close(&whole);
    return wrong;
}

/* Run one step on all ranks; the number of wrong elements. */
static inline int64_t move_simulate(paper *p, const sherd_step *step, const sherd__kernels *kernels)
{
    return move_run(p, step, 1, kernels, NULL);
}

static inline int64_t most_of(const int64_t *count, int n)
{
    int64_t most = 0;

    for (int i = 0; i < n; i++)
        most = count[i] > most ? count[i] : most;
    return most;
}

/* Everything that the price of a plan says, against the counts of a run. */
static inline void move_check_price(paper *p, const sherd_plan *plan, const move_counts *c)
{
    const sherd_plan_price *price = sherd_plan_price_of(plan);
    const sherd_step all = {.from = plan->from, .to = plan->to};
    const int64_t b = sizeof(double);
    int64_t received = 0, bound = 0, bound_max = 0;
    bool sums = false;
    move m;

    move_place(&m, p, &all, NULL);
    for (int r = 0; r < m.ranks; r++) {
        sherd_box own;
        sherd__box_meet(&m.from[r], &m.to[r], &own);
        int64_t missing = sherd__box_count(&m.to[r]) - sherd__box_count(&own);
        received += c->received[r];
        bound += missing;
        bound_max = missing > bound_max ? missing : bound_max;
        if (!m.reduced && plan->planner == SHERD_PLANNER_EXACT)
            CHECK_EQ(c->received[r], missing);
    }
    CHECK_EQ(price->recv_total_bytes, received * b);
    CHECK_EQ(price->recv_max_bytes, most_of(c->received, m.ranks) * b);
    CHECK_EQ(price->send_max_bytes, most_of(c->sent, m.ranks) * b);
    CHECK_EQ(price->bound_total_bytes, (m.reduced ? move_bound(&m) : bound) * b);
    for (int a = 0; a < plan->from->spec.mesh->axes; a++)
        sums |= ((plan->from->pending_axes | plan->to->pending_axes) >> a & 1) &&
                plan->from->spec.mesh->extent[a] > 1;
    CHECK_EQ(price->bound_max_bytes, sums ? -1 : bound_max * b);
    CHECK(price->bound_total_bytes <= price->recv_total_bytes);
    CHECK_EQ(price->peak_bytes, most_of(c->peak, m.ranks) * b);
}

/* Run a plan on all ranks and compare all it says; the number of wrong elements. */
static inline int64_t move_prove_plan(paper *p, const sherd_plan *plan,
                                      const sherd__kernels *kernels)
{
    move_counts counts = {{0}, {0}, {0}, {0}};
    int64_t picoseconds = 0, wrong;

    if (plan->from == plan->to)
        return CHECK_EQ(sherd_plan_steps(plan), 0) ? 0 : 1;
    CHECK(plan->steps > 0 && plan->step[0].from == plan->from &&
          plan->step[plan->steps - 1].to == plan->to);
    for (int i = 0; i < plan->steps; i++) {
        CHECK(i == 0 || plan->step[i].from == plan->step[i - 1].to);
        picoseconds += plan->step[i].picoseconds;
    }
    CHECK_EQ(sherd_plan_price_of(plan)->picoseconds, picoseconds);
    wrong = move_run(p, plan->step, plan->steps, kernels, &counts);
    move_check_price(p, plan, &counts);
    if (!CHECK_EQ(wrong, 0))
        fprintf(stderr, "%s: %s\n", plan->what, plan->trace);
    return wrong;
}

static inline const sherd__kernels *f64(void)
{
    static sherd__kernel_set kernels;

    if (!kernels.f64.name)
        sherd__kernels_choose(&kernels);
    return &kernels.f64;
}

static inline const sherd_plan *plan_of(paper *p, const char *from, const char *to,
                                        sherd_dtype dtype)
{
    const sherd_plan *plan = NULL;

    if (!CHECK_OK(
            sherd_plan_create(&plan, paper_layout(p, from), paper_layout(p, to), dtype, NULL)))
        fprintf(stderr, "%s -> %s: %s\n", from, to, p->diag.text);
    return plan;
}

/* Plan with the defaults, run and check one move; the number of wrong elements. */
static inline int64_t move_prove(paper *p, const sherd_layout *from, const sherd_layout *to,
                                 const sherd__kernels *kernels)
{
    const sherd_plan *plan = NULL;

    if (!CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL)))
        return 1;
    int64_t wrong = move_prove_plan(p, plan, kernels);
    for (int i = 0; i < plan->steps; i++) { /* the other way to do it must give the same */
        sherd_step other = plan->step[i];
        other.sliced = !other.sliced;
        if (other.kind == SHERD_STEP_ALL_REDUCE)
            wrong += move_simulate(p, &other, kernels);
    }
    return wrong;
}

/* Plans and layouts are freed, and nothing is left. */
static inline void move_paper_close(paper *p)
{
    sherd__plans_clear(&p->space);
    paper_close(p);
}

#endif
