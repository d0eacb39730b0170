/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/compare.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/compare_args.h"
#include "programs/compare.cu"

#define INSTANCE(family, type)             \
    KERNEL(family##_##type, family##_args) \
    {                                      \
        family<type>(a);                   \
    }
#define OF_UNIT(unit)    \
    INSTANCE(pick, unit) \
    INSTANCE(corner, unit)

INSTANCE(compare, f32)
INSTANCE(compare, f64)
INSTANCE(compare, bf16)
INSTANCE(compare, f16)
INSTANCE(compare, i32)
INSTANCE(compare, i64)
INSTANCE(compare, i8)
INSTANCE(compare, u8)
INSTANCE(compare, b8)
OF_UNIT(unit_1)
OF_UNIT(unit_2)
OF_UNIT(unit_4)
OF_UNIT(unit_8)

#define CLASSES(type)          \
    INSTANCE(take_class, type) \
    INSTANCE(put_class, type)
CLASSES(f32)
CLASSES(f64)
CLASSES(bf16)
CLASSES(f16)
