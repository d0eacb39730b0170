/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/order.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/order_args.h"
#include "programs/order.cu"

#define INSTANCE(family, kind)             \
    KERNEL(family##_##kind, family##_args) \
    {                                      \
        family<kind>(a);                   \
    }
#define OF_TYPE(dtype)          \
    INSTANCE(order_keys, dtype) \
    INSTANCE(order_select, dtype)
#define OF_KEY(key)            \
    INSTANCE(radix_count, key) \
    INSTANCE(radix_move, key)

OF_TYPE(f32)
OF_TYPE(f64)
OF_TYPE(bf16)
OF_TYPE(f16)
OF_TYPE(i32)
OF_TYPE(i64)
OF_TYPE(i8)
OF_TYPE(u8)
OF_TYPE(b8)
OF_KEY(key_4)
OF_KEY(key_8)
INSTANCE(order_write, unit_1)
INSTANCE(order_write, unit_2)
INSTANCE(order_write, unit_4)
INSTANCE(order_write, unit_8)
INSTANCE(radix_scan, key_4)
