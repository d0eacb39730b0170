/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of blocks of bf16 (blocks.h) in the tiles of AMX: a block of a result is four tiles of
 * 16 x 16 f32, and takes all eight.
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

/* c[32,32] = a b, or c += a b, where the sum is over `depth` tiles of 32 numbers. c_row floats lie
 * between rows of c, a_bytes between rows of tiles of a. */
INLINE void multiply_lying(bool add, float *c, int64_t c_row, int64_t depth, tiles a,
                           int64_t a_bytes, tiles b)
{
    enum { STRIDE = BLOCK * sizeof(uint16_t) };
    int64_t row = c_row * (int64_t)sizeof *c;

    __asm__ volatile("" ::: "memory"); /* loads of tiles are not seen to read memory */
    if (add) {
        _tile_loadd(0, c, row);
        _tile_loadd(1, c + SIDE, row);
        _tile_loadd(2, c + SIDE * c_row, row);
        _tile_loadd(3, c + SIDE * c_row + SIDE, row);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (int64_t i = 0; i < depth; i++, a.at += a.next, b.at += b.next) {
        _tile_loadd(4, a.at, a_bytes);
        _tile_loadd(6, b.at, STRIDE);
        _tile_loadd(7, b.at + b.second, STRIDE);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a.at + a.second, a_bytes);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, row);
    _tile_stored(1, c + SIDE, row);
    _tile_stored(2, c + SIDE * c_row, row);
    _tile_stored(3, c + SIDE * c_row + SIDE, row);
    __asm__ volatile("" ::: "memory");
}

/* That of packed tiles. Corners are not left out: of operands they are half of a tile. */
INLINE void multiply_tiles(corner gone, bool add, float *c, int64_t c_row, int64_t depth, tiles a,
                           tiles b)
{
    (void)gone;
    multiply_lying(add, c, c_row, depth, a, BLOCK * sizeof(uint16_t), b);
}

#endif
