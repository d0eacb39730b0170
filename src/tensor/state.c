/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of this room in a world, set up when it is first asked for, in memory that the world
 * has reserved: so that cannot fail. What the room does at checks, and when the world ends, is in a
 * table of functions (sherd__tensors_own_hooks), which checks.c fills in: this file calls none of
 * the others.
 */
#include "tensor/state.h"

sherd__tensors *sherd__tensors_open(sherd_world *world)
{
    sherd__tensors *s = sherd__world_reserve(world);

    s->world = world;
    s->failed.world = world;
    s->failed.refs = 1;
    s->failed.scope = -1;
    sherd__world_set_state(world, SHERD__ROOM_TENSOR, s, sherd__tensors_own_hooks.end);
    sherd__world_watch(world, &sherd__tensors_own_hooks.watcher);
    return s;
}

uint64_t sherd__walk_number(sherd_world *world)
{
    return ++sherd__tensors_of(world)->walks;
}

void *sherd__spare(sherd_world *world)
{
    return (char *)sherd__world_reserve(world) + SHERD__TENSORS_BYTES;
}

bool sherd__calls_back(sherd_world *world)
{
    return sherd__tensors_of(world)->called_back > 0;
}

bool sherd__is_deep(sherd_world *world)
{
    return sherd__tensors_of(world)->called_back >= SHERD__DEEPEST;
}
