/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NaN and infinite numbers, replaced: see finite.h. Loops of which the compiler makes vectors. They
 * are rare, so blocks without any are copied: that takes half the time.
 */
#include "finite.h"

#include <math.h>
#include <string.h>

#include "cast.h"
#include "half.h"

#include "base/num.h"

enum { BLOCK = 512 };

/* x - x of a finite number is 0, all of whose bits are. */
static bool any_odd_f32(int64_t n, const float *x)
{
    uint32_t odd = 0;

    for (int64_t i = 0; i < n; i++)
        odd |= sherd__float_bits(x[i] - x[i]);
    return odd;
}

static bool any_odd_f64(int64_t n, const double *x)
{
    uint64_t odd = 0;

    for (int64_t i = 0; i < n; i++) {
        double gap = x[i] - x[i];
        uint64_t bits;
        memcpy(&bits, &gap, sizeof bits);
        odd |= bits;
    }
    return odd;
}

static bool any_odd_half(int64_t n, const uint16_t *x, uint16_t most)
{
    uint16_t odd = 0;

    for (int64_t i = 0; i < n; i++)
        odd |= (x[i] & 0x7FFF) >= most;
    return odd;
}

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

enum { F16_INFINITE = 0x7C00, BF16_INFINITE = 0x7F80 };

/* n elements, at most a block; `to`: as elements. */
static void replace_block(sherd_dtype dtype, int64_t n, void *dst, const void *src, const void *to)
{
    const uint16_t most = dtype == SHERD_F16 ? F16_INFINITE : BF16_INFINITE;
    bool odd = dtype == SHERD_F32   ? any_odd_f32(n, src)
               : dtype == SHERD_F64 ? any_odd_f64(n, src)
                                    : any_odd_half(n, src, most);

    if (!odd)
        memmove(dst, src, (size_t)n * sherd_dtype_bytes(dtype));
    else if (dtype == SHERD_F32)
        replace_f32(n, dst, src, to);
    else if (dtype == SHERD_F64)
        replace_f64(n, dst, src, to);
    else
        replace_half(n, dst, src, to, most);
}

void sherd__replace_odd(sherd_dtype dtype, int64_t n, void *dst, const void *src,
                        const double to[3])
{
    const int64_t bytes = (int64_t)sherd_dtype_bytes(dtype);
    double room[3];

    sherd__cast(dtype, SHERD_F64, 3, room, to);
    for (int64_t i = 0; i < n; i += BLOCK)
        replace_block(dtype, sherd__min(BLOCK, n - i), (char *)dst + i * bytes,
                      (const char *)src + i * bytes, room);
}
