/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of some rows of bf16 with values of 8 or 4 bits (kernels/quantized.h) in the tiles of
 * AMX.
 */
#ifndef SHERD__VECTOR_QUANTIZED_TILES_H
#define SHERD__VECTOR_QUANTIZED_TILES_H

#include "kernels/kernels.h"
#include "kernels/quantized.h"

enum { SHERD__QUANTIZED_TILE_ROWS = 64 /* the most rows of x */ };

/* Whether the machine and this process may, and the matrix is one that they take: with columns, and
 * scales that 16 neighbours share. */
bool sherd__quantized_fits(const sherd__kernel_set *set, const sherd__quantized *q);

/* Bytes of workspace for n rows of x. */
int64_t sherd__quantized_workspace(const sherd__quantized *q, int64_t n);

/*
 * y[n,rows] = x[n,cols] by the transpose of the matrix, in f32, without the scales of rows; with
 * those of groups, by which values are multiplied and rounded to bf16.
 */
void sherd__quantized_rows(const sherd__quantized *q, int64_t n, float *y, const uint16_t *x,
                           void *workspace);

/*
 * c[n,some] = x[n,cols] by the transpose of rows lo.. of the matrix, likewise: the product of bf16
 * (product_amx.c), for many rows of x, whose right operand is these rows.
 */
void sherd__quantized_panel(const sherd__quantized *q, int64_t lo, int64_t some, int64_t n,
                            float *c, const uint16_t *x, void *workspace);
int64_t sherd__quantized_panel_workspace(const sherd__quantized *q, int64_t n, int64_t some);

/*
 * Rows lo.. of the matrix, `some` of them, columns [d, d + width), where d is a multiple of 32, as
 * the right operand of a product in tiles: [some / 32][width / 32][2] of them (blocks.h).
 * room[SHERD__QUANTIZED_ROOM].
 */
enum { SHERD__QUANTIZED_ROOM = 32 * 512 };
void sherd__quantized_pack(const sherd__quantized *q, int64_t lo, int64_t some, int64_t d,
                           int64_t width, uint16_t *to, uint16_t *room);

/*
 * y[n,rows] = x[n,cols] by the transpose of a matrix of 4 bits, with its scales, in f32, for up to
 * 4 rows of bf16: whole numbers are multiplied, and sums scaled. A row of x has the same bits
 * whatever others there are. It takes matrices whose groups are of 32 columns or of multiples of
 * 64, and which begin where 64 columns share a scale, or 32.
 */
enum { SHERD__PAIRS_ROWS = 4 };
bool sherd__pairs_fit(const sherd__kernel_set *set, const sherd__quantized *q);
int64_t sherd__pairs_workspace(const sherd__quantized *q, int64_t n);
void sherd__pairs_rows(const sherd__quantized *q, int64_t n, float *y, const uint16_t *x,
                       void *workspace);

#endif
