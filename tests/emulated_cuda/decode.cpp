/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/decode.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/decode_args.h"
#include "programs/decode.cu"

#define PART(kind, dtype)                                  \
    KERNEL(cached_part_##kind##_##dtype, cached_part_args) \
    {                                                      \
        cached_part<kind, dtype>(a);                       \
    }
#define PARTS(width, dtype) \
    PART(w##width##_x1, dtype) PART(w##width##_x4, dtype) PART(w##width##_x8, dtype)
#define ALL(dtype)                                \
    PARTS(32, dtype)                              \
    PARTS(64, dtype)                              \
    PARTS(128, dtype)                             \
    PARTS(256, dtype)                             \
    KERNEL(cached_join_##dtype, cached_join_args) \
    {                                             \
        cached_join<dtype>(a);                    \
    }

ALL(f32)
ALL(f64)
ALL(bf16)
ALL(f16)

#define UNIT(unit)                             \
    KERNEL(write_rows_##unit, write_rows_args) \
    {                                          \
        write_rows<unit>(a);                   \
    }

UNIT(unit_1)
UNIT(unit_2)
UNIT(unit_4)
UNIT(unit_8)
UNIT(unit_16)
