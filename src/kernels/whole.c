/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Integers: reductions and fills, which moves ask for, and what operators compute with them (see
 * sherd__kernels_of_any). Sums and products keep the low bits of what does not fit, and of bool
 * whether they are not 0; there is no average.
 */
#include "ref.h"
#include "rows.h"

#define INTEGER        int32_t
#define UNSIGNED       uint32_t
#define DTYPE          SHERD_I32
#define NAME(x)        i32_##x
#define TABLE          sherd__whole_i32
#define ORDER(x)       sherd__##x##_i32
#define IS_NEGATIVE(x) ((x) < 0)
#define KEEP(x)        (x)
#include "whole_body.inc"

#define INTEGER        int64_t
#define UNSIGNED       uint64_t
#define DTYPE          SHERD_I64
#define NAME(x)        i64_##x
#define TABLE          sherd__whole_i64
#define ORDER(x)       sherd__##x##_i64
#define IS_NEGATIVE(x) ((x) < 0)
#define KEEP(x)        (x)
#include "whole_body.inc"

#define INTEGER        uint8_t
#define UNSIGNED       uint32_t
#define DTYPE          SHERD_U8
#define NAME(x)        u8_##x
#define TABLE          sherd__whole_u8
#define ORDER(x)       sherd__##x##_u8
#define IS_NEGATIVE(x) false
#define KEEP(x)        (x)
#include "whole_body.inc"

#define INTEGER        int8_t
#define UNSIGNED       uint32_t
#define DTYPE          SHERD_I8
#define NAME(x)        i8_##x
#define TABLE          sherd__whole_i8
#define ORDER(x)       sherd__##x##_i8
#define IS_NEGATIVE(x) ((x) < 0)
#define KEEP(x)        (x)
#include "whole_body.inc"

#define INTEGER        uint8_t
#define UNSIGNED       uint32_t
#define DTYPE          SHERD_BOOL
#define NAME(x)        bool_##x
#define TABLE          sherd__whole_bool
#define ORDER(x)       sherd__##x##_bool
#define IS_NEGATIVE(x) false
#define KEEP(x)        ((x) != 0)
#include "whole_body.inc"
