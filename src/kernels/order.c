/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that only compare elements, for all types: comparisons, the largest and the smallest, and
 * where they are; also folds by sum and product, of integers modulo a power of two. A NaN counts as
 * larger and as smaller than any number, so that it is not hidden.
 */
#include <string.h>

#include "half.h"
#include "kernels.h"
#include "ref.h"
#include "rows.h"

#define TYPED(x, type) x##_##type
#include "order_fractions.inc"

#define ELEMENT            int32_t
#define VALUE              int32_t
#define NAME(x)            TYPED(x, i32)
#define GET(x)             (x)
#define IS_NAN(x)          false
#define FOLD_SUM(a, b)     (int32_t)((uint32_t)(a) + (uint32_t)(b))
#define FOLD_PRODUCT(a, b) (int32_t)((uint32_t)(a) * (uint32_t)(b))
#include "order_body.inc"

#define ELEMENT            int64_t
#define VALUE              int64_t
#define NAME(x)            TYPED(x, i64)
#define GET(x)             (x)
#define IS_NAN(x)          false
#define FOLD_SUM(a, b)     (int64_t)((uint64_t)(a) + (uint64_t)(b))
#define FOLD_PRODUCT(a, b) (int64_t)((uint64_t)(a) * (uint64_t)(b))
#include "order_body.inc"

#define ELEMENT            int8_t
#define VALUE              int
#define NAME(x)            TYPED(x, i8)
#define GET(x)             (x)
#define IS_NAN(x)          false
#define FOLD_SUM(a, b)     (int8_t)((a) + (b))
#define FOLD_PRODUCT(a, b) (int8_t)((a) * (b))
#include "order_body.inc"

#define ELEMENT            uint8_t
#define VALUE              int
#define NAME(x)            TYPED(x, u8)
#define GET(x)             (x)
#define IS_NAN(x)          false
#define FOLD_SUM(a, b)     (uint8_t)((a) + (b))
#define FOLD_PRODUCT(a, b) (uint8_t)((a) * (b))
#include "order_body.inc"

#define ELEMENT            uint8_t
#define VALUE              int
#define NAME(x)            TYPED(x, bool)
#define GET(x)             ((x) != 0)
#define IS_NAN(x)          false
#define FOLD_SUM(a, b)     (uint8_t)(GET(a) | GET(b))
#define FOLD_PRODUCT(a, b) (uint8_t)(GET(a) & GET(b))
#include "order_body.inc"
