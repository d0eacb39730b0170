/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exact sums: a long fixed-point number that holds any sum of f64 numbers, digit by digit. Adding
 * is exact, so the order of additions does not matter, nor how numbers are divided among several
 * sums, whose digits are added one by one. Costs two passes of a few instructions for each element;
 * five times that where, of 1024 that follow one another, one has bits 85 below the largest.
 */
#ifndef SHERD__KERNELS_EXACT_H
#define SHERD__KERNELS_EXACT_H

#include <stdint.h>

#include "sherd/dtype.h"

/*
 * Digit k counts 2^(32 k - 1088): digits 0 to 65 hold every bit of an f64, the two above them what
 * 2^63 of them sum up to.
 */
enum {
    SHERD__EXACT_DIGITS = 68,
    SHERD__EXACT_ENDS = 3 /* beside the digits: how many NaN, inf and -inf there were */
};

/* Elements to convert at a time: those of a block. */
enum { SHERD__EXACT_BLOCK = 1024 };

typedef struct sherd__exact {
    int first, end; /* digits that elements of the dtype reach; others are 0 */
    int64_t adds;   /* since carries were moved on: a digit has room for 2^30 */
    int64_t digit[SHERD__EXACT_DIGITS + 2]; /* two more, of 0, may be read */
    int64_t ends[SHERD__EXACT_ENDS];
} sherd__exact;

/* Words that a sum of elements of a dtype is written as: its digits, and ends. */
int sherd__exact_words(sherd_dtype dtype);

/* A sum of nothing. */
void sherd__exact_begin(sherd__exact *sum, sherd_dtype dtype);

/* Add x[n], which the dtype holds. */
void sherd__exact_add(sherd__exact *sum, int64_t n, const double *x);

/*
 * The sum as words, `stride` apart. Those of up to 2^30 sums may be added, word by word, in any
 * order; read: the words are taken in place of what the sum was.
 */
void sherd__exact_write(sherd__exact *sum, int64_t *words, int64_t stride);
void sherd__exact_read(sherd__exact *sum, const int64_t *words, int64_t stride);

/*
 * The sum rounded to the nearest number of a dtype, of two the even one; infinite only if that is
 * too large. NaN, or an infinity, if elements were. +0 if it is 0.
 */
double sherd__exact_value(sherd__exact *sum, sherd_dtype dtype);

#endif
