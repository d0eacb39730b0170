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
OF_TYPE(i8)
OF_TYPE(u8)

#define LINE(family, law, type)                    \
    KERNEL(family##_##law##_##type, family##_args) \
    {                                              \
        family<law, type>(a);                      \
    }
#define LAW(law, type) LINE(line_rows, law, type) LINE(line_columns, law, type)
#define NUMBERS(type)   \
    LAW(products, type) \
    LAW(largest, type)  \
    LAW(least, type)
#define FRACTIONS(type)    \
    NUMBERS(type)          \
    LAW(recurrences, type) \
    LAW(log_sums, type)

FRACTIONS(f32)
FRACTIONS(f64)
FRACTIONS(bf16)
FRACTIONS(f16)
NUMBERS(i32)
NUMBERS(i64)
NUMBERS(i8)
NUMBERS(u8)
LAW(largest, b8)
LAW(least, b8)
