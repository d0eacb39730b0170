/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of f32 in three parts of bf16, packed in tiles: for product_f32_amx.c. Packing waits for
 * memory: rows of the left operand are therefore packed a strip at a time, while the rows before
 * them are multiplied, and what lies across asks for the terms that come next.
 */
#ifndef SHERD__VECTOR_PARTS_F32_H
#define SHERD__VECTOR_PARTS_F32_H

#include "blocks.h"

/*
 * Parts of a number; numbers of a tile in parts, one behind the other, and of a block; columns
 * packed at once; how many strips ahead memory is asked for, a divisor of BLOCK.
 */
enum { PARTS = 3, CELL = PARTS * TILE, PARTED = 2 * CELL, MOST = 1024, AHEAD = 8 };

/* The magnitudes of rows, or columns: the smallest that is not 0, and the largest. As bits of f32,
 * which order them; NaN is above all. */
typedef struct range {
    uint32_t least, most;
} range;

/* Rows of a matrix as it lies, `stride` apart. */
typedef struct lying_numbers {
    const float *at;
    int64_t stride, rows, width;
} lying_numbers;

/* At most 32 rows of the left operand, on their way into tiles. A strip is 32 terms of a row. */
typedef struct left_rows {
    lying_numbers m;
    uint16_t *to;
    int64_t x, row; /* of the strip that comes next */
    vi most[BLOCK];
} left_rows;

/* ---- parts ----------------------------------------------------------------------------------- */

/* Vectors of numbers, each the sum of three. The first two are rounded to bf16, the third is what
 * remains: it fits into bf16, unless it is subnormal, and then tiles take it as 0. */
INLINE void split(vi y[PARTS], vf x)
{
    const vi half = v_int(0x8000), first = v_int(0xFFFF0000);

    for (int i = 0; i < PARTS - 1; i++) {
        y[i] = _mm512_and_si512(v_int_add((vi)x, half), first);
        x = v_sub(x, (vf)y[i]);
    }
    y[PARTS - 1] = (vi)x;
}

/* Two terms of 16 rows or columns side by side, of each part. */
INLINE void pair_parts(vi y[PARTS], vf first, vf second)
{
    enum {
        LOW_OR_MASKED = 0xF8
    }; /* a | (b & c): what is subnormal has bits beyond those of bf16 */
    vi low[PARTS], high[PARTS];

    split(low, first);
    split(high, second);
    for (int i = 0; i < PARTS; i++)
        y[i] = _mm512_ternarylogic_epi32(_mm512_srli_epi32(low[i], 16), high[i], v_int(0xFFFF0000),
                                         LOW_OR_MASKED);
}

INLINE vi larger(vi most, vf x)
{
    return _mm512_max_epu32(most, _mm512_and_si512((vi)x, v_int(0x7FFFFFFF)));
}

/* A row that holds numbers of up to these bits, among others. */
INLINE void see(range *of, uint32_t bits)
{
    of->most = bits > of->most ? bits : of->most;
    of->least = bits && bits < of->least ? bits : of->least;
}

/* 16 numbers of row i, 0 where there are none. */
INLINE vf load_numbers(const lying_numbers *m, int64_t i, int64_t x)
{
    int64_t there = i < m->rows ? sherd__max(m->width - x, 0) : 0;

    return v_load_part(m->at + i * m->stride + x, v_part(there));
}

/* ---- packing --------------------------------------------------------------------------------- */

/*
 * The order of terms is the same for a and b, and none is needed: term i of a block is beside term
 * 16 + i. Rows whose terms are neighbours, for the left of a product.
 */
INLINE void begin_rows(left_rows *left, const lying_numbers *m, uint16_t *to)
{
    left->m = *m;
    left->to = to;
    left->x = left->row = 0;
    for (int r = 0; r < BLOCK; r++)
        left->most[r] = v_int(0);
}

INLINE bool are_packed(const left_rows *left)
{
    return left->x >= left->m.width;
}

static void pack_strip(left_rows *left)
{
    const lying_numbers *m = &left->m;
    int64_t x = left->x, row = left->row, later = row + AHEAD;
    uint16_t *at =
        left->to + (row / SIDE * blocks_of(m->width) + x / BLOCK) * CELL + row % SIDE * BLOCK;
    const float *ahead = m->at + later % BLOCK * m->stride + x + later / BLOCK * BLOCK;
    vf first = load_numbers(m, row, x), second = load_numbers(m, row, x + SIDE);
    vi y[PARTS];

    __builtin_prefetch(ahead, 0, 3);
    __builtin_prefetch(ahead + SIDE, 0, 3);
    left->most[row] = larger(larger(left->most[row], first), second);
    pair_parts(y, first, second);
    for (int p = 0; p < PARTS; p++)
        store_words(at + p * TILE, y[p]);
    left->row = (row + 1) % BLOCK;
    left->x += left->row ? 0 : BLOCK;
}

/* Those strips that are not packed yet. */
static range pack_rest(left_rows *left)
{
    range of = {UINT32_MAX, 0};

    while (!are_packed(left))
        pack_strip(left);
    for (int r = 0; r < BLOCK; r++)
        see(&of, _mm512_reduce_max_epu32(left->most[r]));
    return of;
}

/* The same turned, for the right: rows of the matrix are columns of the product. */
static range pack_right_rows(uint16_t *to, const lying_numbers *m)
{
    int64_t deep = blocks_of(m->width);
    range of = {UINT32_MAX, 0};

    for (int64_t i = 0; i < blocks_of(m->rows) * BLOCK; i += SIDE) {
        uint16_t *at = to + i / BLOCK * deep * PARTED + i % BLOCK / SIDE * CELL;
        vi most[SIDE];
        for (int r = 0; r < SIDE; r++)
            most[r] = v_int(0);
        for (int64_t x = 0; x < m->width; x += BLOCK, at += PARTED) {
            vi y[PARTS][SIDE];
            for (int64_t r = 0; r < SIDE; r++) {
                vf first = load_numbers(m, i + r, x), second = load_numbers(m, i + r, x + SIDE);
                vi pair[PARTS];
                most[r] = larger(larger(most[r], first), second);
                pair_parts(pair, first, second);
                for (int p = 0; p < PARTS; p++)
                    y[p][r] = pair[p];
            }
            for (int p = 0; p < PARTS; p++) {
                turn_rows(y[p]);
                store_tile(at + p * TILE, y[p]);
            }
        }
        for (int r = 0; r < SIDE; r++)
            see(&of, _mm512_reduce_max_epu32(most[r]));
    }
    return of;
}

/* 32 terms of 16 rows of a, or columns of b, where each term is a row; `most` of each. The terms
 * after them are asked for, into the second cache. */
INLINE void pack_terms(bool turned, uint16_t *to, const lying_numbers *m, int64_t i, int64_t x,
                       vi *most)
{
    vi y[PARTS][SIDE];

    for (int64_t r = 0; r < SIDE; r++) {
        vf first = load_numbers(m, i + r, x), second = load_numbers(m, i + SIDE + r, x);
        const float *ahead = m->at + (i + BLOCK + r) * m->stride + x;
        vi pair[PARTS];
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + SIDE * m->stride, 0, 2);
        *most = larger(larger(*most, first), second);
        pair_parts(pair, first, second);
        for (int p = 0; p < PARTS; p++)
            y[p][r] = pair[p];
    }
    for (int p = 0; p < PARTS; p++) {
        if (turned)
            turn_rows(y[p]);
        store_tile(to + p * TILE, y[p]);
    }
}

/* A row for each term; turned, for the left of a product. */
INLINE range pack_across(bool turned, uint16_t *to, const lying_numbers *m)
{
    int64_t deep = blocks_of(m->rows);
    vi most[MOST / SIDE];
    range of = {UINT32_MAX, 0};

    for (int64_t x = 0; x < m->width; x += SIDE)
        most[x / SIDE] = v_int(0);
    for (int64_t i = 0; i < deep; i++)
        for (int64_t x = 0; x < blocks_of(m->width) * BLOCK; x += SIDE)
            pack_terms(turned,
                       to + (turned ? x / SIDE * deep + i
                                    : (x / BLOCK * deep + i) * 2 + x % BLOCK / SIDE) *
                                CELL,
                       m, i * BLOCK, x, &most[x / SIDE]);
    for (int64_t x = 0; x < m->width; x++)
        see(&of, ((const uint32_t *)most)[x]);
    return of;
}

#endif
