/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All ranks of a step between two meshes simulated in one process: their schedules are run on plain
 * memory, and what the price says is counted again from their pulls and, element by element, from
 * the boxes. Each element says which one it is, and where a reduction is pending, whose addend.
 */
#ifndef SHERD_ACROSS_H
#define SHERD_ACROSS_H

#include "paper.h"
#include "boxes.h"
#include "search/planners.h"
#include "base/num.h"
#include "vector/choose.h"

#include <math.h>

enum { RANKS = 12 };

static inline const sherd__kernels *f64(void)
{
    static sherd__kernel_set kernels;

    if (!kernels.f64.name)
        sherd__kernels_choose(&kernels);
    return &kernels.f64;
}

/* One step of all ranks: what they hold before and after, and what has travelled. */
typedef struct scene {
    paper *p;
    const sherd_step *step;
    sherd__schedule *schedule[RANKS];
    sherd_box from[RANKS], to[RANKS];
    double *source[RANKS], *result[RANKS];
    int64_t received[RANKS], sent[RANKS]; /* elements */
} scene;

/* ---- what elements hold --------------------------------------------------------------------- */

static inline unsigned pending(const sherd_layout *layout)
{
    unsigned bits = 0;

    for (int i = 0; i < layout->spec.mesh->axes; i++)
        if (layout->spec.pending[i] >= 0)
            bits |= 1u << i;
    return bits;
}

static inline int64_t addends(const sherd_layout *layout)
{
    return sherd__extent_of(layout->spec.mesh, pending(layout));
}

/* Which addend a rank of the layout's mesh holds. */
static inline int64_t addend_of(const sherd_layout *layout, int rank)
{
    int64_t at[SHERD_MAX_AXES], number = 0;

    if (!sherd_mesh_coordinate(layout->spec.mesh, rank, at))
        return 0;
    for (int i = 0; i < layout->spec.mesh->axes; i++)
        if (layout->spec.pending[i] >= 0)
            number = number * layout->spec.mesh->extent[i] + at[i];
    return number;
}

static inline double value_of(int64_t index, int64_t addend)
{
    return (double)((index + 3) * (addend + 1) + 7919 * addend) / 3;
}

static inline double combine(int op, double a, double b)
{
    switch (op) {
    case SHERD_MIN:
        return fmin(a, b);
    case SHERD_MAX:
        return fmax(a, b);
    case SHERD_PRODUCT:
        return a * b;
    default:
        return a + b;
    }
}

/* What a settled element must hold, to the bit: addends in mesh order, divided at the end. */
static inline double settled(const sherd_layout *layout, int64_t index)
{
    double sum = value_of(index, 0), divisor = 1;
    int op = SHERD_SUM;

    for (int i = 0; i < layout->spec.mesh->axes; i++) {
        if (layout->spec.pending[i] == SHERD_AVG)
            divisor *= (double)layout->spec.mesh->extent[i];
        else if (layout->spec.pending[i] >= 0)
            op = layout->spec.pending[i];
    }
    for (int64_t k = 1; k < addends(layout); k++)
        sum = combine(op, sum, value_of(index, k));
    return divisor == 1 ? sum : sum / divisor;
}

/* ---- running a step ------------------------------------------------------------------------- */

static inline sherd_box box_of(const sherd_layout *layout, int rank)
{
    sherd_box box = sherd_layout_box(layout, rank, 0);

    if (sherd_layout_boxes(layout, rank) == 0 &&
        box.ndim == 0) { /* no rank of it: no scalar either */
        box.ndim = 1;
        box.size[0] = 0;
    }
    return box;
}

static inline void scene_open(scene *s, paper *p, const sherd_step *step)
{
    const int64_t *shape = step->from->spec.shape;

    memset(s, 0, sizeof *s);
    s->p = p;
    s->step = step;
    for (int r = 0; r < p->space.ranks; r++) {
        s->from[r] = box_of(step->from, r);
        s->to[r] = box_of(step->to, r);
        CHECK_OK(sherd__schedule_create(&s->schedule[r], &p->space, step, sizeof(double), r));
        int64_t held = sherd__box_count(&s->from[r]), wanted = sherd__box_count(&s->to[r]);
        s->source[r] = malloc((size_t)held * sizeof(double) + 8);
        s->result[r] = malloc((size_t)wanted * sizeof(double) + 8);
        for (int64_t i = 0; i < held; i++)
            s->source[r][i] = value_of(global_of(&s->from[r], shape, i), addend_of(step->from, r));
        for (int64_t i = 0; i < wanted; i++)
            s->result[r][i] = -1.5; /* nothing that could be right */
    }
}

static inline void scene_close(scene *s)
{
    for (int r = 0; r < s->p->space.ranks; r++) {
        sherd__schedule_destroy(&s->p->space, s->schedule[r]);
        free(s->source[r]);
        free(s->result[r]);
    }
}

static inline void run_rank(scene *s, int rank)
{
    const sherd__schedule *plan = s->schedule[rank];
    int64_t covered = 0;

    for (int i = 0; plan && i < plan->regions; i++) {
        const sherd__region *region = &plan->region[i];
        sherd__source sources[RANKS * RANKS];
        int64_t count = 1;
        for (int d = 0; d < plan->ndim; d++)
            count *= region->size[d];
        CHECK(count > 0);
        covered += count;
        for (int j = 0; j < region->count; j++) {
            int peer = plan->pull[region->first + j].rank;
            sources[j].data = s->source[peer];
            sherd__row_major(plan->ndim, s->from[peer].size, sources[j].stride);
            s->received[rank] += peer == rank ? 0 : count;
            s->sent[peer] += peer == rank ? 0 : count;
        }
        sherd__region_run(plan, region, s->result[rank], sources, sizeof(double), f64());
    }
    CHECK_EQ(covered, sherd__box_count(&s->to[rank]));
    if (plan)
        CHECK_EQ(plan->recv_bytes, s->received[rank] * (int64_t)sizeof(double));
}

static inline int64_t wrong_of(const scene *s)
{
    int64_t wrong = 0;

    for (int r = 0; r < s->p->space.ranks; r++)
        for (int64_t i = 0; i < sherd__box_count(&s->to[r]); i++)
            wrong += s->result[r][i] !=
                     settled(s->step->from, global_of(&s->to[r], s->step->from->spec.shape, i));
    return wrong;
}

static inline bool lists(const int *list, int count, int rank)
{
    for (int i = 0; i < count; i++)
        if (list[i] == rank)
            return true;
    return false;
}

/* Sources and readers are each other's converse, ascending, without oneself. */
static inline int crooked(const scene *s)
{
    int wrong = 0;

    for (int r = 0; r < s->p->space.ranks; r++) {
        const sherd__schedule *a = s->schedule[r];
        for (int i = 0; i < a->sources; i++)
            wrong += a->source[i] == r || (i && a->source[i - 1] >= a->source[i]);
        for (int i = 0; i < a->readers; i++)
            wrong += a->reader[i] == r || (i && a->reader[i - 1] >= a->reader[i]);
        for (int q = 0; q < s->p->space.ranks; q++) {
            const sherd__schedule *b = s->schedule[q];
            wrong += lists(a->source, a->sources, q) != lists(b->reader, b->readers, r);
        }
        if (!sherd_layout_boxes(s->step->from, r) && !sherd_layout_boxes(s->step->to, r))
            wrong += a->regions != 0 || a->sources != 0 || a->readers != 0;
    }
    return wrong;
}

/* ---- what the price must say ----------------------------------------------------------------- */

static inline bool inside(const sherd_box *box, const int64_t *at)
{
    bool in = sherd__box_count(box) > 0;

    for (int d = 0; d < box->ndim; d++)
        in = in && at[d] >= box->offset[d] && at[d] < box->offset[d] + box->size[d];
    return in;
}

/* From its definition, element by element: k-2+T messages if a target rank holds an addend, else
 * k-1+T. */
static inline int64_t bound_of(const scene *s)
{
    const sherd__layout_spec *spec = &s->step->from->spec;
    sherd_box all = {.ndim = spec->ndim};
    int64_t k = addends(s->step->from), bound = 0;

    memcpy(all.size, spec->shape, sizeof all.size);
    for (int64_t i = 0; i < sherd__box_count(&all); i++) {
        int64_t at[SHERD_MAX_DIMS], rest = i, wanted = 0;
        bool holds = false;
        for (int d = spec->ndim - 1; d >= 0; d--) {
            at[d] = rest % spec->shape[d];
            rest /= spec->shape[d];
        }
        for (int r = 0; r < s->p->space.ranks; r++) {
            bool wants = inside(&s->to[r], at);
            bool has = wants && inside(&s->from[r], at);
            wanted += k == 1 ? wants && !has : wants;
            holds = holds || has;
        }
        bound += k == 1 ? wanted : k - 1 - holds + wanted;
    }
    return bound;
}

/* What is said of the step against what was counted. */
static inline void check_price(const scene *s, const sherd__priced *priced)
{
    const int64_t b = sizeof(double);
    const sherd_step *step = &priced->step;
    int64_t total = 0, most = 0, sent = 0, peak = 0;
    bool settles = addends(step->from) > 1;

    for (int r = 0; r < s->p->space.ranks; r++) {
        sherd_box own;
        int64_t held = sherd__box_count(&s->from[r]), wanted = sherd__box_count(&s->to[r]);
        bool keeps = held > 0 && wanted > 0 && sherd__box_meet(&s->from[r], &s->to[r], &own);
        if (!settles) /* it receives what it lacks, and nothing else */
            CHECK_EQ(s->received[r], wanted - (keeps ? sherd__box_count(&own) : 0));
        total += s->received[r];
        most = sherd__max(most, s->received[r]);
        sent = sherd__max(sent, s->sent[r]);
        peak = sherd__max(peak, held + wanted);
    }
    CHECK_EQ(step->recv_total_bytes, total * b);
    CHECK_EQ(step->recv_max_bytes, most * b);
    CHECK_EQ(priced->send_max_bytes, sent * b);
    CHECK_EQ(priced->amounts.bound_total, bound_of(s));
    CHECK(priced->amounts.bound_total <= total);
    CHECK_EQ(priced->amounts.both_max, peak);
    CHECK_EQ(step->axes, 0);
    CHECK_EQ(step->kind, total == 0 ? SHERD_STEP_SLICE
                         : settles  ? SHERD_STEP_REDUCE_EXCHANGE
                                    : SHERD_STEP_EXCHANGE);
}

/* A plan of one step says the same. */
static inline void check_plan(const sherd__priced *priced, const sherd_plan *plan)
{
    const sherd_plan_price *price = sherd_plan_price_of(plan);
    const int64_t b = sizeof(double);
    bool settles = addends(priced->step.from) > 1;

    CHECK_EQ(price->bound_total_bytes, priced->amounts.bound_total * b);
    CHECK_EQ(price->bound_max_bytes, settles ? -1 : priced->step.recv_max_bytes);
    if (sherd_plan_steps(plan) > 1)
        return;
    CHECK_EQ(plan->step->kind, priced->step.kind);
    CHECK_EQ(price->recv_total_bytes, priced->step.recv_total_bytes);
    CHECK_EQ(price->recv_max_bytes, priced->step.recv_max_bytes);
    CHECK_EQ(price->send_max_bytes, priced->send_max_bytes);
    if (price->recv_total_bytes > 0)
        CHECK_EQ(price->peak_bytes, priced->amounts.both_max * b);
    else
        CHECK(price->peak_bytes <= priced->amounts.both_max * b);
}

/* Price, run and check the direct step, and look at the plan; whether all was right. */
static inline bool prove(paper *p, const sherd_layout *from, const sherd_layout *to)
{
    int before = atomic_load(&check_state->failures);
    const sherd_plan *plan = NULL;
    const sherd__request request = {.per_host = 1};
    const sherd__problem problem = sherd__problem_of(&p->space, from, to, sizeof(double), &request);
    sherd__priced priced;
    scene s;

    if (CHECK_OK(sherd_plan_create(&plan, from, to, SHERD_F64, NULL)) &&
        CHECK_OK(sherd__step_price(&priced, &problem, from, to))) {
        scene_open(&s, p, &priced.step);
        for (int r = 0; r < p->space.ranks; r++)
            run_rank(&s, r);
        CHECK_EQ(wrong_of(&s), 0);
        CHECK_EQ(crooked(&s), 0);
        check_price(&s, &priced);
        check_plan(&priced, plan);
        scene_close(&s);
    }
    bool good = atomic_load(&check_state->failures) == before;
    if (!good)
        fprintf(stderr, "%s -> %s: %s\n", from->text, to->text, p->diag.text);
    return good;
}

#endif
