/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Up to W numbers of 16 bits, W <= 8, where there are no loads with masks: by pieces of a constant
 * size that overlap, since a memcpy of any size is a call. Included by vector_*.h.
 */
#ifndef SHERD__VECTOR_FEW_HALVES_H
#define SHERD__VECTOR_FEW_HALVES_H

#include <string.h>

INLINE void copy_few_halves(uint16_t *to, const uint16_t *from, int64_t n)
{
    if (n >= 4) {
        uint64_t first, last;
        memcpy(&first, from, sizeof first);
        memcpy(&last, from + n - 4, sizeof last);
        memcpy(to, &first, sizeof first);
        memcpy(to + n - 4, &last, sizeof last);
    } else if (n >= 2) {
        uint32_t first, last;
        memcpy(&first, from, sizeof first);
        memcpy(&last, from + n - 2, sizeof last);
        memcpy(to, &first, sizeof first);
        memcpy(to + n - 2, &last, sizeof last);
    } else if (n == 1) {
        *to = *from;
    }
}

/* W numbers: n of p, which are all that is read, and zeroes behind them. */
INLINE void v_take_halves(uint16_t *lanes, const uint16_t *p, int64_t n)
{
    memset(lanes, 0, W * sizeof *lanes);
    copy_few_halves(lanes, p, n < W ? n : W);
}
/* The first n of W numbers. */
INLINE void v_put_halves(uint16_t *p, const uint16_t *lanes, int64_t n)
{
    copy_few_halves(p, lanes, n < W ? n : W);
}

#endif
