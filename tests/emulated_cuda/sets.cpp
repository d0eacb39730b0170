/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/sets.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/sets_args.h"
#include "programs/sets.cu"

#define INSTANCE(family, kind, dtype)                \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define KINDS(family, dtype)      \
    INSTANCE(family, wide, dtype) \
    INSTANCE(family, each, dtype)
#define PLAIN(family, dtype)                \
    KERNEL(family##_##dtype, family##_args) \
    {                                       \
        family<dtype>(a);                   \
    }
#define ALL(dtype)               \
    KINDS(set_sums, dtype)       \
    KINDS(set_spread, dtype)     \
    KINDS(row_products, dtype)   \
    KINDS(set_gradient, dtype)   \
    PLAIN(set_moments, dtype)    \
    PLAIN(set_scales, dtype)     \
    PLAIN(set_parameters, dtype) \
    PLAIN(set_products, dtype)   \
    PLAIN(set_slopes, dtype)

ALL(f32)
ALL(f64)
ALL(bf16)
ALL(f16)
