/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor memory as the rooms above see it: blocks of the rank's region (store.c), statistics, and
 * error texts.
 */
#include "doing.h"
#include "inside.h"

#include <stdio.h>
#include <string.h>

/* The peak becomes what is live now. */
static void be_peak(sherd_memory *memory)
{
    memory->peak_bytes = memory->live_bytes;
    memcpy(memory->peak_for, memory->live_for, sizeof memory->peak_for);
}

sherd__block *sherd__arena_take(sherd_world *world, int64_t bytes, bool *stopped)
{
    sherd_memory *memory = &world->store.memory;
    sherd__block *block = sherd__store_take(world, bytes, stopped);

    if (!block)
        return NULL;
    block->serves = SHERD_MEMORY_OTHER;
    memory->live_bytes += bytes;
    memory->live_for[SHERD_MEMORY_OTHER] += bytes;
    if (memory->live_bytes > memory->peak_bytes)
        be_peak(memory);
    return block;
}

void sherd__arena_give(sherd_world *world, sherd__block *block)
{
    world->store.memory.live_bytes -= block->bytes;
    world->store.memory.live_for[block->serves] -= block->bytes;
    sherd__store_give(world, block);
}

sherd__block *sherd__take_quietly(sherd_world *world, int64_t bytes)
{
    bool stopped;

    return sherd__store_take(world, bytes, &stopped);
}

void sherd__give_quietly(sherd_world *world, sherd__block *block)
{
    sherd__store_give(world, block);
}

/* ---- what the rooms above call --------------------------------------------------------------- */

/* What the regions of all ranks have room for; less than the limit where `ulimit -v` was small. */
static uint64_t regions_of(const sherd_world *world)
{
    return (uint64_t)world->slots * world->store.room;
}

static void say_full(sherd_world *world, int64_t bytes, bool distributed)
{
    char text[SHERD_ERROR_BYTES];
    long long live = world->store.memory.live_bytes, asked = (long long)bytes;
    sherd__limit limit = sherd__limit_of(world);

    if (world->store.refused || (uint64_t)asked > limit.bytes)
        snprintf(
            text, sizeof text,
            "out of memory: a tensor of %lld bytes; this rank's tensors have %lld, and all "
            "ranks together hold %lld, in pieces of %d KB, of the limit of %lld (%s): split it "
            "over more ranks, or keep less (sherd_scope_begin, sherd_module_checkpoint)",
            asked, live, (long long)sherd__look(&world->arena.control->held), SHERD__PIECE >> 10,
            (long long)limit.bytes, sherd__limit_name(limit.by));
    else
        snprintf(text, sizeof text,
                 "out of memory: a tensor of %lld bytes; this rank holds %lld of a region of "
                 "%lld%s",
                 asked, live, (long long)world->store.room,
                 limit.by == SHERD__BY_ADDRESSES || regions_of(world) < limit.bytes
                     ? ", for which there are addresses: raise `ulimit -v`"
                     : "");
    sherd__fail_doing(world, distributed, SHERD_ENOMEM, "%s", text);
}

sherd__block *sherd__block_take(sherd_world *world, int64_t bytes, bool distributed)
{
    bool stopped = false;
    sherd__block *block = NULL;

    if (sherd__is_forked(world)) {
        world->local.status = sherd__say_forked(world);
        return NULL;
    }
    if (!world->transport->take) {
        sherd__fail_locally(world, SHERD_ENOTSUP, "a paper world has no memory for tensors");
        return NULL;
    }
    block = world->transport->take(world, bytes, &stopped);
    if (block || stopped)
        return block;
    say_full(world, bytes, distributed);
    return NULL;
}

void sherd__block_give(sherd_world *world, sherd__block *block)
{
    if (block && !sherd__is_forked(world))
        world->transport->give(world, block);
}

void sherd__block_serves(sherd_world *world, sherd__block *block, sherd_memory_use use)
{
    if (!block || sherd__is_forked(world))
        return;
    world->store.memory.live_for[block->serves] -= block->bytes;
    world->store.memory.live_for[use] += block->bytes;
    block->serves = use;
}

void *sherd__block_data(const sherd__block *block)
{
    return block ? block->data : NULL;
}

int64_t sherd__block_bytes(const sherd__block *block)
{
    return block ? block->bytes : 0;
}

bool sherd__block_readable(sherd_world *world, sherd__block *block)
{
    return !block || (!sherd__is_forked(world) && world->transport->readable(world, block));
}

bool sherd__block_ready(sherd_world *world, sherd__block *block)
{
    return !block || sherd__is_forked(world) || world->transport->ready(world, block);
}

bool sherd__block_writable(sherd_world *world, sherd__block *block)
{
    return !block || (!sherd__is_forked(world) && world->transport->writable(world, block));
}

sherd_memory sherd_world_memory(const sherd_world *world)
{
    if (!world)
        return (sherd_memory){0};
    sherd_memory memory = world->store.memory;

    memory.held_bytes = (int64_t)world->store.held;
    memory.limit_bytes = (int64_t)sherd__limit_of(world).bytes;
    if (regions_of(world) < (uint64_t)memory.limit_bytes)
        memory.limit_bytes = (int64_t)regions_of(world);
    if (world->device) {
        sherd__device_memory there = sherd__device_memory_of(world->device);
        memory.device_live_bytes = there.live_bytes;
        memory.device_peak_bytes = there.peak_bytes;
        memory.device_held_bytes = there.reserved_bytes;
    }
    return memory;
}

void sherd_world_memory_reset(sherd_world *world)
{
    if (world)
        be_peak(&world->store.memory);
    if (world && world->device)
        sherd__device_memory_reset(world->device);
}
