/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a failed check leaves of what was done on meshes: the last deed that all ranks have done,
 * and of the tensors that are there on all of them those that some have written, or were about to
 * fill. All ranks go by the same, which is found from what each has told. Costs a look at the last
 * deeds of all ranks, only after a failed check.
 */
#include "inside.h"

#include <string.h>

/* ---- finding it ------------------------------------------------------------------------------ */

static void members_of(const sherd_world *world, int lane, sherd__ranks *out)
{
    sherd__ranks_clear(out);
    for (int q = 0; q < world->ranks; q++)
        if (sherd__leader_of(world, q, lane) >= 0)
            sherd__ranks_add(out, q);
}

static bool all_did_alike(const sherd_world *world, const sherd__ranks *members, int lane,
                          uint64_t k)
{
    int first = sherd__ranks_next(members, 0);
    uint64_t hash = sherd__work_of(world, first, lane)->last[k % SHERD__DEEDS].hash;

    for (int q = first; (q = sherd__ranks_next(members, q + 1)) >= 0;)
        if (sherd__work_of(world, q, lane)->last[k % SHERD__DEEDS].hash != hash)
            return false;
    return true;
}

/*
 * The last deed up to which all members have done the same; that of the last good check, or of the
 * last agreement at which all showed the same, if none later is still known.
 */
static void find_common(const sherd_world *world, const sherd__ranks *members, int lane,
                        sherd__remains *out)
{
    uint64_t k = UINT64_MAX, good = 0;

    out->most = 0;
    for (int q = -1; (q = sherd__ranks_next(members, q + 1)) >= 0;) {
        const sherd__work *work = sherd__work_of(world, q, lane);
        k = sherd__smaller(k, work->count);
        out->most = sherd__larger(out->most, work->count);
        good = sherd__larger(good, sherd__larger(work->good, work->alike));
    }
    out->kept = good;
    for (; k > good && out->most - k < SHERD__DEEDS; k--)
        if (all_did_alike(world, members, lane, k)) {
            out->kept = k;
            return;
        }
}

/* Add a deed whose result was in flight; if there is no room, all from the first one on count. */
static void lose_flight(sherd__remains *out, uint64_t made)
{
    for (int i = 0; i < out->flights; i++)
        if (out->flight[i] == made)
            return;
    if (out->flights < SHERD__LOST_FLIGHTS) {
        out->flight[out->flights++] = made;
        return;
    }
    out->from = sherd__smaller(out->from, made);
    for (int i = 0; i < out->flights; i++)
        out->from = sherd__smaller(out->from, out->flight[i]);
}

static void lose_flights(sherd__remains *out, const sherd__work *work)
{
    if (work->flights > SHERD__FLIGHTS)
        out->from = sherd__smaller(out->from, work->flight[0]);
    else
        for (int i = 0; i < work->flights; i++)
            lose_flight(out, work->flight[i]);
}

static void join(sherd__remains *out, uint64_t k, const sherd__marks *from)
{
    if (!from->word[0])
        return;
    sherd__mark_join(out->lost[k].word, SHERD__MARKS, from->word);
    if (out->sets <= (int)k)
        out->sets = (int)k + 1;
}

/*
 * What a member has written by deeds after the last common one. Those that it no longer shows, or
 * for which there is no set, count as all that it has written since that agreement. What was
 * written by pointers since its last deed is not lost if all have `finished` that.
 */
static void lose_writes(sherd__remains *out, const sherd__work *work, bool finished)
{
    uint64_t beyond = work->count - out->kept;

    if (beyond >= SHERD__DEEDS) {
        sherd__mark_join(out->lost_since.word, SHERD__MANY_MARKS, work->since.word);
        return;
    }
    for (uint64_t k = 0; k < beyond; k++)
        join(out, k, &work->last[(out->kept + 1 + k) % SHERD__DEEDS].wrote);
    if (beyond || !finished)
        join(out, beyond, &work->wrote);
}

void sherd__remains_find(const sherd_world *world, int lane, bool finished, sherd__remains *out)
{
    sherd__ranks members;

    memset(out, 0, sizeof *out);
    out->from = UINT64_MAX;
    members_of(world, lane, &members);
    if (sherd__ranks_none(&members))
        return;
    find_common(world, &members, lane, out);
    sherd__openings_lose(world, lane, out);
    for (int q = -1; (q = sherd__ranks_next(&members, q + 1)) >= 0;) {
        lose_flights(out, sherd__work_of(world, q, lane));
        lose_writes(out, sherd__work_of(world, q, lane), finished);
    }
}

/* ---- using it -------------------------------------------------------------------------------- */

static const sherd__member *member_of(const sherd_world *world, const sherd_mesh *mesh)
{
    for (int i = 0; i < world->meshes; i++)
        if (world->mesh[i].mesh == mesh)
            return &world->mesh[i];
    return NULL;
}

sherd__loss sherd__deed_loss(const sherd_world *world, const sherd_mesh *mesh, uint64_t made)
{
    const sherd__member *member = member_of(world, mesh);

    if (!member || !member->widest)
        return SHERD__KEPT;
    const sherd__remains *remains = &mesh->ledger->remains;
    if (made > remains->kept)
        return SHERD__NOT_ALL;
    bool dropped = mesh->ledger->dropped && made >= remains->from;
    for (int i = 0; mesh->ledger->dropped && !dropped && i < remains->flights; i++)
        dropped = remains->flight[i] == made;
    return dropped ? SHERD__DROPPED : SHERD__KEPT;
}

bool sherd__deed_wrote(const sherd_mesh *mesh, uint64_t identity)
{
    const sherd__remains *remains = mesh->ledger ? &mesh->ledger->remains : NULL;
    bool found =
        remains && sherd__mark_is_in(remains->lost_since.word, SHERD__MANY_MARKS, identity);

    for (int k = 0; remains && !found && k < remains->sets; k++)
        found = sherd__mark_is_in(remains->lost[k].word, SHERD__MARKS, identity);
    return found;
}

const sherd_mesh *sherd__mesh_at(const sherd_world *world, int i)
{
    return i < world->meshes ? world->mesh[i].mesh : NULL;
}

uint64_t sherd__failed_checks(const sherd_world *world)
{
    return world->failed;
}

/*
 * All count on from the highest number that any of them had reached. Where some are far, the rank
 * that decides has told what is left.
 */
void sherd__ledgers_failed(sherd_world *world, bool dropped, bool finished)
{
    world->failed++;
    for (int i = 0; i < world->meshes; i++) {
        const sherd__group *group = world->mesh[i].widest;
        sherd__ledger *ledger = world->mesh[i].mesh->ledger;
        if (!group)
            continue;
        if (!world->remote)
            sherd__remains_find(world, group->lane, finished, &ledger->remains);
        ledger->dropped = dropped;
    }
    if (world->watcher.after_failure)
        world->watcher.after_failure(world);
    for (int i = 0; i < world->meshes; i++) {
        sherd__ledger *ledger = world->mesh[i].mesh->ledger;
        if (!world->mesh[i].widest)
            continue;
        ledger->count = ledger->good = ledger->told = ledger->remains.most;
        ledger->hash = 0;
        if (!finished) /* else they go on: a pointer may be written through again */
            sherd__forget_writes(ledger);
    }
    sherd__openings_failed(world);
    for (int lane = 0; lane < world->lanes; lane++)
        sherd__lane_set_add(&world->used, lane);
}
