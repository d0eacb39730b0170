/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a window: one step with its amounts. Dims are independent, so a rank's amounts are
 * products over dims, and the busiest rank is found by iterating over the shards of all dims
 * together. That costs the number of ranks, once for each new window.
 */
#include "planners.h"
#include "plan/window_schedule.h"

#include <string.h>

#include "base/hash.h"
#include "base/num.h"

/* Of one shard of one dim, in indices. */
typedef struct sums {
    int64_t held;   /* its own */
    int64_t window; /* in its window, also beyond the ends */
    int64_t asked;  /* in its window, of the tensor */
    int64_t given;  /* its own, as often as windows have them */
    int64_t kept;   /* its own in its own window */
    int64_t more;   /* by how many more stretches it is given as a whole than the shard before it */
} sums;

static int64_t meeting(const sherd__reach *reach, int64_t shard, int64_t lo, int64_t hi)
{
    sherd__stretch s = {0, 0, 0};
    int64_t n = 0;

    while (sherd__stretch_next(reach, shard, &s))
        if (s.from >= 0)
            n += sherd__max(sherd__min(hi, s.from + s.count) - sherd__max(lo, s.from), 0);
    return n;
}

/*
 * What all shards of a dim ask for, added to what each gives: a stretch meets a row of shards, of
 * which those between the first and the last give all that they have. These are counted where they
 * begin and end.
 */
static void add_given(sums *all, const sherd__reach *reach, const int64_t *box)
{
    int64_t times = 0;

    for (int64_t p = 0; p < reach->shards; p++) {
        sherd__stretch s = {0, 0, 0};
        while (sherd__stretch_next(reach, p, &s)) {
            int64_t end = s.from + s.count;
            if (s.from < 0 || s.count <= 0)
                continue;
            int64_t q = sherd__shard_of(box, reach->shards, s.from);
            int64_t last = sherd__shard_of(box, reach->shards, end - 1);
            all[q].given += sherd__min(end, box[2 * q + 1]) - s.from;
            if (q == last)
                continue;
            all[last].given += end - box[2 * last];
            all[q + 1].more++;
            all[last].more--;
        }
    }
    for (int64_t q = 0; q < reach->shards; q++) {
        times += all[q].more;
        all[q].given += times * all[q].held;
    }
}

/* `beyond`: how far windows reach at most before the ranks' own pieces, and after them. */
static bool find_sums(sums **out, int64_t beyond[2], const sherd__window *window, int d)
{
    const sherd__layout_spec *spec = &window->layout->spec;
    const sherd__reach *reach = &window->reach[d];
    sherd__heap *heap = window->layout->space->heap;
    int64_t *box = sherd__alloc(heap, sherd__bytes(2 * reach->shards), sizeof *box);
    sums *all = sherd__alloc(heap, sherd__bytes(reach->shards), sizeof *all);

    *out = all;
    if (box && all) {
        sherd__dim_spans(spec->mesh, &spec->dim[d], reach->n, box);
        for (int64_t p = 0; p < reach->shards; p++) {
            all[p].held = box[2 * p + 1] - box[2 * p];
            all[p].window = reach->span[2 * p + 1] - reach->span[2 * p];
            if (all[p].held && all[p].window) {
                beyond[0] = sherd__max(beyond[0], box[2 * p] - reach->span[2 * p]);
                beyond[1] = sherd__max(beyond[1], reach->span[2 * p + 1] - box[2 * p + 1]);
            }
            all[p].asked = meeting(reach, p, 0, reach->n);
            all[p].kept = meeting(reach, p, box[2 * p], box[2 * p + 1]);
        }
        add_given(all, reach, box);
    }
    sherd__free(heap, box);
    return box && all;
}

/* ---- over all ranks -------------------------------------------------------------------------- */

/* In elements: of the busiest rank, and of all. */
typedef struct totals {
    int64_t gets, gives; /* from others, and to others */
    int64_t window, held, both;
    int64_t asked, given; /* of one rank, its own too */
    int64_t all;          /* that travels */
    unsigned axes;        /* along which something travels */
} totals;

static void add_rank(totals *t, const sums *const *at, int ndim)
{
    int64_t held = 1, window = 1, asked = 1, given = 1, kept = 1;

    for (int d = 0; d < ndim; d++) {
        held = sherd__mul_cut(held, at[d]->held);
        window = sherd__mul_cut(window, at[d]->window);
        asked = sherd__mul_cut(asked, at[d]->asked);
        given = sherd__mul_cut(given, at[d]->given);
        kept = sherd__mul_cut(kept, at[d]->kept);
    }
    t->gets = sherd__max(t->gets, asked - kept);
    t->gives = sherd__max(t->gives, given - kept);
    t->window = sherd__max(t->window, window);
    t->held = sherd__max(t->held, held);
    t->both = sherd__max(t->both, sherd__add_cut(window, held));
    t->asked = sherd__max(t->asked, asked);
    t->given = sherd__max(t->given, given);
    t->all = sherd__add_cut(t->all, asked - kept);
}

static void find_totals(totals *t, const sherd__window *window, sums *const *all)
{
    const sherd__layout_spec *spec = &window->layout->spec;
    int64_t shard[SHERD_MAX_DIMS] = {0}, replicas = spec->mesh->count;
    const sums *at[SHERD_MAX_DIMS];
    int d;

    memset(t, 0, sizeof *t);
    for (d = 0; d < spec->ndim; d++) {
        replicas /= window->reach[d].shards;
        for (int64_t p = 0; p < window->reach[d].shards; p++)
            for (int i = 0; all[d][p].asked != all[d][p].kept && i < spec->dim[d].axes; i++)
                t->axes |= 1u << spec->dim[d].axis[i];
    }
    do {
        for (d = 0; d < spec->ndim; d++)
            at[d] = &all[d][shard[d]];
        add_rank(t, at, spec->ndim);
        for (d = spec->ndim - 1; d >= 0 && ++shard[d] == window->reach[d].shards; d--)
            shard[d] = 0;
    } while (d >= 0);
    t->all = sherd__mul_cut(t->all, replicas);
}

/* ---- the plan -------------------------------------------------------------------------------- */

static bool folds(const sherd_plan *plan)
{
    return plan->direction == SHERD__FOLD;
}

static void price(sherd_plan *plan, const totals *t)
{
    sherd_step *step = plan->step;
    sherd_plan_price *p = &plan->price;
    int64_t bytes = (int64_t)plan->element_bytes, target = folds(plan) ? t->held : t->window;
    int64_t addends = folds(plan) && t->held ? sherd__ceil_div(t->given, t->held) : 1;

    step->kind = t->all == 0   ? SHERD_STEP_SLICE
                 : folds(plan) ? SHERD_STEP_REDUCE_EXCHANGE
                               : SHERD_STEP_EXCHANGE;
    step->axes = t->all ? t->axes : 0;
    step->picoseconds =
        sherd__arena_time(&step->sliced, step->kind, false, target, sherd__max(addends, 1), bytes);
    if (plan->space->price)
        step->picoseconds =
            sherd__links_time_window(plan->space->price, plan->from->spec.mesh, step->axes,
                                     sherd__mul_cut(sherd__max(t->gets, t->gives), bytes));
    step->recv_max_bytes = sherd__mul_cut(folds(plan) ? t->gives : t->gets, bytes);
    step->recv_total_bytes = sherd__mul_cut(t->all, bytes);
    p->picoseconds = step->picoseconds;
    p->recv_max_bytes = step->recv_max_bytes;
    p->recv_total_bytes = p->bound_total_bytes = step->recv_total_bytes;
    p->send_max_bytes = sherd__mul_cut(folds(plan) ? t->gets : t->gives, bytes);
    p->bound_max_bytes = folds(plan) ? -1 : step->recv_max_bytes;
    p->peak_bytes = sherd__mul_cut(t->both, bytes);
    p->rounds = t->all ? 1 : 0;
    p->proven = !folds(plan);
    plan->cost = (double)p->picoseconds / 1e12;
}

int64_t sherd__window_time(const sherd_layout *layout, int d, int64_t most, size_t element_bytes)
{
    const sherd__layout_spec *spec = &layout->spec;
    const sherd_price *price = layout->space->price;
    int64_t bytes = (int64_t)element_bytes;
    unsigned axes = 0;
    bool sliced;

    for (int i = 0; i < spec->ndim; i++)
        if (i != d)
            most =
                sherd__mul_cut(most, sherd__dim_longest(spec->mesh, &spec->dim[i], spec->shape[i]));
    for (int i = 0; i < spec->dim[d].axes && most; i++)
        axes |= 1u << spec->dim[d].axis[i];
    if (price)
        return sherd__links_time_window(price, spec->mesh, axes, sherd__mul_cut(most, bytes));
    return sherd__arena_time(&sliced, most ? SHERD_STEP_EXCHANGE : SHERD_STEP_SLICE, false, most, 1,
                             bytes);
}

static void write_trace(sherd__writer *w, const void *object)
{
    const sherd_plan *plan = object;

    sherd__write(w, folds(plan) ? "windows->%s" : "%s->windows", plan->from->placements);
}

/* The border of a side that reaches beyond the ends; zeros need no word. */
static void write_border(sherd__writer *w, const sherd__window *window, sherd_border border)
{
    static const char *const name[SHERD_BORDERS] = {[SHERD_BORDER_REPLICATE] = " replicate",
                                                    [SHERD_BORDER_REFLECT] = " reflect",
                                                    [SHERD_BORDER_PERIODIC] = " periodic",
                                                    [SHERD_BORDER_SYMMETRIC] = " symmetric"};

    if (border == SHERD_BORDER_CONSTANT && window->value != 0)
        sherd__write(w, " constant %g", window->value);
    else
        sherd__write(w, "%s", name[border] ? name[border] : "");
}

/* "windows 2+1 periodic,0+0 of [6(x),2] on (x=3)": before and after the piece, in each dim. */
static void describe(sherd_plan *plan, int64_t beyond[][2])
{
    const sherd__reach *reach = plan->window->reach;
    sherd__writer w = {plan->what, sizeof plan->what, 0};

    sherd__write(&w, "windows");
    for (int d = 0; d < plan->from->spec.ndim; d++) {
        sherd__write(&w, "%c%lld+%lld", d ? ',' : ' ', (long long)beyond[d][0],
                     (long long)beyond[d][1]);
        if (beyond[d][0] > 0)
            write_border(&w, plan->window, reach[d].before);
        if (beyond[d][1] > 0 && (beyond[d][0] == 0 || reach[d].after != reach[d].before))
            write_border(&w, plan->window, reach[d].after);
    }
    sherd__write(&w, folds(plan) ? " -> %s" : " of %s", plan->from->text);
}

static uint64_t fingerprint_of(const sherd_plan *plan)
{
    uint64_t hash = sherd__hash_word(0x77696e64, plan->element_bytes);

    hash = sherd__hash_word(hash, plan->window->hash);
    return sherd__hash_word(hash, (uint64_t)plan->direction);
}

static sherd_status fill(sherd_plan *plan)
{
    sherd__heap *heap = plan->space->heap;
    const sherd__window *window = plan->window;
    int ndim = window->layout->spec.ndim;
    sums *all[SHERD_MAX_DIMS] = {NULL};
    int64_t beyond[SHERD_MAX_DIMS][2] = {{0}};
    totals t;
    bool good = true;

    for (int d = 0; d < ndim && good; d++)
        good = find_sums(&all[d], beyond[d], window, d);
    if (good)
        find_totals(&t, window, all);
    describe(plan, beyond);
    for (int d = 0; d < ndim; d++)
        sherd__free(heap, all[d]);
    plan->step = sherd__alloc(heap, 1, sizeof *plan->step);
    plan->mine = sherd__alloc(heap, 1, sizeof(sherd__schedule *));
    plan->trace = sherd__written(heap, write_trace, plan);
    if (!good || !plan->step || !plan->mine || !plan->trace)
        return sherd__no_memory(plan->space->diag, "sherd_halo");
    plan->step->from = sherd_layout_retain(plan->from);
    plan->step->to = sherd_layout_retain(plan->to);
    plan->steps = 1;
    price(plan, &t);
    return plan->space->rank < 0
               ? SHERD_OK
               : sherd__window_schedule(&plan->mine[0], window, (sherd__direction)plan->direction,
                                        plan->element_bytes, plan->space->rank);
}

sherd_status sherd__window_plan_make(sherd_plan **out, sherd__window *window,
                                     sherd__direction direction, size_t element_bytes)
{
    sherd__space *space = window->layout->space;
    sherd_plan *plan = sherd__alloc(space->heap, 1, sizeof *plan);

    *out = NULL;
    if (!plan)
        return sherd__no_memory(space->diag, "sherd_halo");
    plan->refs = 1;
    plan->space = space;
    plan->from = sherd_layout_retain(window->layout);
    plan->to = sherd_layout_retain(window->layout);
    plan->element_bytes = element_bytes;
    plan->window = window;
    window->refs++;
    plan->direction = (int)direction;
    plan->fingerprint = fingerprint_of(plan);
    sherd_status status = fill(plan);
    if (status) {
        sherd__plan_destroy(plan);
        return status;
    }
    *out = plan;
    return SHERD_OK;
}
