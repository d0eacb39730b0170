/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices of 8 or 4 bits with scales: element [i,j] of the matrix is value[i,j] times the scale of
 * row i, or of its row and its group of columns. Of 4 bits columns 2b and 2b + 1 are the lower and
 * the upper half of byte b of the row, each plus 8. A piece may begin in the middle of a group, but
 * of no byte. The plain versions are here; sherd__quantized_by (vector/bodies.h) gives what the
 * machine does faster.
 */
#ifndef SHERD__KERNELS_QUANTIZED_H
#define SHERD__KERNELS_QUANTIZED_H

#include <stdbool.h>
#include <stdint.h>

#include "sherd/dtype.h"

typedef struct sherd__quantized {
    int64_t rows, cols;
    const int8_t *value; /* [rows,cols]; not of 4 bits */
    const float *scale;  /* [rows], or [rows,scales]: of all groups of whole rows */
    int64_t group;       /* columns that share a scale; 0: all of a row */
    int64_t scales;      /* from one row's scales to the next; 1 without groups */
    int64_t first;       /* column 0 here is this one of whole rows */
    const uint8_t
        *pairs; /* of 4 bits: [rows,cols/2]; then cols, group and first are even. Or NULL */
} sherd__quantized;

enum { SHERD__NO_PAIR = 0x88 /* two zeroes of 4 bits */ };

typedef struct sherd__quantized_kernels {
    /*
     * y[n,rows] = x[n,cols] by the transpose of the matrix, in f32, for few n, where the time is
     * that of reading the values: these are read once. The order of a sum depends on the columns
     * and groups alone: a row of x has the same bits whatever others there are. Of 4 bits a row of
     * x is [2,cols/2]: its even columns, then the odd ones.
     */
    void (*few)(const sherd__quantized *q, int64_t n, float *y, const float *x);
    /* Rows lo.. of the matrix, `some` of them, as f32, f64, bf16 or f16; without scales if not
     * `scaled`: numbers of 8 or 4 bits, which all of these hold. */
    void (*expand)(const sherd__quantized *q, int64_t lo, int64_t some, bool scaled,
                   sherd_dtype dtype, void *dst);
    /*
     * value[n] = src[n] / *scale to the nearest whole number, ties to even, where scale is the
     * largest |src| / 127; of zeroes 0. A scale below 2^-126 is rounded up. If one is infinite or
     * NaN: zeroes, and the scale is NaN.
     */
    void (*quantize)(int64_t n, int8_t *value, float *scale, const float *src);
    /* The same of 4 bits, for even n: pairs[n/2], -8..7, where scale is the largest / 7.5. */
    void (*quantize_pairs)(int64_t n, uint8_t *pairs, float *scale, const float *src);
} sherd__quantized_kernels;

extern const sherd__quantized_kernels sherd__quantized_plain;

/* Where the columns from j on that share its scale end, and that scale. */
static inline int64_t sherd__quantized_end(const sherd__quantized *q, int64_t j)
{
    if (!q->group)
        return q->cols;
    int64_t end = ((q->first + j) / q->group + 1) * q->group - q->first;
    return end < q->cols ? end : q->cols;
}

/* Number [i,j] as it is. */
static inline int sherd__quantized_number(const sherd__quantized *q, int64_t i, int64_t j)
{
    int64_t at = i * q->cols + j;

    return q->pairs ? (q->pairs[at / 2] >> at % 2 * 4 & 15) - 8 : q->value[at];
}

static inline float sherd__quantized_scale(const sherd__quantized *q, int64_t i, int64_t j)
{
    return q->scale[i * q->scales + (q->group ? (q->first + j) / q->group : 0)];
}

#endif
