/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words in which products of bf16 in blocks are written, whatever instruction multiplies (amx.h,
 * pairs.h), and the packing that they want. The left operand of a product is rows of 32 numbers;
 * the right one has two numbers of a column side by side, those of rows 2i and 2i+1; results are
 * f32. Everything packed is tiles of 1 KB, 16 rows of 64 bytes, one behind the other, zero beyond
 * the numbers there are, and counts are whole blocks of 32: a block of a result is four tiles.
 */
#ifndef SHERD__VECTOR_BLOCKS_H
#define SHERD__VECTOR_BLOCKS_H

#include <stddef.h>

#include "words.h"
#include "base/num.h"

enum {
    SIDE = 16,              /* rows of a tile, and columns of a result */
    BLOCK = 2 * SIDE,       /* rows and columns of a block, and numbers in a row of a tile */
    TILE = SIDE * BLOCK,    /* numbers of a tile */
    SQUARE = BLOCK * BLOCK, /* numbers of a block */
    AT_ONCE = 4             /* rows that are turned together */
};

static inline int64_t blocks_of(int64_t n)
{
    return sherd__ceil_div(n, BLOCK);
}

/* An operand in tiles: where it begins, the second tile of a block, and what comes next in the sum;
 * in numbers. */
typedef struct tiles {
    const uint16_t *at;
    int64_t second, next;
} tiles;

/*
 * Of a block on the diagonal of causal attention nobody sees the quarter of the last 16 rows and
 * the first 16 columns. A product may leave it out: of the result, which then holds there what it
 * held; of the first block of the left operand, or of the last one of the right, where it is zero.
 */
typedef enum corner { NO_CORNER, CORNER_OF_RESULT, CORNER_OF_LEFT, CORNER_OF_RIGHT } corner;

/* ---- 32 numbers of bf16 ---- */

/* Two vectors rounded, the first one in front. What is subnormal becomes 0, as tiles take it
 * anyhow. */
INLINE vi round_words(vf first, vf second)
{
    return (vi)_mm512_cvtne2ps_pbh(second, first);
}

/* 16 rows of 16 pairs transposed. */
INLINE void turn_rows(vi x[SIDE])
{
    vi y[SIDE];

    for (int i = 0; i < SIDE; i += AT_ONCE)
        v_turn4(x + i);
    for (int i = 0; i < AT_ONCE; i++) {
        vi a = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x44),
           b = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xEE);
        vi c = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x44),
           d = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xEE);
        y[i] = _mm512_shuffle_i32x4(a, c, 0x88);
        y[4 + i] = _mm512_shuffle_i32x4(a, c, 0xDD);
        y[8 + i] = _mm512_shuffle_i32x4(b, d, 0x88);
        y[12 + i] = _mm512_shuffle_i32x4(b, d, 0xDD);
    }
    for (int i = 0; i < SIDE; i++)
        x[i] = y[i];
}

INLINE void store_tile(uint16_t *to, const vi x[SIDE])
{
    for (int i = 0; i < SIDE; i++)
        store_words(to + i * BLOCK, x[i]);
}

/* ---- packing ---- */

/* Rows of a matrix as it lies, `stride` apart. */
typedef struct lying_rows {
    const uint16_t *at;
    int64_t stride, rows, width;
} lying_rows;

/* Columns from `column` on of row i, 0 where there are none. */
INLINE vi load_row(const lying_rows *m, int64_t i, int64_t column)
{
    return i < m->rows ? load_words_part(m->at + i * m->stride + column, m->width - column)
                       : v_int(0);
}

/* Rows as they are, for the left of a sum over columns: tiles [rows / 16][width / 32]. */
static inline void pack_lines(uint16_t *to, const lying_rows *m)
{
    for (int64_t i = 0; i < blocks_of(m->rows) * BLOCK; i += SIDE)
        for (int64_t x = 0; x < m->width; x += BLOCK, to += TILE)
            for (int64_t r = 0; r < SIDE; r++)
                store_words(to + r * BLOCK, load_row(m, i + r, x));
}

/* Turned, for the right of a sum over columns, each pair exclusive-or `flip`: tiles [rows /
 * 32][width / 32][2]. */
static inline void pack_turned_lines(uint16_t *to, const lying_rows *m, uint32_t flip)
{
    for (int64_t i = 0; i < m->rows; i += BLOCK)
        for (int64_t x = 0; x < m->width; x += BLOCK)
            for (int64_t half = 0; half < BLOCK; half += SIDE, to += TILE) {
                vi line[SIDE];
                for (int64_t r = 0; r < SIDE; r++)
                    line[r] = v_int_xor(load_row(m, i + half + r, x), v_int(flip));
                turn_rows(line);
                store_tile(to, line);
            }
}

/* 32 rows as pairs: columns 0 to 15, and those from 16 on. */
INLINE void load_pairs(vi low[SIDE], vi high[SIDE], const lying_rows *m, int64_t i, int64_t column)
{
    for (int64_t r = 0; r < SIDE; r++)
        pair_rows(load_row(m, i + 2 * r, column), load_row(m, i + 2 * r + 1, column), &low[r],
                  &high[r]);
}

/* For the right of a sum over rows: tiles [rows / 32][width / 16]. Turned, for the left of one, so
 * that the result is turned. */
static inline void pack_pairs(uint16_t *to, const lying_rows *m, bool turned)
{
    vi low[SIDE], high[SIDE];

    for (int64_t i = 0; i < m->rows; i += BLOCK)
        for (int64_t x = 0; x < m->width; x += BLOCK, to += 2 * TILE) {
            load_pairs(low, high, m, i, x);
            if (turned) {
                turn_rows(low);
                turn_rows(high);
            }
            store_tile(to, low);
            store_tile(to + TILE, high);
        }
}

/* A block of up to 32 rows, turned [width,32] f32, times factors of its rows, rounded to where they
 * lie. */
static inline void store_turned(uint16_t *to, int64_t stride, int64_t rows, int64_t width,
                                const float *from, const float *factor)
{
    vf left = v_load(factor), right = v_load(factor + SIDE);
    vi line[BLOCK];

    for (int64_t x = 0; x < width; x += BLOCK, from += SQUARE) {
        for (int64_t i = 0; i < SIDE; i++) {
            const float *one = from + 2 * i * BLOCK, *two = one + BLOCK;
            vi a = round_words(v_mul(v_load(one), left), v_mul(v_load(one + SIDE), right));
            vi b = round_words(v_mul(v_load(two), left), v_mul(v_load(two + SIDE), right));
            pair_rows(a, b, &line[i], &line[SIDE + i]);
        }
        turn_rows(line);
        turn_rows(line + SIDE);
        for (int64_t r = 0; r < rows; r++)
            _mm512_mask_storeu_epi16(to + r * stride + x, words_part(width - x), line[r]);
    }
}

/* Rows [rows,from_row] f32 times `by`, rounded. */
static inline void store_lines(uint16_t *to, int64_t stride, int64_t rows, int64_t width,
                               const float *from, int64_t from_row, float by)
{
    vf factor = v_set(by);

    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < width; x += BLOCK) {
            const float *line = from + r * from_row + x;
            _mm512_mask_storeu_epi16(
                to + r * stride + x, words_part(width - x),
                round_words(v_mul(v_load(line), factor), v_mul(v_load(line + SIDE), factor)));
        }
}

#endif
