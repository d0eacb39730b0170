/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/whole.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/whole_args.h"
#include "programs/whole.cu"

#define INSTANCE(family, type)             \
    KERNEL(family##_##type, family##_args) \
    {                                      \
        family<type>(a);                   \
    }

INSTANCE(whole_unary, i32)
INSTANCE(whole_unary, i64)
INSTANCE(whole_unary, i8)
INSTANCE(whole_unary, u8)
INSTANCE(whole_binary, i32)
INSTANCE(whole_binary, i64)
INSTANCE(whole_binary, i8)
INSTANCE(whole_binary, u8)
INSTANCE(count, i32)
