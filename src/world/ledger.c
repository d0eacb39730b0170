/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ledgers: what this rank has done on each mesh, as one running hash and the names of the last 64
 * things. Ranks that do different things without communicating (another factor, another operand,
 * one operator more) would otherwise go on with different numbers. At a meeting each rank shows its
 * ledgers; the last to arrive compares them. After a failed check they say which deeds all ranks
 * had done, and so which tensors are left. A deed costs a few nanoseconds, a check a look at what
 * has been used since the last good one.
 */
#include "inside.h"

#include "base/hash.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

/* ---- doing ----------------------------------------------------------------------------------- */

sherd__ledger *sherd__ledger_create(sherd_world *world, int lane)
{
    sherd__ledger *ledger = sherd__alloc(&world->heap, 1, sizeof *ledger);

    if (ledger) {
        ledger->used = &world->used.word[lane / 64];
        ledger->used_bit = UINT64_C(1) << lane % 64;
    }
    return ledger;
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

/* ---- what has been used ---------------------------------------------------------------------- */

/* The mesh whose ledger is told in a lane; NULL: none that this rank is in. */
static const sherd__member *told_in(const sherd_world *world, int lane)
{
    const sherd__member *member = sherd__member_at(world, lane);

    return member && member->widest && member->widest->lane == lane ? member : NULL;
}

/* The next mesh from a lane on whose ledger has been used, or NULL; *lane: where it is told. */
static const sherd__member *next_used(const sherd_world *world, int *lane)
{
    const sherd__member *member = NULL;

    while (!member && (*lane = sherd__lane_set_next(&world->used, *lane + 1, world->lanes)) >= 0)
        member = told_in(world, *lane);
    return member;
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
    work->since = ledger->since;
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
            uint64_t made = task->result ? task->result->made : 0; /* 0: no deed yet */
            if (!made || task->plan->to->spec.mesh != mesh)
                continue;
            if (work->flights < SHERD__FLIGHTS)
                work->flight[work->flights] = made;
            else /* all from the first one on count */
                work->flight[0] = sherd__smaller(work->flight[0], made);
            work->flights++;
        }
}

/* A mesh is used also by an open call that fills a tensor on it. */
static void note_flights(const sherd_world *world)
{
    for (const sherd__call_state *call = world->open; call; call = call->next)
        for (int i = 0; i < call->count; i++) {
            sherd__ledger *ledger = call->task[i].plan->to->spec.mesh->ledger;
            if (ledger && call->task[i].result)
                *ledger->used |= ledger->used_bit;
        }
}

void sherd__ledgers_tell(sherd_world *world)
{
    const sherd__member *member;

    note_flights(world);
    for (int lane = 0; (member = next_used(world, &lane));) {
        tell_last(&member->widest->own->work, member->mesh->ledger);
        tell_flights(world, member->mesh, &member->widest->own->work);
    }
    sherd__openings_tell(world);
    world->post->used = world->used;
}

/* ---- comparing ------------------------------------------------------------------------------- */

/* The count at the last good check; who has not used the mesh since has not told it anew. */
static uint64_t last_good(const sherd__work *x, const sherd__work *y)
{
    return sherd__larger(x->good, y->good);
}

/* The first deed, of those that are kept, that two ranks did not do alike; *oldest: it is the first
 * that is kept. */
static uint64_t first_difference(const sherd__work *x, const sherd__work *y, bool *oldest)
{
    uint64_t most = sherd__larger(x->count, y->count), least = sherd__smaller(x->count, y->count);
    uint64_t good = last_good(x, y);
    uint64_t begin = most - good > SHERD__DEEDS ? most - SHERD__DEEDS + 1 : good + 1;
    uint64_t k = begin;

    while (k <= least && x->last[k % SHERD__DEEDS].hash == y->last[k % SHERD__DEEDS].hash)
        k++;
    *oldest = k == begin && begin > good + 1;
    return k;
}

/* "operation 3 since the last check is A on rank 0, and B on rank 1". Returns the deed, if it has
 * one name on both ranks. */
static uint64_t describe(const sherd_world *world, int lane, int a, int b, char *text, size_t room)
{
    const sherd__work *x = sherd__work_of(world, a, lane), *y = sherd__work_of(world, b, lane);
    const char *p, *q;
    bool oldest;
    uint64_t k = first_difference(x, y, &oldest);
    unsigned long long number = k - last_good(x, y);

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
    else {
        snprintf(text, room,
                 "operation %llu since the last check is %s on ranks %d and %d, but with other "
                 "operands, layouts or attributes",
                 number, p, a, b);
        return k;
    }
    return 0;
}

static bool are_alike(const sherd__work *x, const sherd__work *y)
{
    return x->count == y->count && x->hash == y->hash;
}

static bool is_unlike(const sherd__work *x, const sherd__work *y, bool other)
{
    bool oldest;

    if (are_alike(x, y))
        return false;
    return !other || first_difference(x, y, &oldest) <= sherd__smaller(x->count, y->count);
}

static bool differ_in(const sherd_world *world, int lane, int a, int b, bool other,
                      sherd__finding *out)
{
    char group[96], what[SHERD_ERROR_BYTES];
    const sherd__work *x = sherd__work_of(world, a, lane), *y = sherd__work_of(world, b, lane);
    const sherd__claim *claim = NULL;

    if (is_unlike(x, y, other)) {
        sherd__lane_text(world, lane, a, group, sizeof group);
        uint64_t deed = describe(world, lane, a, b, what, sizeof what);
        out->difference = (sherd__difference){deed, lane, {a, b}};
        snprintf(out->text, sizeof out->text,
                 "rank %d: ranks do different things on mesh %s: %.300s", a, group, what);
        return true;
    }
    if (sherd__openings_differ(world, lane, a, b, other, out))
        return true;
    if (x->count == y->count && sherd__openings_same(world, lane, a, b))
        claim = sherd__claim_unequal(world, lane, a, b);
    if (claim)
        snprintf(out->text, sizeof out->text,
                 "rank %d: SHERD_VERIFY: %s, which should be equal there, differs between ranks %d "
                 "and %d",
                 a, claim->text, a, b);
    return claim != NULL;
}

static bool show_the_same(const sherd_world *world, int lane, int a, int b)
{
    return are_alike(sherd__work_of(world, a, lane), sherd__work_of(world, b, lane)) &&
           sherd__openings_same(world, lane, a, b) && sherd__claims_same(world, lane, a, b);
}

/* Whether it is enough to compare a third rank with either. */
static bool are_as_one(const sherd_world *world, int lane, int a, int b)
{
    return show_the_same(world, lane, a, b) && sherd__openings_past_alike(world, lane, a, b);
}

/*
 * Whether any two members of a group differ. Comparing all with the leader is not enough: it may
 * have stopped before the others differ, or have released what they still have. Of members that
 * are as one, only one is compared.
 */
static bool any_differ(const sherd_world *world, int lane, int leader, bool other,
                       sherd__finding *out)
{
    int16_t first[SHERD_MAX_RANKS]; /* of those that show the same, one each */
    int kinds = 0, k;

    for (int q = leader; q < world->ranks; q++) {
        if (sherd__leader_of(world, q, lane) != leader)
            continue;
        for (k = 0; k < kinds && !are_as_one(world, lane, first[k], q); k++)
            if (differ_in(world, lane, first[k], q, other, out))
                return true;
        if (k == kinds)
            first[kinds++] = (int16_t)q;
    }
    return false;
}

bool sherd__ledgers_differ(const sherd_world *world, bool other, sherd__finding *out)
{
    for (int lane = 0;
         (lane = sherd__lane_set_next(&world->touched, lane + 1, world->lanes)) >= 0;) {
        sherd__ranks seen = {0}; /* leaders whose groups have been looked through */
        for (int q = 1; q < world->ranks; q++) {
            int leader = sherd__leader_of(world, q, lane);
            if (leader < 0 || sherd__ranks_has(&seen, leader) ||
                show_the_same(world, lane, leader, q))
                continue;
            sherd__ranks_add(&seen, leader);
            if (any_differ(world, lane, leader, other, out))
                return true;
        }
    }
    return false;
}

bool sherd__ledgers_alike(const sherd_world *world)
{
    for (int lane = 0; (lane = sherd__lane_set_next(&world->touched, lane + 1, world->lanes)) >= 0;)
        for (int q = 1; q < world->ranks; q++) {
            int leader = sherd__leader_of(world, q, lane);
            if (leader >= 0 && leader != q &&
                !(are_alike(sherd__work_of(world, leader, lane), sherd__work_of(world, q, lane)) &&
                  sherd__openings_same(world, lane, leader, q)))
                return false;
        }
    return true;
}

/* ---- after a check --------------------------------------------------------------------------- */

/* What is open for writing by a pointer may yet be written, and stays noted. */
void sherd__ledgers_agreed(sherd_world *world)
{
    const sherd__member *member;

    for (int lane = 0; (member = next_used(world, &lane));) {
        sherd__ledger *ledger = member->mesh->ledger;
        member->widest->own->work.alike = ledger->count;
        ledger->since.word[0] = 0;
        if (ledger->writes)
            sherd__mark_join(ledger->since.word, SHERD__MANY_MARKS, ledger->wrote.word);
    }
}

/* What was told of writes and flights holds no longer: such a mesh is told once more. */
void sherd__ledgers_passed(sherd_world *world)
{
    const sherd__member *member;
    sherd__lane_set again = {{0}};

    for (int lane = 0; (member = next_used(world, &lane));) {
        sherd__ledger *ledger = member->mesh->ledger;
        if (ledger->since.word[0] || member->widest->own->work.flights)
            sherd__lane_set_add(&again, lane);
        ledger->good = ledger->count;
        sherd__forget_writes(ledger);
    }
    sherd__openings_passed(world, &again);
    world->used = again;
}
