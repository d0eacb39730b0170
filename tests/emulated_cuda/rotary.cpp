/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/rotary.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/rotary_args.h"
#include "programs/rotary.cu"

#define OF_TYPE(type)                  \
    KERNEL(rotate_##type, rotate_args) \
    {                                  \
        rotate<type>(a);               \
    }

OF_TYPE(f32)
OF_TYPE(f64)
OF_TYPE(bf16)
OF_TYPE(f16)
