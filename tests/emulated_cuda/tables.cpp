/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/tables.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/tables_args.h"
#include "programs/tables.cu"

#define UNIT(unit)                     \
    KERNEL(gather_##unit, gather_args) \
    {                                  \
        gather<unit>(a);               \
    }
#define SCATTER(unit)                    \
    KERNEL(scatter_##unit, scatter_args) \
    {                                    \
        scatter<unit>(a);                \
    }
#define ADD(kind, dtype)                                 \
    KERNEL(add_sorted_##kind##_##dtype, add_sorted_args) \
    {                                                    \
        add_sorted<kind, dtype>(a);                      \
    }

UNIT(unit_1)
UNIT(unit_2)
UNIT(unit_4)
UNIT(unit_8)
UNIT(unit_16)
SCATTER(unit_1)
SCATTER(unit_2)
SCATTER(unit_4)
SCATTER(unit_8)
SCATTER(unit_16)
ADD(wide, f32)
ADD(wide, f64)
ADD(wide, bf16)
ADD(wide, f16)
ADD(each, f32)
ADD(each, f64)
ADD(each, bf16)
ADD(each, f16)

KERNEL(winners_i32, winners_args)
{
    winners<i32>(a);
}
KERNEL(entries_unit_4, entries_args)
{
    entries<unit_4>(a);
}
