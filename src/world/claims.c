/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Claims (SHERD_VERIFY): what each rank says to be equal on all ranks of a group, with hashes of
 * the elements, compared by whoever decides a check. Sorted by tensor, so comparing two ranks is
 * one walk over their lists.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>

/* ---- making them ----------------------------------------------------------------------------- */

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

static int ascending(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Claims of one tensor follow each other, the newest first. */
static int in_order(const void *x, const void *y)
{
    const sherd__claim *a = x, *b = y;
    int order = ascending(a->identity, b->identity);

    order = order ? order : ascending(b->made, a->made);
    return order ? order : ascending(a->content, b->content);
}

static void sort_claims(const sherd__group *group)
{
    if (group->claims > 1)
        qsort(group->claim, (size_t)group->claims, sizeof *group->claim, in_order);
}

/* Show what is claimed to who decides. The block of the check before is free again: all have left
 * that one. */
static bool tell_claims(sherd_world *world, sherd__group *group)
{
    size_t bytes = (size_t)group->claims * sizeof *group->claim;

    if (bytes)
        sherd__lane_set_add(&world->used, group->lane);
    if (!sherd__is_near(world, 0))
        return sherd__remote_claims(world, group);
    if (!bytes && !group->claimed)
        return true;
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

    if (!sherd__verifies(world))
        return true;
    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
            world->mesh[i].group[g].claims = 0;
    if (world->watcher.before_check && !sherd__alarmed(world))
        world->watcher.before_check(world);
    for (int i = 0; i < world->meshes; i++)
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++) {
            sort_claims(&world->mesh[i].group[g]);
            good = tell_claims(world, &world->mesh[i].group[g]) && good;
        }
    return good;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static int64_t claims_of(const sherd_world *world, int rank, int lane, const sherd__claim **claim)
{
    const sherd__lane *theirs = sherd__lane_of(world, rank, lane);

    *claim = sherd__is_near(world, rank)
                 ? (const sherd__claim *)(const void *)(world->arena.base + theirs->claims)
                 : theirs->claim;
    return theirs->claimed;
}

/* Claims of one tensor on one rank, from the i-th on. */
typedef struct alike {
    const sherd__claim *claim;
    int64_t count; /* of those as new as the first; older ones are from before a write */
    int64_t next;  /* where those of another tensor begin */
} alike;

static alike alike_at(const sherd__claim *claim, int64_t all, int64_t i)
{
    alike c = {.claim = claim + i, .next = i};

    for (; c.next < all && claim[c.next].identity == c.claim->identity; c.next++)
        c.count += claim[c.next].made == c.claim->made;
    return c;
}

/* The first of `some` whose content none of `others` has; NULL: there is none. */
static const sherd__claim *missing(const alike *some, const alike *others)
{
    for (int64_t i = 0, k; i < some->count; i++) {
        for (k = 0; k < others->count && others->claim[k].content != some->claim[i].content;)
            k++;
        if (k == others->count)
            return &some->claim[i];
    }
    return NULL;
}

/*
 * A claim of two ranks on one tensor that differs. A rank may hold copies that the other does not
 * need, with contents from before a write; so the contents of the rank with fewer claims must be
 * among the other's.
 */
static const sherd__claim *unequal(const alike *p, const alike *q)
{
    const sherd__claim *claim = p->count <= q->count ? missing(p, q) : NULL;

    return claim || q->count > p->count ? claim : missing(q, p);
}

const sherd__claim *sherd__claim_unequal(const sherd_world *world, int lane, int a, int b)
{
    const sherd__claim *p, *q, *found = NULL;
    int64_t x = claims_of(world, a, lane, &p), y = claims_of(world, b, lane, &q);

    for (int64_t i = 0, j = 0; i < x && j < y;) {
        alike mine = alike_at(p, x, i), theirs = alike_at(q, y, j);
        bool both = p[i].identity == q[j].identity, first = p[i].identity < q[j].identity;
        const sherd__claim *claim = both ? unequal(&mine, &theirs) : NULL;
        if (claim && (!found || claim->made < found->made))
            found = claim;
        i = both || first ? mine.next : i;
        j = both || !first ? theirs.next : j;
    }
    return found;
}

bool sherd__claims_same(const sherd_world *world, int lane, int a, int b)
{
    const sherd__claim *p, *q;
    int64_t claims = claims_of(world, a, lane, &p);

    if (claims != claims_of(world, b, lane, &q))
        return false;
    for (int64_t i = 0; i < claims; i++)
        if (p[i].made != q[i].made || p[i].identity != q[i].identity ||
            p[i].content != q[i].content)
            return false;
    return true;
}
