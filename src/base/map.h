/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hash table of pointers, open addressing, for interning and caches. The caller owns the items.
 */
#ifndef SHERD__BASE_MAP_H
#define SHERD__BASE_MAP_H

#include "alloc.h"

typedef struct sherd__map_slot {
    uint64_t hash;
    void *item; /* NULL = free */
} sherd__map_slot;

typedef struct sherd__map {
    sherd__heap *heap;
    sherd__map_slot *slots;
    size_t room; /* a power of two, or 0 */
    size_t count;
} sherd__map;

typedef bool (*sherd__map_equal)(const void *item, const void *key);

/* The item with this hash for which equal(item, key), or NULL. */
void *sherd__map_find(const sherd__map *map, uint64_t hash, sherd__map_equal equal,
                      const void *key);
/* Add an item that is not there yet; false for lack of memory, then nothing changed. */
bool sherd__map_add(sherd__map *map, uint64_t hash, void *item);
/* Take an item out, if it is there. */
void sherd__map_remove(sherd__map *map, uint64_t hash, const void *item);
/* Walk over all items in no order: start with *cursor = 0; NULL at the end. */
void *sherd__map_next(const sherd__map *map, size_t *cursor);
/* Free the table, not the items. */
void sherd__map_clear(sherd__map *map);

#endif
