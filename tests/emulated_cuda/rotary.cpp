/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/device/rotary.cu. */
#include "grid.h"

#include "device/numbers.cuh"
#include "device/rotary_args.h"
#include "device/rotary.cu"

#define OF_TYPE(type)                  \
    KERNEL(rotate_##type, rotate_args) \
    {                                  \
        rotate<type>(a);               \
    }

OF_TYPE(f32)
OF_TYPE(f64)
OF_TYPE(bf16)
OF_TYPE(f16)
