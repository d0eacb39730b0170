/* SPDX-License-Identifier: Apache-2.0 */
/* NaN and infinite numbers, replaced: see finite.h. Loops of which the compiler makes vectors. */
#include "finite.h"

#include <math.h>

#include "cast.h"

static void replace_f32(int64_t n, float *dst, const float *src, const float to[3])
{
    const float nan = to[0], above = to[1], below = to[2];

    for (int64_t i = 0; i < n; i++) {
        float x = src[i], y = x != x ? nan : x;
        y = x == INFINITY ? above : y;
        dst[i] = x == -INFINITY ? below : y;
    }
}

static void replace_f64(int64_t n, double *dst, const double *src, const double to[3])
{
    const double nan = to[0], above = to[1], below = to[2];

    for (int64_t i = 0; i < n; i++) {
        double x = src[i], y = x != x ? nan : x;
        y = x == (double)INFINITY ? above : y;
        dst[i] = x == -(double)INFINITY ? below : y;
    }
}

/* Of 16 bits, where the infinite number is `most`. */
static void replace_half(int64_t n, uint16_t *dst, const uint16_t *src, const uint16_t to[3],
                         uint16_t most)
{
    const uint16_t nan = to[0], above = to[1], below = to[2], least = most | 0x8000;

    for (int64_t i = 0; i < n; i++) {
        uint16_t x = src[i], y = (x & 0x7FFF) > most ? nan : x;
        y = x == most ? above : y;
        dst[i] = x == least ? below : y;
    }
}

void sherd__replace_odd(sherd_dtype dtype, int64_t n, void *dst, const void *src,
                        const double to[3])
{
    enum { F16_INFINITE = 0x7C00, BF16_INFINITE = 0x7F80 };
    double room[3];

    sherd__cast(dtype, SHERD_F64, 3, room, to);
    if (dtype == SHERD_F32)
        replace_f32(n, dst, src, (const float *)(const void *)room);
    else if (dtype == SHERD_F64)
        replace_f64(n, dst, src, room);
    else
        replace_half(n, dst, src, (const uint16_t *)(const void *)room,
                     dtype == SHERD_F16 ? F16_INFINITE : BF16_INFINITE);
}
