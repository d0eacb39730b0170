/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that stop below 2^62: sizes, bytes and times of layouts that no machine holds stay comparable. */
#include "inside.h"
#include "base/num.h"

int64_t sherd__cut(sherd__wide value)
{
    return value < SHERD__MOST ? (int64_t)value : SHERD__MOST;
}

int64_t sherd__mul_cut(int64_t a, int64_t b)
{
    int64_t product;

    return sherd__mul(a, b, &product) ? product : SHERD__MOST;
}

int64_t sherd__add_cut(int64_t a, int64_t b)
{
    int64_t sum;

    return sherd__add(a, b, &sum) ? sum : SHERD__MOST;
}
