/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What lies behind a block of tensor memory while somebody has it, in builds with the address
 * sanitizer. Blocks lie side by side in one mapping, of which the sanitizer knows nothing: a kernel
 * that overruns one spoils the header of the next, and shows much later, elsewhere. So there each
 * block has an edge: bytes that this process may not touch, which ends it where it does, and that
 * hold a mark, by which it is seen at the latest when the block is given back that another process
 * did. Elsewhere an edge has no bytes, and nothing of this costs anything.
 */
#ifndef SHERD__WORLD_EDGE_H
#define SHERD__WORLD_EDGE_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define SHERD__EDGES 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHERD__EDGES 1
#endif
#endif

#ifdef SHERD__EDGES

#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHERD__EDGE = 64 /* bytes, at least */, SHERD__EDGE_MARK = 0xE5 };

/* Somebody takes `bytes` of the `room` at data. */
static inline void sherd__edge_close(unsigned char *data, size_t bytes, size_t room)
{
    memset(data + bytes, SHERD__EDGE_MARK, SHERD__EDGE);
    ASAN_POISON_MEMORY_REGION(data + bytes, room - bytes);
}

/* All of some memory can be touched again. */
static inline void sherd__edge_forget(unsigned char *data, size_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
}

/* The block is given back. Ends the process if the mark is not what it was. */
static inline void sherd__edge_open(int rank, unsigned char *data, size_t bytes, size_t room)
{
    sherd__edge_forget(data, room);
    for (size_t i = 0; i < SHERD__EDGE; i++) {
        if (data[bytes + i] == SHERD__EDGE_MARK)
            continue;
        fprintf(stderr, "sherd: rank %d: somebody wrote byte %zu of a block of %zu bytes\n", rank,
                bytes + i, bytes);
        abort();
    }
}

#else

enum { SHERD__EDGE = 0 };

static inline void sherd__edge_close(unsigned char *data, size_t bytes, size_t room)
{
    (void)data, (void)bytes, (void)room;
}

static inline void sherd__edge_forget(unsigned char *data, size_t bytes)
{
    (void)data, (void)bytes;
}

static inline void sherd__edge_open(int rank, unsigned char *data, size_t bytes, size_t room)
{
    (void)rank, (void)data, (void)bytes, (void)room;
}

#endif

#endif
