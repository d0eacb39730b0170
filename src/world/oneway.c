/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of a channel. What was sent is not received yet when a check comes, and may never be:
 * that is no difference. But those who send must have done the same, and so must those who receive,
 * and what has been received is what was sent first. A good check drops no call, so what is on its
 * way arrives later.
 */
#include "oneway.h"
#include "inside.h"
#include "remote.h"

#include <stdio.h>

void sherd__goes_one_way(sherd_world *world, const sherd_mesh *mesh, const sherd_mesh *senders)
{
    for (int i = 0; i < world->meshes; i++)
        if (world->mesh[i].mesh == mesh)
            world->mesh[i].senders = senders;
}

bool sherd__drain_reserve(sherd_world *world)
{
    sherd__call_state *call = sherd__call_take(world, 0);

    if (call)
        sherd__call_give(world, call); /* where the next one finds it */
    /* A record for each of the others, and one from each. */
    return call && (!world->remote || sherd__sheets_reserve(world->remote, 2 * world->ranks));
}

bool sherd__is_drained(sherd_world *world, const sherd_mesh *mesh)
{
    int64_t mine = -1, all[SHERD_MAX_RANKS], count = -1;
    int16_t place[SHERD_MAX_RANKS];
    sherd__group *group = NULL;

    if (world->dry || world->ranks == 1)
        return true;
    if (sherd__alarmed(world))
        return false;
    if (sherd__group_find(world, mesh, sherd__mesh_axis_bits(mesh), &group) && group)
        mine = (int64_t)sherd__calls_in(sherd__look(&group->own->made), world->base);
    for (int q = 0; q < world->ranks; q++)
        place[q] = (int16_t)q;
    if (!world->transport->share(
            world, &world->whole, "sherd_channel_create",
            &(sherd__sharing){.mine = &mine, .words = 1, .all = all, .place = place}))
        return false;
    for (int q = 0; q < world->ranks; q++) {
        if (all[q] >= 0 && count >= 0 && all[q] != count)
            return false;
        count = all[q] >= 0 ? all[q] : count;
    }
    return true;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static uint64_t calls_of(const sherd_world *world, int lane, int rank)
{
    return sherd__calls_in(sherd__look(&sherd__lane_of(world, rank, lane)->made), world->base);
}

static bool are_alike(const sherd_world *world, int lane, int a, int b)
{
    uint64_t calls = calls_of(world, lane, a);

    return calls == calls_of(world, lane, b) &&
           (calls == 0 || sherd__look(&sherd__lane_of(world, a, lane)->history) ==
                              sherd__look(&sherd__lane_of(world, b, lane)->history));
}

/* Whether a receiver at most lags: its calls are the sender's first ones, as far as is known. */
static bool follows(const sherd_world *world, int lane, int sender, int receiver)
{
    uint64_t had = calls_of(world, lane, receiver), sent = calls_of(world, lane, sender);
    uint64_t number = sherd__number(world->base, had);
    const sherd__record *record = sherd__record_of(world, sender, lane, number);

    if (had >= sent)
        return are_alike(world, lane, sender, receiver);
    return had == 0 || sherd__look(&record->number) != number ||
           sherd__look(&record->history) ==
               sherd__look(&sherd__lane_of(world, receiver, lane)->history);
}

bool sherd__one_way_differs(const sherd_world *world, const sherd__member *member, char *text,
                            size_t room)
{
    int lane = member->first, first[2] = {-1, -1};

    for (int q = 0; q < world->ranks; q++) {
        if (!sherd_mesh_coordinate(member->mesh, q, NULL))
            continue;
        int receives = !sherd_mesh_coordinate(member->senders, q, NULL);
        if (first[receives] < 0)
            first[receives] = q;
        int other = first[receives];
        bool same = are_alike(world, lane, other, q);
        if (same && first[0] >= 0 && first[1] >= 0 && !follows(world, lane, first[0], first[1])) {
            other = first[0];
            q = first[1];
            same = false;
        }
        if (same)
            continue;
        size_t at = (size_t)snprintf(text, room, "rank %d: ", other);
        sherd__record_difference(world, lane, other, q, text + at, room - at);
        return true;
    }
    return false;
}
