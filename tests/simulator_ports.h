/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the messages of a step are over, where each keeps a port of its sender and one of its
 * receiver busy (simulator.h): the best of three orders, by distance, by size, or in packets between
 * the busiest ports. That no rank can be done before its own messages are is the bound that ends the
 * search for a better one.
 */
#ifndef SHERD_SIMULATOR_PORTS_H
#define SHERD_SIMULATOR_PORTS_H

#include "simulator_machine.h"

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

#endif
