/* SPDX-License-Identifier: Apache-2.0 */
/* The plain versions of quantized.h. */
#include "quantized.h"

#include <math.h>
#include <string.h>

#include "half.h"

static void few(const sherd__quantized *q, int64_t n, float *y, const float *x)
{
    for (int64_t r = 0; r < n; r++, x += q->cols, y += q->rows)
        for (int64_t i = 0; i < q->rows; i++) {
            double sum = 0;
            for (int64_t j = 0; j < q->cols; j++) {
                int64_t at = q->pairs ? j % 2 * (q->cols / 2) + j / 2 : j;
                sum += (double)x[at] * ((double)sherd__quantized_number(q, i, j) *
                                        (double)sherd__quantized_scale(q, i, j));
            }
            y[i] = (float)sum;
        }
}

static void pairs_to_f32(int64_t n, float *to, const uint8_t *pairs, float scale)
{
    for (int64_t j = 0; j < n; j++) {
        to[2 * j] = (float)((pairs[j] & 15) - 8) * scale;
        to[2 * j + 1] = (float)((pairs[j] >> 4) - 8) * scale;
    }
}

#define EXPAND         expand
#define QUANTIZE       quantize
#define QUANTIZE_PAIRS quantize_pairs
#define PAIRS_TO_F32   pairs_to_f32
#include "quantized_body.inc"

const sherd__quantized_kernels sherd__quantized_plain = {few, expand, quantize, quantize_pairs};
