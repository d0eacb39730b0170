/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/rows.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/rows_args.h"
#include "programs/rows.cu"

#define INSTANCE(family, kind, dtype)                \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define DTYPES(family, kind)     \
    INSTANCE(family, kind, f32)  \
    INSTANCE(family, kind, f64)  \
    INSTANCE(family, kind, bf16) \
    INSTANCE(family, kind, f16)
#define KINDS(family)          \
    DTYPES(family, warp_wide)  \
    DTYPES(family, warp_each)  \
    DTYPES(family, block_wide) \
    DTYPES(family, block_each) \
    DTYPES(family, long_wide)  \
    DTYPES(family, long_each)

KINDS(norm)
KINDS(norm_grad)
KINDS(softmax)
KINDS(softmax_grad)
KINDS(cross_entropy)
KINDS(cross_entropy_grad)
