/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/shared_rows.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/shared_rows_args.h"
#include "programs/shared_rows.cu"

#define INSTANCE(family, dtype)             \
    KERNEL(family##_##dtype, family##_args) \
    {                                       \
        family<dtype>(a);                   \
    }
#define KIND(family, kind, dtype)                    \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define KINDS(family, dtype)  \
    KIND(family, wide, dtype) \
    KIND(family, each, dtype)
#define ALL(dtype)                 \
    KINDS(soft_stats, dtype)       \
    KINDS(soft, dtype)             \
    KINDS(soft_grad_sum, dtype)    \
    KINDS(soft_grad_with, dtype)   \
    KINDS(soft_spread, dtype)      \
    INSTANCE(log_sum, dtype)       \
    KINDS(row_moments, dtype)      \
    KINDS(row_norm, dtype)         \
    KINDS(row_sums, dtype)         \
    KINDS(row_norm_grad, dtype)    \
    INSTANCE(attention_add, dtype) \
    INSTANCE(add_up, dtype)

ALL(f32)
ALL(f64)
ALL(bf16)
ALL(f16)
INSTANCE(soft_join, f32)
INSTANCE(soft_join, f64)
INSTANCE(row_moments_join, f32)
INSTANCE(row_moments_join, f64)
