/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four steps of a tile of 12 x 2 vectors of arm64. Numbers of a are read some at a time and
 * multiplied by element: to spread each over a vector first would take the units that multiply half
 * as long again. In assembly, which says the order too: gcc 12 reads ahead until three sums are on
 * the stack, and spreads numbers that meet two vectors. Included by the file of this instruction
 * set only, before fast_body.inc.
 */
#ifndef SHERD__VECTOR_TILE_NEON_H
#define SHERD__VECTOR_TILE_NEON_H

#include "vector_simd128.h"

#define FOUR_STEPS tile_four_neon
enum { FOUR_ROWS = TILE_ROWS };

/* What is in memory, for assembly. */
typedef float four_floats __attribute__((vector_size(16), aligned(4), may_alias));
typedef float two_floats __attribute__((vector_size(8), aligned(4), may_alias));

INLINE vf four_now(const float *p)
{
    vf x;
    __asm__ volatile("ldr %q0, %1" : "=w"(x) : "m"(*(const four_floats *)(const void *)p));
    return x;
}

INLINE vf two_now(const float *p)
{
    vf x;
    __asm__ volatile("ldr %d0, %1" : "=w"(x) : "m"(*(const two_floats *)(const void *)p));
    return x;
}

/* sum += b x[lane] */
#define ADD_BY(sum, b, x, lane) \
    __asm__ volatile("fmla %0.4s, %1.4s, %2.s[" #lane "]" : "+w"(sum) : "w"(b), "w"(x))

/* One step of a row. */
#define ADD_ROW(sum, b0, b1, x, lane) \
    ADD_BY((sum)[0], b0, x, lane);    \
    ADD_BY((sum)[1], b1, x, lane)

/* One step of four rows, whose numbers are beside each other. */
INLINE void four_rows_neon(vf (*sum)[2], const float *a, vf b0, vf b1)
{
    vf x = four_now(a);

    ADD_ROW(sum[0], b0, b1, x, 0);
    ADD_ROW(sum[1], b0, b1, x, 1);
    ADD_ROW(sum[2], b0, b1, x, 2);
    ADD_ROW(sum[3], b0, b1, x, 3);
}

/* Two steps of a row: b has both vectors of the first, and of the second. */
INLINE void two_steps_neon(vf *sum, const float *a, const vf b[4])
{
    vf x = two_now(a);

    ADD_ROW(sum, b[0], b[1], x, 0);
    ADD_ROW(sum, b[2], b[3], x, 1);
}

/* sum += a[12,4] panel[4]. Rows of a lie `row` apart; if it is turned its columns do, and a column
 * is contiguous. */
INLINE void tile_four_neon(const bool turned, vf (*sum)[2], const float *a, int64_t row,
                           const float *panel)
{
#pragma GCC unroll 4
    for (int p = 0; p < 4 && turned; p++, a += row, panel += 2 * W) {
        vf b0 = four_now(panel), b1 = four_now(panel + W);
#pragma GCC unroll 4
        for (int r = 0; r < TILE_ROWS; r += 4)
            four_rows_neon(sum + r, a + r, b0, b1);
    }
#pragma GCC unroll 2
    for (int p = 0; p < 4 && !turned; p += 2, panel += 4 * W) {
        const vf b[] = {four_now(panel), four_now(panel + W), four_now(panel + 2 * W),
                        four_now(panel + 3 * W)};
#pragma GCC unroll 16
        for (int r = 0; r < TILE_ROWS; r++)
            two_steps_neon(sum[r], a + r * row + p, b);
    }
}

#endif
