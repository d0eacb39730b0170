/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/device/attention.cu, all instances. */
#include "grid.h"

#include "device/numbers.cuh"
#include "device/attention_args.h"
#include "device/attention.cu"

#define INSTANCE(family, kind, dtype)                \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define WIDTHS(family, dtype)    \
    INSTANCE(family, w32, dtype) \
    INSTANCE(family, w64, dtype) \
    INSTANCE(family, w128, dtype)
#define ALL(dtype)              \
    WIDTHS(attention, dtype)    \
    WIDTHS(attention_dq, dtype) \
    WIDTHS(attention_dkv, dtype)
#define DELTA(dtype)                                      \
    KERNEL(attention_delta_##dtype, attention_delta_args) \
    {                                                     \
        attention_delta<dtype>(a);                        \
    }

ALL(f32)
ALL(f64)
DELTA(f32)
DELTA(f64)
