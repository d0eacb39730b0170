/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/fields.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/fields_args.h"
#include "programs/fields.cu"

#define ONE(family, dtype)                  \
    KERNEL(family##_##dtype, family##_args) \
    {                                       \
        family<dtype>(a);                   \
    }
#define TWO(family, from, to)                     \
    KERNEL(family##_##from##_##to, family##_args) \
    {                                             \
        family<from, to>(a);                      \
    }
#define TAPS(from, to)  \
    TWO(taps, from, to) \
    TWO(taps_grad, from, to)
#define ALL(dtype)            \
    ONE(max_pool, dtype)      \
    ONE(max_pool_grad, dtype) \
    TAPS(dtype, dtype)

ALL(f32)
ALL(f64)
ALL(bf16)
ALL(f16)
TAPS(bf16, f32)
TAPS(f32, bf16)
TAPS(f16, f32)
TAPS(f32, f16)
ONE(complex_mul, f32)
ONE(complex_mul, f64)
ONE(fft_scale, f32)
ONE(fft_scale, f64)
