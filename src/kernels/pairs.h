/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of blocks of bf16 (blocks.h) by AVX512_BF16, which adds the products of two pairs of
 * numbers to each f32: a pair of a row of the left operand, in all lanes, with 16 pairs of the
 * right one.
 */
#ifndef SHERD__PAIRS_H
#define SHERD__PAIRS_H

#include <string.h>

#include "blocks.h"

/* Rows of sums in registers: so few that the last products of some rows and the first ones of the
 * next are under way together. */
enum { PAIR_ROWS = 4 };

INLINE vi spread_pair(const uint16_t *p)
{
    int32_t pair;

    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

/* c[32,32] = a b, or c += a b, where the sum is over `depth` tiles of 32 numbers. c_row floats lie
 * between rows of c. */
INLINE void multiply_tiles(bool add, float *c, int64_t c_row, int64_t depth, tiles a, tiles b)
{
    for (int64_t r = 0; r < BLOCK; r += PAIR_ROWS, c += PAIR_ROWS * c_row) {
        const uint16_t *left = a.at + (r < SIDE ? r * BLOCK : a.second + (r - SIDE) * BLOCK);
        const uint16_t *right = b.at;
        vf sum[PAIR_ROWS][2];
#pragma GCC unroll 4
        for (int i = 0; i < PAIR_ROWS; i++)
            for (int half = 0; half < 2; half++)
                sum[i][half] = add ? v_load(c + i * c_row + half * SIDE) : v_zero();
        for (int64_t d = 0; d < depth; d++, left += a.next, right += b.next)
#pragma GCC unroll 4
            for (int pair = 0; pair < SIDE; pair++) {
                vi low = load_words(right + pair * BLOCK);
                vi high = load_words(right + b.second + pair * BLOCK);
#pragma GCC unroll 4
                for (int i = 0; i < PAIR_ROWS; i++) {
                    vi x = spread_pair(left + i * BLOCK + 2 * pair);
                    sum[i][0] = add_pairs(sum[i][0], x, low);
                    sum[i][1] = add_pairs(sum[i][1], x, high);
                }
            }
#pragma GCC unroll 4
        for (int i = 0; i < PAIR_ROWS; i++)
            for (int half = 0; half < 2; half++)
                v_store(c + i * c_row + half * SIDE, sum[i][half]);
    }
}

#endif
