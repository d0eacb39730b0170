/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/update.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/update_args.h"
#include "programs/update.cu"

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
