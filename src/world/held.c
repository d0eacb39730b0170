/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of the region the kernel has given: counted in chunks, since a bit for each page of a machine's memory
 * would be much, and each is asked for at most once. A chunk counts from the first block that lies in it until its pages
 * are given back, which cuts a hole into the memory that all ranks see; a page that is touched again is new and zero.
 */
#include "inside.h"

#include <sys/mman.h>

enum { CHUNK_LOG2 = 18, CHUNK = 1 << CHUNK_LOG2 };

bool sherd__chunks_open(sherd_world *world)
{
    sherd__store *store = &world->store;
    size_t words = (store->room >> (CHUNK_LOG2 + 6)) + 1;

    store->chunk = sherd__alloc(&world->heap, words, sizeof *store->chunk);
    return store->chunk != NULL;
}

static uint64_t bit_of(size_t chunk)
{
    return UINT64_C(1) << chunk % 64;
}

void sherd__hold(sherd_world *world, const unsigned char *at, size_t bytes)
{
    sherd__store *store = &world->store;
    size_t from = (size_t)(at - store->base);
    size_t end = from + bytes < store->room ? from + bytes : store->room;

    for (size_t i = from >> CHUNK_LOG2; i <= (end - 1) >> CHUNK_LOG2; i++)
        if (!(store->chunk[i / 64] & bit_of(i))) {
            store->chunk[i / 64] |= bit_of(i);
            store->held += CHUNK;
        }
}

size_t sherd__give_pages(sherd_world *world, const unsigned char *at, size_t bytes, size_t most)
{
    sherd__store *store = &world->store;
    size_t from = (size_t)(at - store->base), done = 0;
    size_t first = (from + CHUNK - 1) >> CHUNK_LOG2;

    for (size_t i = (from + bytes) >> CHUNK_LOG2; i > first && done < most;) {
        if (i-- % 64 == 63 && !store->chunk[i / 64] && i - first >= 64) {
            i -= 63;
            continue;
        }
        if (!(store->chunk[i / 64] & bit_of(i)))
            continue;
        if (madvise(store->base + (i << CHUNK_LOG2), CHUNK, MADV_REMOVE))
            return done;
        store->chunk[i / 64] &= ~bit_of(i);
        store->held -= CHUNK;
        done += CHUNK;
    }
    return done;
}
