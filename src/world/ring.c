/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ring-of-waits test. A blocked rank makes no calls, so ranks that wait in a ring for calls
 * which the next has not made wait for ever: an error of the program, found without timers.
 *
 * Edges. A rank depends on another if it waits for a call which that one has not made, or for it to
 * leave a call which it has made but cannot finish because the record of a third rank is missing
 * (then it depends on the third). Posts are read, then the counters, then the posts' versions
 * again: if those of the whole ring are unchanged, every rank of it was in that wait when its
 * counter was read. Any ring counts, also one without this rank: the last to announce may be the
 * one that stands between two others. Costs a few microseconds for eight ranks, some milliseconds
 * for a thousand; in slow rounds only, and in worlds beyond 64 ranks not in all of them.
 */
#include "inside.h"

#include <stdio.h>
#include <string.h>

/* What the post of a rank says, and what follows. */
typedef struct sherd__picture {
    uint64_t version; /* odd: asleep */
    uint32_t waits, needs;
    sherd__ranks next; /* ranks that it depends on */
    /* Whose records its open calls in a lane lack, up to the one with this number; 0 = not looked
     * for. */
    sherd__ranks lacks;
    int lane;
    uint64_t number;
    /* While a ring is looked for: */
    int from, queued;
    /* The i-th of the ring depends on the one before it, because of this need. */
    int ring, need;
} picture;

/* Who has not made a call, and who has made it but not left. What many ranks wait for is looked at
 * once. */
typedef struct standing {
    int lane;
    uint64_t number; /* 0 = none */
    sherd__ranks unmade, unleft;
} standing;

bool sherd__picture_open(sherd_world *world)
{
    world->picture = sherd__alloc(&world->heap, (size_t)world->slots, sizeof *world->picture);
    return world->picture != NULL;
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void look_at(const sherd_world *world, standing *s, int lane, uint64_t number)
{
    if (s->lane == lane && s->number == number)
        return;
    *s = (standing){.lane = lane, .number = number};
    for (int q = 0; q < world->ranks; q++) {
        const sherd__lane *theirs = sherd__lane_of(world, q, lane);
        if (sherd__look(&theirs->made) < number)
            sherd__ranks_add(&s->unmade, q);
        else if (sherd__look(&theirs->left) <= number)
            sherd__ranks_add(&s->unleft, q);
    }
}

/* The ranks whose records rank q lacks for its open calls in a lane, up to one that it has made. */
static const sherd__ranks *lacks_of(const sherd_world *world, int q, int lane, uint64_t number)
{
    picture *p = &world->picture[q];
    standing s = {.number = 0};

    if (p->lane == lane && p->number == number)
        return &p->lacks;
    p->lane = lane;
    p->number = number;
    sherd__ranks_clear(&p->lacks);
    for (uint32_t i = p->waits; i < p->needs; i++) {
        sherd__said open = sherd__post_read(world, q, i);
        if (open.lane != lane || open.number > number)
            continue;
        look_at(world, &s, lane, open.number);
        sherd__ranks_meet(&open.ranks, &s.unmade);
        sherd__ranks_join(&p->lacks, &open.ranks);
    }
    return &p->lacks;
}

/* The ranks that a rank depends on because of one of its needs. */
static void edges_of(const sherd_world *world, standing *s, const sherd__said *said,
                     sherd__ranks *out)
{
    sherd__ranks late;

    look_at(world, s, said->lane, said->number);
    sherd__ranks_copy(out, &said->ranks);
    sherd__ranks_meet(out, &s->unmade);
    if (said->lack != SHERD__LEFT)
        return;
    sherd__ranks_copy(&late, &said->ranks);
    sherd__ranks_meet(&late, &s->unleft);
    for (int q = -1; (q = sherd__ranks_next(&late, q + 1)) >= 0;)
        sherd__ranks_join(out, lacks_of(world, q, said->lane, said->number));
}

static void take_picture(const sherd_world *world)
{
    standing s = {.number = 0};
    sherd__ranks more;

    for (int r = 0; r < world->ranks; r++) {
        picture *p = &world->picture[r];
        p->version = sherd__post_counts(world, r, &p->waits, &p->needs);
        p->number = 0;
        sherd__ranks_clear(&p->next);
    }
    for (int r = 0; r < world->ranks; r++)
        for (uint32_t i = 0; i < world->picture[r].waits; i++) {
            sherd__said said = sherd__post_read(world, r, i);
            edges_of(world, &s, &said, &more);
            sherd__ranks_join(&world->picture[r].next, &more);
        }
}

/* ---- rings ----------------------------------------------------------------------------------- */

static bool depends_on_any(const picture *p, const sherd__ranks *ranks)
{
    for (int w = 0; w < p->next.words && w < ranks->words; w++)
        if (p->next.word[w] & ranks->word[w])
            return true;
    return false;
}

/*
 * Drop ranks that depend on none of the others, until there is no such rank: what remains is in
 * rings, or depends on them.
 */
static void leave_rings(const sherd_world *world, sherd__ranks *ranks)
{
    bool fewer = true;

    /* In alternating order: chains of waits mostly ascend or descend. */
    for (bool down = true; fewer; down = !down) {
        fewer = false;
        for (int i = 0; i < world->ranks; i++) {
            int r = down ? world->ranks - 1 - i : i;
            if (!sherd__ranks_has(ranks, r) || depends_on_any(&world->picture[r], ranks))
                continue;
            sherd__ranks_drop(ranks, r);
            fewer = true;
        }
    }
}

/* The shortest way from a rank back to itself: its ranks, in order; 0 if there is none. */
static int find_ring(const sherd_world *world, int me)
{
    picture *all = world->picture;
    int head = 0, tail = 0, length = 0;
    sherd__ranks seen = {0}, next;

    all[tail++].queued = me;
    while (head < tail) {
        int r = all[head++].queued;
        sherd__ranks_copy(&next, &all[r].next);
        sherd__ranks_less(&next, &seen);
        if (sherd__ranks_has(&next, me)) {
            for (int at = r; at != me; at = all[at].from)
                all[length++].ring = at;
            all[length++].ring = me;
            return length;
        }
        sherd__ranks_join(&seen, &next);
        for (int q = -1; (q = sherd__ranks_next(&next, q + 1)) >= 0;) {
            all[q].from = r;
            all[tail++].queued = q;
        }
    }
    return 0;
}

static int find_any_ring(const sherd_world *world)
{
    sherd__ranks ranks;
    int length = 0;

    sherd__ranks_fill(&ranks, world->ranks);
    leave_rings(world, &ranks);
    for (int r = -1; length == 0 && (r = sherd__ranks_next(&ranks, r + 1)) >= 0;)
        length = find_ring(world, r);
    return length;
}

/* The rank on which the i-th of the ring depends. */
static int before(const sherd_world *world, int i, int length)
{
    return world->picture[(i + length - 1) % length].ring;
}

static bool unchanged(const sherd_world *world, int rank)
{
    uint64_t version = world->picture[rank].version;

    return version % 2 == 1 && sherd__look(&world->arena.control->post[rank].version) == version;
}

/*
 * Whether a need of rank `from` makes it depend on `to`: it waits for a call of `to`, or for a
 * third rank to leave a call, which that one cannot finish without `to`.
 */
static bool says(const sherd_world *world, int from, int need, int to)
{
    standing s = {.number = 0};
    sherd__said said = sherd__post_read(world, from, (uint32_t)need);
    sherd__ranks ranks;

    edges_of(world, &s, &said, &ranks);
    if (!sherd__ranks_has(&ranks, to))
        return false;
    if (sherd__ranks_has(&said.ranks, to) && sherd__ranks_has(&s.unmade, to))
        return true;
    for (int q = -1; (q = sherd__ranks_next(&said.ranks, q + 1)) >= 0;)
        if (sherd__ranks_has(&s.unleft, q) && unchanged(world, q) &&
            sherd__ranks_has(lacks_of(world, q, said.lane, said.number), to))
            return true;
    return false;
}

/* Whether each rank of the ring still depends on the one before it, in the same wait as before. */
static bool holds(const sherd_world *world, int length)
{
    for (int i = 0; i < length; i++) {
        picture *p = &world->picture[i];
        int waits = (int)world->picture[p->ring].waits, to = before(world, i, length);
        p->need = 0;
        while (p->need < waits && !says(world, p->ring, p->need, to))
            p->need++;
        if (p->need == waits)
            return false;
    }
    for (int i = 0; i < length; i++)
        if (!unchanged(world, world->picture[i].ring))
            return false;
    return true;
}

static void describe(const sherd_world *world, int length, char *text, size_t room)
{
    char group[96], label[160];
    size_t at = (size_t)snprintf(text, room, "ranks wait for each other:");

    for (int i = length - 1; i >= 0 && at < room; i--) {
        const picture *p = &world->picture[i];
        sherd__said said = sherd__post_read(world, p->ring, (uint32_t)p->need);
        sherd__lane_text(world, said.lane, p->ring, group, sizeof group);
        sherd__record_text(world, p->ring, said.lane, said.number, label, sizeof label);
        at += (size_t)snprintf(text + at, room - at,
                               "%s rank %d in %s, call %llu of group %s, for rank %d",
                               i == length - 1 ? "" : ";", p->ring, label,
                               (unsigned long long)sherd__calls_in(said.number, world->base), group,
                               before(world, i, length));
    }
}

bool sherd__find_ring(const sherd_world *world, char *text, size_t room)
{
    take_picture(world);
    int length = find_any_ring(world);
    if (length == 0 || !holds(world, length))
        return false;
    describe(world, length, text, room);
    return true;
}
