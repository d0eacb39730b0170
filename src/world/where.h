/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose calls: the modules that have run, by number, and calls counted by module, direction, kind
 * and axes. A call costs one look into a table; room is made when a module or a mesh is new.
 */
#ifndef SHERD__WORLD_WHERE_H
#define SHERD__WORLD_WHERE_H

#include "world.h"

enum { SHERD__PLACES = 4096 };

/* A path that modules have; number n is at n - 1. */
typedef struct sherd__where_place {
    char *path;
    uint64_t hash;
} sherd__where_place;

/* Calls of one row of the log in one place and direction. */
typedef struct sherd__called {
    uint64_t key; /* 0 = free */
    int64_t calls, bytes;
} sherd__called;

typedef struct sherd__counts {
    sherd__where now;
    sherd__where_place *place;
    int places, place_room;
    sherd__called *row;  /* [room], open addressing */
    sherd__called *last; /* the row that was counted in last; NULL: none of these */
    size_t room, used;   /* room: a power of two, or 0 */
} sherd__counts;

/* Make room for the rows of a log of so many tallies, and of so many places. False for lack of
 * memory. */
bool sherd__counts_reserve(sherd_world *world, int tallies, int places);
/* One more call of a row of the log, in the place where this rank is. */
void sherd__counts_add(sherd_world *world, int row, int64_t bytes);
void sherd__counts_reset(sherd_world *world);
void sherd__counts_clear(sherd_world *world);

#endif
