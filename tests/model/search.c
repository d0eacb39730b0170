/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All runs of a program, depth first. A state that was seen before is not gone into again; it is
 * known by 128 bits of a hash of all its bytes. What must hold at the end of a run is here; what
 * must hold on the way, where it happens. Costs about a microsecond a state and 32 bytes of memory.
 */
#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const search_limit = "there are more states than were allowed";

/* ---- states that were seen ----------------------------------------------------------------- */

typedef struct model_key {
    uint64_t a, b;
} model_key;

typedef struct model_seen {
    model_key *at;
    size_t room, count;
} model_seen;

static inline void mix_word(model_key *k, uint64_t eight)
{
    k->a = (k->a ^ eight) * 0xBF58476D1CE4E5B9u;
    k->a ^= k->a >> 29;
    k->b = (k->b + eight) * 0x94D049BB133111EBu;
    k->b ^= k->b >> 31;
}

/* Words go round some keys: each waits for itself alone. */
enum { LANES = 4 };

static void mix(model_key *lane, const void *from, size_t bytes)
{
    const char *at = from;

    for (; bytes >= LANES * 8; at += LANES * 8, bytes -= LANES * 8)
        for (int i = 0; i < LANES; i++) {
            uint64_t eight;
            memcpy(&eight, at + 8 * i, 8);
            mix_word(&lane[i], eight);
        }
    for (size_t n; bytes; at += n, bytes -= n) {
        uint64_t eight = 0;
        n = bytes < 8 ? bytes : 8;
        memcpy(&eight, at, n);
        mix_word(&lane[0], eight);
    }
}

static model_key key_of(const state *s)
{
    model_key lane[LANES], k = {0x9E3779B97F4A7C15u, 0xC2B2AE3D27D4EB4Fu};

    for (int i = 0; i < LANES; i++)
        lane[i] = k;
    mix(lane, s, offsetof(state, log));
    for (int r = 0; r < RANKS; r++)
        mix(lane, &s->log[r], offsetof(model_log, value) + s->log[r].count * sizeof(word));
    for (int i = 0; i < LANES; i++) {
        mix_word(&k, lane[i].a);
        mix_word(&k, lane[i].b);
    }
    k.a += k.a == 0;
    return k;
}

static bool insert(model_seen *all, model_key k)
{
    size_t i = k.a & (all->room - 1);

    while (all->at[i].a) {
        if (all->at[i].a == k.a && all->at[i].b == k.b)
            return false;
        i = (i + 1) & (all->room - 1);
    }
    all->at[i] = k;
    all->count++;
    return true;
}

static void *claim(void *old, size_t bytes)
{
    void *at = realloc(old, bytes);

    if (!at) {
        fprintf(stderr, "the model: out of memory\n");
        exit(1);
    }
    return at;
}

/* Whether a state is new. */
static bool add(model_seen *all, const state *s)
{
    if (2 * all->count >= all->room) {
        model_seen larger = {.room = all->room ? 2 * all->room : 1 << 12};
        larger.at = claim(NULL, larger.room * sizeof(model_key));
        memset(larger.at, 0, larger.room * sizeof(model_key));
        for (size_t i = 0; i < all->room; i++)
            if (all->at[i].a)
                insert(&larger, all->at[i]);
        free(all->at);
        *all = larger;
    }
    return insert(all, key_of(s));
}

/* ---- one state after the other ------------------------------------------------------------- */

/*
 * A state on the way, and what of it was tried: first each rank's steps, then stores on their way,
 * then deaths.
 */
typedef struct model_frame {
    state state;
    int rank, way;    /* rank: [0, RANKS) steps; then stores; then deaths; then the watcher */
    bool gone_on;     /* something was possible */
    const char *what; /* what led here, */
    int who;          /* and who did it */
} model_frame;

typedef struct hunt {
    machine x;
    model_seen seen;
    model_frame *frame;
    int depth, room;
    model_found found;
} hunt;

enum { STORES = RANKS, DEATHS = 2 * RANKS, WATCHER = 3 * RANKS, NO_MORE_WAYS };

static bool may_step(const model_program *p, const state *s, int rank)
{
    return rank < p->ranks && !s->self[rank].done && !s->self[rank].dead;
}

/* alarm.c: sherd__end_world, by whoever watches. */
static bool watch(hunt *h, const state *now, state *next)
{
    const model_program *p = h->x.program;
    int dead = 0;

    for (int r = 0; r < p->ranks; r++)
        dead |= now->self[r].dead;
    *next = *now;
    if (!dead || now->shared.death || next->self[0].statuses == MEETINGS)
        return false;
    h->x.what = "is told by the watcher";
    if (!keeps(&h->x, RULE_DEATH_APART)) {
        if (now->deaths == 0 || now->shared.alarm)
            next->deaths = 0;
        if (!now->shared.alarm)
            next->shared.alarm = DIED;
        next->shared.death = 0;
        return memcmp(now, next, sizeof *now) != 0;
    }
    next->shared.death = DIED;
    for (int r = 0; r < p->ranks; r++)
        if (now->shared.sleepers >> r & 1)
            next->shared.post[r].bell++;
    return true;
}

static bool die(hunt *h, const state *now, int rank, state *next)
{
    if (!now->deaths || !may_step(h->x.program, now, rank))
        return false;
    *next = *now;
    next->deaths--;
    next->self[rank].dead = true;
    h->x.what = "dies";
    return true;
}

/* The next state that follows; false: there is no more. */
static bool follow(hunt *h, model_frame *f, state *next)
{
    const model_program *p = h->x.program;

    while (f->rank <= WATCHER) {
        int kind = f->rank / RANKS, rank = f->rank % RANKS, way = f->way++;
        model_outcome got = NO_MORE;
        bool more = false;

        h->x.fault = NULL;
        if (kind == 0 && may_step(p, &f->state, rank)) {
            got = machine_step(&h->x, &f->state, rank, way, next);
            more = h->x.chosen;
        } else if (kind == 1) {
            got = machine_arrive(&h->x, &f->state, rank, way, next);
            more = got != NO_MORE;
        } else if (kind == 2 && way == 0 && die(h, &f->state, rank, next)) {
            got = DONE;
        } else if (kind == 3 && way == 0 && watch(h, &f->state, next)) {
            got = DONE;
        }
        if (!more) {
            f->rank++;
            f->way = 0;
        }
        if (got == WRONG)
            h->found.fault = h->x.fault;
        if (got == DONE && memcmp(next, &f->state, sizeof *next) == 0)
            got = NOTHING; /* a look that changes nothing is no way out */
        if (got == DONE || got == WRONG) {
            h->x.rank = rank;
            f->gone_on = true;
            return true;
        }
    }
    return false;
}

/* ---- ends ---------------------------------------------------------------------------------- */

static const char *judge_end(hunt *h, const state *s)
{
    const model_program *p = h->x.program;
    bool died = false;
    int first = -1;

    for (int r = 0; r < p->ranks; r++) {
        died |= s->self[r].dead;
        if (!s->self[r].done && !s->self[r].dead)
            return "ranks wait for ever";
    }
    h->found.ends++;
    for (int r = 0; r < p->ranks; r++) {
        if (s->self[r].dead)
            continue;
        first = first < 0 ? r : first;
        const model_self *a = &s->self[first], *b = &s->self[r];
        for (int i = 0; i < a->statuses && i < b->statuses; i++)
            if (a->status[i] != b->status[i])
                return "a meeting gives ranks different statuses";
        if (!died && a->statuses != b->statuses)
            return "ranks come to different meetings";
        for (int i = 0; i < b->statuses; i++) {
            h->found.failed_once |= b->status[i] != OK;
            if (!died && !(s->failed >> i & 1) != !b->status[i])
                return b->status[i] ? "a failure comes out of nothing" : "an alarm is lost";
        }
    }
    if (p->wrong && !died && s->self[0].statuses && s->self[0].status[0] == OK)
        return "nobody is told that the ranks do different things";
    return NULL;
}

static void print_run(const hunt *h)
{
    for (int i = 1; i < h->depth; i++)
        printf("      rank %d %s\n", h->frame[i].who, h->frame[i].what);
    printf("      rank %d %s: %s\n", h->x.rank, h->x.what, h->found.fault);
}

static void push(hunt *h, const state *s)
{
    if (h->depth == h->room) {
        h->room = h->room ? 2 * h->room : 64;
        h->frame = claim(h->frame, (size_t)h->room * sizeof *h->frame);
    }
    h->frame[h->depth++] = (model_frame){.state = *s, .what = h->x.what, .who = h->x.rank};
    h->found.states++;
}

/* No two parts of blocks are alike. */
static void begin(const model_program *p, state *s)
{
    memset(s, 0, sizeof *s);
    s->failures = (uint8_t)p->failures;
    s->deaths = (uint8_t)p->deaths;
    for (int r = 0; r < RANKS; r++)
        for (int b = 0; b < BLOCKS; b++)
            for (int q = 0; q < RANKS; q++)
                s->self[r].holds[b] |= (word)((1 + r * BLOCKS + b + 5 * q) % 16 << 4 * q);
    for (int r = 0; r < RANKS; r++)
        memcpy(s->shared.block[r], s->self[r].holds, sizeof s->self[r].holds);
}

model_found search(const model_program *p, uint64_t without, model_order order, long most,
                   bool trace)
{
    hunt h = {.x = {.program = p, .without = without, .order = order}};
    state next;

    begin(p, &next);
    add(&h.seen, &next);
    push(&h, &next);
    while (h.depth && !h.found.fault) {
        model_frame *f = &h.frame[h.depth - 1];
        if (follow(&h, f, &next)) {
            if (!h.found.fault && add(&h.seen, &next))
                push(&h, &next);
        } else {
            if (!f->gone_on)
                h.found.fault = judge_end(&h, &f->state);
            h.depth -= h.found.fault == NULL;
        }
        if (!h.found.fault && h.found.states > most)
            h.found.fault = search_limit;
    }
    if (trace && h.found.fault)
        print_run(&h);
    free(h.frame);
    free(h.seen.at);
    return h.found;
}
