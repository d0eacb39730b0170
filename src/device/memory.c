/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The GPU's memory. The driver's own functions wait for the GPU and take many microseconds, so it
 * gives chunks, from which blocks are cut: the free block that fits best among a few of the right
 * size, or one of the next size that there is; what is left of it stays free. A block that is given
 * back is joined with its free neighbours. Each takes some tens of nanoseconds, however many blocks
 * there are. Chunks stay, since a program that runs on asks for the same sizes again; when the
 * driver has no memory left, those without a used block go back to it.
 */
#include "inside.h"

#include "base/num.h"

/* Sizes, in units of 256 bytes. Small blocks, up to 1 MiB, have chunks of their own. */
enum { UNIT = 256, PART_BITS = 4, MOST_LOOKS = 16 };
static const int64_t mebibyte = 1 << 20;
enum { FIRST_CHUNK = 4, LARGEST_CHUNK = 256, WHOLE = 2 /* MiB */ };

/* ---- the lists of free blocks ---------------------------------------------------------------- */

typedef struct place {
    int power, part;
} place;

static int last_bit(uint64_t x)
{
    return 63 - __builtin_clzll(x);
}

/* The list of blocks of so many bytes. Those of less than 16 units have lists of one size. */
static place place_of(int64_t bytes)
{
    uint64_t units = (uint64_t)bytes / UNIT;

    if (units < SHERD__DEVICE_PARTS)
        return (place){0, (int)units};
    int power = last_bit(units);
    return (place){power - PART_BITS + 1,
                   (int)(units >> (power - PART_BITS)) - SHERD__DEVICE_PARTS};
}

static void put_in(sherd__device_pool *pool, sherd__device_block *block)
{
    place at = place_of(block->room);
    sherd__device_block **list = &pool->free[at.power][at.part];

    block->used = false;
    block->less = NULL;
    block->more = *list;
    if (*list)
        (*list)->less = block;
    *list = block;
    pool->powers |= (uint64_t)1 << at.power;
    pool->parts[at.power] = (uint16_t)(pool->parts[at.power] | 1u << at.part);
}

static void take_out(sherd__device_pool *pool, sherd__device_block *block)
{
    place at = place_of(block->room);
    sherd__device_block **list = &pool->free[at.power][at.part];

    if (block->more)
        block->more->less = block->less;
    if (block->less)
        block->less->more = block->more;
    else
        *list = block->more;
    if (!*list) {
        pool->parts[at.power] = (uint16_t)(pool->parts[at.power] & ~(1u << at.part));
        if (!pool->parts[at.power])
            pool->powers &= ~((uint64_t)1 << at.power);
    }
    block->less = block->more = NULL;
}

/* The least of the first blocks of a list that have the room. */
static sherd__device_block *best_of(sherd__device_block *list, int64_t room)
{
    sherd__device_block *best = NULL;

    for (int i = 0; i < MOST_LOOKS && list; i++, list = list->more)
        if (list->room >= room && (!best || list->room < best->room))
            best = list;
    return best;
}

static sherd__device_block *find_free(const sherd__device_pool *pool, int64_t room)
{
    place at = place_of(room);
    sherd__device_block *best = best_of(pool->free[at.power][at.part], room);

    if (best)
        return best;
    unsigned parts = pool->parts[at.power] & ~(unsigned)0 << at.part << 1;
    if (!parts) { /* every block of a higher power has the room */
        uint64_t powers = pool->powers & ~(uint64_t)0 << at.power << 1;
        if (!powers)
            return NULL;
        at.power = __builtin_ctzll(powers);
        parts = pool->parts[at.power];
    }
    return best_of(pool->free[at.power][__builtin_ctz(parts)], room);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static void forget(sherd__device *device, sherd__chunk *chunk)
{
    if (!device->deserted)
        device->cuda.memory_give(chunk->data);
    device->memory.reserved_bytes -= chunk->bytes;
    sherd__free(device->heap, chunk);
}

/* Chunks without a used block go back, but for those that other ranks know. Whether there were any.
 * What the stream does with them must be done. */
static bool trim(sherd__device *device)
{
    bool any = false;

    if (!device->chunks || !sherd__device_wait(device))
        return false;
    for (sherd__chunk **at = &device->chunks; *at;) {
        sherd__chunk *chunk = *at;
        if (chunk->shared || chunk->first->used || chunk->first->next) {
            at = &chunk->next;
            continue;
        }
        any = true;
        *at = chunk->next;
        take_out(chunk->pool, chunk->first);
        sherd__stock_give(device->heap, &device->blocks, chunk->first);
        forget(device, chunk);
    }
    return any;
}

/*
 * Take `bytes` from the driver, or if it has not so many, `least`. Returns how many it took; 0:
 * none, or a fault.
 */
static int64_t ask_driver(sherd__device *device, CUdeviceptr *out, int64_t bytes, int64_t least)
{
    int result = device->cuda.memory_take(out, sherd__bytes(bytes));

    if (result == CUDA_ERROR_OUT_OF_MEMORY && least < bytes) {
        bytes = least;
        result = device->cuda.memory_take(out, sherd__bytes(bytes));
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && trim(device)) {
        bytes = least;
        result = device->cuda.memory_take(out, sherd__bytes(bytes));
    }
    if (result && result != CUDA_ERROR_OUT_OF_MEMORY)
        sherd__cuda_good(device, result, "taking memory");
    return result ? 0 : bytes;
}

/* A new chunk for a block of `room` bytes: one free block. */
static sherd__device_block *add_chunk(sherd__device *device, sherd__device_pool *pool, int64_t room)
{
    int64_t whole = WHOLE * mebibyte, least = sherd__ceil_div(room, whole) * whole;
    int64_t usual = sherd__max(pool->next, FIRST_CHUNK * mebibyte);
    sherd__chunk *chunk = sherd__alloc(device->heap, 1, sizeof *chunk);
    sherd__device_block *block = sherd__stock_take(device->heap, &device->blocks, sizeof *block);

    if (chunk && block)
        chunk->bytes = ask_driver(device, &chunk->data, sherd__max(least, usual), least);
    if (!chunk || !block || !chunk->bytes) {
        sherd__free(device->heap, chunk);
        sherd__stock_give(device->heap, &device->blocks, block);
        return NULL;
    }
    pool->next = sherd__min(2 * usual, LARGEST_CHUNK * mebibyte);
    *block = (sherd__device_block){.chunk = chunk, .room = chunk->bytes};
    block->data = sherd__cuda_pointer(chunk->data);
    chunk->pool = pool;
    chunk->first = block;
    chunk->next = device->chunks;
    device->chunks = chunk;
    device->memory.reserved_bytes += chunk->bytes;
    put_in(pool, block);
    return block;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* Cut what a block has beyond `room` off, as a free one. False: no memory for its struct. */
static bool cut(sherd__device *device, sherd__device_block *block, int64_t room)
{
    if (block->room == room)
        return true;
    sherd__device_block *rest = sherd__stock_take(device->heap, &device->blocks, sizeof *rest);
    if (!rest)
        return false;
    *rest = (sherd__device_block){.data = (char *)block->data + room,
                                  .chunk = block->chunk,
                                  .offset = block->offset + room,
                                  .previous = block,
                                  .next = block->next,
                                  .room = block->room - room};
    if (block->next)
        block->next->previous = rest;
    block->next = rest;
    block->room = room;
    put_in(block->chunk->pool, rest);
    return true;
}

sherd__device_block *sherd__device_take(sherd__device *device, int64_t bytes)
{
    sherd__cuda_enter(device);
    if (device->failed || bytes <= 0 || bytes > (int64_t)1 << 46 ||
        !sherd__may_allocate(device->heap))
        return NULL;
    int64_t room = sherd__ceil_div(bytes, UNIT) * UNIT;
    sherd__device_pool *pool =
        &device->pool[room <= mebibyte ? SHERD__SMALL_POOL : SHERD__LARGE_POOL];
    sherd__device_block *block = find_free(pool, room);
    if (!block)
        block = add_chunk(device, pool, room);
    if (!block)
        return NULL;
    take_out(pool, block);
    if (!cut(device, block, room)) {
        put_in(pool, block);
        return NULL;
    }
    block->used = true;
    block->bytes = bytes;
    sherd__device_memory *memory = &device->memory;
    memory->live_bytes += room;
    memory->peak_bytes = sherd__max(memory->peak_bytes, memory->live_bytes);
    return block;
}

/* Join a free block with the one behind it, which is free and in a list. */
static void join(sherd__device *device, sherd__device_block *block)
{
    sherd__device_block *rest = block->next;

    take_out(block->chunk->pool, rest);
    block->room += rest->room;
    block->next = rest->next;
    if (rest->next)
        rest->next->previous = block;
    sherd__stock_give(device->heap, &device->blocks, rest);
}

void sherd__device_give(sherd__device *device, sherd__device_block *block)
{
    if (!block)
        return;
    device->memory.live_bytes -= block->room;
    block->used = false;
    if (block->next && !block->next->used)
        join(device, block);
    sherd__device_block *before = block->previous;
    if (before && !before->used) {
        take_out(block->chunk->pool, before);
        put_in(block->chunk->pool, block);
        join(device, before);
        block = before;
    }
    put_in(block->chunk->pool, block);
}

sherd__device_memory sherd__device_memory_of(const sherd__device *device)
{
    return device->memory;
}

void sherd__device_memory_reset(sherd__device *device)
{
    device->memory.peak_bytes = device->memory.live_bytes;
}

void sherd__device_free_memory(sherd__device *device)
{
    while (device->chunks) {
        sherd__chunk *chunk = device->chunks;
        device->chunks = chunk->next;
        for (sherd__device_block *block = chunk->first; block;) {
            sherd__device_block *next = block->next;
            sherd__stock_give(device->heap, &device->blocks, block);
            block = next;
        }
        forget(device, chunk);
    }
    sherd__stock_clear(&device->blocks);
}
