/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arrays for tests that compare kernels of the GPU with the plain ones of the CPU: a copy on each
 * side. Results are poisoned before, and must not be written behind their end.
 */
#ifndef SHERD_TESTS_DEVICE_ARRAYS_H
#define SHERD_TESTS_DEVICE_ARRAYS_H

#include "check.h"
#include "device.h"
#include "kernels/ref.h"

enum { SLACK = 64 /* bytes behind an array */, POISON = 0xa5 };

static const sherd_dtype dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16};
static sherd__heap heap;
static sherd__device *device;
static sherd__kernels plain_halves[2]; /* bf16, f16 */

static inline void open_device(void)
{
    device = open_gpu(&heap, "cuda:0", 0);
    if (!device)
        exit(1);
    sherd__install_half_ref(&plain_halves[0], &plain_halves[1]);
}

/* All blocks were given back, nothing has failed. */
static inline void close_device(void)
{
    CHECK_EQ(sherd__device_memory_of(device).live_bytes, 0);
    close_gpu(&heap, device);
}

static inline const sherd__kernels *plain_of(sherd_dtype dtype)
{
    return dtype == SHERD_F32   ? &sherd__ref_f32
           : dtype == SHERD_F64 ? &sherd__ref_f64
                                : &plain_halves[dtype == SHERD_F16];
}

static inline sherd_dtype statistics(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? SHERD_F64 : SHERD_F32;
}

/* n elements; `host`: what the CPU has, `data`: where the GPU's are. */
typedef struct array {
    sherd_dtype dtype;
    int64_t n, bytes;
    void *host, *data;
    unsigned char *got; /* from the GPU */
    sherd__device_block *block;
} array;

/* Poisoned on both sides; `shift`: elements that the GPU's copy is off from an aligned place. */
static inline array room_for(sherd_dtype dtype, int64_t n, int shift)
{
    size_t element = sherd_dtype_bytes(dtype);
    array a = {.dtype = dtype, .n = n, .bytes = n * (int64_t)element};
    int64_t off = shift * (int64_t)element;

    a.host = malloc((size_t)a.bytes + SLACK);
    a.got = malloc((size_t)a.bytes + SLACK);
    a.block = sherd__device_take(device, off + a.bytes + SLACK);
    if (!a.host || !a.got || !a.block)
        abort();
    a.data = (char *)a.block->data + off;
    memset(a.host, POISON, (size_t)a.bytes + SLACK);
    sherd__device_set(device, a.block->data, POISON, off + a.bytes + SLACK);
    return a;
}

static inline void send(const array *a)
{
    sherd__device_upload(device, a->data, a->host, a->bytes);
}

static inline array drawn(sherd_dtype dtype, int64_t n, int shift, double low, double high,
                          uint64_t seed)
{
    array a = room_for(dtype, n, shift);

    plain_of(dtype)->uniform(n, a.host, low, high, sherd__philox_key(7, seed, 0), 0);
    send(&a);
    return a;
}

/* Integers below `many`, some of them -1 or `many`. */
static inline array drawn_ids(int64_t n, int64_t many, uint64_t seed)
{
    array a = room_for(SHERD_I32, n, 0), x = drawn(SHERD_F64, n, 0, -1, (double)many + 1, seed);

    for (int64_t i = 0; i < n; i++)
        ((int32_t *)a.host)[i] = (int32_t)floor(((double *)x.host)[i]);
    send(&a);
    sherd__device_give(device, x.block);
    free(x.host);
    free(x.got);
    return a;
}

static inline void drop(array *a)
{
    if (a->block)
        sherd__device_give(device, a->block);
    free(a->host);
    free(a->got);
    *a = (array){0};
}

static inline double element(sherd_dtype dtype, const void *x, int64_t i)
{
    float y;

    if (dtype == SHERD_F64)
        return ((const double *)x)[i];
    plain_of(dtype)->widen(1, &y, (const char *)x + i * (int64_t)sherd_dtype_bytes(dtype));
    return (double)y;
}

static inline void fetch(array *a)
{
    int kept = 0; /* of what lies behind the end */

    CHECK(sherd__device_download(device, a->got, a->data, a->bytes + SLACK));
    while (kept < SLACK && a->got[a->bytes + kept] == POISON)
        kept++;
    CHECK_EQ(kept, SLACK);
}

/* Relative and absolute: of sums, and one rounding of 16 bits. */
static inline double allowed(sherd_dtype dtype, double x, double tolerance)
{
    double rounding = dtype == SHERD_BF16 ? 1.0 / 128 : dtype == SHERD_F16 ? 1.0 / 1024 : 0;

    if (dtype == SHERD_F64)
        tolerance *= 1e-8;
    return tolerance * (1 + fabs(x)) + rounding * fabs(x);
}

/* What the GPU has is what the CPU has. */
static inline void same(array *a, double tolerance, const char *what)
{
    fetch(a);
    for (int64_t i = 0; i < a->n; i++) {
        double x = element(a->dtype, a->host, i), y = element(a->dtype, a->got, i);
        if (x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= allowed(a->dtype, x, tolerance))
            continue;
        fprintf(stderr, "%s, %s: element %lld of %lld: %.9g is %.9g\n", what,
                sherd_dtype_name(a->dtype), (long long)i, (long long)a->n, x, y);
        CHECK(false);
        return;
    }
}

/* The tolerance of a logarithm, f64, of sums that are statistics. */
static inline double log_sum_of(sherd_dtype dtype, double tolerance)
{
    return dtype == SHERD_F64 ? tolerance : 1e8 * tolerance;
}

/* What the GPU has now is what `same` or `fetch` found before, bit for bit. */
static inline void same_bits(array *a, const char *what)
{
    unsigned char *before = a->got;

    a->got = malloc((size_t)a->bytes + SLACK);
    if (!a->got)
        abort();
    fetch(a);
    if (memcmp(before, a->got, (size_t)a->bytes) != 0) {
        fprintf(stderr, "%s, %s: other bits in a second run\n", what, sherd_dtype_name(a->dtype));
        CHECK(false);
    }
    free(before);
}

#endif
