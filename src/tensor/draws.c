/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which random numbers are drawn. A part of a program may be recomputed and must then draw the same
 * numbers. So while it runs its keys are recorded, and when it runs again they are taken from the
 * record: the generators themselves are neither saved nor changed then. And where generators of
 * modules stood at the last good check, to which a failed check puts them back (stands.h).
 */
#include "tensor/state.h"

#include "tensor/stands.h"
#include "world/doing.h"

static void append(sherd__draws *d, sherd__key key)
{
    sherd__key *list =
        sherd__reserve(sherd__world_heap(d->world), d->key, d->count, &d->room, 8, sizeof *list);

    if (!list) {
        sherd__fail_doing(d->world, true, SHERD_ENOMEM,
                          "out of memory for the random numbers of a module");
        return;
    }
    d->key = list;
    d->key[d->count++] = key;
}

sherd__key sherd__next_key(sherd_world *world, sherd_generator *generator)
{
    sherd__draws *innermost = sherd__tensors_of(world)->draws, *old = innermost;
    sherd__key key = {{0, 0}, {0, 0}};

    while (old && !old->replays)
        old = old->outer;
    if (!old)
        key = sherd__philox_key(sherd_world_seed(world), generator->name, generator->calls++);
    else if (old->at++ < old->count)
        key = old->key[old->at - 1];
    for (sherd__draws *d = innermost; d != old; d = d->outer)
        append(d, key);
    return key;
}

void sherd__draws_enter(sherd__draws *draws, bool replays)
{
    sherd__tensors *s = sherd__tensors_of(draws->world);

    draws->replays = replays;
    draws->at = 0;
    draws->outer = s->draws;
    s->draws = draws;
}

bool sherd__draws_leave(sherd__draws *draws)
{
    sherd__tensors_of(draws->world)->draws = draws->outer;
    return !draws->replays || draws->at == draws->count;
}

void sherd__draws_clear(sherd__draws *draws)
{
    sherd__free(sherd__world_heap(draws->world), draws->key);
    draws->key = NULL;
    draws->count = draws->room = 0;
}

/* ---- where generators stand ------------------------------------------------------------------ */

void sherd__standing_keep(sherd_world *world, sherd__standing *stand, sherd_generator *generator)
{
    sherd__tensors *s = sherd__tensors_of(world);

    if (stand->link)
        return;
    stand->generator = generator;
    stand->since = *generator;
    stand->next = s->stands;
    stand->link = &s->stands;
    if (s->stands)
        s->stands->link = &stand->next;
    s->stands = stand;
}

void sherd__standing_renew(sherd__standing *stand)
{
    if (stand->link)
        stand->since = *stand->generator;
}

void sherd__standing_drop(sherd__standing *stand)
{
    if (!stand->link)
        return;
    *stand->link = stand->next;
    if (stand->next)
        stand->next->link = stand->link;
    stand->link = NULL;
}

/* A generator that the program has replaced by one of another name since is not put back. */
void sherd__standings_checked(sherd_world *world, bool good)
{
    for (sherd__standing *stand = sherd__tensors_of(world)->stands; stand; stand = stand->next) {
        if (good)
            stand->since = *stand->generator;
        else if (stand->generator->name == stand->since.name)
            stand->generator->calls = stand->since.calls;
    }
}
