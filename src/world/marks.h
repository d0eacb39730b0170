/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of identities of tensors, of a fixed size: a few exactly, and what is more by bits. A set
 * holds all that were put in; only one of bits may seem to hold others too. Adding in another order
 * gives the same set, so ranks that join the same sets agree.
 */
#ifndef SHERD__MARKS_H
#define SHERD__MARKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SHERD__MARKS = 4, SHERD__MARK_BITS = 4 };

typedef struct sherd__marks {
    uint64_t count; /* identities in `word`; SHERD__MARKS + 1: bits (a Bloom filter) */
    uint64_t word[SHERD__MARKS];
} sherd__marks;

/* Which of the 256 bits an identity has, SHERD__MARK_BITS of them: 8 bits of its hash each. */
static inline uint64_t sherd__mark_hash(uint64_t identity)
{
    return identity * 0x9E3779B97F4A7C15u; /* neighbours are far apart */
}

static inline bool sherd__marks_are_bits(const sherd__marks *marks)
{
    return marks->count > SHERD__MARKS;
}

static inline void sherd__marks_set(sherd__marks *marks, uint64_t identity)
{
    uint64_t x = sherd__mark_hash(identity);

    for (int i = 0; i < SHERD__MARK_BITS; i++, x <<= 8)
        marks->word[x >> 62] |= 1ull << (x >> 56 & 63);
}

static inline void sherd__marks_to_bits(sherd__marks *marks)
{
    const sherd__marks list = *marks;

    if (sherd__marks_are_bits(marks))
        return;
    memset(marks, 0, sizeof *marks);
    marks->count = SHERD__MARKS + 1;
    for (uint64_t i = 0; i < list.count; i++)
        sherd__marks_set(marks, list.word[i]);
}

static inline bool sherd__marks_have(const sherd__marks *marks, uint64_t identity)
{
    uint64_t x = sherd__mark_hash(identity);
    bool has = identity != 0 && sherd__marks_are_bits(marks);

    for (int i = 0; has && i < SHERD__MARK_BITS; i++, x <<= 8)
        has = marks->word[x >> 62] >> (x >> 56 & 63) & 1;
    for (uint64_t i = 0; !has && !sherd__marks_are_bits(marks) && i < marks->count; i++)
        has = marks->word[i] == identity;
    return has;
}

/* Not 0, which is in no set. */
static inline void sherd__marks_add(sherd__marks *marks, uint64_t identity)
{
    if (identity == 0 || sherd__marks_have(marks, identity))
        return;
    if (marks->count < SHERD__MARKS) {
        marks->word[marks->count++] = identity;
        return;
    }
    sherd__marks_to_bits(marks);
    sherd__marks_set(marks, identity);
}

/* Add all of another set. */
static inline void sherd__marks_join(sherd__marks *to, const sherd__marks *from)
{
    if (!sherd__marks_are_bits(from)) {
        for (uint64_t i = 0; i < from->count; i++)
            sherd__marks_add(to, from->word[i]);
        return;
    }
    sherd__marks_to_bits(to);
    for (int i = 0; i < SHERD__MARKS; i++)
        to->word[i] |= from->word[i];
}

/* A larger set: each identity belongs in one of these. */
enum { SHERD__MARK_SETS = 8 };

static inline sherd__marks *sherd__marks_for(sherd__marks *sets, uint64_t identity)
{
    return &sets[sherd__mark_hash(identity) >> 20 & (SHERD__MARK_SETS - 1)];
}

#endif
