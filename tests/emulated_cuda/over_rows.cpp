/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/over_rows.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/over_rows_args.h"
#include "programs/over_rows.cu"

#define INSTANCE(family, kind, dtype)                \
    KERNEL(family##_##kind##_##dtype, family##_args) \
    {                                                \
        family<kind, dtype>(a);                      \
    }
#define KINDS(family, dtype)      \
    INSTANCE(family, wide, dtype) \
    INSTANCE(family, each, dtype)
#define PLAIN(family, dtype)                \
    KERNEL(family##_##dtype, family##_args) \
    {                                       \
        family<dtype>(a);                   \
    }
#define ALL(dtype)                   \
    KINDS(norm_columns, dtype)       \
    KINDS(embedding, dtype)          \
    KINDS(embedding_grad, dtype)     \
    PLAIN(norm_columns_end, dtype)   \
    PLAIN(cross_entropy_join, dtype) \
    PLAIN(cross_entropy_end, dtype)  \
    KINDS(entropy, dtype)            \
    KINDS(entropy_grad, dtype)       \
    PLAIN(entropy_join, dtype)       \
    PLAIN(entropy_end, dtype)

ALL(f32)
ALL(f64)
ALL(bf16)
ALL(f16)
PLAIN(entropy_pair, f64)
