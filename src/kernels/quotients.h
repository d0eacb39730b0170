/* SPDX-License-Identifier: Apache-2.0 */
/* Quotients rounded down, and what is left, as in Python; functions.inc calls them. */
#ifndef SHERD__KERNELS_QUOTIENTS_H
#define SHERD__KERNELS_QUOTIENTS_H

#include <math.h>

/* What is left of a, with the sign of b. */
static inline double modulo(double a, double b)
{
    double left = fmod(a, b);

    return left != 0 && (left < 0) != (b < 0) ? left + b : left;
}

/* floor(a / b) of the exact quotient: a / b may be rounded up to an integer. */
static inline double floor_quotient(double a, double b)
{
    double left = fmod(a, b), quotient = rint((a - left) / b);

    if (b == 0)
        return a / b;
    if (left != 0 && (left < 0) != (b < 0))
        quotient -= 1;
    return quotient == 0 ? copysign(0.0, a / b) : quotient;
}

#endif
