/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The price of links by its definition (plan.h): a count of messages and bytes in the schedules and
 * boxes of all ranks, to compare prices with.
 */
#ifndef SHERD_LINKS_BY_HAND_H
#define SHERD_LINKS_BY_HAND_H

#include "scenes.h"

/* Some axes have a line of their own, in any order; "*" stands somewhere, or not at all. */
static inline sherd_price draw_price(scene *s)
{
    sherd_price price = {.kind = SHERD_PRICE_LINKS};
    int star = roll(&s->dice, 2 * s->mesh->axes);

    for (int i = s->mesh->axes - 1; i >= -1; i--) {
        sherd_link *link = &price.link[price.links];
        if (i >= 0 && i != star && roll(&s->dice, 4) == 0)
            continue;
        strcpy(link->axis, i < 0 || i == star ? "*" : s->mesh->name[i]);
        if ((i < 0 && star < s->mesh->axes) || (i < 0 && roll(&s->dice, 3) == 0))
            continue;
        link->alpha_picoseconds = roll(&s->dice, 4) * 1000;
        link->beta_femtoseconds = roll(&s->dice, 4) * 333;
        link->gamma_femtoseconds = roll(&s->dice, 4) * 77;
        price.links++;
    }
    return price;
}

/* For a tensor of so many bytes: by what a message of all of it takes, then by bytes alone. */
static inline bool is_slower(const sherd_link *a, const sherd_link *b, int64_t bytes)
{
    int64_t x = 1000 * a->alpha_picoseconds + bytes * a->beta_femtoseconds;
    int64_t y = 1000 * b->alpha_picoseconds + bytes * b->beta_femtoseconds;

    return x > y || (x == y && a->beta_femtoseconds > b->beta_femtoseconds);
}

/*
 * The link of each axis: its own line, else "*", else the slowest line. `upto_bytes` then says how
 * many the tensor has.
 */
static inline sherd_link line_of(const sherd_price *price, const char *axis, int64_t bytes)
{
    const sherd_link none = {"", 0, 0, 0, 0}, *own = NULL, *star = NULL, *slowest = NULL;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        if (strcmp(link->axis, axis) == 0)
            own = link;
        if (strcmp(link->axis, "*") == 0)
            star = link;
        if (!slowest || is_slower(link, slowest, bytes))
            slowest = link;
    }
    sherd_link link = own ? *own : star ? *star : slowest ? *slowest : none;
    link.upto_bytes = bytes;
    return link;
}

/* The slowest of some axes; -1 = none. */
static inline int slowest_of(const sherd_mesh *mesh, const sherd_link *link, unsigned axes)
{
    int found = -1;

    for (int i = 0; i < mesh->axes; i++)
        if (axes >> i & 1 && (found < 0 || !is_slower(&link[found], &link[i], link[i].upto_bytes)))
            found = i;
    return found;
}

typedef struct traffic {
    int64_t received[SHERD_MAX_AXES],
        sent[SHERD_MAX_AXES];                            /* elements, by the slowest axis crossed */
    int64_t gets[SHERD_MAX_AXES], sends[SHERD_MAX_AXES]; /* messages */
} traffic;

/* What comes to each rank and goes from it, by the schedules, in which each asks in its own
 * column. */
static inline void count_traffic(traffic *of, const table *t, const sherd_step *step,
                                 const sherd_link *link)
{
    const sherd_mesh *mesh = step->from->spec.mesh;

    memset(of, 0, (size_t)t->ranks * sizeof *of);
    for (int r = 0; r < t->ranks; r++) {
        sherd__schedule *s;
        CHECK_OK(sherd__schedule_create(&s, step->from->space, step, 4, r));
        for (int i = 0; i < s->regions; i++) {
            int64_t count = 1;
            for (int d = 0; d < s->ndim; d++)
                count *= s->region[i].size[d];
            for (int j = 0; j < s->region[i].count; j++) {
                int peer = s->pull[s->region[i].first + j].rank;
                int axis = slowest_of(mesh, link, apart(t, mesh, r, peer));
                if (peer == r)
                    continue;
                of[r].gets[axis]++;
                of[r].received[axis] += count;
                of[peer].sends[axis]++;
                of[peer].sent[axis] += count;
            }
        }
        sherd__schedule_destroy(step->from->space, s);
    }
}

static inline unsigned sharers_of(const sherd__priced *p, const sherd_link *link, int axis)
{
    unsigned share = p->change.cut & ~(p->change.gathered | p->change.reduced);

    for (int i = 0; i < p->change.mesh->axes; i++)
        if (i == axis || slowest_of(p->change.mesh, link, 1u << i | 1u << axis) != axis)
            share &= ~(1u << i);
    return share;
}

static inline int64_t over(const sherd_link *link, int64_t messages, int64_t elements)
{
    return messages * link->alpha_picoseconds * 1000 + 4 * elements * link->beta_femtoseconds;
}

/* What replicas send over each class that faster links join with a rank, and how many they are. */
typedef struct group {
    int64_t messages[SHERD_MAX_AXES], elements[SHERD_MAX_AXES], count[SHERD_MAX_AXES];
} group;

static inline void find_group(group *g, const table *t, const sherd__priced *p,
                              const sherd_link *link, int rank, const traffic *of)
{
    memset(g, 0, sizeof *g);
    for (int i = 0; i < p->change.mesh->axes; i++) {
        unsigned share = sharers_of(p, link, i);
        for (int other = 0; other < t->ranks; other++) {
            if (apart(t, p->change.mesh, rank, other) & ~share)
                continue;
            g->messages[i] += of[other].sends[i];
            g->elements[i] += of[other].sent[i];
            g->count[i]++;
        }
    }
}

static inline int64_t add_class(int64_t sum, int64_t femto, bool overlap)
{
    if (!overlap)
        return sum + femto;
    return femto > sum ? femto : sum;
}

/* The class whose messages take longest, of such the slowest; bytes are those of a mean one. */
static inline int dearest_of(const group *g, const sherd_mesh *mesh, const sherd_link *link,
                             unsigned left)
{
    int64_t most = -1;
    int found = -1;

    for (; left; left &= ~(1u << slowest_of(mesh, link, left))) {
        int i = slowest_of(mesh, link, left);
        int64_t each = g->messages[i] ? over(&link[i], 1, g->elements[i] / g->messages[i]) : 0;
        found = each > most ? i : found;
        most = each > most ? each : most;
    }
    return found;
}

/*
 * Replicas send the same share, but for messages that go whole: dealt round, dearest class first,
 * those who have got one less than others begin the next.
 */
static inline int64_t time_shared(const group *g, const sherd_mesh *mesh, const sherd_link *link,
                                  bool overlap)
{
    unsigned left = (1u << mesh->axes) - 1;
    int64_t even = 0, whole = 0, less = 0, before = 1;

    while (left) {
        int i = dearest_of(g, mesh, link, left);
        int64_t n = g->messages[i], count = g->count[i];
        left &= ~(1u << i);
        if (n == 0)
            continue;
        even = add_class(even, sherd__ceil_div(over(&link[i], n, g->elements[i]), count), overlap);
        int64_t dealt = overlap ? 0 : less * count / before, more = n > dealt ? n - dealt : 0;
        int64_t each = sherd__ceil_div(more, count);
        whole = add_class(whole, over(&link[i], each, sherd__ceil_div(each * g->elements[i], n)),
                          overlap);
        less = more ? each * count - more : dealt - n;
        before = count;
    }
    return whole > even ? whole : even;
}

static inline int64_t time_alone(const sherd_mesh *mesh, const sherd_link *link,
                                 const int64_t *messages, const int64_t *elements, bool overlap)
{
    int64_t sum = 0;

    for (int i = 0; i < mesh->axes; i++)
        sum = add_class(sum, over(&link[i], messages[i], elements[i]), overlap);
    return sum;
}

/* By the definition in plan.h, of all ranks. */
static inline int64_t straight_by_hand(const table *t, const sherd__priced *p,
                                       const sherd_link *slow, const sherd_price *price)
{
    static traffic of[RANKS];
    sherd_link link[SHERD_MAX_AXES];
    sherd_step step = p->step;
    int64_t most = 0;

    step.sliced = false;
    count_traffic(of, t, &step, slow);
    for (int i = 0; i < p->change.mesh->axes; i++) {
        link[i] = slow[i];
        link[i].beta_femtoseconds += p->change.reduced ? slow[i].gamma_femtoseconds : 0;
    }
    for (int r = 0; r < t->ranks; r++) {
        const sherd_mesh *mesh = p->change.mesh;
        group g;
        at_least(&most, time_alone(mesh, link, of[r].gets, of[r].received, price->overlap));
        if (price->straight) {
            at_least(&most, time_alone(mesh, link, of[r].sends, of[r].sent, price->overlap));
            continue;
        }
        find_group(&g, t, p, slow, r, of);
        at_least(&most, time_shared(&g, mesh, link, price->overlap));
    }
    return most;
}

/*
 * An all-reduce by slices: the rank that gets the longest addends, or slices, from all others of
 * its group; of the groups with the largest boxes.
 */
static inline int64_t sliced_by_hand(const table *t, const sherd__priced *p, const sherd_link *link,
                                     bool overlap)
{
    const sherd_mesh *mesh = p->change.mesh;
    int64_t sum = 0, most = 0, most_added = 0, lo, slice;

    sherd__slice_of(p->amounts.target_max, p->change.addends, 0, &lo, &slice);
    for (int i = 0; i < mesh->axes; i++) {
        int64_t peers = 0;
        for (int q = 0; q < t->ranks; q++) {
            unsigned axes = apart(t, mesh, 0, q);
            peers += axes && !(axes & ~p->change.reduced) && slowest_of(mesh, link, axes) == i;
        }
        int64_t each =
            peers * (link[i].alpha_picoseconds * 1000 + 4 * slice * link[i].beta_femtoseconds);
        int64_t added = peers * 4 * slice * link[i].gamma_femtoseconds;
        sum += 2 * each + added;
        at_least(&most, each);
        at_least(&most_added, each + added);
    }
    return overlap ? most + most_added : sum;
}

/* The rank `by` places further along an axis, around. */
static inline int beside(const sherd_mesh *mesh, const table *t, int rank, int axis, int64_t by)
{
    int64_t at[SHERD_MAX_AXES];

    memcpy(at, t->at[rank], sizeof at);
    at[axis] = (at[axis] + by) % mesh->extent[axis];
    return sherd__mesh_rank_at(mesh, at);
}

/* One axis: in each round the rank that sends most; then each has what its line had. */
static inline int64_t stage_by_hand(const table *t, const sherd__priced *p, const sherd_link *link,
                                    int axis, int64_t *has)
{
    const sherd_mesh *mesh = p->change.mesh;
    bool adds = p->change.reduced, twice = p->step.kind == SHERD_STEP_ALL_REDUCE;
    int64_t femto = 0, joined[RANKS] = {0}, extent = mesh->extent[axis];

    for (int64_t width = 1; width < extent; width *= 2) {
        int64_t most = 0, count = width < extent - width ? width : extent - width;
        for (int r = 0; r < t->ranks; r++) {
            int64_t sum = 0;
            for (int64_t k = 0; k < count; k++)
                sum += has[beside(mesh, t, r, axis, k)];
            at_least(&most, sum);
        }
        femto += (twice ? 2 : 1) *
                 (link[axis].alpha_picoseconds * 1000 + 4 * most * link[axis].beta_femtoseconds);
        femto += adds ? 4 * most * link[axis].gamma_femtoseconds : 0;
    }
    for (int r = 0; r < t->ranks; r++)
        for (int64_t k = 0; k < extent; k++)
            joined[r] += has[beside(mesh, t, r, axis, k)];
    memcpy(has, joined, sizeof joined);
    return femto;
}

/* What a rank begins to gather with, or scatters to; of the groups with the largest boxes. */
static inline int64_t block_by_hand(const table *t, const sherd__priced *p, int rank)
{
    int64_t n = sherd__box_count(&t->target[rank]), i = 0, lo, hi;

    if (p->step.kind == SHERD_STEP_ALL_GATHER)
        return sherd__box_count(&t->source[rank]);
    if (p->step.kind == SHERD_STEP_REDUCE_SCATTER)
        return n;
    for (int a = 0; a < p->change.mesh->axes; a++)
        if (p->change.reduced >> a & 1)
            i = i * p->change.mesh->extent[a] + t->at[rank][a];
    sherd__slice_of(n, p->change.addends, i, &lo, &hi);
    return n < p->amounts.target_max ? 0 : hi - lo;
}

static inline int64_t staged_by_hand(const table *t, const sherd__priced *p, const sherd_link *link)
{
    int64_t femto = 0, has[RANKS] = {0};
    unsigned left = p->step.axes;

    for (int r = 0; r < t->ranks; r++)
        has[r] = block_by_hand(t, p, r);
    while (left) {
        int axis = slowest_of(p->change.mesh, link, left);
        femto += stage_by_hand(t, p, link, axis, has);
        left &= ~(1u << axis);
    }
    return femto;
}

#endif
