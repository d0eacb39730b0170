/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What moves ask of integers: reductions and fills. Their tables have nothing else, so sherd__kernels_of does not give
 * them out. Sums and products keep the low bits of what does not fit, and of bool whether they are not 0; there is no average.
 */
#include "ref.h"

#define INTEGER  int32_t
#define UNSIGNED uint32_t
#define DTYPE    SHERD_I32
#define NAME(x)  i32_##x
#define TABLE    sherd__whole_i32
#define KEEP(x)  (x)
#include "whole_body.inc"

#define INTEGER  int64_t
#define UNSIGNED uint64_t
#define DTYPE    SHERD_I64
#define NAME(x)  i64_##x
#define TABLE    sherd__whole_i64
#define KEEP(x)  (x)
#include "whole_body.inc"

#define INTEGER  uint8_t
#define UNSIGNED uint32_t
#define DTYPE    SHERD_U8
#define NAME(x)  u8_##x
#define TABLE    sherd__whole_u8
#define KEEP(x)  (x)
#include "whole_body.inc"

#define INTEGER  uint8_t
#define UNSIGNED uint32_t
#define DTYPE    SHERD_BOOL
#define NAME(x)  bool_##x
#define TABLE    sherd__whole_bool
#define KEEP(x)  ((x) != 0)
#include "whole_body.inc"
