/* SPDX-License-Identifier: Apache-2.0 */
/* Products of some rows of bf16 with values of 8 bits (kernels/quantized.h) in the tiles of AMX. */
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

#endif
