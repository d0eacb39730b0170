/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/reduce.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/reduce_args.h"
#include "programs/reduce.cu"

#define REDUCE(kind, type)                      \
    KERNEL(reduce_##kind##_##type, reduce_args) \
    {                                           \
        reduce<kind, type>(a);                  \
    }
#define OF_OP(op, type)  \
    REDUCE(op##_2, type) \
    REDUCE(op##_4, type) \
    REDUCE(op##_8, type) \
    REDUCE(op##_16, type)
#define REDUCES(type)    \
    OF_OP(sum, type)     \
    OF_OP(product, type) \
    OF_OP(min, type)     \
    OF_OP(max, type)

REDUCES(f32)
REDUCES(f64)
REDUCES(bf16)
REDUCES(f16)
REDUCES(i32)
REDUCES(i64)
REDUCES(b8)

#define SUMS(to, from)                                  \
    KERNEL(sum_rows_##to##_##from, sum_rows_args)       \
    {                                                   \
        sum_rows<to, from>(a);                          \
    }                                                   \
    KERNEL(sum_columns_##to##_##from, sum_columns_args) \
    {                                                   \
        sum_columns<to, from>(a);                       \
    }

SUMS(f32, f32)
SUMS(f64, f64)
SUMS(bf16, bf16)
SUMS(f16, f16)
SUMS(f32, bf16)
SUMS(f32, f16)
SUMS(bf16, f32)
SUMS(f16, f32)
