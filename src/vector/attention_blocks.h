/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What both directions of attention of bf16 in blocks share. Scores are turned, a row for each key
 * and 32 queries in it, so that maxima and sums of queries run down lanes, and two rows of
 * probabilities side by side are the right operand of the next product.
 */
#ifndef SHERD__VECTOR_ATTENTION_BLOCKS_H
#define SHERD__VECTOR_ATTENTION_BLOCKS_H

#include "blocks.h"
#include "fast.h"
#include "fetch.h"

#include <math.h>
#include <string.h>

/* Scores times this are powers of two: 1 / ln 2. */
static const float powers = 1.4426950408889634f;

/*
 * 2^x to 3e-6, which the rounding to bf16 hides: x = n + r, 0 <= r < 1, 2^r by a polynomial of
 * degree 4 (minimax of the relative error, 1 at 0). Below -126 the result is 0, NaN stays NaN.
 */
INLINE vf power_of_two(vf x)
{
    vf r = v_fraction(x);
    vf p = v_fma(v_set(1.34266855e-2f), r, v_set(5.22424714e-2f));
    p = v_fma(p, r, v_set(2.41280207e-1f));
    p = v_fma(p, r, v_set(6.93044844e-1f));
    p = v_fma(p, r, v_set(1));
    return v_times_floor(p, x, v_less(x, v_set(-126)));
}

/* log2 x to 3e-7, x > 0: x = m 2^e, 3/4 <= m < 3/2, log2 m by a polynomial of degree 7 in m - 1
 * (minimax). */
INLINE vf log_of_two(vf x)
{
    vf m = _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
    vf e = _mm512_getexp_ps(_mm512_mask_add_ps(x, v_less(m, v_set(1)), x, x));
    vf f = v_sub(m, v_set(1));
    vf p = v_fma(v_set(1.14523975e-1f), f, v_set(-2.40706900e-1f));
    p = v_fma(p, f, v_set(2.99767827e-1f));
    p = v_fma(p, f, v_set(-3.62009652e-1f));
    p = v_fma(p, f, v_set(4.80521024e-1f));
    p = v_fma(p, f, v_set(-7.21309378e-1f));
    p = v_fma(p, f, v_set(1.44269844f));
    return v_fma(p, f, e);
}

/* Keys that queries i..i+32 see, of those there are. */
static inline int64_t keys_seen(const sherd__attending *s, int64_t i)
{
    return sherd__visible(s, sherd__min(i + BLOCK, s->queries) - 1);
}

/* The first block of keys that they see. */
static inline int64_t keys_begin(const sherd__attending *s, int64_t i)
{
    return sherd__unseen(s, i) / BLOCK * BLOCK;
}

/* Whether the block of keys from j on and queries from i on is on the diagonal, where a quarter is
 * seen by nobody. */
static inline bool on_diagonal(const sherd__attending *s, int64_t i, int64_t j)
{
    return s->causal && i == j;
}

/* The queries, of 32 from i on, that do not see key j, a bit each. */
static inline __mmask32 blind_to(const sherd__attending *s, int64_t i, int64_t j)
{
    __mmask32 hidden = 0;

    if (j >= s->keys)
        return ~0u;
    if (!s->span)
        return (s->causal ? words_part(j - i) : 0) |
               (s->window ? ~words_part(j + s->window - i) : 0);
    for (int64_t c = 0; c < BLOCK && i + c < s->queries; c++)
        if (j < sherd__unseen(s, i + c) || j >= sherd__visible(s, i + c))
            hidden |= (__mmask32)1 << c;
    return hidden;
}

/* Scores [32,32] of keys from j on and queries from i on: those that are not seen become -inf. */
static inline void hide_block(const sherd__attending *s, int64_t i, int64_t j, float *score)
{
    int64_t last = sherd__min(i + BLOCK, s->queries) - 1;
    vf none = v_set(-INFINITY);

    if (j + BLOCK <= sherd__visible(s, i) && j >= sherd__unseen(s, last))
        return;
    for (int64_t r = 0; r < BLOCK; r++, score += BLOCK) {
        __mmask32 hidden = blind_to(s, i, j + r);
        v_store_part(score, (vm)hidden, none);
        v_store_part(score + SIDE, (vm)(hidden >> SIDE), none);
    }
}

/*
 * After how many pairs of rows of scores (a block has 16 pairs) a row of the next group is fetched:
 * such that all are there at the end, and no more are under way than a core can wait for.
 */
static inline int64_t pace_of(const sherd__attending *s)
{
    int64_t blocks = blocks_of(s->keys);

    if (sherd__begins_late(s))
        return 1;
    return sherd__max(1, sherd__min(SIDE, s->causal ? (blocks + 1) / 4 : blocks / 2));
}

static inline void fetch_beside(sherd__fetching *f, int64_t pace, int64_t pair)
{
    if (pair % pace == 0)
        sherd__fetch_row(f);
}

/* Whole sequences, with nothing between scores and products but what is hidden. */
static inline bool is_possible(const sherd__attending *s)
{
    return s->first_query == s->first_key && s->queries > 0 && s->keys > 0 && s->width > 0 &&
           !s->mask && s->p == 0 && s->softcap == 0 && s->scale != 0;
}

/* Scores are of |scale|: its sign goes with queries, so that the largest score stays the
 * largest. */
static inline uint32_t sign_of(const sherd__attending *s)
{
    return s->scale < 0 ? 0x80008000u : 0;
}

static inline lying_rows lying_queries(const sherd__attending *s, const void *p, int64_t at,
                                       int64_t rows)
{
    return (lying_rows){(const uint16_t *)p + at, sherd__query_stride(s), rows, s->width};
}

static inline lying_rows lying_keys(const sherd__attending *s, const void *p, int64_t at)
{
    return (lying_rows){(const uint16_t *)p + at, sherd__key_stride(s), s->keys, s->width};
}

/* The next part of the workspace, which begins with a cache line; parts are whole tiles. */
static inline void *take(char **space, int64_t bytes)
{
    char *p = *space + (SHERD__LINE - (uintptr_t)*space % SHERD__LINE) % SHERD__LINE;

    *space = p + bytes;
    return p;
}

#endif
