/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the GPU's kernels share: arrays of random numbers of any dtype, at places that may
 * be off any alignment; the plain kernels of the CPU to compare with; and how near is near enough.
 */
#ifndef SHERD_TESTS_DEVICE_NUMBERS_H
#define SHERD_TESTS_DEVICE_NUMBERS_H

#include <math.h>

#include "device.h"
#include "kernels/ref.h"

enum { GUARD = 64 /* bytes behind an array, and before it, that nobody may touch */ };

static const sherd_dtype fractions[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};

static inline const sherd__kernels *plain(sherd_dtype dtype)
{
    static sherd__kernels half[2];

    if (!half[0].name)
        sherd__install_half_ref(&half[0], &half[1]);
    return dtype == SHERD_F32    ? &sherd__ref_f32
           : dtype == SHERD_F64  ? &sherd__ref_f64
           : dtype == SHERD_BF16 ? &half[0]
           : dtype == SHERD_F16  ? &half[1]
           : dtype == SHERD_I32  ? &sherd__whole_i32
           : dtype == SHERD_I8   ? &sherd__whole_i8
           : dtype == SHERD_U8   ? &sherd__whole_u8
           : dtype == SHERD_BOOL ? &sherd__whole_bool
                                 : &sherd__whole_i64;
}

/* n numbers in [low, high), the same on both sides, and what the GPU made of them. */
typedef struct array {
    sherd_dtype dtype;
    int64_t n, bytes;
    char *host, *got; /* GUARD bytes before */
    sherd__device_block *block;
    char *gpu;
} array;

static inline double element(sherd_dtype dtype, const void *data, int64_t i)
{
    double x;

    sherd__cast(SHERD_F64, dtype, 1, &x,
                (const char *)data + i * (int64_t)sherd_dtype_bytes(dtype));
    return x;
}

/* `off` bytes from a place that is aligned. Both sides hold 0xff. */
static inline array blank(sherd__device *device, sherd_dtype dtype, int64_t n, int off)
{
    array a = {.dtype = dtype, .n = n, .bytes = n * (int64_t)sherd_dtype_bytes(dtype)};
    size_t room = (size_t)a.bytes + 2 * GUARD;

    a.host = (char *)malloc(room) + GUARD;
    a.got = (char *)malloc(room) + GUARD;
    memset(a.host - GUARD, 0xff, room);
    a.block = sherd__device_take(device, (int64_t)room + off);
    a.gpu = (char *)a.block->data + GUARD + off;
    sherd__device_set(device, a.gpu - GUARD, 0xff, (int64_t)room);
    return a;
}

static inline void upload(sherd__device *device, const array *a)
{
    sherd__device_upload(device, a->gpu, a->host, a->bytes);
}

static inline array drawn(sherd__device *device, sherd_dtype dtype, int64_t n, int off, double low,
                          double high)
{
    static uint64_t calls;
    array a = blank(device, dtype, n, off);
    sherd__key key = sherd__philox_key(3, 1, calls++);

    for (int64_t i = 0; i < n; i++) {
        uint32_t word[4];
        sherd__philox(word, key, (uint64_t)i);
        double x = low + (high - low) * (word[0] >> 8) / (1 << 24);
        sherd__cast(dtype, SHERD_F64, 1, a.host + i * (int64_t)sherd_dtype_bytes(dtype), &x);
    }
    upload(device, &a);
    return a;
}

static inline void drop(sherd__device *device, array *a)
{
    sherd__device_give(device, a->block);
    free(a->host - GUARD);
    free(a->got - GUARD);
}

static inline bool download(sherd__device *device, array *a)
{
    return CHECK(
        sherd__device_download(device, a->got - GUARD, a->gpu - GUARD, a->bytes + 2 * GUARD));
}

/* What one rounding, and functions of other makers, differ by: relative. */
static inline double near_enough(sherd_dtype dtype)
{
    return dtype == SHERD_F32    ? 1e-5
           : dtype == SHERD_F64  ? 1e-13
           : dtype == SHERD_BF16 ? 1.0 / 128
                                 : 1.0 / 1024;
}

/* Whether the GPU's numbers are near the host's; `floor`: how small differences count as relative
 * to it. What is around was not touched. */
static inline void check_arrays(sherd__device *device, array *a, double floor, const char *what)
{
    double tolerance = near_enough(a->dtype);

    if (!download(device, a))
        return;
    for (int i = 1; i <= GUARD; i++)
        if (!CHECK(a->got[-i] == (char)0xff && a->got[a->bytes + i - 1] == (char)0xff))
            break;
    for (int64_t i = 0; i < a->n; i++) {
        double x = element(a->dtype, a->host, i), y = element(a->dtype, a->got, i);
        if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * (fabs(x) + floor))
            continue;
        CHECK(false);
        fprintf(stderr, "  %s of %s: element %lld of %lld: %.9g is %.9g\n", what,
                sherd_dtype_name(a->dtype), (long long)i, (long long)a->n, x, y);
        return;
    }
}

/* The same to the last bit. */
static inline void check_same(sherd__device *device, array *a, const char *what)
{
    if (!download(device, a))
        return;
    if (!CHECK(memcmp(a->host - GUARD, a->got - GUARD, (size_t)(a->bytes + 2 * GUARD)) == 0))
        fprintf(stderr, "  %s of %s, %lld elements\n", what, sherd_dtype_name(a->dtype),
                (long long)a->n);
}

#endif
