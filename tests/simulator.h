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

#include <stdlib.h>
#include <string.h>

#include "search/planners.h"

typedef struct sim_message {
    int from, to, axis, turn;
    int64_t bytes, left;
} sim_message;

typedef struct simulator {
    const sherd_mesh *mesh;
    int ranks;
    bool overlap, straight;
    sherd_link link[SHERD_MAX_AXES];
    int axis[SHERD_MAX_AXES],
        pace[SHERD_MAX_AXES]; /* axes, slowest first; where each stands there */
    int64_t (*at)[SHERD_MAX_AXES];
    /* of a step */
    const sherd_step *step;
    int64_t element_bytes;
    sherd_box *source, *target;
    sim_message *message; /* by sender */
    int messages, room;
    int64_t *load; /* [axis][rank], asked for */
} simulator;

/* ---- the machine ----------------------------------------------------------------------------- */

static inline int64_t sim_time(const sherd_link *link, int64_t bytes, bool adds)
{
    return link->alpha_picoseconds * 1000 +
           bytes * (link->beta_femtoseconds + (adds ? link->gamma_femtoseconds : 0));
}

/* A message of so many bytes takes longer, or as long and its bytes take longer. */
static inline bool sim_slower(const sherd_link *a, const sherd_link *b, int64_t bytes)
{
    int64_t x = sim_time(a, bytes, false), y = sim_time(b, bytes, false);

    return x != y ? x > y : a->beta_femtoseconds > b->beta_femtoseconds;
}

/* Bytes of the whole tensor of a layout. */
static inline int64_t sim_bytes(const sherd_layout *layout, int64_t element_bytes)
{
    for (int d = 0; d < layout->spec.ndim; d++)
        element_bytes *= layout->spec.shape[d];
    return element_bytes;
}

/*
 * Whether another line of this line's axis is for such tensors instead: one with a lower limit that
 * is high enough, or, beyond all limits, one with a higher limit.
 */
static inline bool sim_yields(const sherd_price *price, int line, int64_t bytes)
{
    int64_t mine = price->link[line].upto_bytes;

    for (int i = 0; i < price->links; i++) {
        int64_t other = price->link[i].upto_bytes;
        if (i == line || strcmp(price->link[i].axis, price->link[line].axis) != 0)
            continue;
        if (other && bytes <= other && (!mine || other < mine))
            return true;
        if (mine && bytes > mine && (!other || other > mine))
            return true;
    }
    return false;
}

/* For tensors of so many bytes an axis has its own line, else "*", else the slowest. */
static inline sherd_link sim_link(const sherd_price *price, const char *axis, int64_t bytes)
{
    const sherd_link none = {"", 0, 0, 0, 0}, *star = NULL, *slowest = NULL;

    for (int i = 0; i < price->links; i++) {
        const sherd_link *link = &price->link[i];
        if (sim_yields(price, i, bytes))
            continue;
        if (strcmp(link->axis, axis) == 0)
            return *link;
        if (strcmp(link->axis, "*") == 0)
            star = link;
        if (!slowest || sim_slower(link, slowest, bytes))
            slowest = link;
    }
    return star ? *star : slowest ? *slowest : none;
}

/* For a tensor of so many bytes. */
static inline void sim_open(simulator *s, const sherd_mesh *mesh, const sherd_price *price,
                            int64_t bytes)
{
    memset(s, 0, sizeof *s);
    s->mesh = mesh;
    s->ranks = (int)mesh->count;
    s->overlap = price->overlap;
    s->straight = price->straight;
    for (int i = 0; i < mesh->axes; i++) {
        int k = i;
        s->link[i] = sim_link(price, mesh->name[i], bytes);
        for (; k > 0 && !sim_slower(&s->link[s->axis[k - 1]], &s->link[i], bytes); k--)
            s->axis[k] = s->axis[k - 1];
        s->axis[k] = i;
    }
    for (int k = 0; k < mesh->axes; k++)
        s->pace[s->axis[k]] = k;
    s->at = calloc((size_t)s->ranks, sizeof *s->at);
    s->source = calloc((size_t)s->ranks, sizeof *s->source);
    s->target = calloc((size_t)s->ranks, sizeof *s->target);
    s->load = calloc((size_t)s->ranks * SHERD_MAX_AXES, sizeof *s->load);
    for (int r = 0; r < s->ranks; r++)
        for (int i = mesh->axes - 1, rest = r; i >= 0; rest /= (int)mesh->extent[i--])
            s->at[r][i] = rest % mesh->extent[i];
}

static inline void sim_close(simulator *s)
{
    free(s->at);
    free(s->source);
    free(s->target);
    free(s->message);
    free(s->load);
}

static inline int sim_rank(const simulator *s, const int64_t *at)
{
    int64_t rank = 0;

    for (int i = 0; i < s->mesh->axes; i++)
        rank = rank * s->mesh->extent[i] + at[i];
    return (int)rank;
}

/* As `from`, but at the beginning of some axes. */
static inline void sim_first(int64_t *at, const int64_t *from, unsigned axes)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        at[i] = axes >> i & 1 ? 0 : from[i];
}

/* The next rank's coordinates over some axes; false when it is back at the first. */
static inline bool sim_next(const simulator *s, unsigned axes, int64_t *at)
{
    for (int i = s->mesh->axes - 1; i >= 0; i--) {
        if (!(axes >> i & 1))
            continue;
        if (++at[i] < s->mesh->extent[i])
            return true;
        at[i] = 0;
    }
    return false;
}

/* ---- ports ----------------------------------------------------------------------------------- */

/* Messages of one class, or of all: when each port is free, what it still has to do, and whose
 * messages are whose. */
typedef struct sim_ports {
    simulator *s;
    int axis; /* -1 = all */
    bool adds;
    int64_t *out_free, *in_free, *out_left, *in_left; /* [ranks] */
    int *first, *end;                                 /* a sender's messages */
    int *taken,
        *seen;  /* the message that a receiver gets now, or -1; in which round it was asked */
    int *given; /* the message that a sender sends now, or -1 */
    int *to_first, *to_end, *by; /* messages by receiver: the k-th of all is message[by[k]] */
} sim_ports;

static inline int64_t sim_lasts(const sim_ports *p, const sim_message *m)
{
    return sim_time(&p->s->link[m->axis], m->bytes, p->adds);
}

/* Find a receiver for a sender, others moving on to another one if need be. */
static inline bool sim_match(sim_ports *p, int from, int round)
{
    for (int i = p->first[from]; i < p->end[from]; i++) {
        const sim_message *m = &p->s->message[i];
        if (m->left == 0 || p->seen[m->to] == round)
            continue;
        p->seen[m->to] = round;
        int other = p->taken[m->to];
        if (other < 0 || sim_match(p, p->s->message[other].from, round)) {
            p->taken[m->to] = i;
            return true;
        }
    }
    return false;
}

/* Find a sender for a receiver, others moving on to another one, or to nobody if they have less
 * left than `least`. */
static inline bool sim_claim(sim_ports *p, int to, int64_t least, int round)
{
    for (int k = p->to_first[to]; k < p->to_end[to]; k++) {
        int i = p->by[k], from = p->s->message[i].from, other;
        if (p->s->message[i].left == 0)
            continue;
        if (p->given[from] >= 0) {
            other = p->s->message[p->given[from]].to;
            if (p->seen[other] == round)
                continue;
            p->seen[other] = round;
            if (p->in_left[other] >= least && !sim_claim(p, other, least, round))
                continue;
            if (p->taken[other] == p->given[from])
                p->taken[other] = -1;
        }
        p->taken[to] = p->given[from] = i;
        return true;
    }
    return false;
}

typedef struct sim_busy {
    int64_t left;
    int rank;
} sim_busy;

static inline int sim_by_left(const void *a, const void *b)
{
    const sim_busy *x = a, *y = b;

    return x->left != y->left ? (x->left < y->left ? 1 : -1) : x->rank - y->rank;
}

/* As many as can be at once, the busiest senders among them. `round` counts up. Returns what the
 * busiest has left. */
static inline int64_t sim_match_senders(sim_ports *p, sim_busy *busy, int *round)
{
    for (int r = 0; r < p->s->ranks; r++) {
        busy[r] = (sim_busy){p->out_left[r], r};
        p->taken[r] = -1;
    }
    qsort(busy, (size_t)p->s->ranks, sizeof *busy, sim_by_left);
    for (int k = 0; k < p->s->ranks && busy[k].left > 0; k++)
        sim_match(p, busy[k].rank, ++*round);
    return busy[0].left;
}

/* The same senders, but the busiest receivers. */
static inline void sim_match_receivers(sim_ports *p, sim_busy *busy, int *round)
{
    for (int r = 0; r < p->s->ranks; r++)
        p->given[r] = -1;
    for (int r = 0; r < p->s->ranks; r++) {
        busy[r] = (sim_busy){p->in_left[r], r};
        if (p->taken[r] >= 0)
            p->given[p->s->message[p->taken[r]].from] = p->taken[r];
    }
    qsort(busy, (size_t)p->s->ranks, sizeof *busy, sim_by_left);
    for (int k = 0; k < p->s->ranks && busy[k].left > 0; k++) {
        p->seen[busy[k].rank] = ++*round;
        if (p->taken[busy[k].rank] < 0)
            sim_claim(p, busy[k].rank, busy[k].left, *round);
    }
}

/* False: there is nothing left. */
static inline bool sim_match_all(sim_ports *p, sim_busy *busy, int *round)
{
    if (sim_match_senders(p, busy, round) == 0)
        return false;
    sim_match_receivers(p, busy, round);
    return true;
}

/* How long this matching may go on: until a message is over, or a port that waits is as busy as
 * any. */
static inline int64_t sim_lasting(const sim_ports *p, int64_t packet)
{
    int64_t most = 0, lasting = INT64_MAX;

    for (int r = 0; r < p->s->ranks; r++) {
        most = p->out_left[r] > most ? p->out_left[r] : most;
        most = p->in_left[r] > most ? p->in_left[r] : most;
        if (p->taken[r] >= 0 && p->s->message[p->taken[r]].left < lasting)
            lasting = p->s->message[p->taken[r]].left;
    }
    for (int r = 0; r < p->s->ranks; r++) {
        if (p->taken[r] < 0 && p->in_left[r] > 0 && most - p->in_left[r] < lasting)
            lasting = most - p->in_left[r];
        if (p->given[r] < 0 && p->out_left[r] > 0 && most - p->out_left[r] < lasting)
            lasting = most - p->out_left[r];
    }
    return lasting > packet ? lasting : packet;
}

static inline void sim_by_receiver(sim_ports *p)
{
    int sum = 0;

    memset(p->to_end, 0, (size_t)p->s->ranks * sizeof *p->to_end);
    for (int i = 0; i < p->s->messages; i++)
        p->to_end[p->s->message[i].to]++;
    for (int r = 0; r < p->s->ranks; r++) {
        p->to_first[r] = sum;
        sum += p->to_end[r];
        p->to_end[r] = p->to_first[r];
    }
    for (int i = 0; i < p->s->messages; i++)
        p->by[p->to_end[p->s->message[i].to]++] = i;
}

/* Ports change partners between packets, so that no port that has most to do waits. Messages lie by
 * sender. */
static inline int64_t sim_in_packets(sim_ports *p, int64_t packet)
{
    sim_busy *busy = calloc((size_t)p->s->ranks, sizeof *busy);
    int64_t now = 0;
    int round = 0;

    for (int i = 0; i < p->s->messages; i++) {
        sim_message *m = &p->s->message[i];
        m->left = p->axis < 0 || m->axis == p->axis ? sim_lasts(p, m) : 0;
        if (i == 0 || m->from != p->s->message[i - 1].from)
            p->first[m->from] = i;
        p->end[m->from] = i + 1;
    }
    sim_by_receiver(p);
    while (sim_match_all(p, busy, &round)) {
        int64_t lasting = sim_lasting(p, packet);
        for (int r = 0; r < p->s->ranks; r++) {
            if (p->taken[r] < 0)
                continue;
            sim_message *m = &p->s->message[p->taken[r]];
            int64_t sent = m->left < lasting ? m->left : lasting;
            m->left -= sent;
            p->out_left[m->from] -= sent;
            p->in_left[r] -= sent;
        }
        now += lasting;
    }
    free(busy);
    return now;
}

/* One message after the other, as they lie, each as soon as both its ports are free. */
static inline int64_t sim_in_order(sim_ports *p)
{
    size_t bytes = (size_t)p->s->ranks * sizeof(int64_t);
    int64_t last = 0;

    memset(p->out_free, 0, bytes);
    memset(p->in_free, 0, bytes);
    for (int i = 0; i < p->s->messages; i++) {
        const sim_message *m = &p->s->message[i];
        int64_t out = p->out_free[m->from], in = p->in_free[m->to];
        if ((p->axis >= 0 && m->axis != p->axis))
            continue;
        p->out_free[m->from] = p->in_free[m->to] = (out > in ? out : in) + sim_lasts(p, m);
        last = p->in_free[m->to] > last ? p->in_free[m->to] : last;
    }
    memset(p->out_free, 0, bytes);
    memset(p->in_free, 0, bytes);
    return last;
}

/* By what a message is to the ranks' places, so that all send at once; the longest first; by
 * sender. */
static inline int sim_by_turn(const void *a, const void *b)
{
    const sim_message *x = a, *y = b;

    return x->turn != y->turn ? x->turn - y->turn : x->from - y->from;
}

static inline int sim_by_size(const void *a, const void *b)
{
    const sim_message *x = a, *y = b;

    return x->bytes != y->bytes ? (x->bytes < y->bytes ? 1 : -1) : sim_by_turn(a, b);
}

static inline int sim_by_sender(const void *a, const void *b)
{
    const sim_message *x = a, *y = b;

    return x->from != y->from ? x->from - y->from : sim_by_turn(a, b);
}

/* What the busiest port has to do. */
static inline int64_t sim_load(sim_ports *p)
{
    int64_t most = 0;

    for (int i = 0; i < p->s->messages; i++) {
        const sim_message *m = &p->s->message[i];
        int64_t lasts = p->axis < 0 || m->axis == p->axis ? sim_lasts(p, m) : 0;
        p->out_left[m->from] += lasts;
        p->in_left[m->to] += lasts;
        most = p->out_left[m->from] > most ? p->out_left[m->from] : most;
        most = p->in_left[m->to] > most ? p->in_left[m->to] : most;
    }
    return most;
}

/* All messages, or those of one class, in the best of three orders. */
static inline int64_t sim_class(simulator *s, int axis, bool adds)
{
    enum { PACKETS = 128, FINEST = 8192, FEW = 200000 };
    size_t n = (size_t)s->ranks;
    int64_t *times = calloc(4 * n, sizeof *times);
    int *lists = calloc(7 * n + (size_t)s->messages, sizeof *lists);
    sim_ports p = {.s = s,
                   .axis = axis,
                   .adds = adds,
                   .out_free = times,
                   .in_free = times + n,
                   .out_left = times + 2 * n,
                   .in_left = times + 3 * n,
                   .first = lists,
                   .end = lists + n,
                   .taken = lists + 2 * n,
                   .seen = lists + 3 * n,
                   .given = lists + 4 * n,
                   .to_first = lists + 5 * n,
                   .to_end = lists + 6 * n,
                   .by = lists + 7 * n};
    int64_t least = sim_load(&p), enough = least + least / PACKETS, best, other;

    qsort(s->message, (size_t)s->messages, sizeof *s->message, sim_by_turn);
    best = sim_in_order(&p);
    if (best > enough) {
        qsort(s->message, (size_t)s->messages, sizeof *s->message, sim_by_size);
        other = sim_in_order(&p);
        best = other < best ? other : best;
    }
    if (best > enough && s->messages <= FEW)
        qsort(s->message, (size_t)s->messages, sizeof *s->message, sim_by_sender);
    for (int64_t k = PACKETS; best > enough && s->messages <= FEW && k <= FINEST; k *= 8) {
        other = sim_in_packets(&p, least / k + 1);
        sim_load(&p);
        best = other < best ? other : best;
    }
    free(times);
    free(lists);
    return best;
}

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
