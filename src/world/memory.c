/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor memory of one rank: blocks in its region, recycled for ever, so that a page is touched first once.
 * Sizes go in steps of an eighth of a power of two. A block that is given back keeps its tickets; it is
 * preferred when they are settled, and waited for only when the region is full. Costs some ten
 * nanoseconds; a block's own data lies just before it.
 */
#include "inside.h"

#include <string.h>

enum {
    GRAIN = 64,
    GRAIN_LOG2 = 6,
    HEADER = (sizeof(sherd__block) + GRAIN - 1) / GRAIN * GRAIN,
    TRIES = 8, /* blocks of a list that are looked at before new memory is used */
    /* Large blocks begin on a page: rows of a power of two then lie on as few pages as they can, and copies of parts of
     * them are a tenth faster. */
    PAGE = 4096,
    LARGE = 1 << 20
};

void sherd__store_init(sherd__store *store, unsigned char *base, size_t room)
{
    memset(store, 0, sizeof *store);
    store->base = base;
    store->room = room;
}

/* The class of a size, and the size of the class's blocks: 64, 128, .. 512, 576, .. 1024, 1152, .. */
static int class_of(size_t bytes, size_t *room)
{
    size_t grains = (bytes + GRAIN - 1) / GRAIN;
    int log2 = 3;

    if (grains <= 8) {
        grains = grains ? grains : 1;
        *room = grains * GRAIN;
        return (int)grains - 1;
    }
    while (grains >> (log2 + 1))
        log2++;
    if (grains == (size_t)1 << log2)
        log2--;
    /* 2^log2 < grains <= 2^(log2+1), in eighths of 2^log2 */
    size_t step = (size_t)1 << (log2 - 3);
    size_t eighths = (grains + step - 1) / step;
    *room = eighths * step * GRAIN;
    return 8 * (log2 - 2) + (int)eighths - 9;
}

static void unlink_block(sherd__store *store, sherd__block *block)
{
    *(block->prev ? &block->prev->next : &store->head[block->class]) = block->next;
    *(block->next ? &block->next->prev : &store->tail[block->class]) = block->prev;
    block->prev = block->next = NULL;
}

/* A settled block of a class: the most recently used first, and the oldest. */
static sherd__block *find_settled(sherd_world *world, int class)
{
    sherd__store *store = &world->store;
    sherd__block *block = store->head[class];

    for (int i = 0; block && i < TRIES; i++, block = block->next)
        if (sherd__settled(world, block))
            return block;
    block = store->tail[class];
    return block && sherd__settled(world, block) ? block : NULL;
}

static sherd__block *cut_new(sherd__store *store, int class, size_t room)
{
    size_t at = store->used + HEADER; /* where the data begins */

    if (room >= LARGE)
        at = (at + PAGE - 1) / PAGE * PAGE;
    if (at > store->room || store->room - at < room)
        return NULL;
    sherd__block *block = (sherd__block *)(void *)(store->base + at - HEADER);
    store->used = at + room;
    memset(block, 0, sizeof *block);
    block->data = store->base + at;
    block->room = room;
    block->class = class;
    return block;
}

/* The region is full: any larger block, else wait for one. */
static sherd__block *find_any(sherd_world *world, int class, bool *stopped)
{
    for (int c = class; c < SHERD__CLASSES; c++) {
        sherd__block *block = find_settled(world, c);
        if (block)
            return block;
    }
    for (int c = class; c < SHERD__CLASSES; c++) {
        sherd__block *block = world->store.tail[c];
        if (!block)
            continue;
        if (sherd__settle(world, block))
            return block;
        *stopped = true;
        return NULL;
    }
    return NULL;
}

static sherd__block *take(sherd_world *world, int64_t bytes, bool *stopped)
{
    size_t room;

    *stopped = false;
    if (!sherd__may_allocate(&world->heap) || bytes < 0 || (size_t)bytes > world->store.room)
        return NULL;
    int class = class_of((size_t)bytes, &room);
    sherd__block *block = find_settled(world, class);
    if (!block && (block = cut_new(&world->store, class, room)))
        return block;
    if (!block && !(block = find_any(world, class, stopped)))
        return NULL;
    unlink_block(&world->store, block);
    block->spoiled = false;
    return block;
}

sherd__block *sherd__arena_take(sherd_world *world, int64_t bytes, bool *stopped)
{
    sherd_memory *memory = &world->store.memory;
    sherd__block *block = take(world, bytes, stopped);

    if (!block)
        return NULL;
    block->bytes = bytes;
    memory->live_bytes += bytes;
    if (memory->live_bytes > memory->peak_bytes)
        memory->peak_bytes = memory->live_bytes;
    return block;
}

void sherd__arena_give(sherd_world *world, sherd__block *block)
{
    world->store.memory.live_bytes -= block->bytes;
    sherd__give_quietly(world, block);
}

sherd__block *sherd__take_quietly(sherd_world *world, int64_t bytes)
{
    bool stopped;
    sherd__block *block = take(world, bytes, &stopped);

    if (block)
        block->bytes = bytes;
    return block;
}

void sherd__give_quietly(sherd_world *world, sherd__block *block)
{
    sherd__store *store = &world->store;

    block->next = store->head[block->class];
    *(block->next ? &block->next->prev : &store->tail[block->class]) = block;
    store->head[block->class] = block;
}

/* ---- what the rooms above call ---------------------------------------------------------------- */

sherd__block *sherd__block_take(sherd_world *world, int64_t bytes, bool distributed)
{
    bool stopped = false;
    sherd__block *block = NULL;

    if (!world->transport->take) {
        sherd__fail_locally(world, SHERD_ENOTSUP, "a paper world has no memory for tensors");
        return NULL;
    }
    block = world->transport->take(world, bytes, &stopped);
    if (block || stopped)
        return block;
    const char *text = "out of memory: a tensor of %lld bytes; this rank holds %lld of a region of "
                       "%lld";
    long long live = world->store.memory.live_bytes, room = (long long)world->store.room;
    if (distributed)
        sherd__raise(world, SHERD_ENOMEM, text, (long long)bytes, live, room);
    else
        sherd__fail_locally(world, SHERD_ENOMEM, text, (long long)bytes, live, room);
    return NULL;
}

void sherd__block_give(sherd_world *world, sherd__block *block)
{
    if (block)
        world->transport->give(world, block);
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
    return !block || world->transport->readable(world, block);
}

bool sherd__block_writable(sherd_world *world, sherd__block *block)
{
    return !block || world->transport->writable(world, block);
}

sherd_memory sherd_world_memory(const sherd_world *world)
{
    return world ? world->store.memory : (sherd_memory){0};
}

void sherd_world_memory_reset(sherd_world *world)
{
    if (world)
        world->store.memory.peak_bytes = world->store.memory.live_bytes;
}
