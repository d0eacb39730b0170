/* SPDX-License-Identifier: Apache-2.0 */

/*
 * All small allocations go through a heap that counts them and can be told to fail, so that tests
 * can make the n-th allocation fail on one rank. A heap belongs to one thread at a time.
 */
#ifndef SHERD__BASE_ALLOC_H
#define SHERD__BASE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sherd__heap {
    int64_t live;        /* allocations not yet freed */
    int64_t allocations; /* asked for since fail_at was set */
    int64_t fail_at;     /* the allocation that fails; 0 = none */
} sherd__heap;

/*
 * count * bytes of zeros; NULL on overflow, if memory runs out, or when told to fail. Otherwise not
 * NULL even for 0 bytes.
 */
void *sherd__alloc(sherd__heap *heap, size_t count, size_t bytes);

/*
 * `old` (or NULL) with room for count * bytes; new bytes are zero. NULL as above, and then `old`
 * stays valid.
 */
void *sherd__grow(sherd__heap *heap, void *old, size_t old_count, size_t count, size_t bytes);

/* The same for an array of *room elements: doubled, at most to INT_MAX, or `first` if *room is
 * 0. */
void *sherd__double(sherd__heap *heap, void *array, int *room, int first, size_t bytes);

/*
 * An array of *room elements, `used` of them in use, with room for at least one more: grown to
 * `first` elements, then doubled. NULL as above, and then the array stays valid.
 */
static inline void *sherd__reserve(sherd__heap *heap, void *array, int used, int *room, int first,
                                   size_t bytes)
{
    return used < *room ? array : sherd__double(heap, array, room, first, bytes);
}

/* A copy of a string. NULL as above. */
char *sherd__copy_text(sherd__heap *heap, const char *text);

/* NULL is a no-op. */
void sherd__free(sherd__heap *heap, void *memory);

/*
 * A free list for structs of one size: some of the structs given back are reused, which takes a
 * tenth of the time of an allocation. All zero is an empty one.
 */
typedef struct sherd__stock {
    void *idle; /* each begins with the address of the next */
    int count;
} sherd__stock;

/* A zeroed struct of `bytes`, at least a pointer's, the same for all of a stock. NULL as above. */
void *sherd__stock_take(sherd__heap *heap, sherd__stock *stock, size_t bytes);

/*
 * Give a struct back; NULL is a no-op. A struct that is not given back may be freed by sherd__free.
 */
void sherd__stock_give(sherd__heap *heap, sherd__stock *stock, void *memory);
/* Free the idle structs. */
void sherd__stock_clear(sherd__stock *stock);

/* Count an allocation made elsewhere (tensor storage); false if it is the one that must fail. */
bool sherd__may_allocate(sherd__heap *heap);

#endif
