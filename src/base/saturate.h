/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums and products of counts that are compared, or refused where they are too large: what reaches
 * 2^62 stays there. Sizes beside one of 0 may multiply to more.
 */
#ifndef SHERD__BASE_SATURATE_H
#define SHERD__BASE_SATURATE_H

#include "num.h"

/* a * b and a + b for a, b >= 0; at most 2^62. */
static inline int64_t sherd__times(int64_t a, int64_t b)
{
    int64_t product;

    return sherd__mul(a, b, &product) ? product : (int64_t)1 << SHERD__SIZE_LIMIT_LOG2;
}
static inline int64_t sherd__plus(int64_t a, int64_t b)
{
    int64_t sum;

    return sherd__add(a, b, &sum) ? sum : (int64_t)1 << SHERD__SIZE_LIMIT_LOG2;
}

/* The product of size[n], times `first`. */
static inline int64_t sherd__times_all(int64_t first, int n, const int64_t *size)
{
    for (int i = 0; i < n; i++)
        first = sherd__times(first, size[i]);
    return first;
}

/* part / whole of n, rounded up; part <= whole, whole > 0. Exact. */
static inline int64_t sherd__part_of(int64_t n, int64_t part, int64_t whole)
{
    __extension__ typedef __int128 wide;

    return (int64_t)(((wide)part * n + whole - 1) / whole);
}

#endif
