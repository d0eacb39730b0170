/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of a step between two states. First it is estimated from their lists and longest
 * intervals alone, which is enough for the time under the arena and for most bytes; only if that
 * leaves something open is the step priced. Estimating costs some tens of nanoseconds, pricing some
 * microseconds.
 */
#include "search.h"
#include "base/hash.h"
#include "base/num.h"

#include <string.h>

/* Some rank receives at least the mean, in however many steps. */
static int64_t carry_time(const sherd__field *field, int64_t bytes)
{
    const sherd_link *link = &field->floor.link;
    int64_t mean = bytes / field->mesh->count, ps = link->beta_femtoseconds / 1000;
    int64_t fs = link->beta_femtoseconds % 1000;

    if (bytes == 0)
        return 0;
    return sherd__add_cut(link->alpha_picoseconds,
                          sherd__add_cut(sherd__mul_cut(mean, ps), mean / 1000 * fs));
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Whether axes of `a` no longer cut their dim as before, so that ranks lack something. */
static bool gathers(const sherd__field *field, const sherd__node *a, const sherd__node *b)
{
    for (int d = 0; d < field->ndim; d++) {
        const sherd__way *x = &field->dim[d].way[a->way[d]], *y = &field->dim[d].way[b->way[d]];
        if (x != y && sherd__ways_shared(field, d, x, y) < x->axes)
            return true;
    }
    return false;
}

static bool same_boxes(const sherd__field *field, const sherd__node *a, const sherd__node *b)
{
    for (int d = 0; d < field->ndim; d++)
        if (a->way[d] != b->way[d])
            return false;
    return true;
}

/*
 * Elements that all ranks together keep in place from a to b, at most: no more than they hold in
 * either. And: ranks that differ only in axes that left dim d have disjoint intervals of d in `a`,
 * and the same one in b, so what they keep of d adds up to at most that one. This can be said of
 * one dim after the other, a dim after those to which its axes moved, if these moves make no ring;
 * axes that would close one are left out. So ranks that differ only in axes that left their dims
 * together keep at most b's largest box. The same holds from b's side.
 */
static int64_t kept_at_most(const sherd__field *field, const sherd__node *a, const sherd__node *b)
{
    uint64_t ring = 0;
    int64_t left = field->mesh->count, came = left;

    for (int i = 0; i < field->mesh->axes; i++) {
        int64_t p = field->mesh->extent[i];
        int x = a->home[i], y = b->home[i];
        if (x == y)
            continue;
        if (x >= 0 && y >= 0 && !sherd__dims_link(&ring, x, y))
            continue;
        left /= x >= 0 ? p : 1;
        came /= y >= 0 ? p : 1;
    }
    int64_t kept = sherd__min(sherd__mul_cut(left, b->longest), sherd__mul_cut(came, a->longest));
    return sherd__min(kept, sherd__min(a->total, b->total));
}

/* Received elements of a step that adds k addends (1 = none) and whose boxes change. */
static int64_t received(const sherd__field *field, const sherd__node *a, const sherd__node *b,
                        int64_t k, bool gathered)
{
    int64_t kept = gathered ? kept_at_most(field, a, b) : b->total;

    return sherd__mul_cut(b->total, k) - kept;
}

/*
 * In a reduction something travels, unless all boxes are empty. Otherwise nothing travels if every
 * target box lies in its rank's source box, as it does if axes only join the ends of lists. If no
 * target box is empty, that is the only such case: the outermost axis in which the lists of a dim
 * differ takes some rank's interval beyond its own shard.
 */
static void look(sherd__search_edge *out, const sherd__field *field, const sherd__node *a,
                 const sherd__node *b)
{
    unsigned reduced = a->pending & ~b->pending;
    int64_t k = sherd__extent_of(field->mesh, reduced), elements = 0;
    bool stays = same_boxes(field, a, b), gathered = !stays && gathers(field, a, b);
    bool arena = field->price == &sherd__price_arena, sliced = false, unsure = false;
    sherd_step_kind kind = SHERD_STEP_SLICE;

    if (reduced) {
        kind = stays ? SHERD_STEP_ALL_REDUCE : SHERD_STEP_REDUCE_EXCHANGE;
        elements = received(field, a, b, k, gathered);
    } else if (gathered) {
        unsure = b->hollow;
        kind = unsure ? SHERD_STEP_SLICE : SHERD_STEP_EXCHANGE;
        elements = received(field, a, b, k, true);
    }
    out->sure_time = arena && !unsure;
    out->sure_bytes = arena && !gathered;
    out->open_bytes = !stays;
    out->sure_kind = !unsure;
    if (arena)
        out->cost.picoseconds =
            sherd__arena_time(&sliced, kind, stays, b->longest, k, field->bytes);
    if (stays && reduced && (sliced || !arena))
        elements = sherd__mul_cut(b->total / k, 2 * (k - 1));
    out->cost.bytes = sherd__mul_cut(elements, field->bytes);
    if (!arena && kind != SHERD_STEP_SLICE)
        out->cost.picoseconds = sherd__max(
            k > 1 ? field->price->floor(field->problem, b->longest, k) : field->floor.arrival,
            carry_time(field, out->cost.bytes));
}

/* To another mesh: addends must come together; without any, ranks may have all that they need. */
static void look_across(sherd__search_edge *out, const sherd__field *field, const sherd__node *a,
                        const sherd__node *b)
{
    int64_t k = sherd__extent_of(field->mesh, a->pending);

    if (k > 1)
        out->cost.picoseconds = field->price->floor(field->problem, b->longest, k);
}

void sherd__edge_look(sherd__search_edge *out, const sherd__field *field, int a, int b,
                      int64_t enough)
{
    *out = (sherd__search_edge){.cost = {0, 0, 1}};
    if (field->across && b == SHERD__GOAL)
        look_across(out, field, &field->node[a], &field->node[b]);
    else if (field->price == &sherd__price_links)
        sherd__links_look(out, field, a, b, enough);
    else
        look(out, field, &field->node[a], &field->node[b]);
}

/* ---- pricing --------------------------------------------------------------------------------- */

/* Elements that the fullest rank holds while a step runs, in all `layouts` together. */
static int64_t held_at_most(const sherd_layout *const *layouts, int count)
{
    const sherd_mesh *mesh = layouts[0]->spec.mesh;
    int64_t at[SHERD_MAX_AXES] = {0}, worst = 0;
    unsigned listed = 0;

    /* With default cuts the first shard is the longest at every level, in every layout at once. */
    for (int i = 0; i < count; i++)
        for (int d = 0; d < layouts[i]->spec.ndim; d++)
            for (int j = 0; layouts[i]->spec.dim[d].cuts && j < layouts[i]->spec.dim[d].axes; j++)
                listed |= 1u << layouts[i]->spec.dim[d].axis[j];
    do {
        int64_t sum = 0;
        for (int i = 0; i < count; i++) {
            sherd_box box;
            sherd__layout_box(layouts[i], at, &box);
            sum = sherd__add_cut(sum, sherd__box_count(&box));
        }
        worst = sherd__max(worst, sum);
    } while (sherd__next(mesh, listed, at));
    return worst;
}

static int64_t peak_of(const sherd__problem *problem, const sherd__priced *step)
{
    const sherd_layout *held[3] = {problem->from};
    int count = 1;

    if (step->change.across)
        return sherd__across_peak(problem, step);
    if (step->step.from != problem->from)
        held[count++] = step->step.from;
    if (!sherd__step_shares(&step->step, &step->change))
        held[count++] = step->step.to;
    return sherd__mul_cut(held_at_most(held, count), (int64_t)problem->element_bytes);
}

bool sherd__step_allowed(const sherd__problem *problem, const sherd__priced *step)
{
    const sherd__request *request = problem->request;

    if (request->forbidden >> step->step.kind & 1)
        return false;
    return request->max_bytes == 0 || peak_of(problem, step) <= request->max_bytes;
}

void sherd__edge_time(sherd__search_edge *edge, const sherd__field *field, int a, int b)
{
    const sherd__node *from = &field->node[a], *to = &field->node[b];
    sherd_layout rooms[2];
    sherd__priced step = {.rounds = 0};

    step.step.from = sherd__field_layout(field, a, &rooms[0]);
    step.step.to = sherd__field_layout(field, b, &rooms[1]);
    sherd__change_find(&step.change, step.step.from, step.step.to);
    step.amounts.target_max = to->longest;
    step.amounts.target_total = to->total;
    step.amounts.receive_max = step.change.gathered || step.change.reduced;
    step.step.kind = sherd__step_kind(&step.change, &step.amounts);
    if (step.amounts.receive_max)
        step.step.axes = step.change.gathered | step.change.reduced;
    field->price->price(&step, field->problem);
    edge->cost.picoseconds = step.step.picoseconds;
    edge->sure_time = true;
    if (step.step.kind == SHERD_STEP_ALL_REDUCE) { /* each rank has its own addend whole */
        int64_t k = sherd__extent_of(field->mesh, from->pending & ~to->pending);
        step.amounts.receive_total = sherd__mul_cut(to->total, k) - to->total;
        sherd__step_bytes(&step, field->problem->element_bytes);
        edge->cost.bytes = step.step.recv_total_bytes;
        edge->sure_bytes = true;
    } else if (!step.amounts.receive_max) {
        edge->cost.bytes = 0;
        edge->sure_bytes = true;
    }
}

void sherd__edge_total(sherd__search_edge *edge, const sherd__field *field, int a, int b)
{
    sherd_layout rooms[2];
    sherd__change change;

    sherd__change_find(&change, sherd__field_layout(field, a, &rooms[0]),
                       sherd__field_layout(field, b, &rooms[1]));
    edge->cost.bytes = sherd__mul_cut(sherd__received_total(&change, field->shape), field->bytes);
    edge->sure_bytes = true;
    if (!edge->sure_time)
        edge->cost.picoseconds =
            sherd__max(edge->cost.picoseconds, carry_time(field, edge->cost.bytes));
}

/*
 * Price a step under links, which need few amounts: whether anything travels (it does if the look
 * said that it takes time) and the largest target. Bytes are counted only if the step does not take
 * too long.
 */
static void price_lightly(sherd__priced *step, const sherd__field *field, int b,
                          const sherd__search_edge *known)
{
    bool sure = known->sure_bytes && known->cost.bytes < SHERD__MOST;
    bool travels = known->cost.picoseconds > 0;

    memset(&step->amounts, 0, sizeof step->amounts);
    sherd__change_find(&step->change, step->step.from, step->step.to);
    step->amounts.target_max = field->node[b].longest;
    step->amounts.target_total = field->node[b].total;
    if (sure)
        step->amounts.receive_total = known->cost.bytes / field->bytes;
    else if (!travels)
        step->amounts.receive_total = sherd__received_total(&step->change, field->shape);
    step->amounts.receive_max = travels || step->amounts.receive_total > 0;
    sherd__step_name(step);
    field->price->price(step, field->problem);
    if (!sure && travels && (!step->enough || step->step.picoseconds <= step->enough))
        step->amounts.receive_total = sherd__received_total(&step->change, field->shape);
    sherd__step_bytes(step, field->problem->element_bytes);
    /* The ranks that were priced may lack nothing; the bytes of all ranks take at least this. */
    step->step.picoseconds =
        sherd__max(step->step.picoseconds, carry_time(field, step->step.recv_total_bytes));
}

/* The place of a step in the table of priced ones; searches ask for most of them again. */
static sherd__known *place_of(const sherd__field *field, int a, int b)
{
    uint64_t key = (uint64_t)field->node[a].number << 32 | (uint64_t)field->node[b].number;

    return &field->priced.table[sherd__hash_word(0, key) % SHERD__KNOWN];
}

static bool is_of(const sherd__known *k, const sherd__field *field, int a, int b)
{
    return k->from == field->node[a].number + 1 && k->to == field->node[b].number + 1;
}

static const sherd__known *find_sure(const sherd__field *field, int a, int b)
{
    for (int i = 0; i < field->priced.sures; i++)
        if (is_of(&field->priced.sure[i], field, a, b))
            return &field->priced.sure[i];
    return NULL;
}

/* A step that was priced before; NULL: it was not, or pricing stopped below `enough`. */
static const sherd__known *find_known(const sherd__field *field, int a, int b, int64_t enough)
{
    const sherd__known *sure = find_sure(field, a, b);

    if (sure)
        return sure;
    const sherd__known *k = field->priced.table ? place_of(field, a, b) : NULL;
    if (!k || !is_of(k, field, a, b))
        return NULL;
    return k->complete || (enough && k->cost.picoseconds > enough) ? k : NULL;
}

static void note_known(const sherd__field *field, int a, int b, int64_t enough, bool allowed,
                       sherd__cost cost)
{
    if (field->priced.table)
        *place_of(field, a, b) =
            (sherd__known){field->node[a].number + 1, field->node[b].number + 1,
                           !enough || cost.picoseconds <= enough, allowed, cost};
}

/* Price a step that was looked at (*out), over `some` ranks or over all. */
static sherd_status price_step(sherd__search_edge *out, bool *allowed, const sherd__field *field,
                               int a, int b, int64_t enough, bool some)
{
    bool lightly = field->price == &sherd__price_links && !(field->across && b == SHERD__GOAL);
    sherd_status status = SHERD_OK;
    sherd_layout rooms[2];
    sherd__priced step = {.rounds = 0};

    step.step.from = sherd__field_layout(field, a, &rooms[0]);
    step.step.to = sherd__field_layout(field, b, &rooms[1]);
    step.enough = enough;
    step.some = some;
    if (lightly)
        price_lightly(&step, field, b, out);
    else
        status = sherd__step_price(&step, field->problem, step.step.from, step.step.to);
    *allowed = status == SHERD_OK && sherd__step_allowed(field->problem, &step);
    out->cost = (sherd__cost){step.step.picoseconds, step.step.recv_total_bytes, 1};
    return status;
}

sherd_status sherd__edge_price(sherd__search_edge *out, bool *allowed, const sherd__field *field,
                               int a, int b, int64_t enough)
{
    const sherd__known *known = find_known(field, a, b, enough);
    sherd_status status = SHERD_OK;

    if (known) {
        *allowed = known->allowed;
        out->cost = known->cost;
    } else {
        status = price_step(out, allowed, field, a, b, enough, true);
        if (status == SHERD_OK)
            note_known(field, a, b, enough, *allowed, out->cost);
    }
    *out = (sherd__search_edge){.cost = out->cost, .sure_time = true, .sure_bytes = true};
    return status;
}

bool sherd__edge_note(sherd__field *field, int a, int b, bool allowed, sherd__cost cost)
{
    if (field->priced.sures >= field->effort->sure)
        return false;
    field->priced.sure[field->priced.sures++] =
        (sherd__known){field->node[a].number + 1, field->node[b].number + 1, true, allowed, cost};
    return true;
}

sherd_status sherd__edge_price_all(sherd__search_edge *out, bool *kept, sherd__field *field, int a,
                                   int b)
{
    const sherd__known *known = find_sure(field, a, b);
    sherd_status status = SHERD_OK;
    bool allowed;

    *kept = true;
    if (known) {
        out->cost = known->cost;
        return SHERD_OK;
    }
    sherd__edge_look(out, field, a, b, SHERD__MOST);
    status = price_step(out, &allowed, field, a, b, 0, false);
    if (status == SHERD_OK)
        *kept = sherd__edge_note(field, a, b, allowed, out->cost);
    return status;
}
