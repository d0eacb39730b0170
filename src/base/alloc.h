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

/*
 * An array that has `used` of *room elements, or a larger one with room for one more: of `first` elements, then doubled.
 * NULL as above, then the array stays valid.
 */
void *sherd__reserve(sherd__heap *heap, void *array, int used, int *room, int first, size_t bytes);

/* A copy of a string. NULL as above. */
char *sherd__copy_text(sherd__heap *heap, const char *text);

/* NULL is a no-op. */
void sherd__free(sherd__heap *heap, void *memory);

/* Count one allocation that is made elsewhere (tensor storage); false if it is the one that must fail. */
bool sherd__may_allocate(sherd__heap *heap);

#endif
