/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All allocation from the C library's heap: checks count * bytes, counts, and fails the n-th
 * allocation when a test asks for it. Costs two additions over calloc. A failed attempt counts as
 * an allocation, but not as live.
 */
#include "alloc.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_IDLE = 256 };

bool sherd__may_allocate(sherd__heap *heap)
{
    heap->allocations++;
    return heap->fail_at == 0 || heap->allocations != heap->fail_at;
}

/* *out = count * bytes, at least 1: calloc(0) may give NULL, which callers read as a failure. */
static bool total(size_t count, size_t bytes, size_t *out)
{
    if (bytes && count > (size_t)PTRDIFF_MAX / bytes)
        return false;
    *out = count && bytes ? count * bytes : 1;
    return true;
}

void *sherd__alloc(sherd__heap *heap, size_t count, size_t bytes)
{
    size_t all;

    if (!sherd__may_allocate(heap) || !total(count, bytes, &all))
        return NULL;
    void *memory = calloc(1, all);
    if (memory)
        heap->live++;
    return memory;
}

void *sherd__grow(sherd__heap *heap, void *old, size_t old_count, size_t count, size_t bytes)
{
    size_t all;

    if (!sherd__may_allocate(heap) || !total(count, bytes, &all))
        return NULL;
    char *memory = realloc(old, all);
    if (!memory)
        return NULL;
    if (!old) {
        heap->live++;
        old_count = 0;
    }
    if (count > old_count)
        memset(memory + old_count * bytes, 0, (count - old_count) * bytes);
    return memory;
}

void *sherd__double(sherd__heap *heap, void *array, int *room, int first, size_t bytes)
{
    int wanted = *room > INT_MAX / 2 ? INT_MAX : *room ? 2 * *room : first;

    if (*room == INT_MAX)
        return NULL;
    void *grown = sherd__grow(heap, array, (size_t)*room, (size_t)wanted, bytes);
    if (grown)
        *room = wanted;
    return grown;
}

char *sherd__copy_text(sherd__heap *heap, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = sherd__alloc(heap, bytes, 1);

    if (copy)
        memcpy(copy, text, bytes);
    return copy;
}

void sherd__free(sherd__heap *heap, void *memory)
{
    if (!memory)
        return;
    heap->live--;
    free(memory);
}

/* ---- stocks ---------------------------------------------------------------------------------- */

void *sherd__stock_take(sherd__heap *heap, sherd__stock *stock, size_t bytes)
{
    void **first = stock->idle;

    if (!first)
        return sherd__alloc(heap, 1, bytes);
    if (!sherd__may_allocate(heap))
        return NULL;
    stock->idle = *first;
    stock->count--;
    heap->live++;
    return memset(first, 0, bytes);
}

void sherd__stock_give(sherd__heap *heap, sherd__stock *stock, void *memory)
{
    void **first = memory;
#if defined(__SANITIZE_ADDRESS__)
    bool full = true; /* free at once, so that the sanitizer sees uses after free */
#else
    bool full = stock->count >= MOST_IDLE;
#endif
    if (!memory || full) {
        sherd__free(heap, memory);
        return;
    }
    heap->live--;
    *first = stock->idle;
    stock->idle = first;
    stock->count++;
}

void sherd__stock_clear(sherd__stock *stock)
{
    while (stock->idle) {
        void **first = stock->idle;
        stock->idle = *first;
        free(first);
    }
    stock->count = 0;
}
