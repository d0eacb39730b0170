/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sets of ranks: bits, in as many words as the highest rank that was ever put in takes. So a set of
 * a small world costs what one word costs, and nothing here knows how large the world is. `{0}` is
 * the empty set.
 */
#ifndef SHERD__WORLD_RANKS_H
#define SHERD__WORLD_RANKS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sherd/status.h"

typedef _Atomic uint64_t sherd__word;

enum { SHERD__RANK_WORDS = (SHERD_MAX_RANKS + 63) / 64 };

typedef struct sherd__ranks {
    int words; /* what is behind them is undefined */
    uint64_t word[SHERD__RANK_WORDS];
} sherd__ranks;

/* One that others read while it is written, word by word: as many words as the world has ranks
 * for. */
typedef struct sherd__shared_ranks {
    sherd__word word[SHERD__RANK_WORDS];
} sherd__shared_ranks;

/* How many words the ranks of a world take. */
static inline int sherd__rank_words(int ranks)
{
    return (int)(((unsigned)ranks + 63) / 64);
}

/* The word that a rank is in. */
static inline int sherd__rank_word(int rank)
{
    return (int)((unsigned)rank / 64);
}

static inline uint64_t sherd__rank_bit(int rank)
{
    return UINT64_C(1) << (unsigned)rank % 64;
}

static inline void sherd__ranks_clear(sherd__ranks *set)
{
    set->words = 0;
}

/*
 * Let a set have so many words at least. One is what nearly all sets have, here and below: a loop
 * over words would become a call of memset or memcpy.
 */
static inline void sherd__ranks_widen(sherd__ranks *set, int words)
{
    if (set->words >= words)
        return;
    if (words == 1)
        set->word[0] = 0;
    else
        for (int w = set->words; w < words; w++)
            set->word[w] = 0;
    set->words = words;
}

static inline bool sherd__ranks_has(const sherd__ranks *set, int rank)
{
    int w = sherd__rank_word(rank);

    return w < set->words && (set->word[w] & sherd__rank_bit(rank)) != 0;
}

static inline void sherd__ranks_add(sherd__ranks *set, int rank)
{
    int w = sherd__rank_word(rank);

    sherd__ranks_widen(set, w + 1);
    set->word[w] |= sherd__rank_bit(rank);
}

static inline void sherd__ranks_add_list(sherd__ranks *set, const int *rank, int count)
{
    for (int i = 0; i < count; i++)
        sherd__ranks_add(set, rank[i]);
}

static inline void sherd__ranks_drop(sherd__ranks *set, int rank)
{
    int w = sherd__rank_word(rank);

    if (w < set->words)
        set->word[w] &= ~sherd__rank_bit(rank);
}

/* All ranks of a world. */
static inline void sherd__ranks_fill(sherd__ranks *set, int ranks)
{
    set->words = sherd__rank_words(ranks);
    for (int w = 0; w < set->words; w++)
        set->word[w] = ~UINT64_C(0);
    if (ranks % 64)
        set->word[set->words - 1] = (UINT64_C(1) << ranks % 64) - 1;
}

/* The lowest rank from this one on that is in it; -1: there is none. */
static inline int sherd__ranks_next(const sherd__ranks *set, int rank)
{
    int w = sherd__rank_word(rank);

    if (w >= set->words)
        return -1;
    /* -bit: this one and all above. */
    for (uint64_t word = set->word[w] & -sherd__rank_bit(rank);; word = set->word[w]) {
        if (word)
            return w * 64 + __builtin_ctzll(word);
        if (++w >= set->words)
            return -1;
    }
}

static inline bool sherd__ranks_none(const sherd__ranks *set)
{
    uint64_t any = 0;

    for (int w = 0; w < set->words; w++)
        any |= set->word[w];
    return any == 0;
}

static inline void sherd__ranks_copy(sherd__ranks *to, const sherd__ranks *from)
{
    to->words = from->words;
    if (from->words == 1)
        to->word[0] = from->word[0];
    else
        for (int w = 0; w < from->words; w++)
            to->word[w] = from->word[w];
}

/* Also what the other has. */
static inline void sherd__ranks_join(sherd__ranks *set, const sherd__ranks *other)
{
    sherd__ranks_widen(set, other->words);
    for (int w = 0; w < other->words; w++)
        set->word[w] |= other->word[w];
}

/* Only what the other has too. */
static inline void sherd__ranks_meet(sherd__ranks *set, const sherd__ranks *other)
{
    if (set->words > other->words)
        set->words = other->words;
    for (int w = 0; w < set->words; w++)
        set->word[w] &= other->word[w];
}

/* Without what the other has. */
static inline void sherd__ranks_less(sherd__ranks *set, const sherd__ranks *other)
{
    for (int w = 0; w < set->words && w < other->words; w++)
        set->word[w] &= ~other->word[w];
}

static inline bool sherd__ranks_equal(const sherd__ranks *a, const sherd__ranks *b)
{
    const sherd__ranks *most = a->words > b->words ? a : b;

    for (int w = 0; w < most->words; w++)
        if ((w < a->words ? a->word[w] : 0) != (w < b->words ? b->word[w] : 0))
            return false;
    return true;
}

/* ---- shared ones ----------------------------------------------------------------------------- */

/* Of a world of so many ranks. */
static inline void sherd__ranks_load(sherd__ranks *set, const sherd__shared_ranks *from, int ranks)
{
    set->words = sherd__rank_words(ranks);
    for (int w = 0; w < set->words; w++)
        set->word[w] = atomic_load(&from->word[w]);
    if (ranks % 64)
        set->word[set->words - 1] &= (UINT64_C(1) << ranks % 64) - 1;
}

static inline void sherd__ranks_store(sherd__shared_ranks *to, const sherd__ranks *set, int ranks)
{
    for (int w = 0; w < sherd__rank_words(ranks); w++)
        atomic_store(&to->word[w], w < set->words ? set->word[w] : 0);
}

#endif
