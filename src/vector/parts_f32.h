/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of f32 in three parts of bf16, packed in tiles: for product_f32_amx.c. Packing waits for
 * memory: rows of the left operand are therefore packed a piece at a time, while the rows before
 * them are multiplied, and what lies across asks for the terms that come next.
 */
#ifndef SHERD__VECTOR_PARTS_F32_H
#define SHERD__VECTOR_PARTS_F32_H

#include <string.h>

#include "blocks.h"

/*
 * Parts of a number; numbers of a tile in parts, one behind the other, and of a block; columns
 * packed at once; how many strips ahead memory is asked for, a divisor of BLOCK; rows of a piece
 * of what lies across.
 */
enum { PARTS = 3, CELL = PARTS * TILE, PARTED = 2 * CELL, MOST = 1024, AHEAD = 8, PIECE = 4 };

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

/*
 * At most 32 rows of the left operand, on their way into tiles: 32 terms of a row at a time, a
 * strip; or, where the operand lies across, of four rows, a piece. Its lines are first asked for,
 * then copied, and the next time packed: rows of a matrix may be so far apart that the first cache
 * has room for a few lines only.
 */
typedef struct left_rows {
    lying_numbers m; /* across: its rows are terms */
    uint16_t *to;
    bool across;
    int64_t terms, x, row; /* x, row: of what comes next */
    vi most[BLOCK];        /* of each row; across: two vectors of rows */
    float lines[2][BLOCK][BLOCK];
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
INLINE void begin_rows(left_rows *left, const lying_numbers *m, bool across, uint16_t *to)
{
    left->m = *m;
    left->to = to;
    left->across = across;
    left->terms = across ? m->rows : m->width;
    left->x = across && m->rows ? -2 * BLOCK : 0;
    left->row = 0;
    for (int r = 0; r < BLOCK; r++)
        left->most[r] = v_int(0);
}

INLINE bool are_packed(const left_rows *left)
{
    return left->x >= left->terms;
}

/* Where 32 terms of the next row go to. */
INLINE uint16_t *left_place(const left_rows *left)
{
    return left->to + (left->row / SIDE * blocks_of(left->terms) + left->x / BLOCK) * CELL +
           left->row % SIDE * BLOCK;
}

/* 32 terms of a row. */
INLINE void put_terms(uint16_t *at, vf first, vf second)
{
    vi y[PARTS];

    pair_parts(y, first, second);
    for (int p = 0; p < PARTS; p++)
        store_words(at + p * TILE, y[p]);
}

/* `rows` are packed. */
INLINE void go_on(left_rows *left, int64_t rows)
{
    left->row = (left->row + rows) % BLOCK;
    left->x += left->row ? 0 : BLOCK;
}

INLINE void pack_strip(left_rows *left)
{
    const lying_numbers *m = &left->m;
    int64_t x = left->x, row = left->row, later = row + AHEAD;
    const float *ahead = m->at + later % BLOCK * m->stride + x + later / BLOCK * BLOCK;
    const float *from = m->at + row * m->stride + x;
    bool whole = row < m->rows && x + BLOCK <= m->width;
    vf first = whole ? v_load(from) : load_numbers(m, row, x);
    vf second = whole ? v_load(from + SIDE) : load_numbers(m, row, x + SIDE);

    __builtin_prefetch(ahead, 0, 3);
    __builtin_prefetch(ahead + SIDE, 0, 3);
    left->most[row] = larger(larger(left->most[row], first), second);
    put_terms(left_place(left), first, second);
    go_on(left, 1);
}

/* Four terms, of all 32 rows, are copied; zeroes behind the last one. */
INLINE void copy_terms(left_rows *left, int64_t term)
{
    const lying_numbers *m = &left->m;

    for (int64_t i = term; i < term + PIECE; i++)
        for (int h = 0; h < 2; h++) {
            vf y = load_numbers(m, i, h * SIDE);
            left->most[h] = larger(left->most[h], y);
            v_store(left->lines[i / BLOCK % 2][i % BLOCK] + h * SIDE, y);
        }
}

/* 16 terms of four rows. */
INLINE void load_piece(vi y[PIECE], const float *at)
{
    for (int i = 0; i < PIECE; i++)
        y[i] = v_load_lanes(at + i * BLOCK, PIECE * BLOCK);
    v_turn4(y);
}

INLINE void pack_piece(left_rows *left)
{
    const lying_numbers *m = &left->m;
    int64_t row = left->row, next = left->x + BLOCK + row;
    const float *ahead = m->at + (next + BLOCK) * m->stride;

    for (int64_t i = 0; i < PIECE; i++, ahead += m->stride) {
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + SIDE, 0, 2);
    }
    if (next >= 0 && next < blocks_of(m->rows) * BLOCK)
        copy_terms(left, next);
    if (left->x >= 0) {
        const float *from = left->lines[left->x / BLOCK % 2][0] + row;
        uint16_t *at = left_place(left);
        vi first[PIECE], second[PIECE];
        load_piece(first, from);
        load_piece(second, from + SIDE * BLOCK);
        for (int r = 0; r < PIECE; r++)
            put_terms(at + r * BLOCK, (vf)first[r], (vf)second[r]);
    }
    go_on(left, PIECE);
}

INLINE void pack_next(left_rows *left)
{
    if (left->across)
        pack_piece(left);
    else
        pack_strip(left);
}

/* What is not packed yet. */
static range pack_rest(left_rows *left)
{
    range of = {UINT32_MAX, 0};

    while (!are_packed(left))
        pack_next(left);
    for (int r = 0; r < BLOCK; r++)
        see(&of, left->across ? ((const uint32_t *)left->most)[r]
                              : _mm512_reduce_max_epu32(left->most[r]));
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

/* 32 terms of 16 columns of b, where each term is a row; `most` of each. The terms after them are
 * asked for, into the second cache. */
INLINE void pack_terms(bool whole, uint16_t *to, const lying_numbers *m, int64_t i, int64_t x,
                       vi *most)
{
    for (int64_t r = 0; r < SIDE; r++) {
        const float *from = m->at + (i + r) * m->stride + x, *ahead = from + BLOCK * m->stride;
        vf first = whole ? v_load(from) : load_numbers(m, i + r, x);
        vf second = whole ? v_load(from + SIDE * m->stride) : load_numbers(m, i + SIDE + r, x);
        vi pair[PARTS];
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + SIDE * m->stride, 0, 2);
        *most = larger(larger(*most, first), second);
        pair_parts(pair, first, second);
        for (int p = 0; p < PARTS; p++)
            store_words(to + p * TILE + r * BLOCK, pair[p]);
    }
}

/* A row for each term, for the right of a product. */
static range pack_right_terms(uint16_t *to, const lying_numbers *m)
{
    int64_t deep = blocks_of(m->rows);
    vi most[MOST / SIDE];
    range of = {UINT32_MAX, 0};

    for (int64_t x = 0; x < m->width; x += SIDE)
        most[x / SIDE] = v_int(0);
    for (int64_t i = 0; i < deep; i++)
        for (int64_t x = 0; x < blocks_of(m->width) * BLOCK; x += SIDE) {
            uint16_t *at = to + ((x / BLOCK * deep + i) * 2 + x % BLOCK / SIDE) * CELL;
            if ((i + 1) * BLOCK <= m->rows && x + SIDE <= m->width)
                pack_terms(true, at, m, i * BLOCK, x, &most[x / SIDE]);
            else
                pack_terms(false, at, m, i * BLOCK, x, &most[x / SIDE]);
        }
    for (int64_t x = 0; x < m->width; x++)
        see(&of, ((const uint32_t *)most)[x]);
    return of;
}

#endif
