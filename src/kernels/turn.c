/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turning planes and rows. Planes are turned in tiles of 64 x 64 elements, or 32 x 32 of 8 bytes. A
 * tile is turned in squares of vectors into a buffer, whose rows are then copied to dst: so cache
 * lines of dst are written as a whole, since with strides that are powers of two the cache can hold
 * only few of them. 2 to 4 times as fast as single elements.
 */
#include "turn.h"

#include <string.h>

#if defined(__clang__)
#define SHUFFLE(a, b, type, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, type, ...) __builtin_shuffle(a, b, (type){__VA_ARGS__})
#endif

typedef uint8_t v8 __attribute__((vector_size(16)));
typedef uint16_t v16 __attribute__((vector_size(16)));
typedef uint32_t v32 __attribute__((vector_size(16)));
typedef uint64_t v64 __attribute__((vector_size(16)));

#define ELEMENT    uint8_t
#define VECTOR     v8
#define NAME(name) name##_8
#define LOW        0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH       8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#include "turn_body.inc"

#define ELEMENT    uint16_t
#define VECTOR     v16
#define NAME(name) name##_16
#define LOW        0, 8, 1, 9, 2, 10, 3, 11
#define HIGH       4, 12, 5, 13, 6, 14, 7, 15
#include "turn_body.inc"

#define ELEMENT    uint32_t
#define VECTOR     v32
#define NAME(name) name##_32
#define LOW        0, 4, 1, 5
#define HIGH       2, 6, 3, 7
#include "turn_body.inc"

#define ELEMENT    uint64_t
#define VECTOR     v64
#define NAME(name) name##_64
#define LOW        0, 2
#define HIGH       1, 3
#include "turn_body.inc"

bool sherd__turn(size_t bytes, int64_t rows, int64_t cols, char *dst, int64_t dst_row,
                 const char *src, int64_t src_col)
{
    switch (bytes) {
    case 1:
        return turn_plane_8(rows, cols, dst, dst_row, src, src_col);
    case 2:
        return turn_plane_16(rows, cols, dst, dst_row, src, src_col);
    case 4:
        return turn_plane_32(rows, cols, dst, dst_row, src, src_col);
    case 8:
        return turn_plane_64(rows, cols, dst, dst_row, src, src_col);
    default:
        return false;
    }
}

/* The elements of a vector from the last to the first: its words, and what is in them. */
static inline v32 backwards(size_t bytes, v32 x)
{
    if (bytes == 8)
        return SHUFFLE(x, x, v32, 2, 3, 0, 1);
    x = SHUFFLE(x, x, v32, 3, 2, 1, 0);
    if (bytes < 4)
        x = x >> 16 | x << 16;
    if (bytes < 2)
        x = (x >> 8 & 0x00FF00FF) | (x & 0x00FF00FF) << 8;
    return x;
}

/* `bytes` is a constant in each caller. */
static inline bool reverse(int64_t bytes, int64_t n, char *dst, const char *src)
{
    const int64_t lanes = (int64_t)sizeof(v32) / bytes;
    int64_t i = 0;

    for (; i + lanes <= n; i += lanes) {
        v32 x;
        memcpy(&x, src - (i + lanes - 1) * bytes, sizeof x);
        x = backwards((size_t)bytes, x);
        memcpy(dst + i * bytes, &x, sizeof x);
    }
    for (; i < n; i++)
        memcpy(dst + i * bytes, src - i * bytes, (size_t)bytes);
    return true;
}

bool sherd__reverse(size_t bytes, int64_t n, char *dst, const char *src)
{
    switch (bytes) {
    case 1:
        return reverse(1, n, dst, src);
    case 2:
        return reverse(2, n, dst, src);
    case 4:
        return reverse(4, n, dst, src);
    case 8:
        return reverse(8, n, dst, src);
    default:
        return false;
    }
}
