/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of norms.h: one body for all dtypes, where LOAD and STORE convert an element to and
 * from double. */
#include "norms.h"

#include "half.h"

/* Sums of a run are taken in so many lanes, so that the compiler can use vectors. */
enum { LANES = 8 };

static double add_lanes(const double *lane)
{
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* Where the numbers of the rows of item b begin. */
static int64_t row_of(const sherd__norming *n, int64_t b)
{
    return n->whole ? 0 : b * n->channels;
}

#define NAME(x)  x##_f32
#define ELEMENT  float
#define LOAD(x)  (double)(x)
#define STORE(x) (float)(x)
#include "norms_body.inc"

#define NAME(x)  x##_f64
#define ELEMENT  double
#define LOAD(x)  (x)
#define STORE(x) (x)
#include "norms_body.inc"

#define NAME(x)  x##_bf16
#define ELEMENT  uint16_t
#define LOAD(x)  (double)sherd__from_bf16(x)
#define STORE(x) sherd__double_to_bf16(x)
#include "norms_body.inc"

#define NAME(x)  x##_f16
#define ELEMENT  uint16_t
#define LOAD(x)  (double)sherd__from_f16(x)
#define STORE(x) sherd__double_to_f16(x)
#include "norms_body.inc"

const sherd__norm_kernels *sherd__norm_kernels_of(sherd_dtype dtype)
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
