/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 64-bit hashes of content, equal on all ranks and machines of one byte order. Not for adversaries.
 */
#ifndef SHERD__BASE_HASH_H
#define SHERD__BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Mix one more word into a running hash. Start with any constant. */
static inline uint64_t sherd__hash_word(uint64_t hash, uint64_t word)
{
    uint64_t x = (hash ^ word) * 0x9E3779B97F4A7C15u;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    return x ^ (x >> 32);
}

uint64_t sherd__hash_bytes(uint64_t hash, const void *data, size_t bytes);
uint64_t sherd__hash_text(uint64_t hash, const char *text);

#endif
