/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/device/shared_rows.cu, all instances. */
#include "grid.h"

#include "device/numbers.cuh"
#include "device/shared_rows_args.h"
#include "device/shared_rows.cu"

#define INSTANCE(family, dtype)             \
    KERNEL(family##_##dtype, family##_args) \
    {                                       \
        family<dtype>(a);                   \
    }
#define ALL(dtype)                  \
    INSTANCE(soft_stats, dtype)     \
    INSTANCE(soft, dtype)           \
    INSTANCE(soft_grad_sum, dtype)  \
    INSTANCE(soft_grad_with, dtype) \
    INSTANCE(soft_spread, dtype)    \
    INSTANCE(log_sum, dtype)        \
    INSTANCE(row_moments, dtype)    \
    INSTANCE(row_norm, dtype)       \
    INSTANCE(row_sums, dtype)       \
    INSTANCE(row_norm_grad, dtype)  \
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
