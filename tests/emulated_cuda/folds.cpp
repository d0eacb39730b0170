/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/folds.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/folds_args.h"
#include "programs/folds.cu"

#define FOLD(kind, to, from)                                \
    KERNEL(fold_##kind##_##to##_##from, fold_##kind##_args) \
    {                                                       \
        fold_##kind<to, from>(a);                           \
    }
#define OF_ANY(type)          \
    FOLD(extreme, type, type) \
    FOLD(where, i32, type)    \
    FOLD(truth, b8, type)
#define OF_FRACTIONS(type, sums) \
    FOLD(product, type, type)    \
    FOLD(log_sum, sums, type)
#define OF_INTEGERS(type)    \
    FOLD(product, i64, type) \
    FOLD(total, i64, type)

OF_ANY(f32)
OF_ANY(f64)
OF_ANY(bf16)
OF_ANY(f16)
OF_ANY(i32)
OF_ANY(i64)
OF_ANY(i8)
OF_ANY(u8)
OF_ANY(b8)
OF_FRACTIONS(f32, f32)
OF_FRACTIONS(f64, f64)
OF_FRACTIONS(bf16, f32)
OF_FRACTIONS(f16, f32)
OF_INTEGERS(i32)
OF_INTEGERS(i64)
OF_INTEGERS(i8)
OF_INTEGERS(u8)
OF_INTEGERS(b8)
