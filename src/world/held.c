/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of the region the kernel has given, in chunks of 256 KB: a bit each, and one word
 * that counts those of all ranks together, so that they stay below the limit. A chunk counts from
 * the first block that is cut out of it until its pages are given back. That makes a hole in the
 * memory that all ranks see; a page that is touched again is new and zero. What is warm is held for
 * sure, so that only cutting comes here: some nanoseconds a chunk, a microsecond to give one back.
 */
#include "inside.h"

#include <sys/mman.h>

enum { CHUNK_LOG2 = 18, CHUNK = SHERD__PIECE };

static void count_back(sherd_world *world, size_t bytes)
{
    atomic_fetch_sub(&world->arena.control->held, bytes);
    world->post->held -= bytes;
}

/* Give the pages of this rank's region back to the kernel. Those that it does not take stay in the
 * region; they count again when the next world on it takes them. */
void sherd__give_region(sherd_world *world)
{
    sherd__store *store = &world->store;

    if (!world->post->held)
        return;
    (void)madvise(store->base, store->room, MADV_REMOVE);
    count_back(world, (size_t)world->post->held);
}

bool sherd__chunks_open(sherd_world *world)
{
    sherd__store *store = &world->store;
    size_t words = (store->room >> (CHUNK_LOG2 + 6)) + 1;

    store->chunk = sherd__alloc(&world->heap, words, sizeof *store->chunk);
    if (!store->chunk)
        return false;
    sherd__give_region(world);
    return true;
}

/* Count so many bytes more for all ranks; false: the limit does not let. */
static bool count(sherd_world *world, size_t bytes)
{
    sherd__word *held = &world->arena.control->held;
    uint64_t before = sherd__peek(held), limit = sherd__limit_of(world).bytes;

    do
        if (bytes > limit || before > limit - bytes)
            return false;
    while (!atomic_compare_exchange_weak(held, &before, before + bytes));
    world->post->held += bytes;
    return true;
}

static uint64_t bit_of(size_t chunk)
{
    return UINT64_C(1) << chunk % 64;
}

bool sherd__hold(sherd_world *world, const unsigned char *at, size_t bytes)
{
    sherd__store *store = &world->store;
    size_t from = (size_t)(at - store->base), more = 0;
    size_t end = from + bytes < store->room ? from + bytes : store->room;
    size_t first = from >> CHUNK_LOG2, last = (end - 1) >> CHUNK_LOG2;

    for (size_t i = first; i <= last; i++)
        more += store->chunk[i / 64] & bit_of(i) ? 0 : CHUNK;
    if (more == 0)
        return true;
    if (!count(world, more)) {
        store->refused = true;
        return false;
    }
    store->held += more;
    for (size_t i = first; i <= last; i++)
        store->chunk[i / 64] |= bit_of(i);
    return true;
}

size_t sherd__give_pages(sherd_world *world, const unsigned char *at, size_t bytes, size_t most)
{
    sherd__store *store = &world->store;
    size_t from = (size_t)(at - store->base), done = 0;
    size_t first = (from + CHUNK - 1) >> CHUNK_LOG2;
    bool good = true;

    for (size_t i = (from + bytes) >> CHUNK_LOG2; good && i > first && done < most;) {
        if (--i % 64 == 63 && !store->chunk[i / 64] && i - first >= 63) {
            i -= 63; /* none in 64 */
            continue;
        }
        if (!(store->chunk[i / 64] & bit_of(i)))
            continue;
        good = !madvise(store->base + (i << CHUNK_LOG2), CHUNK, MADV_REMOVE);
        if (good) {
            store->chunk[i / 64] &= ~bit_of(i);
            done += CHUNK;
        }
    }
    store->held -= done;
    count_back(world, done);
    return done;
}
