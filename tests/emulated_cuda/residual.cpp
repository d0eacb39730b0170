/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of src/programs/residual.cu, all instances. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/residual_args.h"
#include "programs/residual.cu"

#define FORWARD(kind, beside)                         \
    KERNEL(add_norm_##kind##_##beside, add_norm_args) \
    {                                                 \
        add_norm<kind, beside>(a);                    \
    }
#define BACK(kind, dy, ddelta)                                 \
    KERNEL(norm_back_##kind##_##dy##_##ddelta, norm_back_args) \
    {                                                          \
        norm_back<kind, dy, ddelta>(a);                        \
    }
#define END(dtype)                                    \
    KERNEL(norm_back_end_##dtype, norm_back_end_args) \
    {                                                 \
        norm_back_end<dtype>(a);                      \
    }
#define REAL(kind)         \
    FORWARD(kind, f32)     \
    FORWARD(kind, f64)     \
    FORWARD(kind, bf16)    \
    FORWARD(kind, f16)     \
    BACK(kind, f32, f32)   \
    BACK(kind, f32, bf16)  \
    BACK(kind, f32, f16)   \
    BACK(kind, bf16, f32)  \
    BACK(kind, bf16, bf16) \
    BACK(kind, f16, f32)   \
    BACK(kind, f16, f16)   \
    BACK(kind, f64, f64)
#define SAME(kind)         \
    FORWARD(kind, bf16)    \
    FORWARD(kind, f16)     \
    BACK(kind, bf16, bf16) \
    BACK(kind, f16, f16)

REAL(one_real)
REAL(many_real)
SAME(one_same)
SAME(many_same)
END(f32)
END(f64)
END(bf16)
END(f16)
