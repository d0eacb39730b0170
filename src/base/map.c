/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing, at most 3/4 full, so that a search ends soon. Removal moves
 * later items of the run back instead of leaving tombstones: a table that lives for a whole
 * training run does not rot.
 */
#include "map.h"

static size_t home(const sherd__map *map, uint64_t hash)
{
    return (size_t)hash & (map->room - 1);
}

static size_t after(const sherd__map *map, size_t slot)
{
    return (slot + 1) & (map->room - 1);
}

void *sherd__map_find(const sherd__map *map, uint64_t hash, sherd__map_equal equal, const void *key)
{
    if (map->room == 0)
        return NULL;
    for (size_t i = home(map, hash); map->slots[i].item; i = after(map, i))
        if (map->slots[i].hash == hash && equal(map->slots[i].item, key))
            return map->slots[i].item;
    return NULL;
}

static void put(sherd__map *map, uint64_t hash, void *item)
{
    size_t i = home(map, hash);

    while (map->slots[i].item)
        i = after(map, i);
    map->slots[i] = (sherd__map_slot){hash, item};
}

static bool double_room(sherd__map *map)
{
    sherd__map larger = {.heap = map->heap, .room = map->room ? 2 * map->room : 8};

    larger.slots = sherd__alloc(map->heap, larger.room, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < map->room; i++)
        if (map->slots[i].item)
            put(&larger, map->slots[i].hash, map->slots[i].item);
    sherd__free(map->heap, map->slots);
    map->slots = larger.slots;
    map->room = larger.room;
    return true;
}

bool sherd__map_add(sherd__map *map, uint64_t hash, void *item)
{
    if (4 * (map->count + 1) > 3 * map->room && !double_room(map))
        return false;
    put(map, hash, item);
    map->count++;
    return true;
}

/* Close the hole at `hole`: an item may move there if its home does not lie (cyclically) in (hole,
 * item]. */
static void close_hole(sherd__map *map, size_t hole)
{
    for (size_t i = after(map, hole); map->slots[i].item; i = after(map, i)) {
        size_t from_home = (i - home(map, map->slots[i].hash)) & (map->room - 1);
        size_t from_hole = (i - hole) & (map->room - 1);
        if (from_home >= from_hole) {
            map->slots[hole] = map->slots[i];
            hole = i;
        }
    }
    map->slots[hole] = (sherd__map_slot){0, NULL};
}

void sherd__map_remove(sherd__map *map, uint64_t hash, const void *item)
{
    if (map->room == 0)
        return;
    for (size_t i = home(map, hash); map->slots[i].item; i = after(map, i))
        if (map->slots[i].item == item) {
            close_hole(map, i);
            map->count--;
            return;
        }
}

void *sherd__map_next(const sherd__map *map, size_t *cursor)
{
    while (*cursor < map->room) {
        void *item = map->slots[(*cursor)++].item;
        if (item)
            return item;
    }
    return NULL;
}

void sherd__map_clear(sherd__map *map)
{
    sherd__free(map->heap, map->slots);
    *map = (sherd__map){.heap = map->heap};
}
