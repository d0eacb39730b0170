/* SPDX-License-Identifier: Apache-2.0 */
/* All kernels of src/programs/elements.cu. */
#include "grid.h"

#include "programs/numbers.cuh"
#include "programs/elements_args.h"
#include "programs/elements.cu"

#define INSTANCE(family, kind, type)                \
    KERNEL(family##_##kind##_##type, family##_args) \
    {                                               \
        family<kind, type>(a);                      \
    }
#define OF_ALL(family, kind)     \
    INSTANCE(family, kind, f32)  \
    INSTANCE(family, kind, f64)  \
    INSTANCE(family, kind, bf16) \
    INSTANCE(family, kind, f16)

OF_ALL(unary, f_scale)
OF_ALL(unary, f_shift)
#define UNARY0(name, ...) OF_ALL(unary, f_##name) OF_ALL(unary_grad, f_##name)
#define UNARY1            UNARY0
#define UNARY2            UNARY0
#define HIDDEN1           UNARY0
#include "kernels/functions.inc"

OF_ALL(binary, f_add)
OF_ALL(binary, f_sub)
OF_ALL(binary, f_mul)
#define BINARY(name, ...)    \
    OF_ALL(binary, f_##name) \
    OF_ALL(binary_grad_a, f_##name) OF_ALL(binary_grad_b, f_##name)
#include "kernels/functions.inc"

#define PLAIN(family, type)                \
    KERNEL(family##_##type, family##_args) \
    {                                      \
        family<type>(a);                   \
    }
#define CONVERT(to, from)                       \
    KERNEL(convert_##to##_##from, convert_args) \
    {                                           \
        convert<to, from>(a);                   \
    }
#define CONVERTS(type)  \
    CONVERT(type, f32)  \
    CONVERT(type, f64)  \
    CONVERT(type, bf16) \
    CONVERT(type, f16)  \
    CONVERT(type, i32)  \
    CONVERT(type, i64)  \
    CONVERT(type, i8)   \
    CONVERT(type, u8)   \
    CONVERT(type, b8)
#define OF_TYPE(type)    \
    PLAIN(fill, type)    \
    PLAIN(dropout, type) \
    CONVERTS(type)
OF_TYPE(f32)
OF_TYPE(f64)
OF_TYPE(bf16)
OF_TYPE(f16)
CONVERTS(i32)
CONVERTS(i64)
CONVERTS(i8)
CONVERTS(u8)
CONVERTS(b8)
