/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic on sizes and narrowing casts, small integer helpers. Pure. */
#ifndef SHERD__BASE_NUM_H
#define SHERD__BASE_NUM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SHERD__SIZE_LIMIT_LOG2 = 62 }; /* sizes stay below 2^62 */

/* *out = a * b for a, b >= 0; false if the product reaches 2^62. */
bool sherd__mul(int64_t a, int64_t b, int64_t *out);

/* *out = a + b for a, b >= 0; false if the sum reaches 2^62. */
bool sherd__add(int64_t a, int64_t b, int64_t *out);

/* Product of shape[0..ndim); 1 for ndim 0. False if it or a size reaches 2^62, or a size is < 0. */
bool sherd__count(const int64_t *shape, int ndim, int64_t *out);

/* Narrowing of a value that must fit: asserts. */
int sherd__int(int64_t value);
size_t sherd__bytes(int64_t value);

static inline int64_t sherd__min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t sherd__max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
/* Of any a, and b > 0. */
static inline int64_t sherd__floor_div(int64_t a, int64_t b)
{
    return a >= 0 ? a / b : -((-a + b - 1) / b);
}

static inline int64_t sherd__ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
/* The least multiple of `to` that is not below `bytes`. */
static inline size_t sherd__round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

#endif
