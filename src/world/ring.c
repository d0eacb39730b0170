/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring-of-waits test. A blocked rank makes no calls, so ranks that wait in a ring for calls which the next
 * has not made wait for ever: an error of the program, found without timers.
 *
 * Edges. A rank depends on another if it waits for a call which that one has not made, or for it to leave a call
 * which it has made but cannot finish because the record of a third rank is missing (then it depends on the third).
 * Posts are read, then the counters, then the posts' versions again: if those of the whole ring are unchanged, every
 * rank of it was in that wait when its counter was read. Any ring counts, also one without this rank: the last to
 * announce may be the one that stands between two others. Costs a few microseconds, in slow rounds only.
 */
#include "inside.h"

#include <stdio.h>
#include <string.h>

/* What the posts say, and what follows. */
typedef struct picture {
    uint64_t version[SHERD_MAX_RANKS]; /* odd: asleep */
    uint32_t waits[SHERD_MAX_RANKS], needs[SHERD_MAX_RANKS];
    uint64_t next[SHERD_MAX_RANKS];                 /* ranks that a rank depends on */
    uint16_t why[SHERD_MAX_RANKS][SHERD_MAX_RANKS]; /* the need that makes it depend */
    /* 1 + the rank whose open call stands between */
    uint8_t through[SHERD_MAX_RANKS][SHERD_MAX_RANKS];
} picture;
_Static_assert(SHERD__NEEDS <= UINT16_MAX, "a need has a number of 16 bits");

static bool made(const sherd_world *world, int rank, int lane, uint64_t number)
{
    return sherd__look(&sherd__lane_of(world, rank, lane)->made) >= number;
}

static void add_edge(picture *p, int from, int to, uint32_t need, int through)
{
    if (p->next[from] & sherd__bit(to))
        return;
    p->next[from] |= sherd__bit(to);
    p->why[from][to] = (uint16_t)need;
    p->through[from][to] = (uint8_t)(through + 1);
}

/* `from` waits for q to leave a call that q has made: it depends on whom q's open calls up to that one lack. */
static void add_edges_through(const sherd_world *world, picture *p, int from, uint32_t need,
                              const sherd__said *said, int q)
{
    for (uint32_t i = p->waits[q]; i < p->needs[q]; i++) {
        sherd__said open = sherd__post_read(world, q, i);
        if (open.lane != said->lane || open.number > said->number)
            continue;
        while (open.ranks) {
            int s = sherd__next_rank(&open.ranks);
            if (!made(world, s, open.lane, open.number))
                add_edge(p, from, s, need, q);
        }
    }
}

static void add_edges(const sherd_world *world, picture *p, int from)
{
    for (uint32_t i = 0; i < p->waits[from]; i++) {
        sherd__said said = sherd__post_read(world, from, i);
        uint64_t ranks = said.ranks;
        while (ranks) {
            int q = sherd__next_rank(&ranks);
            if (!made(world, q, said.lane, said.number))
                add_edge(p, from, q, i, -1);
            else if (said.lack == SHERD__LEFT &&
                     sherd__look(&sherd__lane_of(world, q, said.lane)->left) <= said.number)
                add_edges_through(world, p, from, i, &said, q);
        }
    }
}

/* The ranks of a way from a rank back to itself, in order; 0 if there is none. */
static int find_ring(const picture *p, int me, int *ring)
{
    int8_t from[SHERD_MAX_RANKS], queue[SHERD_MAX_RANKS];
    int head = 0, tail = 0, length = 0;
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

/* Each rank depends on the one before it in the list. */
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
        sherd__said said = sherd__post_read(world, from, p->why[from][to]);
        sherd__lane_text(world, said.lane, from, group, sizeof group);
        sherd__record_text(world, from, said.lane, said.number, label, sizeof label);
        at += (size_t)snprintf(
            text + at, room - at, "%s rank %d in %s, call %llu of group %s, for rank %d",
            i == length - 1 ? "" : ";", from, label,
            (unsigned long long)sherd__calls_in(said.number, world->base), group, to);
    }
}

bool sherd__find_ring(const sherd_world *world, char *text, size_t room)
{
    int ring[SHERD_MAX_RANKS], length = 0;
    picture p;

    memset(p.next, 0, sizeof p.next);
    for (int r = 0; r < world->ranks; r++)
        p.version[r] = sherd__post_counts(world, r, &p.waits[r], &p.needs[r]);
    for (int r = 0; r < world->ranks; r++)
        add_edges(world, &p, r);
    for (int r = 0; r < world->ranks && length == 0; r++)
        length = find_ring(&p, r, ring);
    if (length == 0 || !holds(world, &p, ring, length))
        return false;
    describe(world, &p, ring, length, text, room);
    return true;
}
