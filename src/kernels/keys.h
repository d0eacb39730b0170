/* SPDX-License-Identifier: Apache-2.0 */
/* Integers in the order of fractions: a NaN is the largest, zeros of both signs are one. */
#ifndef SHERD__KERNELS_KEYS_H
#define SHERD__KERNELS_KEYS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "half.h"

static inline uint32_t sherd__key_of_f32(float x)
{
    uint32_t bits = sherd__float_bits(x + 0.0f);

    return isnan(x) ? UINT32_MAX : bits >> 31 ? ~bits : bits | 0x80000000u;
}

static inline uint64_t sherd__key_of_f64(double x)
{
    double positive = x + 0.0;
    uint64_t bits;

    memcpy(&bits, &positive, sizeof bits);
    return isnan(x) ? UINT64_MAX : bits >> 63 ? ~bits : bits | 0x8000000000000000u;
}

/* The number of a key. */
static inline double sherd__f64_of_key(uint64_t key)
{
    uint64_t bits = key >> 63 ? key ^ 0x8000000000000000u : ~key;
    double x;

    memcpy(&x, &bits, sizeof x);
    return x;
}

#endif
