/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC'11): random numbers as a pure function of key and
 * counter.
 *
 * Element i of call c of generator g under seed s takes word i % 4 of block(key = hash of (s, g,
 * c), counter = i / 4). So a number depends on the global index of its element only, never on who
 * computes it.
 */
#ifndef SHERD__BASE_PHILOX_H
#define SHERD__BASE_PHILOX_H

#include <stdint.h>

typedef struct sherd__key {
    uint32_t word[2];
    uint32_t high[2]; /* upper half of the counter */
} sherd__key;

/* One word that tells keys apart. */
static inline uint64_t sherd__key_word(sherd__key key)
{
    uint64_t low = (uint64_t)key.word[0] << 32 | key.word[1];
    uint64_t high = (uint64_t)key.high[0] << 32 | key.high[1];

    return low ^ high * 0x9E3779B97F4A7C15u;
}

/* The key of one call of one generator. */
sherd__key sherd__philox_key(uint64_t seed, uint64_t generator, uint64_t call);

/* The four words of one block. */
void sherd__philox(uint32_t out[4], sherd__key key, uint64_t counter);

#endif
