/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/device/whole.cu. */
#include "grid.h"

#include "device/numbers.cuh"
#include "device/whole_args.h"
#include "device/whole.cu"

#define INSTANCE(family, type)             \
    KERNEL(family##_##type, family##_args) \
    {                                      \
        family<type>(a);                   \
    }

INSTANCE(whole_unary, i32)
INSTANCE(whole_unary, i64)
INSTANCE(whole_unary, u8)
INSTANCE(whole_binary, i32)
INSTANCE(whole_binary, i64)
INSTANCE(whole_binary, u8)
INSTANCE(count, i32)
