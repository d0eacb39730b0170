/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four steps of a tile of 6 x 2 vectors of AVX2, in assembly: 12 sums, 2 vectors of b and 1 number
 * of a take 15 of the 16 registers, and compilers that are told so by intrinsics move sums between
 * registers and to the stack, which costs a quarter to a third of the rate. Sums stay where the
 * compiler has them. Included by the file of this instruction set only, before fast_body.inc.
 */
#ifndef SHERD__VECTOR_TILE_AVX2_H
#define SHERD__VECTOR_TILE_AVX2_H

#include "vector_avx2.h"

#define FOUR_STEPS tile_four_avx2
enum { FOUR_ROWS = TILE_ROWS };

/* Both vectors of row p of the panel. */
#define PANEL_ROW(p)                           \
    "vmovups " #p "*64(%[panel]), %%ymm13\n\t" \
    "vmovups " #p "*64+32(%[panel]), %%ymm14\n\t"

/* The sums of row r += the number at `at` times these. */
#define ADD_ROW(i, at)                             \
    "vbroadcastss " at ", %%ymm15\n\t"             \
    "vfmadd231ps %%ymm13, %%ymm15, %[l" #i "]\n\t" \
    "vfmadd231ps %%ymm14, %%ymm15, %[r" #i "]\n\t"

/* One step. Six rows of a, three from each of two addresses; or six neighbours in one. */
#define STEP_OF_ROWS(p)                 \
    PANEL_ROW(p)                        \
    ADD_ROW(0, #p "*4(%[a])")           \
    ADD_ROW(1, #p "*4(%[a],%[row])")    \
    ADD_ROW(2, #p "*4(%[a],%[row],2)")  \
    ADD_ROW(3, #p "*4(%[next])")        \
    ADD_ROW(4, #p "*4(%[next],%[row])") \
    ADD_ROW(5, #p "*4(%[next],%[row],2)")

#define STEP_OF_COLUMN(p, at) \
    PANEL_ROW(p)              \
    ADD_ROW(0, "0" at)        \
    ADD_ROW(1, "4" at)        \
    ADD_ROW(2, "8" at)        \
    ADD_ROW(3, "12" at)       \
    ADD_ROW(4, "16" at)       \
    ADD_ROW(5, "20" at)

#define SUMS_OF_ROW(i) [l##i] "+x"(sum[i][0]), [r##i] "+x"(sum[i][1])
#define SUMS_OF_TILE \
    SUMS_OF_ROW(0), SUMS_OF_ROW(1), SUMS_OF_ROW(2), SUMS_OF_ROW(3), SUMS_OF_ROW(4), SUMS_OF_ROW(5)
#define FROM_MEMORY \
    [panel] "r"(panel), [a] "r"(a), [next] "r"(a + 3 * row), [row] "r"(row * (int64_t)sizeof *a)

/*
 * sum += a[6,4] panel[4]. Rows of a lie `row` apart; if it is turned its columns do, and a column
 * is contiguous.
 */
INLINE void tile_four_avx2(const bool turned, vf (*sum)[2], const float *a, int64_t row,
                           const float *panel)
{
    if (turned)
        __asm__ volatile(STEP_OF_COLUMN(0, "(%[a])") STEP_OF_COLUMN(1, "(%[a],%[row])")
                             STEP_OF_COLUMN(2, "(%[a],%[row],2)") STEP_OF_COLUMN(3, "(%[next])")
                         : SUMS_OF_TILE:FROM_MEMORY
                         : "xmm13", "xmm14", "xmm15", "memory");
    else
        __asm__ volatile(STEP_OF_ROWS(0) STEP_OF_ROWS(1) STEP_OF_ROWS(2) STEP_OF_ROWS(3)
                         : SUMS_OF_TILE:FROM_MEMORY
                         : "xmm13", "xmm14", "xmm15", "memory");
}

#endif
