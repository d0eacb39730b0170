/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of one rank's region. They lie in it one behind the other, each with its header before its
 * data.
 *
 * What is given back stays as it is, *warm*, for the next that asks for about its size: some ten
 * nanoseconds, the last one first, so that caches stay warm too. It may carry tickets, and is
 * passed over until they are settled. Sizes that never come again would fill the region so.
 * Therefore, where no warm block fits, a larger one is cut that is *joined* already; else, while
 * the region reaches less than a thirtieth beyond the most that was lent of late, new memory is
 * used; else all warm blocks that are settled are joined with what lies free beside them (each at
 * most once for each time that it is given back), and cut. New memory beyond that comes after it;
 * where the limit lets no more (held.c), pages that lie idle elsewhere are given back for it. Last
 * comes waiting for peers that still read what is warm.
 *
 * Pages that nobody needs go back to the kernel, but to touch a page anew costs 2.3 us. So time is
 * counted in *spells*: a spell ends when sixteen times what is held has been taken. If not half of
 * what is held was lent at once in it, nor in the one before, what is beyond five quarters of that
 * goes back. If more was needed after all, later spells are longer.
 */
#include "edge.h"
#include "inside.h"

#include <stddef.h>
#include <string.h>

enum {
    /* Bytes. Lines are fetched in pairs, and the next one with them: where a header lay that close
     * to data which peers read, they took its lines away from the owner in each call, and a move of
     * 64 bytes took half as long again. */
    GRAIN = 256,
    TRIES = 8, /* blocks of a list that are looked at */
    /* Large blocks begin and end with a page: rows of a power of two then lie on as few pages as
     * they can, and copies of parts of them are a tenth faster. */
    PAGE = 4096,
    LARGE = 1 << 20,
    SLACK = 1 << 18,  /* bytes */
    LITTLE = 1 << 22, /* bytes that are not worth giving back */
    TURNS = 16,       /* how often what is held is taken in a spell: at first, and at most */
    MOST_TURNS = 1 << 16,
    REGRET =
        8, /* spells after which it was right to give pages back, even if they are needed again */
    SHORTEST_SPELL = 64 << 20 /* bytes */
};

/* ---- sizes ----------------------------------------------------------------------------------- */

static size_t header_bytes(int ranks)
{
    size_t readers = SHERD__TICKETS * (size_t)sherd__rank_words(ranks) * sizeof(uint64_t);

    return (sizeof(sherd__block) + readers + GRAIN - 1) / GRAIN * GRAIN;
}

/* The room of a new block for so many bytes, and the edge behind them. */
static size_t room_for(const sherd__store *store, size_t bytes)
{
    bytes += SHERD__EDGE;
    size_t room = bytes ? (bytes + GRAIN - 1) / GRAIN * GRAIN : GRAIN;

    return room < LARGE ? room : (room + store->header + PAGE - 1) / PAGE * PAGE - store->header;
}

/* The class of a room: one to eight grains, then eight for each power of two, each up to where the
 * next begins. */
static int class_of(size_t room)
{
    size_t grains = room / GRAIN;

    if (grains < 8)
        return (int)grains - 1;
    int log2 = 63 - __builtin_clzll(grains); /* at least 3 */
    return 8 * (log2 - 3) + (int)(grains >> (log2 - 3)) - 1;
}

/* ---- lists ----------------------------------------------------------------------------------- */

static void put(sherd__shelf *shelf, sherd__block *block)
{
    int class = block->class;

    block->prev = NULL;
    block->next = shelf->head[class];
    *(block->next ? &block->next->prev : &shelf->tail[class]) = block;
    shelf->head[class] = block;
    shelf->some[class / 64] |= UINT64_C(1) << class % 64;
}

static void take_out(sherd__shelf *shelf, sherd__block *block)
{
    int class = block->class;

    *(block->prev ? &block->prev->next : &shelf->head[class]) = block->next;
    *(block->next ? &block->next->prev : &shelf->tail[class]) = block->prev;
    if (!shelf->head[class])
        shelf->some[class / 64] &= ~(UINT64_C(1) << class % 64);
    block->prev = block->next = NULL;
}

/* The first class from `class` on that is not empty; SHERD__BLOCK_CLASSES: none. */
static int next_class(const sherd__shelf *shelf, int class)
{
    for (int word = class / 64; word < SHERD__CLASS_WORDS; word++) {
        uint64_t some = shelf->some[word];
        if (word == class / 64)
            some &= ~UINT64_C(0) << class % 64;
        if (some)
            return word * 64 + __builtin_ctzll(some);
    }
    return SHERD__BLOCK_CLASSES;
}

/* ---- cutting and joining --------------------------------------------------------------------- */

static unsigned char *header_of(const sherd__store *store, sherd__block *block)
{
    return block->data - store->header;
}

/* The block that lies behind another; NULL: that is the last. */
static sherd__block *behind(const sherd__store *store, const sherd__block *block)
{
    return block == store->last ? NULL : (sherd__block *)(void *)(block->data + block->room);
}

/* Make a block at a place of the region, behind `before`; it is in no list. */
static sherd__block *lay(sherd__store *store, unsigned char *at, size_t room, sherd__block *before)
{
    sherd__block *block = (sherd__block *)(void *)at;
    sherd__block *after = before ? behind(store, before) : NULL;

    memset(block, 0, offsetof(sherd__block, ticket)); /* there are none */
    block->data = at + store->header;
    block->room = room;
    block->before = before;
    *(after ? &after->before : &store->last) = block;
    return block;
}

/* Put a free block with nothing free beside it where it can be cut. What lies last is no block any
 * more. */
static void put_joined(sherd__store *store, sherd__block *block)
{
    if (block == store->last) {
        store->used = (size_t)(header_of(store, block) - store->base);
        store->last = block->before;
        return;
    }
    block->use = SHERD__JOINED;
    block->class = class_of(block->room);
    put(&store->joined, block);
}

/* `other`, which lies behind `block`, becomes part of it. */
static void swallow(sherd__store *store, sherd__block *block, sherd__block *other)
{
    sherd__block *after = behind(store, other);

    *(after ? &after->before : &store->last) = block;
    block->room += store->header + other->room;
}

/* Join a settled block that is in no list with what is free beside it. */
static void join(sherd__store *store, sherd__block *block)
{
    sherd__block *after = behind(store, block), *before = block->before;

    if (after && after->use == SHERD__JOINED) {
        take_out(&store->joined, after);
        swallow(store, block, after);
    }
    if (before && before->use == SHERD__JOINED) {
        take_out(&store->joined, before);
        swallow(store, before, block);
        block = before;
    }
    put_joined(store, block);
}

/* Join all warm blocks that are settled. Unless `must`, not again as long as there are hardly new
 * ones among those that are not. */
static void join_warm(sherd_world *world, bool must)
{
    sherd__store *store = &world->store;

    if (!must && 4 * store->given < store->kept)
        return;
    store->given = store->kept = 0;
    for (int c = next_class(&store->warm, 0); c < SHERD__BLOCK_CLASSES;
         c = next_class(&store->warm, c + 1))
        for (sherd__block *block = store->warm.head[c], *next; block; block = next) {
            next = block->next;
            if (!sherd__settled(world, block)) {
                store->kept++;
                continue;
            }
            take_out(&store->warm, block);
            join(store, block);
        }
}

/* Where a large block may begin in a free stretch at `data`: on a page, with nothing or a whole
 * block before it. NULL: nowhere. */
static unsigned char *place_in(const sherd__store *store, unsigned char *data, size_t stretch,
                               size_t room)
{
    size_t at = (size_t)(data - store->base), skip = 0;

    if (room >= LARGE) {
        skip = (PAGE - at % PAGE) % PAGE;
        if (skip && skip < store->header + GRAIN)
            skip += PAGE;
    }
    return stretch >= skip && stretch - skip >= room ? data + skip : NULL;
}

/* Cut the bytes [at, at + room) out of a free block in no list; what remains of it before and
 * behind stays free. */
static sherd__block *cut(sherd__store *store, sherd__block *block, unsigned char *at, size_t room)
{
    size_t rest;

    if (at != block->data) {
        size_t skipped = (size_t)(at - block->data);
        sherd__block *front = block;
        block = lay(store, at - store->header, front->room - skipped, front);
        front->room = skipped - store->header;
        put_joined(store, front);
    }
    rest = block->room - room;
    if (rest >= store->header + GRAIN) {
        sherd__block *back = lay(store, at + room, rest - store->header, block);
        block->room = room;
        put_joined(store, back);
    }
    block->class = class_of(block->room);
    return block;
}

/* ---- finding a block ------------------------------------------------------------------------- */

static bool fits(sherd_world *world, sherd__block *block, size_t room)
{
    return block && block->room >= room && sherd__settled(world, block);
}

/* A settled warm block of about this size: the most recently used first, and the oldest. */
static sherd__block *find_warm(sherd_world *world, size_t room)
{
    int class = class_of(room);
    sherd__block *block = world->store.warm.head[class];

    for (int i = 0; block && i < TRIES; i++, block = block->next)
        if (fits(world, block, room))
            return block;
    block = world->store.warm.tail[class];
    return fits(world, block, room) ? block : NULL;
}

/* The smallest of some joined blocks of a class that will do; *at = where the data begins. */
static sherd__block *best_joined(const sherd__store *store, int class, size_t room,
                                 unsigned char **at)
{
    sherd__block *block = store->joined.head[class], *best = NULL;

    for (int i = 0; block && i < TRIES; i++, block = block->next) {
        unsigned char *place = place_in(store, block->data, block->room, room);
        if (!place || (best && best->room <= block->room))
            continue;
        best = block;
        *at = place;
    }
    return best;
}

/* Cut a block out of a joined one. */
static sherd__block *cut_joined(sherd_world *world, size_t room)
{
    sherd__store *store = &world->store;

    for (int c = next_class(&store->joined, class_of(room)); c < SHERD__BLOCK_CLASSES;
         c = next_class(&store->joined, c + 1)) {
        unsigned char *at = NULL;
        sherd__block *block = best_joined(store, c, room, &at);
        if (!block || !sherd__hold(world, at - store->header, room + 2 * store->header))
            continue;
        take_out(&store->joined, block);
        return cut(store, block, at, room);
    }
    return NULL;
}

/* Cut a block out of the region behind all blocks. */
static sherd__block *cut_new(sherd_world *world, size_t room)
{
    sherd__store *store = &world->store;
    unsigned char *end = store->base + store->used, *at = NULL;
    size_t left = store->room - store->used;

    if (left > store->header)
        at = place_in(store, end + store->header, left - store->header, room);
    if (!at || !sherd__hold(world, end, (size_t)(at - end) + room))
        return NULL;
    sherd__block *block = lay(store, end, (size_t)(at - end) - store->header + room, store->last);
    store->used = (size_t)(at - store->base) + room;
    return cut(store, block, at, room);
}

static sherd__block *cut_any(sherd_world *world, size_t room)
{
    sherd__block *block = cut_joined(world, room);

    return block ? block : cut_new(world, room);
}

/* Give the kernel the pages of so many free bytes: behind all blocks, then of joined ones. */
static void give_pages(sherd_world *world, size_t bytes)
{
    sherd__store *store = &world->store;
    size_t done =
        sherd__give_pages(world, store->base + store->used, store->room - store->used, bytes);

    for (int c = SHERD__BLOCK_CLASSES; c-- > 0 && done < bytes;)
        for (sherd__block *block = store->joined.head[c]; block && done < bytes;
             block = block->next)
            done += sherd__give_pages(world, block->data, block->room, bytes - done);
}

/* Cut a block; if the limit refuses, give back pages that lie idle elsewhere and try again. */
static sherd__block *cut_within_limit(sherd_world *world, size_t room)
{
    sherd__block *block = cut_any(world, room);

    if (block || !world->store.refused)
        return block;
    give_pages(world, room + 4 * SLACK);
    return cut_any(world, room);
}

/* No memory is left: wait until peers have read warm blocks, and join those, until one fits. */
static sherd__block *wait_for_warm(sherd_world *world, size_t room, bool *stopped)
{
    sherd__shelf *warm = &world->store.warm;
    sherd__block *block = NULL;

    while (!block) {
        int c = next_class(warm, class_of(room));
        if (c == SHERD__BLOCK_CLASSES)
            c = next_class(warm, 0);
        if (c == SHERD__BLOCK_CLASSES)
            return NULL;
        if (!sherd__settle(world, warm->tail[c])) {
            *stopped = true;
            return NULL;
        }
        join_warm(world, true);
        block = cut_within_limit(world, room);
    }
    return block;
}

/* A block if no warm one fits: see the order at the top of the file. */
static sherd__block *find(sherd_world *world, size_t room, bool *stopped)
{
    sherd__store *store = &world->store;
    size_t crest = store->crest > store->former_crest ? store->crest : store->former_crest;
    size_t reach = store->used + store->header + room;
    sherd__block *block = cut_joined(world, room);

    if (!block && reach <= crest + (crest >> 5) + SLACK)
        block = cut_new(world, room);
    if (block)
        return block;
    join_warm(world, false);
    block = cut_within_limit(world, room);
    return block ? block : wait_for_warm(world, room, stopped);
}

/* ---- spells ---------------------------------------------------------------------------------- */

static void begin_spell(sherd__store *store)
{
    store->taken = 0;
    store->spell = store->held * store->turns;
    if (store->spell < SHORTEST_SPELL)
        store->spell = SHORTEST_SPELL;
}

static void trim(sherd_world *world)
{
    join_warm(world, true);
    give_pages(world, world->store.held);
}

/* A spell is over: give back pages that were not needed in it, nor in the one before. */
static void end_spell(sherd_world *world)
{
    sherd__store *store = &world->store;
    size_t crest = store->crest > store->former_crest ? store->crest : store->former_crest;

    if (store->regret && store->held > store->left_held) {
        store->turns *= store->turns < MOST_TURNS ? 2 : 1;
        store->regret = 0;
    }
    store->regret -= store->regret > 0;
    if (store->held > 2 * crest + LITTLE) {
        join_warm(world, true);
        give_pages(world, store->held - crest - crest / 4);
        store->left_held = store->held;
        store->regret = REGRET;
    }
    store->former_crest = store->crest;
    store->crest = store->lent;
    begin_spell(store);
}

/* ---- the store ------------------------------------------------------------------------------- */

bool sherd__store_open(sherd_world *world, unsigned char *base, size_t room)
{
    sherd__store *store = &world->store;

    memset(store, 0, sizeof *store);
    store->base = base;
    store->room = room;
    store->header = header_bytes(world->slots);
    store->turns = TURNS;
    begin_spell(store);
    return sherd__chunks_open(world);
}

void sherd__store_close(sherd_world *world, bool done)
{
    sherd__edge_forget(world->store.base, world->store.used); /* of blocks that nobody gave back */
    if (done)
        sherd__give_region(world);
    sherd__free(&world->heap, world->store.chunk);
    world->store.chunk = NULL;
}

sherd__block *sherd__store_take(sherd_world *world, int64_t bytes, bool *stopped)
{
    sherd__store *store = &world->store;

    *stopped = store->refused = false;
    if (!sherd__may_allocate(&world->heap) || bytes < 0 || (size_t)bytes > store->room)
        return NULL;
    size_t room = room_for(store, (size_t)bytes);
    sherd__block *block = find_warm(world, room);
    if (block)
        take_out(&store->warm, block);
    else if (!(block = find(world, room, stopped)))
        return NULL;
    block->use = SHERD__LENT;
    block->spoiled = false;
    block->made = 0; /* the deed of earlier contents says nothing of new ones */
    block->made_on = NULL;
    block->bytes = bytes;
    sherd__edge_close(block->data, (size_t)bytes, block->room);
    store->lent += store->header + block->room;
    if (store->lent > store->crest)
        store->crest = store->lent;
    store->taken += block->room;
    if (store->taken > store->spell)
        end_spell(world);
    return block;
}

void sherd__store_give(sherd_world *world, sherd__block *block)
{
    sherd__store *store = &world->store;

    sherd__edge_open(world->rank, block->data, (size_t)block->bytes, block->room);
    store->lent -= store->header + block->room;
    store->given++;
    block->use = SHERD__WARM;
    put(&store->warm, block);
    if (store->scarce && block->room >= SLACK)
        trim(world);
}

void sherd__store_scarce(sherd_world *world, bool scarce)
{
    world->store.scarce = scarce;
    if (scarce)
        trim(world);
}
