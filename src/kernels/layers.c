/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of layers.h: one body for all dtypes, where LOAD and STORE convert an element to and
 * from double. */
#include "layers.h"

#include <math.h>

#include "half.h"
#include "ref.h"

#define NAME(x)  x##_f32
#define ELEMENT  float
#define STAT     float
#define LOAD(x)  (double)(x)
#define STORE(x) (float)(x)
#include "layers_body.inc"

#define NAME(x)  x##_f64
#define ELEMENT  double
#define STAT     double
#define LOAD(x)  (x)
#define STORE(x) (x)
#include "layers_body.inc"

#define NAME(x)  x##_bf16
#define ELEMENT  uint16_t
#define STAT     float
#define LOAD(x)  (double)sherd__from_bf16(x)
#define STORE(x) sherd__double_to_bf16(x)
#include "layers_body.inc"

#define NAME(x)  x##_f16
#define ELEMENT  uint16_t
#define STAT     float
#define LOAD(x)  (double)sherd__from_f16(x)
#define STORE(x) sherd__double_to_f16(x)
#include "layers_body.inc"

void sherd__turns(double *turn, int64_t n, int64_t rotated, const int32_t *position, int64_t first,
                  double base, const double *frequency, bool inverse)
{
    int64_t pairs = rotated / 2;

    for (int64_t j = 0; j < pairs; j++) {
        double slowness = frequency ? frequency[j] : pow(base, -2.0 * (double)j / (double)rotated);
        for (int64_t i = 0; i < n; i++) {
            double angle = (double)(position ? position[i] : first + i) * slowness;
            turn[2 * (i * pairs + j)] = cos(angle);
            turn[2 * (i * pairs + j) + 1] = inverse ? -sin(angle) : sin(angle);
        }
    }
}

const sherd__layer_kernels *sherd__layer_kernels_of(sherd_dtype dtype)
{
    switch (dtype) {
    case SHERD_F32:
        return &kernels_f32;
    case SHERD_F64:
        return &kernels_f64;
    case SHERD_BF16:
        return &kernels_bf16;
    case SHERD_F16:
        return &kernels_f16;
    default:
        return NULL;
    }
}
