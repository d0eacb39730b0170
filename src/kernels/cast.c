/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every dtype to every other, in blocks: fractions pass through f64, integers through 64 bits, both
 * of which hold them exactly, so that eight readers and sixteen writers do for 64 pairs and each
 * element is rounded once. About 1 ns an element; pairs that matter (f32 with the 16-bit types)
 * have versions of their own in the tables.
 */
#include "cast.h"

#include "half.h"
#include "base/dtype.h"

enum { BLOCK = 256 };

/* A loop for each dtype: a choice within one would cost more than what it chooses. */
#define READ(type, value)                \
    for (int64_t i = 0; i < n; i++) {    \
        type x = ((const type *)src)[i]; \
        out[i] = value;                  \
    }                                    \
    break;
#define WRITE(type, value)          \
    for (int64_t i = 0; i < n; i++) \
        ((type *)dst)[i] = value;   \
    break;

static void read_fractions(sherd_dtype dtype, int64_t n, double *out, const void *src)
{
    switch (dtype) {
    case SHERD_F32:
        READ(float, (double)x)
    case SHERD_BF16:
        READ(uint16_t, (double)sherd__from_bf16(x))
    case SHERD_F16:
        READ(uint16_t, (double)sherd__from_f16(x))
    default:
        READ(double, x)
    }
}

static void read_integers(sherd_dtype dtype, int64_t n, int64_t *out, const void *src)
{
    switch (dtype) {
    case SHERD_I32:
        READ(int32_t, x)
    case SHERD_I64:
        READ(int64_t, x)
    case SHERD_U8:
        READ(uint8_t, x)
    default:
        READ(uint8_t, x != 0)
    }
}

/* Truncated, and held within [low, high], which are at most 32 bits: of this the compiler makes
 * vectors. */
static inline int32_t whole(double x, int32_t low, int32_t high)
{
    x = isnan(x) ? 0 : x;
    x = x < (double)low ? (double)low : x;
    return (int32_t)(x > (double)high ? (double)high : x);
}

static inline int64_t whole_long(double x)
{
    if (fabs(x) < 0x1p63)
        return (int64_t)x;
    return isnan(x) ? 0 : x < 0 ? INT64_MIN : INT64_MAX;
}

static void write_fractions(sherd_dtype dtype, int64_t n, void *dst, const double *x)
{
    switch (dtype) {
    case SHERD_F32:
        WRITE(float, (float)x[i])
    case SHERD_F64:
        WRITE(double, x[i])
    case SHERD_BF16:
        WRITE(uint16_t, sherd__double_to_bf16(x[i]))
    case SHERD_F16:
        WRITE(uint16_t, sherd__double_to_f16(x[i]))
    case SHERD_I32:
        WRITE(int32_t, whole(x[i], INT32_MIN, INT32_MAX))
    case SHERD_I64:
        WRITE(int64_t, whole_long(x[i]))
    case SHERD_U8:
        WRITE(uint8_t, (uint8_t)whole(x[i], 0, UINT8_MAX))
    default:
        WRITE(uint8_t, x[i] != 0)
    }
}

/*
 * An f32 that rounds to 16 bits as x would: of a large number the lowest 11 bits become one that
 * says whether any of them was set, which leaves a double exact.
 */
static inline float odd_of(int64_t x)
{
    if (x > -(1 << 24) && x < 1 << 24)
        return (float)x;

    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

    if (size >> 53)
        size = size >> 11 << 11 | (uint64_t)((size & 0x7FFu) != 0) << 11;
    return sherd__to_odd(x < 0 ? -(double)size : (double)size);
}

/* Small numbers, as most are, by way of 32 bits, of which the compiler makes vectors. */
static void odd_of_all(int64_t n, float *out, const int64_t *x)
{
    const uint64_t small = (uint64_t)1 << 24;
    uint64_t high = 0;

    for (int64_t i = 0; i < n; i++)
        high |= (uint64_t)x[i] + small;
    if (high < 2 * small)
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)(int32_t)x[i];
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = odd_of(x[i]);
}

/* From 16 bits and f32 to 16 bits: rounded once. */
static void write_half(sherd_dtype dtype, int64_t n, uint16_t *dst, const float *x)
{
    if (dtype == SHERD_BF16)
        for (int64_t i = 0; i < n; i++)
            dst[i] = sherd__to_bf16(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = sherd__to_f16(x[i]);
}

static const float *read_floats(sherd_dtype dtype, int64_t n, float *out, const void *src)
{
    const uint16_t *x = src;

    if (dtype == SHERD_F32)
        return src;
    if (dtype == SHERD_BF16)
        for (int64_t i = 0; i < n; i++)
            out[i] = sherd__from_bf16(x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            out[i] = sherd__from_f16(x[i]);
    return out;
}

/*
 * An f32, truncated and held within the range of i32; the compiler vectorises it. 2^31 is no i32,
 * but the f32 before it is.
 */
static inline int32_t whole_float(float x)
{
    float held = isnan(x) ? 0 : x < -0x1p31f ? -0x1p31f : x;
    int32_t y = (int32_t)(held < 0x1p31f ? held : 0);

    return held < 0x1p31f ? y : INT32_MAX;
}

static void write_integers(sherd_dtype dtype, int64_t n, void *dst, const int64_t *x)
{
    switch (dtype) {
    case SHERD_F32:
        WRITE(float, (float)x[i])
    case SHERD_F64:
        WRITE(double, (double)x[i])
    case SHERD_BF16:
        WRITE(uint16_t, sherd__to_bf16(odd_of(x[i])))
    case SHERD_F16:
        WRITE(uint16_t, sherd__to_f16(odd_of(x[i])))
    case SHERD_I32:
        WRITE(int32_t, (int32_t)(uint32_t)(uint64_t)x[i])
    case SHERD_I64:
        WRITE(int64_t, x[i])
    case SHERD_U8:
        WRITE(uint8_t, (uint8_t)(uint64_t)x[i])
    default:
        WRITE(uint8_t, x[i] != 0)
    }
}

void sherd__cast_to_odd(sherd_dtype src_dtype, int64_t n, float *dst, const void *src)
{
    const double *x = src;
    int64_t integers[BLOCK];

    for (int64_t i = 0; i < n && src_dtype == SHERD_F64; i++)
        dst[i] = sherd__to_odd(x[i]);
    for (int64_t i = 0; i < n && src_dtype != SHERD_F64; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        read_integers(src_dtype, m, integers,
                      (const char *)src + (size_t)i * sherd_dtype_bytes(src_dtype));
        odd_of_all(m, dst + i, integers);
    }
}

/* f32 to integers: not through f64, which they need not. */
static void write_of_floats(sherd_dtype dtype, int64_t n, void *dst, const float *x)
{
    switch (dtype) {
    case SHERD_I32:
        WRITE(int32_t, whole_float(x[i]))
    case SHERD_I64:
        WRITE(int64_t, whole_long((double)x[i]))
    case SHERD_U8:
        WRITE(uint8_t, (uint8_t)whole_float(x[i] < 0 ? 0 : x[i] > UINT8_MAX ? UINT8_MAX : x[i]))
    default:
        WRITE(uint8_t, x[i] != 0)
    }
}

void sherd__cast(sherd_dtype dst_dtype, sherd_dtype src_dtype, int64_t n, void *dst,
                 const void *src)
{
    size_t to = sherd_dtype_bytes(dst_dtype), from = sherd_dtype_bytes(src_dtype);
    bool by_floats =
        sherd__is_half(dst_dtype) && (sherd__is_half(src_dtype) || src_dtype == SHERD_F32);
    double fractions[BLOCK];
    float floats[BLOCK];
    int64_t integers[BLOCK];

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        void *d = (char *)dst + (size_t)i * to;
        const void *s = (const char *)src + (size_t)i * from;
        if (dst_dtype == src_dtype) {
            memcpy(d, s, (size_t)m * to);
        } else if (by_floats) {
            write_half(dst_dtype, m, d, read_floats(src_dtype, m, floats, s));
        } else if (src_dtype == SHERD_F32 && !sherd__has_fractions(dst_dtype)) {
            write_of_floats(dst_dtype, m, d, s);
        } else if (src_dtype == SHERD_F64) {
            write_fractions(dst_dtype, m, d, s);
        } else if (sherd__has_fractions(src_dtype) && dst_dtype == SHERD_F64) {
            read_fractions(src_dtype, m, d, s);
        } else if (sherd__has_fractions(src_dtype)) {
            read_fractions(src_dtype, m, fractions, s);
            write_fractions(dst_dtype, m, d, fractions);
        } else {
            read_integers(src_dtype, m, integers, s);
            write_integers(dst_dtype, m, d, integers);
        }
    }
}

bool sherd__holds(sherd_dtype dtype, double value)
{
    unsigned char element[8];
    double back = 0;

    if (sherd__has_fractions(dtype))
        return true;
    if (value >= 0x1p63) /* the largest i64 would be rounded to that on its way back */
        return false;
    sherd__cast(dtype, SHERD_F64, 1, element, &value);
    sherd__cast(SHERD_F64, dtype, 1, &back, element);
    return back == value;
}
