/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/copy.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/copy_args.h"
#include "programs/copy.cu"

#define INSTANCE(family, unit)             \
    KERNEL(family##_##unit, family##_args) \
    {                                      \
        family<unit>(a);                   \
    }
#define OF_UNIT(unit)        \
    INSTANCE(copy_box, unit) \
    INSTANCE(fill_box, unit)

OF_UNIT(unit_1)
OF_UNIT(unit_2)
OF_UNIT(unit_4)
OF_UNIT(unit_8)
OF_UNIT(unit_16)
INSTANCE(copy_tiles, unit_1)
INSTANCE(copy_tiles, unit_2)
INSTANCE(copy_tiles, unit_4)
INSTANCE(copy_tiles, unit_8)
INSTANCE(copy_tiles, unit_16)
