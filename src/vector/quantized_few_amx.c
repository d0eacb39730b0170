/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of up to 4 rows of bf16 with values of 4 bits: see quantized_tiles.h. Their time is that
 * of reading the values, if few instructions are left for each: 32 bytes of a row are two vectors
 * of 32 words, by two permutations of a table of all 16 numbers, and a product of pairs of words
 * takes each. So whole numbers are multiplied, and the sum of 64 columns, or of twice 32, is then
 * scaled. Half the instructions of the way by f32 (fast_few_i4.inc), which matters where another
 * thread runs on the core, too.
 */
#include "quantized_tiles.h"

#include "fast.h"

#ifdef SHERD_HAVE_AMX

#include <string.h>

#include "words.h"
#include "base/num.h"

/* Bytes and columns at once; rows of values with one or two rows of x, and with more. */
enum { BYTES = WORDS, STEP = 2 * WORDS, COLUMNS = 8, FEWER = 4 };

bool sherd__pairs_fit(const sherd__kernel_set *set, const sherd__quantized *q)
{
    bool steps = q->group % STEP == 0 && (q->group == 0 || q->first % STEP == 0);

    return q->pairs && (steps || q->group == WORDS) && sherd__quantized_fits(set, q);
}

/* From a row of x, as it is packed, to the next: its even columns, then its odd ones. */
static int64_t row_of(const sherd__quantized *q)
{
    return sherd__ceil_div(q->cols, STEP) * STEP;
}

int64_t sherd__pairs_workspace(const sherd__quantized *q, int64_t n)
{
    return n * row_of(q) * (int64_t)sizeof(uint16_t);
}

/* Zeroes behind the last column. */
static void pack(const sherd__quantized *q, int64_t n, uint16_t *to, const uint16_t *x)
{
    const int64_t row = row_of(q), half = row / 2;

    for (int64_t r = 0; r < n; r++, to += row, x += q->cols) {
        memset(to, 0, (size_t)row * sizeof *to);
        for (int64_t j = 0; j < q->cols / 2; j++) {
            to[j] = x[2 * j];
            to[half + j] = x[2 * j + 1];
        }
    }
}

/* The bf16 of -8..7, twice: the last five bits of an index choose. */
INLINE vi all_numbers(void)
{
    const vf all = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);

    return (vi)_mm512_cvtne2ps_pbh(all, all);
}

/* 32 bytes of row i, from column j on; where there are none what x has is 0. */
INLINE vi load_bytes(const sherd__quantized *q, int64_t i, int64_t j, bool whole)
{
    const uint8_t *from = q->pairs + (i * q->cols + j) / 2;
    uint8_t part[BYTES] = {0};

    if (!whole) {
        memcpy(part, from, (size_t)(q->cols - j) / 2);
        from = part;
    }
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)from));
}

typedef enum scaling { BY_ROWS, BY_STEPS, BY_WORDS } scaling;

/* total[rows][cols] += the products of columns [j, j + 64), whose scales begin with *scale, and of
 * which, where not all are there, the second 32 are there or not. */
INLINE void add_step(const int rows, const int cols, const scaling by, vf *total,
                     const sherd__quantized *q, const uint16_t *x, int64_t i, int64_t j,
                     const float *scale, bool whole, bool second, int64_t ahead)
{
    const int64_t row = row_of(q), half = row / 2;
    const vi numbers = all_numbers();

#pragma GCC unroll 8
    for (int c = 0; c < cols; c++) {
        const float *of = scale + c * q->scales;
        vf times = by == BY_ROWS ? v_zero() : v_set(*of);
        if (by == BY_WORDS && second)
            times = _mm512_mask_blend_ps(0xFF00, times, v_set(of[1]));
        __builtin_prefetch(q->pairs + ((i + c) * q->cols + j) / 2 + ahead, 0, 2);
        vi both = load_bytes(q, i + c, j, whole);
        vi even = _mm512_permutexvar_epi16(both, numbers);
        vi odd = _mm512_permutexvar_epi16(_mm512_srli_epi32(both, 4), numbers);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const uint16_t *terms = x + r * row + j / 2;
            vf *to = total + r * cols + c;
            vf sum = add_pairs(by == BY_ROWS ? *to : v_zero(), load_words(terms), even);
            sum = add_pairs(sum, load_words(terms + half), odd);
            *to = by == BY_ROWS ? sum : v_fma(sum, times, *to);
        }
    }
}

/* y[rows][cols] for rows i.. of values. */
INLINE void multiply_block(const int rows, const int cols, const scaling by,
                           const sherd__quantized *q, float *y, const uint16_t *x, int64_t i)
{
    vf total[SHERD__PAIRS_ROWS * COLUMNS];
    const float *scale = q->scale + i * q->scales;
    int64_t left = 0, j = 0, ahead = i + 2 * cols <= q->rows ? cols * q->cols / 2 : 0;

    if (by != BY_ROWS)
        scale += q->first / q->group;
    if (by == BY_STEPS)
        left = q->group - q->first % q->group;
#pragma GCC unroll 32
    for (int s = 0; s < rows * cols; s++)
        total[s] = v_zero();
    for (; j + STEP <= q->cols; j += STEP) {
        add_step(rows, cols, by, total, q, x, i, j, scale, true, true, ahead);
        if (by == BY_WORDS)
            scale += 2;
        if (by == BY_STEPS && (left -= STEP) == 0) {
            scale++;
            left = q->group;
        }
    }
    if (j < q->cols)
        add_step(rows, cols, by, total, q, x, i, j, scale, false, q->cols - j > WORDS, 0);
#pragma GCC unroll 32
    for (int s = 0; s < rows * cols; s++) {
        float sum = v_sum(total[s]);
        int64_t at = i + s % cols;
        y[s / cols * q->rows + at] = by == BY_ROWS ? sum * q->scale[at] : sum;
    }
}

INLINE void multiply_rows(const int rows, const int cols, const scaling by,
                          const sherd__quantized *q, float *y, const uint16_t *x)
{
    int64_t i = 0;

    for (; i + cols <= q->rows; i += cols)
        multiply_block(rows, cols, by, q, y, x, i);
    for (; i < q->rows; i++)
        multiply_block(rows, 1, by, q, y, x, i);
}

INLINE void multiply_by(const scaling by, const sherd__quantized *q, int64_t n, float *y,
                        const uint16_t *x)
{
    switch (n) {
    case 1:
        multiply_rows(1, COLUMNS, by, q, y, x);
        break;
    case 2:
        multiply_rows(2, COLUMNS, by, q, y, x);
        break;
    case 3:
        multiply_rows(3, FEWER, by, q, y, x);
        break;
    default:
        multiply_rows(SHERD__PAIRS_ROWS, FEWER, by, q, y, x);
    }
}

void sherd__pairs_rows(const sherd__quantized *q, int64_t n, float *y, const uint16_t *x,
                       void *workspace)
{
    uint16_t *packed = workspace;

    pack(q, n, packed, x);
    if (q->group == 0)
        multiply_by(BY_ROWS, q, n, y, packed);
    else if (q->group == WORDS)
        multiply_by(BY_WORDS, q, n, y, packed);
    else
        multiply_by(BY_STEPS, q, n, y, packed);
}

#else

bool sherd__pairs_fit(const sherd__kernel_set *set, const sherd__quantized *q)
{
    (void)set;
    (void)q;
    return false;
}

int64_t sherd__pairs_workspace(const sherd__quantized *q, int64_t n)
{
    (void)q;
    (void)n;
    return 0;
}

void sherd__pairs_rows(const sherd__quantized *q, int64_t n, float *y, const uint16_t *x,
                       void *workspace)
{
    (void)q;
    (void)n;
    (void)y;
    (void)x;
    (void)workspace;
}

#endif
