/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache, by shape, of things that are costly to make and depend on a shape alone. It keeps so
 * many; then the one that was not used for longest is destroyed.
 */
#ifndef SHERD__KERNELS_SHAPES_H
#define SHERD__KERNELS_SHAPES_H

#include "base/map.h"

typedef struct sherd__shape_item sherd__shape_item;

/* All zero but `heap` and `most` to begin with. */
typedef struct sherd__shapes {
    sherd__heap *heap;
    size_t most; /* items, at least 1 */
    sherd__map map;
    sherd__shape_item *newest, *oldest;
} sherd__shapes;

/* What was kept for a key; NULL: nothing. Keys are compared byte by byte. */
void *sherd__shapes_find(sherd__shapes *shapes, const void *key, size_t bytes);

/* Keep a thing for a key that has none; it is destroyed when it goes. False for lack of memory: it
 * is still the caller's. */
bool sherd__shapes_add(sherd__shapes *shapes, const void *key, size_t bytes, void *thing,
                       void (*destroy)(void *thing));

/*
 * What is kept for a key, or a new thing of so many bytes, all zero, from the same heap, that is
 * kept for it from now on: *fresh, and the caller fills it in so that it can be destroyed. NULL for
 * lack of memory.
 */
void *sherd__shapes_take(sherd__shapes *shapes, const void *key, size_t bytes, size_t size,
                         void (*destroy)(void *thing), bool *fresh);

/* Destroy what is kept for a key, which is there. */
void sherd__shapes_drop(sherd__shapes *shapes, const void *key, size_t bytes);

/* Destroy all that is kept. */
void sherd__shapes_clear(sherd__shapes *shapes);

#endif
