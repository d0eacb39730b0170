/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/running.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/running_args.h"
#include "programs/running.cu"

#define INSTANCE(family, type)             \
    KERNEL(family##_##type, family##_args) \
    {                                      \
        family<type>(a);                   \
    }
#define OF_TYPE(type)               \
    INSTANCE(running_rows, type)    \
    INSTANCE(running_columns, type) \
    INSTANCE(row_totals, type)      \
    INSTANCE(column_totals, type)   \
    INSTANCE(running_starts, type)

OF_TYPE(f32)
OF_TYPE(f64)
OF_TYPE(bf16)
OF_TYPE(f16)
OF_TYPE(i32)
OF_TYPE(i64)
OF_TYPE(u8)
