/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/device/update.cu. */
#include "grid.h"

#include "device/numbers.cuh"
#include "device/update_args.h"
#include "device/update.cu"

#define OF_TYPE(type)                    \
    KERNEL(adamw_##type, adamw_args)     \
    {                                    \
        adamw<type>(a);                  \
    }                                    \
    KERNEL(sgd_##type, sgd_args)         \
    {                                    \
        sgd<type>(a);                    \
    }                                    \
    KERNEL(squares_##type, squares_args) \
    {                                    \
        squares<type>(a);                \
    }

OF_TYPE(f32)
OF_TYPE(f64)
OF_TYPE(bf16)
OF_TYPE(f16)
