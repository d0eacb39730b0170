/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Waits that can never end because of a rank at a meeting. Such a rank makes no more calls, so
 * whoever waits for one that it has not made waits for ever. It may also have an open call that can
 * never end, because a rank that it awaits has come to the meeting without that call, has made
 * another one in its place, or failed. It raises nothing at a meeting, and never leaves that call;
 * so whoever waits for it to leave finds the reason on its post. Slow rounds only.
 */
#include "inside.h"

enum { MANY = 64, LOOK_NS = 1000 }; /* for each rank that another may wait for */

/* A call that a rank lacks for good. */
typedef struct missed {
    int rank;  /* the rank at the meeting */
    int other; /* the rank that it awaits in the call; -1: it has not made the call itself */
    int lane;
    uint64_t number; /* of the call that does not come */
    bool misfit;     /* other has made another one in its place */
} missed;

static bool has_arrived(const sherd_world *world, int rank)
{
    return sherd__look(&world->arena.control->post[rank].arrived) > world->round;
}

static bool has_made(const sherd_world *world, int rank, int lane, uint64_t number)
{
    return sherd__look(&sherd__lane_of(world, rank, lane)->made) >= number;
}

/* The first awaited rank that came to the meeting without making the call; -1: there is none. */
static int find_absent(const sherd_world *world, const sherd__said *need)
{
    for (int q = -1; (q = sherd__ranks_next(&need->ranks, q + 1)) >= 0;)
        if (has_arrived(world, q) && !has_made(world, q, need->lane, need->number))
            return q;
    return -1;
}

/* Whether rank q, at the meeting, has an open call (up to the awaited one) that can never end. */
static bool is_held_up(const sherd_world *world, int q, const sherd__said *need, missed *out)
{
    uint32_t waits, needs;
    uint64_t version = sherd__post_counts(world, q, &waits, &needs);
    bool found = false;

    for (uint32_t i = waits; i < needs && !found; i++) {
        sherd__said open = sherd__post_read(world, q, i);
        if (open.lane != need->lane || open.number > need->number)
            continue;
        int other = open.lack == SHERD__MISFIT ? sherd__ranks_next(&open.ranks, 0)
                                               : find_absent(world, &open);
        found = other >= 0;
        *out = (missed){q, other, open.lane, open.number, open.lack == SHERD__MISFIT};
    }
    return found && sherd__look(&world->arena.control->post[q].version) == version;
}

static bool never_comes(const sherd_world *world, const sherd__said *need, missed *out)
{
    *out = (missed){find_absent(world, need), -1, need->lane, need->number, false};
    if (out->rank >= 0)
        return true;
    for (int q = -1;
         need->lack == SHERD__LEFT && (q = sherd__ranks_next(&need->ranks, q + 1)) >= 0;)
        if (has_arrived(world, q) && is_held_up(world, q, need, out))
            return true;
    return false;
}

static void raise_absent(sherd_world *world, const missed *m)
{
    char group[96], label[160];
    const sherd__post *post = &world->arena.control->post[m->rank];
    uint64_t made =
        sherd__calls_in(sherd__look(&sherd__lane_of(world, m->rank, m->lane)->made), world->base);

    sherd__lane_text(world, m->lane, world->rank, group, sizeof group);
    sherd__record_text(world, world->rank, m->lane, m->number, label, sizeof label);
    sherd__raise(
        world, SHERD_EDIFFER,
        "%s is call %llu of group %s here, but rank %d is in %.40s after %llu call%s there", label,
        (unsigned long long)sherd__calls_in(m->number, world->base), group, m->rank, post->name,
        (unsigned long long)made, made == 1 ? "" : "s");
}

static void raise_held_up(sherd_world *world, const missed *m)
{
    char group[96], label[160], text[SHERD_ERROR_BYTES];

    if (m->misfit) {
        sherd__record_difference(world, m->lane, m->rank, m->other, text, sizeof text);
        sherd__raise(world, SHERD_EDIFFER, "%s", text);
        return;
    }
    sherd__lane_text(world, m->lane, m->rank, group, sizeof group);
    sherd__record_text(world, m->rank, m->lane, m->number, label, sizeof label);
    sherd__raise(world, SHERD_EDIFFER,
                 "rank %d has begun %s, call %llu of group %s, but rank %d is in %.40s without it",
                 m->rank, label, (unsigned long long)sherd__calls_in(m->number, world->base), group,
                 m->other, world->arena.control->post[m->other].name);
}

static bool is_stuck(sherd_world *world)
{
    uint32_t waits, needs;
    missed m;

    sherd__post_counts(world, world->rank, &waits, &needs);
    /* The needs of open calls count too: others may wait for this rank to leave them. */
    for (uint32_t i = 0; i < needs; i++) {
        sherd__said need = sherd__post_read(world, world->rank, i);
        if (!never_comes(world, &need, &m))
            continue;
        if (m.other < 0)
            raise_absent(world, &m);
        else
            raise_held_up(world, &m);
        return true;
    }
    return false;
}

/* Whether to look for rings now: with many ranks that takes long, and every woken rank looks. */
static bool may_look(sherd_world *world)
{
    if (world->ranks <= MANY)
        return true;
    int64_t now = sherd__now();
    bool may = now >= world->next_look;
    if (may)
        world->next_look = now + (int64_t)world->ranks * world->ranks * LOOK_NS;
    return may;
}

void sherd__look_for_the_impossible(sherd_world *world)
{
    char text[SHERD_ERROR_BYTES];

    if (!is_stuck(world) && may_look(world) && sherd__find_ring(world, text, sizeof text))
        sherd__raise(world, SHERD_EDIFFER, "%s", text);
}
