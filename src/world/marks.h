/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of identities of tensors, of a fixed size: some exactly, and if there are more, all by bits
 * (a Bloom filter). A set holds all that were put in; only one of bits may seem to hold others too.
 * In whatever order sets are joined, the result holds the same, so ranks agree.
 */
#ifndef SHERD__WORLD_MARKS_H
#define SHERD__WORLD_MARKS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { SHERD__MARKS = 4, SHERD__MANY_MARKS = 96, SHERD__MARK_BITS = 4 };

/* word[0]: how many identities follow; more than there is room for: the others are bits. */
typedef struct sherd__marks {
    uint64_t word[1 + SHERD__MARKS];
} sherd__marks;

typedef struct sherd__many_marks {
    uint64_t word[1 + SHERD__MANY_MARKS];
} sherd__many_marks;

/* The i-th bit of an identity, in a set of `room` words. */
static inline uint64_t sherd__mark_bit(uint64_t identity, int i, uint64_t room)
{
    uint64_t hash = identity * 0x9E3779B97F4A7C15u; /* neighbours are far apart */

    return (hash >> (48 - 16 * i) & 0xFFFF) * room * 64 >> 16;
}

static inline void sherd__mark_bits(uint64_t *set, uint64_t room, uint64_t identity)
{
    for (int i = 0; i < SHERD__MARK_BITS; i++) {
        uint64_t bit = sherd__mark_bit(identity, i, room);
        set[1 + bit / 64] |= UINT64_C(1) << bit % 64;
    }
}

/* Whether all bits of an identity are in word[room]. */
static inline bool sherd__mark_has_bits(const uint64_t *word, uint64_t room, uint64_t identity)
{
    bool in = true;

    for (int i = 0; in && i < SHERD__MARK_BITS; i++) {
        uint64_t bit = sherd__mark_bit(identity, i, room);
        in = word[bit / 64] >> bit % 64 & 1;
    }
    return in;
}

static inline bool sherd__mark_is_in(const uint64_t *set, uint64_t room, uint64_t identity)
{
    bool bits = set[0] > room, in = bits && sherd__mark_has_bits(set + 1, room, identity);

    for (uint64_t i = 1; !bits && !in && i <= set[0]; i++)
        in = set[i] == identity;
    return in && identity != 0;
}

/* A list of identities becomes bits, when there is no room for one more. */
static inline void sherd__mark_all_bits(uint64_t *set, uint64_t room)
{
    uint64_t list[SHERD__MANY_MARKS], count = set[0];

    memcpy(list, set + 1, (size_t)count * sizeof *list);
    memset(set, 0, (size_t)(1 + room) * sizeof *set);
    set[0] = room + 1;
    for (uint64_t i = 0; i < count; i++)
        sherd__mark_bits(set, room, list[i]);
}

/* Not 0, which is in no set. */
static inline void sherd__mark_put(uint64_t *set, uint64_t room, uint64_t identity)
{
    if (identity == 0 || sherd__mark_is_in(set, room, identity))
        return;
    if (set[0] < room) {
        set[++set[0]] = identity;
        return;
    }
    if (set[0] == room)
        sherd__mark_all_bits(set, room);
    sherd__mark_bits(set, room, identity);
}

/* Add all of another set of the same size. */
static inline void sherd__mark_join(uint64_t *set, uint64_t room, const uint64_t *from)
{
    if (from[0] <= room) {
        for (uint64_t i = 1; i <= from[0]; i++)
            sherd__mark_put(set, room, from[i]);
        return;
    }
    if (set[0] <= room)
        sherd__mark_all_bits(set, room);
    for (uint64_t i = 1; i <= room; i++)
        set[i] |= from[i];
}

#endif
