/* SPDX-License-Identifier: Apache-2.0 */
/* A map of items that also hang in a list, the newest first. Finding costs a hash of the key and no
 * allocation. */
#include "shapes.h"

#include <string.h>

#include "base/hash.h"

struct sherd__shape_item {
    sherd__shape_item *newer, *older;
    uint64_t hash;
    void *thing;
    void (*destroy)(void *thing);
    size_t bytes;
    unsigned char key[];
};

typedef struct wanted {
    const void *key;
    size_t bytes;
} wanted;

static bool is_wanted(const void *item, const void *key)
{
    const sherd__shape_item *i = item;
    const wanted *w = key;

    return i->bytes == w->bytes && memcmp(i->key, w->key, w->bytes) == 0;
}

static void take_out(sherd__shapes *s, sherd__shape_item *i)
{
    *(i->newer ? &i->newer->older : &s->newest) = i->older;
    *(i->older ? &i->older->newer : &s->oldest) = i->newer;
}

static void put_first(sherd__shapes *s, sherd__shape_item *i)
{
    i->newer = NULL;
    i->older = s->newest;
    *(s->newest ? &s->newest->newer : &s->oldest) = i;
    s->newest = i;
}

static sherd__shape_item *find(const sherd__shapes *s, const void *key, size_t bytes)
{
    return sherd__map_find(&s->map, sherd__hash_bytes(1, key, bytes), is_wanted,
                           &(wanted){key, bytes});
}

void *sherd__shapes_find(sherd__shapes *s, const void *key, size_t bytes)
{
    sherd__shape_item *i = find(s, key, bytes);

    if (!i)
        return NULL;
    if (i != s->newest) {
        take_out(s, i);
        put_first(s, i);
    }
    return i->thing;
}

static void drop(sherd__shapes *s, sherd__shape_item *i)
{
    sherd__map_remove(&s->map, i->hash, i);
    take_out(s, i);
    i->destroy(i->thing);
    sherd__free(s->heap, i);
}

bool sherd__shapes_add(sherd__shapes *s, const void *key, size_t bytes, void *thing,
                       void (*destroy)(void *thing))
{
    sherd__shape_item *i = sherd__alloc(s->heap, 1, sizeof *i + bytes);

    s->map.heap = s->heap;
    if (!i)
        return false;
    i->hash = sherd__hash_bytes(1, key, bytes);
    if (!sherd__map_add(&s->map, i->hash, i)) {
        sherd__free(s->heap, i);
        return false;
    }
    memcpy(i->key, key, bytes);
    i->bytes = bytes;
    i->thing = thing;
    i->destroy = destroy;
    put_first(s, i);
    if (s->map.count > s->most)
        drop(s, s->oldest);
    return true;
}

void *sherd__shapes_take(sherd__shapes *s, const void *key, size_t bytes, size_t size,
                         void (*destroy)(void *thing), bool *fresh)
{
    void *thing = sherd__shapes_find(s, key, bytes);

    *fresh = false;
    if (thing)
        return thing;
    thing = sherd__alloc(s->heap, 1, size);
    if (!thing)
        return NULL;
    *fresh = sherd__shapes_add(s, key, bytes, thing, destroy);
    if (*fresh)
        return thing;
    sherd__free(s->heap, thing);
    return NULL;
}

void sherd__shapes_drop(sherd__shapes *s, const void *key, size_t bytes)
{
    drop(s, find(s, key, bytes));
}

void sherd__shapes_clear(sherd__shapes *s)
{
    while (s->newest)
        drop(s, s->newest);
    sherd__map_clear(&s->map);
}
