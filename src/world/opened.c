/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Openings: which tensors each rank has opened for writing by a pointer, of those that several
 * ranks hold alike. That is no deed, and nothing travels; but a rank that writes its replica alone
 * goes on with other values than the rest. So each shows at meetings what it has opened since the
 * last good check, in the lane of the ranks that hold the same, and whoever decides compares. It
 * also goes into the history of the calls that only such ranks make together, so that the next one
 * fails. What no two ranks hold (a shard, an addend) is each rank's own business.
 *
 * A tensor counts once between two deeds, however often it is opened. For that, and so that the
 * order does not matter, a set of bits is kept; and the first ones by name. An opening costs some
 * ten nanoseconds for each set of axes that are compared.
 */
#include "opened.h"

#include "ledgers.h"

#include <stdio.h>
#include <string.h>

/* ---- opening --------------------------------------------------------------------------------- */

/* Add a key. Returns a number that depends only on the bits that were not there; 0: all were. */
static uint64_t put(sherd__opened *opened, uint64_t key)
{
    uint64_t news = 0;

    if (opened->count == 0)
        memset(opened->bits, 0, sizeof opened->bits);
    for (int i = 0; i < SHERD__MARK_BITS; i++) {
        uint64_t bit = sherd__mark_bit(key, i, SHERD__OPENED_WORDS);
        if (opened->bits[bit / 64] >> bit % 64 & 1)
            continue;
        opened->bits[bit / 64] |= UINT64_C(1) << bit % 64;
        news += sherd__hash_word(5, bit) | 1;
    }
    opened->count += news != 0;
    return news;
}

static bool has(const sherd__opened *opened, uint64_t key)
{
    return opened->count > 0 && sherd__mark_has_bits(opened->bits, SHERD__OPENED_WORDS, key);
}

/*
 * Put an opening into the history of all groups of ranks that differ only in some of the axes: the
 * next call fails if one of them has not opened the same. Returns how many calls this rank has made
 * in these groups.
 */
static uint64_t tell_groups(sherd_world *world, const sherd__member *member, unsigned axes,
                            uint64_t news)
{
    uint64_t calls = 0;

    for (unsigned some = axes; some; some = (some - 1) & axes) {
        sherd__group *group = &member->group[member->index[some]];
        sherd__group_refresh(world, group);
        calls += group->sequence;
        group->history += news;
    }
    return calls;
}

char *sherd__opens(sherd_world *world, const sherd_mesh *mesh, unsigned axes, uint64_t identity,
                   uint64_t storage)
{
    const sherd__ledger *ledger = mesh->ledger;
    sherd__group *group;

    if (identity == 0 || !ledger || ledger->paused || world->dry ||
        !sherd__group_find(world, mesh, axes, &group) || !group)
        return NULL;
    const sherd__member *member = sherd__member_at(world, group->lane);
    uint64_t key = sherd__hash_word(identity, ledger->count), at = group->opened.count;
    uint64_t news = member->senders ? 0 : put(&group->opened, key);
    if (news == 0)
        return NULL;
    group->opens = group->opens_far = true;
    sherd__lane_set_add(&world->used, group->lane);
    uint64_t calls = tell_groups(world, member, group->axes, news);
    if (at >= SHERD__OPENED)
        return NULL;
    group->opened.first[at] = (sherd__opening){.key = key,
                                               .identity = identity,
                                               .storage = storage,
                                               .deeds = ledger->count,
                                               .calls = calls};
    return group->opened.first[at].text;
}

/* ---- telling --------------------------------------------------------------------------------- */

static sherd__group *group_in(const sherd_world *world, int lane)
{
    const sherd__member *member = sherd__member_at(world, lane);

    return member && member->group ? &member->group[lane - member->first] : NULL;
}

static size_t listed(const sherd__opened *opened)
{
    return opened->count < SHERD__OPENED ? (size_t)opened->count : SHERD__OPENED;
}

void sherd__openings_tell(sherd_world *world)
{
    for (int lane = 0; (lane = sherd__lane_set_next(&world->used, lane + 1, world->lanes)) >= 0;) {
        sherd__group *group = group_in(world, lane);
        if (!group || !group->opens)
            continue;
        sherd__opened *told = &group->own->opened;
        told->count = group->opened.count;
        memcpy(told->bits, group->opened.bits, sizeof told->bits);
        memcpy(told->first, group->opened.first, listed(told) * sizeof *told->first);
        group->opens = false;
    }
}

static bool forget(sherd__group *group)
{
    if (group->opened.count == 0)
        return false;
    group->opened.count = 0;
    group->opens = group->opens_far = true;
    return true;
}

void sherd__openings_passed(sherd_world *world, sherd__lane_set *again)
{
    for (int lane = 0; (lane = sherd__lane_set_next(&world->used, lane + 1, world->lanes)) >= 0;) {
        sherd__group *group = group_in(world, lane);
        if (group && forget(group))
            sherd__lane_set_add(again, lane);
    }
}

/*
 * After a failed check. If no calls were made, the new epoch has the same numbers as the old one,
 * so histories must be reset here.
 */
void sherd__openings_failed(sherd_world *world)
{
    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++) {
            sherd__group *group = &world->mesh[i].group[g];
            forget(group);
            if (group->base == world->base && group->sequence == 0)
                group->history = 0;
        }
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const sherd__opened *opened_by(const sherd_world *world, int rank, int lane)
{
    return &sherd__lane_of(world, rank, lane)->opened;
}

static bool are_same(const sherd__opened *x, const sherd__opened *y)
{
    if (x->count == 0 || y->count == 0)
        return x->count == y->count;
    return memcmp(x->bits, y->bits, sizeof x->bits) == 0;
}

bool sherd__openings_same(const sherd_world *world, int lane, int a, int b)
{
    return are_same(opened_by(world, a, lane), opened_by(world, b, lane));
}

/* How many calls a rank has made in groups of some of the lane's axes. */
static uint64_t calls_of(const sherd_world *world, int rank, int lane)
{
    const sherd__member *member = sherd__member_at(world, lane);
    unsigned axes = 0;
    uint64_t calls = 0;

    while (member->index[axes] != lane - member->first)
        axes++;
    for (unsigned some = axes; some; some = (some - 1) & axes) {
        const sherd__lane *theirs =
            sherd__lane_of(world, rank, member->first + member->index[some]);
        calls += sherd__calls_in(sherd__look(&theirs->made), world->base);
    }
    return calls;
}

/* What a rank has told of its deeds on the lane's mesh: in the lane of all axes, the last one. */
static const sherd__work *work_beside(const sherd_world *world, int rank, int lane)
{
    const sherd__member *member = sherd__member_at(world, lane);

    return sherd__work_of(world, rank, member->first + member->lanes - 1);
}

/* Whether a rank has gone on without an opening that another one has made. */
static bool is_past(const sherd_world *world, int rank, int lane, const sherd__opening *opening)
{
    return work_beside(world, rank, lane)->count > opening->deeds ||
           calls_of(world, rank, lane) > opening->calls;
}

bool sherd__openings_past_alike(const sherd_world *world, int lane, int a, int b)
{
    return calls_of(world, a, lane) == calls_of(world, b, lane);
}

/*
 * The first opening of one rank that another lacks; `past`: and can no longer make. NULL: there is
 * none that is known by name.
 */
static const sherd__opening *missing(const sherd_world *world, int lane, int has_it, int lacks_it,
                                     bool past)
{
    const sherd__opened *x = opened_by(world, has_it, lane), *y = opened_by(world, lacks_it, lane);
    size_t i = 0, count = listed(x);

    while (i < count &&
           (has(y, x->first[i].key) || (past && !is_past(world, lacks_it, lane, &x->first[i]))))
        i++;
    return i < count ? &x->first[i] : NULL;
}

static void describe(const sherd_world *world, int lane, int has_it, int lacks_it,
                     const sherd__opening *opening, sherd__finding *out)
{
    uint64_t good = sherd__larger(work_beside(world, has_it, lane)->good,
                                  work_beside(world, lacks_it, lane)->good);

    snprintf(out->text, sizeof out->text,
             "rank %d: sherd_tensor_write: %s was opened before operation %llu since the last "
             "check on rank %d, and not on rank %d, which holds the same elements",
             has_it, opening->text, (unsigned long long)(opening->deeds - good + 1), has_it,
             lacks_it);
}

bool sherd__openings_differ(const sherd_world *world, int lane, int a, int b, bool other,
                            sherd__finding *out)
{
    if (sherd__openings_same(world, lane, a, b))
        return false;
    const sherd__opening *p = missing(world, lane, a, b, other);
    const sherd__opening *q = missing(world, lane, b, a, other);
    if (p && (!q || p->deeds <= q->deeds))
        describe(world, lane, a, b, p, out);
    else if (q)
        describe(world, lane, b, a, q, out);
    else if (!other)
        snprintf(out->text, sizeof out->text,
                 "rank %d: sherd_tensor_write: ranks %d and %d have opened different tensors of "
                 "those that both hold, after the first %d since the last check",
                 a, a, b, SHERD__OPENED);
    return p || q || !other;
}

/* ---- after a failed check -------------------------------------------------------------------- */

/* What all of a group have opened; returns whether any has opened something. */
static bool common_bits(const sherd_world *world, int lane, int leader, uint64_t *bits)
{
    bool any = false, all = true;

    memset(bits, 0xFF, SHERD__OPENED_WORDS * sizeof *bits);
    for (int q = leader; q < world->ranks; q++) {
        const sherd__opened *opened = opened_by(world, q, lane);
        if (sherd__leader_of(world, q, lane) != leader)
            continue;
        any |= opened->count > 0;
        all &= opened->count > 0;
        for (int i = 0; i < SHERD__OPENED_WORDS && all; i++)
            bits[i] &= opened->bits[i];
    }
    if (!all)
        memset(bits, 0, SHERD__OPENED_WORDS * sizeof *bits);
    return any;
}

/*
 * Lose what a rank has opened and not all of its group have, and all deeds after that. If it is not
 * known by name, lose all that the rank has written since the last good check, and all deeds since.
 */
static void lose(const sherd_world *world, int rank, int lane, const sherd__opened *common,
                 sherd__remains *out)
{
    const sherd__opened *opened = opened_by(world, rank, lane);
    const sherd__work *work = work_beside(world, rank, lane);
    uint64_t *lost = out->lost_since.word;

    if (are_same(opened, common))
        return;
    for (size_t i = 0; i < listed(opened); i++)
        if (!has(common, opened->first[i].key)) {
            sherd__mark_put(lost, SHERD__MANY_MARKS, opened->first[i].identity);
            sherd__mark_put(lost, SHERD__MANY_MARKS, opened->first[i].storage);
            out->kept = sherd__smaller(out->kept, opened->first[i].deeds);
        }
    if (opened->count > SHERD__OPENED) {
        sherd__mark_join(lost, SHERD__MANY_MARKS, work->since.word);
        out->kept = sherd__smaller(out->kept, work->good);
    }
}

static void lose_in_lane(const sherd_world *world, int lane, sherd__remains *out)
{
    sherd__opened common;
    sherd__ranks seen = {0}; /* leaders whose groups have been looked through */

    for (int q = 0; q < world->ranks; q++) {
        int leader = sherd__leader_of(world, q, lane);
        if (leader < 0 || sherd__ranks_has(&seen, leader))
            continue;
        sherd__ranks_add(&seen, leader);
        common.count = common_bits(world, lane, leader, common.bits);
        for (int r = leader; r < world->ranks && common.count; r++)
            if (sherd__leader_of(world, r, lane) == leader)
                lose(world, r, lane, &common, out);
    }
}

void sherd__openings_lose(const sherd_world *world, int lane, sherd__remains *out)
{
    const sherd__member *member = sherd__member_at(world, lane);
    sherd__lane_set used = {{0}}; /* by any rank */

    for (int q = 0; q < world->ranks; q++)
        for (int w = 0; w < SHERD__LANES / 64; w++)
            used.word[w] |= world->arena.control->post[q].used.word[w];
    for (int i = member->first; (i = sherd__lane_set_next(&used, i, lane + 1)) >= 0; i++)
        lose_in_lane(world, i, out);
}
