/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of layers.h: one body for all dtypes, where LOAD and STORE convert an element to and from double. */
#include "layers.h"

#include <math.h>
#include <string.h>

#include "half.h"

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
