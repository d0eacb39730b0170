/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that ranks exchange as words of their bits (sherd__share), and the larger of two. */
#ifndef SHERD__WORLD_WORDS_H
#define SHERD__WORLD_WORDS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double sherd__number_of(int64_t word)
{
    double number;

    memcpy(&number, &word, sizeof number);
    return number;
}

/* NaN stays. */
static inline double sherd__larger_number(double a, double b)
{
    return b > a || isnan(b) ? b : a;
}

#endif
