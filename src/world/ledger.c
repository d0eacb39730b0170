/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ledgers: what this rank has done on each mesh, as one running hash and the names of the last 64
 * things. Ranks that do different things without communicating (another factor, another operand,
 * one operator more) would otherwise go on with different numbers. At a meeting each rank shows its
 * ledgers; the last to arrive compares them. After a failed check they say which deeds all ranks
 * had done, and so which tensors are left. A deed costs a few nanoseconds.
 */
#include "inside.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* ---- doing ----------------------------------------------------------------------------------- */

sherd__ledger *sherd__ledger_create(sherd_world *world)
{
    return sherd__alloc(&world->heap, 1, sizeof(sherd__ledger));
}

uint64_t sherd__deed_name(sherd__ledger *ledger, const char *name)
{
    size_t place = (uintptr_t)name / 8 % SHERD__DEED_NAMES;

    ledger->known[place].name = name;
    ledger->known[place].hash = sherd__hash_text(4, name);
    return ledger->known[place].hash;
}

uint64_t sherd__deed_count(const sherd_mesh *mesh)
{
    return mesh->ledger ? mesh->ledger->count : 0;
}

bool sherd__deeds_pause(const sherd_mesh *mesh, bool pause)
{
    bool before = mesh->ledger && mesh->ledger->paused;

    if (mesh->ledger)
        mesh->ledger->paused = pause;
    return before;
}

void sherd__block_is_from(sherd__block *block, const sherd_mesh *mesh, uint64_t made)
{
    if (!block)
        return;
    block->made = made;
    block->made_on = mesh;
}

void sherd__block_lose(sherd_world *world, sherd__block *block)
{
    if (block && block->made_on &&
        sherd__deed_loss(world, block->made_on, block->made) == SHERD__DROPPED)
        block->spoiled = true;
}

void sherd__block_heal(sherd__block *block)
{
    if (block)
        block->spoiled = false;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell_last(sherd__work *work, sherd__ledger *ledger)
{
    uint64_t first = ledger->told + 1;

    if (ledger->count - ledger->told > SHERD__DEEDS)
        first = ledger->count - SHERD__DEEDS + 1;
    for (uint64_t k = first; k <= ledger->count; k++) {
        sherd__deed *deed = &work->last[k % SHERD__DEEDS];
        deed->hash = ledger->last[k % SHERD__DEEDS].hash;
        sherd__fit_text(deed->name, sizeof deed->name, ledger->last[k % SHERD__DEEDS].name);
        deed->wrote = ledger->last[k % SHERD__DEEDS].wrote;
    }
    work->wrote = ledger->wrote;
    memcpy(work->since, ledger->since, sizeof work->since);
    ledger->told = work->count = ledger->count;
    work->good = ledger->good;
    work->hash = ledger->hash;
}

/* Deeds on `mesh` whose results the open calls of this rank still fill. */
static void tell_flights(const sherd_world *world, const sherd_mesh *mesh, sherd__work *work)
{
    work->flights = 0;
    for (const sherd__call_state *call = world->open; call; call = call->next)
        for (int i = 0; i < call->count; i++) {
            const sherd__task *task = &call->task[i];
            if (!task->result || task->plan->to->spec.mesh != mesh)
                continue;
            if (work->flights < SHERD__FLIGHTS)
                work->flight[work->flights] = task->result->made;
            work->flights++;
        }
}

void sherd__ledgers_tell(sherd_world *world)
{
    for (int i = 0; i < world->meshes; i++) {
        const sherd__member *member = &world->mesh[i];
        if (!member->widest)
            continue;
        tell_last(&member->widest->own->work, member->mesh->ledger);
        tell_flights(world, member->mesh, &member->widest->own->work);
    }
}

/* ---- claims (SHERD_VERIFY) ------------------------------------------------------------------- */

void sherd__world_watch(sherd_world *world, const sherd__watcher *watcher)
{
    world->watcher = *watcher;
}

bool sherd__verifies(const sherd_world *world)
{
    return world->verify && !world->dry; /* there are no contents to compare */
}

bool sherd__claim_equal(sherd_world *world, const sherd_mesh *mesh, unsigned axes,
                        const sherd__claim *claim)
{
    sherd__group *group;

    if (!sherd__group_find(world, mesh, axes, &group) || !group)
        return true; /* nobody else has it */
    if (group->claims == group->claim_room) {
        int64_t room = group->claim_room ? 2 * group->claim_room : 64;
        sherd__claim *grown = sherd__grow(&world->heap, group->claim, (size_t)group->claim_room,
                                          (size_t)room, sizeof *grown);
        if (!grown)
            return false;
        group->claim = grown;
        group->claim_room = room;
    }
    group->claim[group->claims++] = *claim;
    return true;
}

/* Show what is claimed to who decides. The block of the check before is free again: all have left
 * that one. */
static bool tell_claims(sherd_world *world, sherd__group *group)
{
    size_t bytes = (size_t)group->claims * sizeof *group->claim;

    if (!sherd__is_near(world, 0))
        return sherd__remote_claims(world, group);
    group->own->claimed = 0;
    if (group->claimed)
        sherd__give_quietly(world, group->claimed);
    group->claimed = NULL;
    if (group->claims == 0)
        return true;
    if (!(group->claimed = sherd__take_quietly(world, (int64_t)bytes)))
        return false;
    memcpy(group->claimed->data, group->claim, bytes);
    group->own->claims = (uint64_t)(group->claimed->data - world->arena.base);
    group->own->claimed = group->claims;
    return true;
}

bool sherd__claims_make(sherd_world *world)
{
    bool good = true;

    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
            world->mesh[i].group[g].claims = 0;
    if (sherd__verifies(world) && world->watcher.before_check && !sherd__alarmed(world))
        world->watcher.before_check(world);
    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
            good = tell_claims(world, &world->mesh[i].group[g]) && good;
    return good;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const sherd__work *work_of(const sherd_world *world, int rank, int lane)
{
    return &sherd__lane_of(world, rank, lane)->work;
}

/* The first deed, of those that are kept, that two ranks did not do alike; *oldest: it is the first
 * that is kept. */
static uint64_t first_difference(const sherd__work *x, const sherd__work *y, bool *oldest)
{
    uint64_t most = larger(x->count, y->count), least = smaller(x->count, y->count);
    uint64_t begin = most - x->good > SHERD__DEEDS ? most - SHERD__DEEDS + 1 : x->good + 1;
    uint64_t k = begin;

    while (k <= least && x->last[k % SHERD__DEEDS].hash == y->last[k % SHERD__DEEDS].hash)
        k++;
    *oldest = k == begin && begin > x->good + 1;
    return k;
}

/* "operation 3 since the last check is A on rank 0, and B on rank 1". */
static void describe(const sherd_world *world, int lane, int a, int b, char *text, size_t room)
{
    const sherd__work *x = work_of(world, a, lane), *y = work_of(world, b, lane);
    const char *p, *q;
    bool oldest;
    uint64_t k = first_difference(x, y, &oldest);
    unsigned long long number = k - x->good;

    p = x->last[k % SHERD__DEEDS].name;
    q = y->last[k % SHERD__DEEDS].name;
    if (oldest)
        snprintf(text, room, "ranks %d and %d differ since more than the last %d operations", a, b,
                 SHERD__DEEDS);
    else if (k > x->count || k > y->count)
        snprintf(text, room,
                 "operation %llu since the last check is %s on rank %d, which rank %d did not do",
                 number, k > x->count ? q : p, k > x->count ? b : a, k > x->count ? a : b);
    else if (strcmp(p, q) != 0)
        snprintf(text, room,
                 "operation %llu since the last check is %s on rank %d, and %s on rank %d", number,
                 p, a, q, b);
    else
        snprintf(text, room,
                 "operation %llu since the last check is %s on ranks %d and %d, but with other "
                 "operands, layouts or attributes",
                 number, p, a, b);
}

static int64_t claims_of(const sherd_world *world, int rank, int lane, const sherd__claim **claim)
{
    const sherd__lane *theirs = sherd__lane_of(world, rank, lane);

    *claim = sherd__is_near(world, rank)
                 ? (const sherd__claim *)(const void *)(world->arena.base + theirs->claims)
                 : theirs->claim;
    return theirs->claimed;
}

/* A tensor that two ranks claim to be equal, and that is not. Claims are in the order of their
 * numbers, the newest first. */
static const sherd__claim *find_unequal(const sherd_world *world, int lane, int a, int b)
{
    const sherd__claim *p, *q;
    int64_t x = claims_of(world, a, lane, &p), y = claims_of(world, b, lane, &q);

    for (int64_t i = 0, j = 0; i < x; i++) {
        while (j < y && q[j].made > p[i].made)
            j++;
        for (int64_t k = j; k < y && q[k].made == p[i].made; k++)
            if (q[k].identity == p[i].identity && q[k].content != p[i].content)
                return &p[i];
    }
    return NULL;
}

static bool is_unlike(const sherd__work *x, const sherd__work *y, bool other)
{
    bool oldest;

    if (x->count == y->count && x->hash == y->hash)
        return false;
    return !other || first_difference(x, y, &oldest) <= smaller(x->count, y->count);
}

static bool differ_in(const sherd_world *world, int lane, int a, int b, bool other, char *text,
                      size_t room)
{
    char group[96], what[SHERD_ERROR_BYTES];
    const sherd__work *x = work_of(world, a, lane), *y = work_of(world, b, lane);
    const sherd__claim *claim = NULL;

    if (is_unlike(x, y, other)) {
        sherd__lane_text(world, lane, a, group, sizeof group);
        describe(world, lane, a, b, what, sizeof what);
        snprintf(text, room, "rank %d: ranks do different things on mesh %s: %.300s", a, group,
                 what);
        return true;
    }
    if (x->count == y->count)
        claim = find_unequal(world, lane, a, b);
    if (claim)
        snprintf(text, room,
                 "rank %d: SHERD_VERIFY: %s, which should be equal there, differs between ranks %d "
                 "and %d",
                 a, claim->text, a, b);
    return claim != NULL;
}

static int leader_of(const sherd_world *world, int rank, int lane)
{
    return atomic_load(&sherd__lane_of(world, rank, lane)->leader) - 1;
}

/* Any two members: the leader may have stopped before the two that differ. */
static bool any_differ(const sherd_world *world, int lane, int leader, bool other, char *text,
                       size_t room)
{
    for (int a = leader; a < world->ranks; a++)
        for (int b = a + 1; b < world->ranks && leader_of(world, a, lane) == leader; b++)
            if (leader_of(world, b, lane) == leader &&
                differ_in(world, lane, a, b, other, text, room))
                return true;
    return false;
}

bool sherd__ledgers_differ(const sherd_world *world, bool other, char *text, size_t room)
{
    for (int lane = 1; lane < world->lanes; lane++)
        for (int q = 1; q < world->ranks; q++) {
            int leader = leader_of(world, q, lane);
            if (leader < 0 || leader == q)
                continue;
            const sherd__lane *leads = sherd__lane_of(world, leader, lane);
            if ((is_unlike(&leads->work, work_of(world, q, lane), false) || leads->claimed) &&
                any_differ(world, lane, leader, other, text, room))
                return true;
        }
    return false;
}

/* ---- after a check --------------------------------------------------------------------------- */

/* What has been written is what all ranks have, or is lost by now. */
static void forget_writes(sherd__ledger *ledger)
{
    ledger->writes = false;
    ledger->wrote.count = 0;
    for (int i = 0; i < SHERD__MARK_SETS; i++)
        ledger->since[i].count = 0;
}

void sherd__ledgers_passed(sherd_world *world)
{
    for (int i = 0; i < world->meshes; i++)
        if (world->mesh[i].widest) {
            sherd__ledger *ledger = world->mesh[i].mesh->ledger;
            ledger->good = ledger->count;
            forget_writes(ledger);
        }
}

static bool all_did_alike(const sherd_world *world, const sherd__group *group, uint64_t k)
{
    uint64_t hash = group->own->work.last[k % SHERD__DEEDS].hash;

    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        if (work_of(world, q, group->lane)->last[k % SHERD__DEEDS].hash != hash)
            return false;
    return true;
}

/* The last deed that all members have done alike, with all before it; at least the last good check,
 * if it is long ago. */
static uint64_t common_deeds(const sherd_world *world, const sherd__group *group, uint64_t good)
{
    uint64_t k = UINT64_MAX, most = 0;

    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;) {
        uint64_t count = work_of(world, q, group->lane)->count;
        k = smaller(k, count);
        most = larger(most, count);
    }
    for (; k > good && most - k < SHERD__DEEDS; k--)
        if (all_did_alike(world, group, k))
            return k;
    return good;
}

static uint64_t most_deeds(const sherd_world *world, const sherd__group *group)
{
    uint64_t most = 0;

    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        most = larger(most, work_of(world, q, group->lane)->count);
    return most;
}

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
    if (made > mesh->ledger->kept)
        return SHERD__NOT_ALL;
    const sherd__ranks *members = &member->widest->members;
    for (int q = -1; mesh->ledger->dropped && (q = sherd__ranks_next(members, q + 1)) >= 0;) {
        const sherd__work *work = work_of(world, q, member->widest->lane);
        if (work->flights > SHERD__FLIGHTS && made >= work->flight[0])
            return SHERD__DROPPED;
        for (int i = 0; i < work->flights && i < SHERD__FLIGHTS; i++)
            if (work->flight[i] == made)
                return SHERD__DROPPED;
    }
    return SHERD__KEPT;
}

/*
 * What a member has written by deeds after the last common one. Those that it no longer shows, or
 * for which there is no set, count as all that it has written since the last good check.
 */
static void lose_writes(sherd__ledger *ledger, const sherd__work *work)
{
    uint64_t beyond = work->count - ledger->kept;

    if (beyond >= SHERD__DEEDS) {
        for (int i = 0; i < SHERD__MARK_SETS; i++)
            sherd__marks_join(&ledger->lost_since[i], &work->since[i]);
        return;
    }
    for (uint64_t k = 0; k < beyond; k++)
        sherd__marks_join(&ledger->lost[k],
                          &work->last[(ledger->kept + 1 + k) % SHERD__DEEDS].wrote);
    sherd__marks_join(&ledger->lost[beyond], &work->wrote);
}

static void find_lost(const sherd_world *world, const sherd__group *group, sherd__ledger *ledger)
{
    memset(ledger->lost, 0, sizeof ledger->lost);
    memset(ledger->lost_since, 0, sizeof ledger->lost_since);
    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        lose_writes(ledger, work_of(world, q, group->lane));
}

bool sherd__deed_wrote(const sherd_mesh *mesh, uint64_t identity)
{
    sherd__ledger *ledger = mesh->ledger;
    bool found =
        ledger && sherd__marks_have(sherd__marks_for(ledger->lost_since, identity), identity);

    for (int k = 0; ledger && !found && k < SHERD__DEEDS; k++)
        found = sherd__marks_have(&ledger->lost[k], identity);
    return found;
}

uint64_t sherd__failed_checks(const sherd_world *world)
{
    return world->failed;
}

/* All count on from the highest number that any of them had reached. */
void sherd__ledgers_failed(sherd_world *world, bool dropped)
{
    world->failed++;
    for (int i = 0; i < world->meshes; i++) {
        const sherd__group *group = world->mesh[i].widest;
        sherd__ledger *ledger = world->mesh[i].mesh->ledger;
        if (!group)
            continue;
        ledger->kept = common_deeds(world, group, ledger->good);
        ledger->dropped = dropped;
        find_lost(world, group, ledger);
    }
    if (world->watcher.after_failure)
        world->watcher.after_failure(world);
    for (int i = 0; i < world->meshes; i++) {
        const sherd__group *group = world->mesh[i].widest;
        sherd__ledger *ledger = world->mesh[i].mesh->ledger;
        if (!group)
            continue;
        ledger->count = ledger->good = ledger->told = most_deeds(world, group);
        ledger->hash = 0;
        forget_writes(ledger);
    }
}
