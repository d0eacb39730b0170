/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of blocks of bf16 (blocks.h) by AVX512_BF16, which adds the products of two pairs of
 * numbers to each f32: a pair of a row of the left operand, in all lanes, with 16 pairs of the
 * right one.
 */
#ifndef SHERD__VECTOR_PAIRS_H
#define SHERD__VECTOR_PAIRS_H

#include <string.h>

#include "blocks.h"

/* Rows of sums in registers: so few that the last products of some rows and the first ones of the
 * next are under way together. */
enum { PAIR_ROWS = 4, MOST_PAIR_ROWS = 8 /* of half as many columns */ };

INLINE vi spread_pair(const uint16_t *p)
{
    int32_t pair;

    memcpy(&pair, p, sizeof pair);
    return _mm512_set1_epi32(pair);
}

/* sum += the products of pairs [from, to) of some rows and columns, of which half `first` is the
 * first. */
INLINE void add_rows_of_pairs(int rows, int first, vf sum[][2], const uint16_t *left,
                              const uint16_t *right, int64_t second, int from, int to)
{
#pragma GCC unroll 4
    for (int pair = from; pair < to; pair++) {
        vi low = load_words(right + pair * BLOCK);
        vi high = load_words(right + second + pair * BLOCK);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            vi x = spread_pair(left + i * BLOCK + 2 * pair);
            if (first == 0)
                sum[i][0] = add_pairs(sum[i][0], x, low);
            sum[i][1] = add_pairs(sum[i][1], x, high);
        }
    }
}

/* Rows of c, columns from half `first` on; `below`: they are behind the first 16. */
INLINE void multiply_rows(int rows, int first, corner gone, bool below, bool add, float *c,
                          int64_t c_row, int64_t depth, const uint16_t *left, int64_t left_next,
                          tiles b)
{
    vf sum[MOST_PAIR_ROWS][2];

#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        for (int half = first; half < 2; half++)
            sum[i][half] = add ? v_load(c + i * c_row + half * SIDE) : v_zero();
    for (int64_t d = 0; d < depth; d++, left += left_next, b.at += b.next) {
        if (gone == CORNER_OF_LEFT && below && d == 0) {
            add_rows_of_pairs(rows, first, sum, left, b.at, b.second, SIDE / 2, SIDE);
        } else if (gone == CORNER_OF_RIGHT && d + 1 == depth) {
            add_rows_of_pairs(rows, first, sum, left, b.at, b.second, 0, SIDE / 2);
            add_rows_of_pairs(rows, 1, sum, left, b.at, b.second, SIDE / 2, SIDE);
        } else {
            add_rows_of_pairs(rows, first, sum, left, b.at, b.second, 0, SIDE);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        for (int half = first; half < 2; half++)
            v_store(c + i * c_row + half * SIDE, sum[i][half]);
}

INLINE void multiply_without(corner gone, bool add, float *c, int64_t c_row, int64_t depth, tiles a,
                             tiles b)
{
    int64_t r = 0;

    for (; r < SIDE; r += PAIR_ROWS, c += PAIR_ROWS * c_row)
        multiply_rows(PAIR_ROWS, 0, gone, false, add, c, c_row, depth, a.at + r * BLOCK, a.next, b);
    a.at += a.second - SIDE * BLOCK;
    for (; gone == CORNER_OF_RESULT && r < BLOCK; r += MOST_PAIR_ROWS, c += MOST_PAIR_ROWS * c_row)
        multiply_rows(MOST_PAIR_ROWS, 1, gone, true, add, c, c_row, depth, a.at + r * BLOCK, a.next,
                      b);
    for (; r < BLOCK; r += PAIR_ROWS, c += PAIR_ROWS * c_row)
        multiply_rows(PAIR_ROWS, 0, gone, true, add, c, c_row, depth, a.at + r * BLOCK, a.next, b);
}

/* c[32,32] = a b, or c += a b, where the sum is over `depth` tiles of 32 numbers. c_row floats lie
 * between rows of c. */
INLINE void multiply_tiles(corner gone, bool add, float *c, int64_t c_row, int64_t depth, tiles a,
                           tiles b)
{
    switch (gone) {
    case NO_CORNER:
        multiply_without(NO_CORNER, add, c, c_row, depth, a, b);
        break;
    case CORNER_OF_RESULT:
        multiply_without(CORNER_OF_RESULT, add, c, c_row, depth, a, b);
        break;
    case CORNER_OF_LEFT:
        multiply_without(CORNER_OF_LEFT, add, c, c_row, depth, a, b);
        break;
    case CORNER_OF_RIGHT:
        multiply_without(CORNER_OF_RIGHT, add, c, c_row, depth, a, b);
        break;
    }
}

#endif
