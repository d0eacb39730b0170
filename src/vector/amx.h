/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of blocks of bf16 (blocks.h) in the tiles of AMX: a block of a result is four tiles of
 * 16 x 16 f32, and takes all eight; half of one, of 16 x 32, takes five.
 *
 * A core renames tiles, like other registers, but has few physical ones besides the eight of each
 * hardware thread. Where another thread runs on the core, too, those are shared: with eight tiles
 * in use, a product then waits for the one before it, and half blocks are 40 to 70 % faster.
 * Otherwise blocks are, by up to 15 %, where sums are long. The results are the same, to the last
 * bit, so both are tried now and then, and the faster is taken (`tile_pace`).
 */
#ifndef SHERD__VECTOR_AMX_H
#define SHERD__VECTOR_AMX_H

#include "blocks.h"

/* As ldtilecfg reads it. */
typedef struct tile_shapes {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[SIDE];
    uint8_t rows[SIDE];
} tile_shapes;

/* Before and after products; oneDNN does the same, each time anew. */
INLINE void begin_products(void)
{
    tile_shapes shapes = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        shapes.bytes[i] = BLOCK * sizeof(uint16_t);
        shapes.rows[i] = SIDE;
    }
    __asm__ volatile("" ::"m"(shapes)); /* gcc's _tile_loadconfig is seen to read 8 bytes */
    _tile_loadconfig(&shapes);
}

INLINE void end_products(void)
{
    _tile_release();
}

/* After how many times 32 rows of a result both ways are tried, each as often as TRIES; by which
 * part of its time half blocks must be faster, as times vary. */
enum { TRIALS = 64, TRIES = 2, CLEARLY = 8 };

/* How long 32 rows took at the least when both ways were tried: in blocks, in half blocks. */
typedef struct tile_pace {
    uint64_t took[2];
    int64_t turn;
} tile_pace;

/* Whether the next 32 rows are made in half blocks: what was clearly faster, or is to be tried. */
INLINE bool takes_halves(const tile_pace *p)
{
    int64_t turn = p->turn % TRIALS;

    if (turn < 2 * TRIES)
        return turn >= TRIES;
    return p->took[1] + p->took[1] / CLEARLY < p->took[0];
}

/* 32 rows were made, from `begin` on, a time of __builtin_ia32_rdtsc. Other than those that are
 * tries do not count: one that was disturbed would change the way. */
INLINE void keep_pace(tile_pace *p, uint64_t begin)
{
    int64_t turn = p->turn++ % TRIALS;
    uint64_t took = __builtin_ia32_rdtsc() - begin, *least = &p->took[turn >= TRIES];

    if (turn < 2 * TRIES)
        *least = turn % TRIES && *least < took ? *least : took;
}

/* Sums of 16 rows and 32 columns, or of 32, begin: from c, or from 0. Tiles that are not used
 * become 0, too: those take no room. */
INLINE void begin_sums(bool half, bool add, const float *c, int64_t c_row)
{
    const float *below = c + SIDE * c_row;
    int64_t row = c_row * (int64_t)sizeof *c;

    if (add) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + SIDE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
    }
    if (add && !half) {
        _tile_loadd(2, below, row);
        _tile_loadd(3, below + SIDE, row);
    } else {
        _tile_zero(2);
        _tile_zero(3);
    }
    if (half)
        _tile_zero(5);
}

INLINE void store_sums(bool half, float *c, int64_t c_row)
{
    float *below = c + SIDE * c_row;
    int64_t row = c_row * (int64_t)sizeof *c;

    _tile_stored(0, c, row);
    _tile_stored(1, c + SIDE, row);
    if (!half) {
        _tile_stored(2, below, row);
        _tile_stored(3, below + SIDE, row);
    }
}

/* c = a b, or c += a b, where c is [32,32] or, if `half`, [16,32], and the sum is over `depth`
 * tiles of 32 numbers. c_row floats lie between rows of c, a_bytes between rows of tiles of a. */
INLINE void multiply_lying(bool half, bool add, float *c, int64_t c_row, int64_t depth, tiles a,
                           int64_t a_bytes, tiles b)
{
    enum { STRIDE = BLOCK * sizeof(uint16_t) };

    __asm__ volatile("" ::: "memory"); /* loads of tiles are not seen to read memory */
    begin_sums(half, add, c, c_row);
    for (int64_t i = 0; i < depth; i++, a.at += a.next, b.at += b.next) {
        _tile_loadd(4, a.at, a_bytes);
        _tile_loadd(6, b.at, STRIDE);
        _tile_loadd(7, b.at + b.second, STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (!half) {
            _tile_loadd(5, a.at + a.second, a_bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    store_sums(half, c, c_row);
    __asm__ volatile("" ::: "memory");
}

/* That of packed tiles, [32,32]: in half blocks, which are as fast for the short sums of attention.
 * Corners are not left out: of operands they are half of a tile. */
INLINE void multiply_tiles(corner gone, bool add, float *c, int64_t c_row, int64_t depth, tiles a,
                           tiles b)
{
    const int64_t bytes = BLOCK * sizeof(uint16_t);

    (void)gone;
    multiply_lying(true, add, c, c_row, depth, a, bytes, b);
    a.at += a.second;
    multiply_lying(true, add, c + SIDE * c_row, c_row, depth, a, bytes, b);
}

#endif
