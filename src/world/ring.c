/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring-of-waits test. A blocked rank makes no calls, so ranks that wait in a ring for calls which the next
 * has not made wait for ever: an error of the program, found without timers.
 *
 * Edges. A rank depends on another if it waits for a call which that one has not made, or for it to leave a call
 * which it has made but cannot finish because the record of a third rank is missing (then it depends on the third).
 * Posts are read, then the counters, then the posts' versions again: if those of the whole ring are unchanged, every
 * rank of it was in that wait when its counter was read. Costs a few microseconds, in slow rounds only.
 */
#include "inside.h"

#include <stdio.h>
#include <string.h>

/* What the posts said, and what follows. */
typedef struct picture {
    uint64_t version[SHERD_MAX_RANKS]; /* odd: asleep */
    struct {
        uint32_t waits, needs;
        struct {
            int lane;
            bool left;
            uint64_t number, ranks;
        } need[SHERD__NEEDS];
    } said[SHERD_MAX_RANKS];
    uint64_t next[SHERD_MAX_RANKS];                /* ranks that a rank depends on */
    uint8_t why[SHERD_MAX_RANKS][SHERD_MAX_RANKS]; /* 1 + the need that makes it depend */
    uint8_t through[SHERD_MAX_RANKS]
                   [SHERD_MAX_RANKS]; /* 1 + the rank whose open call stands between */
} picture;

static void read_posts(const sherd_world *world, picture *p)
{
    for (int r = 0; r < world->ranks; r++) {
        const sherd__post *post = &world->arena.control->post[r];
        p->version[r] = sherd__look(&post->version);
        p->said[r].waits = p->said[r].needs = 0;
        if (p->version[r] % 2 == 0)
            continue;
        uint32_t needs = atomic_load(&post->needs), waits = atomic_load(&post->waits);
        if (needs > SHERD__NEEDS || waits > needs)
            continue; /* it is being rewritten: the version will tell */
        for (uint32_t i = 0; i < needs; i++) {
            uint64_t key = sherd__look(&post->need[i].key);
            p->said[r].need[i].lane = (int)(key >> 1) % SHERD__LANES;
            p->said[r].need[i].left = key & 1;
            p->said[r].need[i].number = sherd__look(&post->need[i].number);
            p->said[r].need[i].ranks = sherd__look(&post->need[i].ranks);
        }
        p->said[r].needs = needs;
        p->said[r].waits = waits;
    }
}

static bool made(const sherd_world *world, int rank, int lane, uint64_t number)
{
    return sherd__look(&sherd__lane_of(world, rank, lane)->made) >= number;
}

static void add_edge(picture *p, int from, int to, uint32_t need, int through)
{
    if (p->next[from] & sherd__bit(to))
        return;
    p->next[from] |= sherd__bit(to);
    p->why[from][to] = (uint8_t)(need + 1);
    p->through[from][to] = (uint8_t)(through + 1);
}

/* `from` waits for q to leave a call that q has made: it depends on whom q's open calls up to that one lack. */
static void add_edges_through(const sherd_world *world, picture *p, int from, uint32_t need, int q)
{
    int lane = p->said[from].need[need].lane;

    for (uint32_t i = p->said[q].waits; i < p->said[q].needs; i++) {
        if (p->said[q].need[i].lane != lane ||
            p->said[q].need[i].number > p->said[from].need[need].number)
            continue;
        uint64_t ranks = p->said[q].need[i].ranks;
        while (ranks) {
            int s = sherd__next_rank(&ranks);
            if (s < world->ranks && !made(world, s, lane, p->said[q].need[i].number))
                add_edge(p, from, s, need, q);
        }
    }
}

static void add_edges(const sherd_world *world, picture *p, int from)
{
    for (uint32_t i = 0; i < p->said[from].waits; i++) {
        int lane = p->said[from].need[i].lane;
        uint64_t number = p->said[from].need[i].number, ranks = p->said[from].need[i].ranks;
        while (ranks) {
            int q = sherd__next_rank(&ranks);
            if (q >= world->ranks)
                continue;
            if (!made(world, q, lane, number))
                add_edge(p, from, q, i, -1);
            else if (p->said[from].need[i].left &&
                     sherd__look(&sherd__lane_of(world, q, lane)->left) <= number)
                add_edges_through(world, p, from, i, q);
        }
    }
}

/* The ranks of a way from this rank back to itself, in order; 0 if there is none. */
static int find_ring(const sherd_world *world, const picture *p, int *ring)
{
    int8_t from[SHERD_MAX_RANKS], queue[SHERD_MAX_RANKS];
    int head = 0, tail = 0, length = 0, me = world->rank;
    uint64_t seen = 0;

    queue[tail++] = (int8_t)me;
    while (head < tail) {
        int r = queue[head++];
        uint64_t next = p->next[r] & ~seen;
        if (next & sherd__bit(me)) {
            for (int at = r; at != me; at = from[at])
                ring[length++] = at;
            ring[length++] = me;
            return length;
        }
        seen |= next;
        while (next) {
            int q = sherd__next_rank(&next);
            from[q] = (int8_t)r;
            queue[tail++] = (int8_t)q;
        }
    }
    return 0;
}

static bool unchanged(const sherd_world *world, const picture *p, int rank)
{
    return p->version[rank] % 2 == 1 &&
           sherd__look(&world->arena.control->post[rank].version) == p->version[rank];
}

/* ring[length-1] is this rank, and each depends on the one before it in the list. */
static bool holds(const sherd_world *world, const picture *p, const int *ring, int length)
{
    for (int i = 0; i < length; i++) {
        int from = ring[i], to = ring[(i + length - 1) % length];
        int through = p->through[from][to] - 1;
        if (!unchanged(world, p, from) || (through >= 0 && !unchanged(world, p, through)))
            return false;
    }
    return true;
}

static void describe(const sherd_world *world, const picture *p, const int *ring, int length,
                     char *text, size_t room)
{
    char group[96], label[160];
    size_t at = (size_t)snprintf(text, room, "ranks wait for each other:");

    for (int i = length - 1; i >= 0 && at < room; i--) {
        int from = ring[i], to = ring[(i + length - 1) % length];
        int need = p->why[from][to] - 1;
        int lane = p->said[from].need[need].lane;
        uint64_t number = p->said[from].need[need].number;
        sherd__lane_text(world, lane, from, group, sizeof group);
        sherd__record_text(world, from, lane, number, label, sizeof label);
        at += (size_t)snprintf(text + at, room - at,
                               "%s rank %d in %s, call %llu of group %s, for rank %d",
                               i == length - 1 ? "" : ";", from, label,
                               (unsigned long long)(number & 0xFFFFFFFFu), group, to);
    }
}

bool sherd__in_ring(const sherd_world *world, char *text, size_t room)
{
    int ring[SHERD_MAX_RANKS];
    picture p;

    read_posts(world, &p);
    memset(p.next, 0, sizeof p.next);
    for (int r = 0; r < world->ranks; r++)
        add_edges(world, &p, r);
    int length = find_ring(world, &p, ring);
    if (length == 0 || !holds(world, &p, ring, length))
        return false;
    describe(world, &p, ring, length, text, room);
    return true;
}
