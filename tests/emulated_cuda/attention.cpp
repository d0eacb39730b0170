/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/attention.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/attention_args.h"
#include "programs/attention.cu"

#define INSTANCE(family, kind, dtype)                \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define WIDTHS(family, dtype)         \
    INSTANCE(family, w32, dtype)      \
    INSTANCE(family, w64, dtype)      \
    INSTANCE(family, w128, dtype)     \
    INSTANCE(family, w64_more, dtype) \
    INSTANCE(family, w128_more, dtype)
#define ALL(dtype)              \
    WIDTHS(attention, dtype)    \
    WIDTHS(attention_dq, dtype) \
    WIDTHS(attention_dkv, dtype)
/* Of 16 bits too. */
#define WIDEST(dtype)                           \
    INSTANCE(attention, w256_more, dtype)       \
    INSTANCE(attention_dq, w256_more, dtype)    \
    INSTANCE(attention_dkv, w256_more, dtype)   \
    INSTANCE(attention_dmask, w128_more, dtype) \
    INSTANCE(attention_dmask, w256_more, dtype) \
    PLAIN(attention_delta, dtype)
#define PLAIN(family, dtype)                \
    KERNEL(family##_##dtype, family##_args) \
    {                                       \
        family<dtype>(a);                   \
    }

ALL(f32)
ALL(f64)
WIDEST(f32)
WIDEST(f64)
WIDEST(bf16)
WIDEST(f16)
PLAIN(attention_join, f32)
PLAIN(attention_join, f64)
