/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every dtype to every other, in blocks: fractions pass through f64, integers through 64 bits, both of which hold
 * them exactly, so that eight readers and sixteen writers do for 64 pairs and each element is rounded once. About
 * 1 ns an element; pairs that matter (f32 with the 16-bit types) have versions of their own in the tables.
 */
#include "cast.h"

#include "base/dtype.h"
#include "half.h"

enum { BLOCK = 256 };

static void read_fractions(sherd_dtype dtype, int64_t n, double *out, const void *src)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case SHERD_F32:
            out[i] = (double)((const float *)src)[i];
            break;
        case SHERD_BF16:
            out[i] = (double)sherd__from_bf16(((const uint16_t *)src)[i]);
            break;
        case SHERD_F16:
            out[i] = (double)sherd__from_f16(((const uint16_t *)src)[i]);
            break;
        default:
            out[i] = ((const double *)src)[i];
        }
}

static void read_integers(sherd_dtype dtype, int64_t n, int64_t *out, const void *src)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case SHERD_I32:
            out[i] = ((const int32_t *)src)[i];
            break;
        case SHERD_I64:
            out[i] = ((const int64_t *)src)[i];
            break;
        case SHERD_U8:
            out[i] = ((const uint8_t *)src)[i];
            break;
        default:
            out[i] = ((const uint8_t *)src)[i] != 0;
        }
}

/* Truncated, and held within [low, high]. Both are exact as doubles, but for the highest int64_t. */
static int64_t whole(double x, int64_t low, int64_t high)
{
    if (isnan(x))
        return 0;
    if (x <= (double)low)
        return low;
    return x >= (double)high ? high : (int64_t)x;
}

static void write_fractions(sherd_dtype dtype, int64_t n, void *dst, const double *x)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case SHERD_F32:
            ((float *)dst)[i] = (float)x[i];
            break;
        case SHERD_F64:
            ((double *)dst)[i] = x[i];
            break;
        case SHERD_BF16:
            ((uint16_t *)dst)[i] = sherd__double_to_bf16(x[i]);
            break;
        case SHERD_F16:
            ((uint16_t *)dst)[i] = sherd__double_to_f16(x[i]);
            break;
        case SHERD_I32:
            ((int32_t *)dst)[i] = (int32_t)whole(x[i], INT32_MIN, INT32_MAX);
            break;
        case SHERD_I64:
            ((int64_t *)dst)[i] = whole(x[i], INT64_MIN, INT64_MAX);
            break;
        case SHERD_U8:
            ((uint8_t *)dst)[i] = (uint8_t)whole(x[i], 0, UINT8_MAX);
            break;
        default:
            ((uint8_t *)dst)[i] = x[i] != 0;
        }
}

/*
 * An f32 that rounds to 16 bits as x would: of a large number the lowest 11 bits become one that says whether any of
 * them was set, which leaves a double exact.
 */
static float odd_of(int64_t x)
{
    uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;

    if (size >> 53)
        size = size >> 11 << 11 | (uint64_t)((size & 0x7FFu) != 0) << 11;
    return sherd__to_odd(x < 0 ? -(double)size : (double)size);
}

static void write_integers(sherd_dtype dtype, int64_t n, void *dst, const int64_t *x)
{
    for (int64_t i = 0; i < n; i++)
        switch (dtype) {
        case SHERD_F32:
            ((float *)dst)[i] = (float)x[i];
            break;
        case SHERD_F64:
            ((double *)dst)[i] = (double)x[i];
            break;
        case SHERD_BF16:
            ((uint16_t *)dst)[i] = sherd__to_bf16(odd_of(x[i]));
            break;
        case SHERD_F16:
            ((uint16_t *)dst)[i] = sherd__to_f16(odd_of(x[i]));
            break;
        case SHERD_I32:
            ((int32_t *)dst)[i] = (int32_t)(uint32_t)(uint64_t)x[i];
            break;
        case SHERD_I64:
            ((int64_t *)dst)[i] = x[i];
            break;
        case SHERD_U8:
            ((uint8_t *)dst)[i] = (uint8_t)(uint64_t)x[i];
            break;
        default:
            ((uint8_t *)dst)[i] = x[i] != 0;
        }
}

void sherd__cast(sherd_dtype dst_dtype, sherd_dtype src_dtype, int64_t n, void *dst,
                 const void *src)
{
    size_t to = sherd_dtype_bytes(dst_dtype), from = sherd_dtype_bytes(src_dtype);
    double fractions[BLOCK];
    int64_t integers[BLOCK];

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t m = n - i < BLOCK ? n - i : BLOCK;
        void *d = (char *)dst + (size_t)i * to;
        const void *s = (const char *)src + (size_t)i * from;
        if (dst_dtype == src_dtype) {
            memcpy(d, s, (size_t)m * to);
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
    sherd__cast(dtype, SHERD_F64, 1, element, &value);
    sherd__cast(SHERD_F64, dtype, 1, &back, element);
    return back == value;
}
