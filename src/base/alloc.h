/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All small allocations go through a heap that counts them and can be told to fail, so that tests can let
 * the n-th allocation fail on one rank. A heap belongs to one thread at a time.
 */
#ifndef SHERD__ALLOC_H
#define SHERD__ALLOC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sherd__heap {
    int64_t live;        /* allocations not yet freed */
    int64_t allocations; /* asked for since fail_at was set */
    int64_t fail_at;     /* the allocation that fails; 0 = none */
} sherd__heap;

/* count * bytes of zeroes; NULL on overflow, lack of memory, or when told to fail. Never NULL for 0 bytes otherwise. */
void *sherd__alloc(sherd__heap *heap, size_t count, size_t bytes);

/* `old` (or NULL) with room for count * bytes; what is new is zero. NULL as above, then `old` stays valid. */
void *sherd__grow(sherd__heap *heap, void *old, size_t old_count, size_t count, size_t bytes);

/* The same for an array of *room elements, which becomes twice as long, or has `first`. */
void *sherd__double(sherd__heap *heap, void *array, int *room, int first, size_t bytes);

/*
 * An array that has `used` of *room elements, or a larger one with room for one more: of `first` elements, then doubled.
 * NULL as above, then the array stays valid.
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
 * Structs of one size that come and go: some of those that were given back are lent again, which takes a tenth of the time.
 * All zero is an empty one.
 */
typedef struct sherd__stock {
    void *idle; /* each begins with the address of the next */
    int count;
} sherd__stock;

/* A struct of `bytes` zeroes, the same size of all in a stock; at least a pointer's. NULL as above. */
void *sherd__stock_take(sherd__heap *heap, sherd__stock *stock, size_t bytes);
/* NULL is a no-op. A struct that is never given back may be freed by sherd__free. */
void sherd__stock_give(sherd__heap *heap, sherd__stock *stock, void *memory);
/* Free what is idle. */
void sherd__stock_clear(sherd__stock *stock);

/* Count one allocation that is made elsewhere (tensor storage); false if it is the one that must fail. */
bool sherd__may_allocate(sherd__heap *heap);

#endif
