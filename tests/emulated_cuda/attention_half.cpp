/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/attention_half.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/attention_half_args.h"
#include "programs/attention_half.cu"

#define INSTANCE(family, kind, dtype)                \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define ALL(kind, dtype)                     \
    INSTANCE(attention_half, kind, dtype)    \
    INSTANCE(attention_half_dq, kind, dtype) \
    INSTANCE(attention_half_dkv, kind, dtype)

#define WIDTHS(dtype)    \
    ALL(w32, dtype)      \
    ALL(w64, dtype)      \
    ALL(w128, dtype)     \
    ALL(w32_tall, dtype) \
    ALL(w64_tall, dtype) \
    ALL(w64_more, dtype) \
    ALL(w128_more, dtype)
#define DELTA(dtype)                                                \
    KERNEL(attention_half_delta_##dtype, attention_half_delta_args) \
    {                                                               \
        attention_half_delta<dtype>(a);                             \
    }

WIDTHS(bf16)
WIDTHS(f16)
DELTA(bf16)
DELTA(f16)
