/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a waiting rank says on its post, before it sleeps: all that it lacks for its wait, and all
 * that its open calls lack. Others read it to find waits that can never end (stuck.c, ring.c), also
 * while this rank is at a meeting, where it may raise nothing itself. There is room for all that
 * can be open, so nothing is ever left out. Written in slow rounds only; unchanged needs are
 * compared, not written again.
 */
#include "inside.h"

/* Where gathering is: the next place on the post. */
struct sherd__needs {
    uint32_t count;
    bool written; /* something has changed: the version is even until all is there */
};

static void write_need(sherd_world *world, sherd__needs *needs, uint64_t key, uint64_t number,
                       const sherd__ranks *ranks)
{
    sherd__need *need = sherd__arena_needs(&world->arena, world->rank) + needs->count++;

    sherd__assert(world->rank, needs->count <= SHERD__NEEDS);
    if (!needs->written && sherd__peek(&need->key) == key && sherd__peek(&need->number) == number) {
        sherd__ranks before;
        sherd__ranks_load(&before, &need->ranks, world->ranks);
        if (sherd__ranks_equal(&before, ranks))
            return;
    }
    sherd__post_be_silent(world);
    needs->written = true;
    atomic_store(&need->key, key);
    atomic_store(&need->number, number);
    sherd__ranks_store(&need->ranks, ranks, world->ranks);
}

void sherd__need_add(sherd_world *world, sherd__needs *needs, int lane, sherd__lack lack,
                     uint64_t number, const sherd__ranks *ranks)
{
    sherd__ranks missing = {0};

    for (int q = -1; (q = sherd__ranks_next(ranks, q + 1)) >= 0;) {
        const sherd__lane *theirs = sherd__lane_of(world, q, lane);
        bool there = lack == SHERD__LEFT ? sherd__look(&theirs->left) > number
                                         : sherd__look(&theirs->made) >= number;
        if (!there)
            sherd__ranks_add(&missing, q);
    }
    if (!sherd__ranks_none(&missing))
        write_need(world, needs, (uint64_t)lane << 2 | (uint64_t)lack, number, &missing);
}

void sherd__need_call(sherd_world *world, sherd__needs *needs, const sherd__call_state *call)
{
    if (!call->finished)
        sherd__need_add(world, needs, call->group->lane, SHERD__RECORD, call->number,
                        &call->awaited);
    sherd__need_add(world, needs, call->group->lane, SHERD__LEFT, call->number, &call->sharers);
}

/* Awaited ranks that have made another call in the place of this one, or failed. */
static void find_misfits(const sherd_world *world, const sherd__call_state *call, sherd__ranks *out)
{
    sherd__ranks_clear(out);
    for (int q = -1; (q = sherd__ranks_next(&call->awaited, q + 1)) >= 0;)
        if (sherd__record_misfits(world, call, q))
            sherd__ranks_add(out, q);
}

static void add_open_calls(sherd_world *world, sherd__needs *needs)
{
    sherd__ranks misfits;

    for (const sherd__call_state *call = world->open; call; call = call->next) {
        uint64_t lane = (uint64_t)call->group->lane << 2;
        if (call->finished)
            continue;
        sherd__need_add(world, needs, call->group->lane, SHERD__RECORD, call->number,
                        &call->awaited);
        find_misfits(world, call, &misfits);
        if (!sherd__ranks_none(&misfits))
            write_need(world, needs, lane | SHERD__MISFIT, call->number, &misfits);
    }
}

static void ring_others(sherd_world *world)
{
    sherd__ranks others;

    sherd__ranks_copy(&others, &world->whole.members);
    sherd__ranks_drop(&others, world->rank);
    sherd__ring(&world->arena, &others);
}

void sherd__post_announce(sherd_world *world, const sherd__wait *wait)
{
    sherd__post *post = world->post;
    sherd__needs needs = {.written = !world->announced};

    if (!world->announced)
        sherd__post_since(world);
    if (wait->needs)
        wait->needs(world, wait->what, &needs);
    uint32_t waits = needs.count;
    add_open_calls(world, &needs);
    if (!needs.written && sherd__peek_count(&post->waits) == waits &&
        sherd__peek_count(&post->needs) == needs.count)
        return;
    sherd__post_be_silent(world);
    atomic_store(&post->waits, waits);
    atomic_store(&post->needs, needs.count);
    atomic_fetch_add(&post->version, 1);
    world->announced = true;
    /* At a meeting a rank raises nothing: those that wait for it must look, and may be asleep. */
    if (world->arrived && needs.count)
        ring_others(world);
}

void sherd__post_be_silent(sherd_world *world)
{
    if (world->announced)
        atomic_fetch_add(&world->post->version, 1);
    world->announced = false;
    if (world->remote)
        sherd__remote_wakes(world);
}

/* ---- reading --------------------------------------------------------------------------------- */

uint64_t sherd__post_counts(const sherd_world *world, int rank, uint32_t *waits, uint32_t *needs)
{
    const sherd__post *post = &world->arena.control->post[rank];
    uint64_t version = sherd__look(&post->version);

    *needs = atomic_load(&post->needs);
    *waits = atomic_load(&post->waits);
    /* Silent, or being written anew: the version will tell. */
    if (version % 2 == 0 || *needs > SHERD__NEEDS || *waits > *needs)
        *waits = *needs = 0;
    return version;
}

sherd__said sherd__post_read(const sherd_world *world, int rank, uint32_t i)
{
    const sherd__need *need = sherd__arena_needs(&world->arena, rank) + i;
    uint64_t key = sherd__look(&need->key);
    sherd__said said = {.lane = (int)(key >> 2) % SHERD__LANES, .lack = (sherd__lack)(key & 3)};

    said.number = sherd__look(&need->number);
    sherd__ranks_load(&said.ranks, &need->ranks, world->ranks);
    return said;
}
