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
            const int8_t *value = q->value + i * q->cols;
            double sum = 0;
            for (int64_t j = 0; j < q->cols; j++)
                sum += (double)x[j] * ((double)value[j] * (double)sherd__quantized_scale(q, i, j));
            y[i] = (float)sum;
        }
}

#define EXPAND   expand
#define QUANTIZE quantize
#include "quantized_body.inc"

const sherd__quantized_kernels sherd__quantized_plain = {few, expand, quantize};
