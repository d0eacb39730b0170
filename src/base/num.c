/* SPDX-License-Identifier: Apache-2.0 */
/* Checked sizes. The limit is 2^62, so that the sum of two good sizes never overflows. */
#include "num.h"
#include "diag.h"

#include <limits.h>

#define LIMIT ((int64_t)1 << SHERD__SIZE_LIMIT_LOG2)

bool sherd__mul(int64_t a, int64_t b, int64_t *out)
{
    int64_t product;

    if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product) || product >= LIMIT)
        return false;
    *out = product;
    return true;
}

bool sherd__add(int64_t a, int64_t b, int64_t *out)
{
    if (a < 0 || b < 0 || a >= LIMIT || b >= LIMIT - a)
        return false;
    *out = a + b;
    return true;
}

/* A zero anywhere makes the product 0, even where the other sizes alone would reach the limit. */
bool sherd__count(const int64_t *shape, int ndim, int64_t *out)
{
    int64_t n = 1;

    for (int d = 0; d < ndim; d++)
        if (shape[d] == 0)
            n = 0;
    for (int d = 0; d < ndim; d++)
        if (shape[d] >= LIMIT || !sherd__mul(n, shape[d], &n))
            return false;
    *out = n;
    return true;
}

int sherd__int(int64_t value)
{
    sherd__assert(-1, value >= INT_MIN && value <= INT_MAX);
    return (int)value;
}

size_t sherd__bytes(int64_t value)
{
    sherd__assert(-1, value >= 0);
    return (size_t)value;
}
