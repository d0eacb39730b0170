/* SPDX-License-Identifier: Apache-2.0 */
/* Integers on the GPU beside the CPU's plain kernels, bit for bit: functions of one and two
 * operands, conversions between all dtypes, and how often indices occur. */
#define CHECK_PURE
#include "device_numbers.h"

#include "device/whole.h"

static const sherd_dtype integers[] = {SHERD_I32, SHERD_I64, SHERD_I8, SHERD_U8};
static const sherd_dtype all_dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                         SHERD_I64, SHERD_U8,  SHERD_I8,   SHERD_BOOL};

static const sherd__kernels *kernels_of(sherd_dtype dtype)
{
    return dtype == SHERD_U8   ? &sherd__whole_u8
           : dtype == SHERD_I8 ? &sherd__whole_i8
                               : plain(dtype);
}

/* Small ones, and the first few at the ends of the range. */
static array numbers(sherd__device *device, sherd_dtype dtype, int64_t n, int off)
{
    static const double ends[] = {-0x1p63, -0x1p31, 0x1p31 - 1, 255, 0x1p62, -1};
    array a = drawn(device, dtype, n, off, -9, 10);

    for (int i = 0; i < LEN(ends) && i < n; i++)
        sherd__cast(dtype, SHERD_F64, 1, a.host + i * (int64_t)sherd_dtype_bytes(dtype), &ends[i]);
    upload(device, &a);
    return a;
}

static void functions_are_those_of_the_cpu(void)
{
    static const sherd__unary_kind kinds[] = {SHERD__SHIFT,
                                              SHERD__NEG,
                                              SHERD__ABS,
                                              SHERD__SIGN,
                                              SHERD__SQUARE,
                                              SHERD__RELU,
                                              SHERD__FLOOR_DIVIDE_SCALAR,
                                              SHERD__REMAINDER_SCALAR,
                                              SHERD__CLAMP};
    static const double parameter[][2] = {{3, 5.5}, {-1, 200}, {7, -INFINITY}};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(integers) * LEN(kinds) * LEN(parameter); i++) {
        sherd_dtype dtype = integers[i % LEN(integers)];
        sherd__unary_kind kind = kinds[i / LEN(integers) % LEN(kinds)];
        const double *p = parameter[i / LEN(integers) / LEN(kinds)];
        int off = i % 2 * (int)sherd_dtype_bytes(dtype);
        bool divides = kind == SHERD__FLOOR_DIVIDE_SCALAR || kind == SHERD__REMAINDER_SCALAR;
        if (divides && dtype == SHERD_U8 && p[0] < 0) /* it has no such divisor */
            continue;
        array x = numbers(device, dtype, 131, off), y = blank(device, dtype, x.n, off);
        sherd__device_whole_unary(device, dtype, kind, x.n, y.gpu, x.gpu, p);
        kernels_of(dtype)->unary(kind, x.n, y.host, x.host, p);
        check_same(device, &y, "function");
        drop(device, &x);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

static void pairs_are_those_of_the_cpu(void)
{
    static const sherd__binary_kind kinds[] = {SHERD__ADD, SHERD__SUB, SHERD__MUL, SHERD__MAXIMUM,
                                               SHERD__MINIMUM};
    static const struct {
        int ndim;
        int64_t size[2], a[2], b[2];
    } shape[] = {{1, {99}, {1}, {1}}, {1, {48}, {1}, {0}},         {2, {4, 16}, {16, 1}, {0, 1}},
                 {1, {0}, {1}, {1}},  {2, {5, 7}, {1, 5}, {7, 1}}, {0, {0}, {0}, {0}}};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(integers) * LEN(kinds) * LEN(shape) * 2; i++) {
        sherd_dtype dtype = integers[i % LEN(integers)];
        sherd__binary_kind kind = kinds[i / LEN(integers) % LEN(kinds)];
        int s = i / LEN(integers) / LEN(kinds) % LEN(shape), n = 1;
        int off = i / LEN(integers) / LEN(kinds) / LEN(shape) * (int)sherd_dtype_bytes(dtype);
        for (int d = 0; d < shape[s].ndim; d++)
            n *= (int)shape[s].size[d];
        array a = numbers(device, dtype, 99, off), b = numbers(device, dtype, 99, off);
        array y = blank(device, dtype, n, off);
        sherd__device_whole_binary(device, dtype, kind, shape[s].ndim, shape[s].size, y.gpu, a.gpu,
                                   shape[s].a, b.gpu, shape[s].b);
        if (n)
            kernels_of(dtype)->binary(kind, shape[s].ndim, shape[s].size, y.host, a.host,
                                      shape[s].a, b.host, shape[s].b);
        check_same(device, &y, "pair");
        drop(device, &a);
        drop(device, &b);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

/* Also what lies between numbers, beyond the range, and what is none. */
static void conversions_are_those_of_the_cpu(void)
{
    static const double odd[] = {
        NAN, INFINITY, -INFINITY, 0.5,  -0.5,       2.5,      -1e10,           1e10, 255.9, 256,
        -1,  0x1p63,   -0x1p63,   1e19, 0x1p53 - 1, 16777217, 0x1p62 + 0x1p40, -0.0};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(all_dtypes) * LEN(all_dtypes) * 2; i++) {
        sherd_dtype from = all_dtypes[i % LEN(all_dtypes)];
        sherd_dtype to = all_dtypes[i / LEN(all_dtypes) % LEN(all_dtypes)];
        int off = i / LEN(all_dtypes) / LEN(all_dtypes);
        int64_t bytes = (int64_t)sherd_dtype_bytes(from);
        array x = drawn(device, from, 75, off * (int)bytes, -300, 300);
        array y = blank(device, to, x.n, 0);
        for (int k = 0; k < LEN(odd); k++)
            sherd__cast(from, SHERD_F64, 1, x.host + k * bytes, &odd[k]);
        for (int64_t k = LEN(odd); k < x.n && from == SHERD_I64; k += 3)
            ((int64_t *)x.host)[k] = ((int64_t)1 << (k % 63)) + (k % 2 ? 1 : -1);
        if (from == SHERD_BOOL)
            x.host[0] = 7; /* is true */
        upload(device, &x);
        sherd__device_convert(device, to, from, x.n, y.gpu, x.gpu);
        sherd__cast(to, from, x.n, y.host, x.host);
        if (sherd__has_fractions(to))
            check_arrays(device, &y, 0, sherd_dtype_name(from));
        else
            check_same(device, &y, sherd_dtype_name(from));
        for (int64_t k = 0; k < x.n && !sherd__has_fractions(from); k++)
            if (!CHECK(element(to, y.host, k) == element(to, y.got, k)))
                fprintf(stderr, "  %s to %s: %lld\n", sherd_dtype_name(from), sherd_dtype_name(to),
                        (long long)k);
        drop(device, &x);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

static void indices_are_counted(void)
{
    static const int64_t size[][2] = {{0, 3}, {5, 1}, {9000, 7}, {5000, 9000}};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(size); i++) {
        int64_t n = size[i][0], classes = size[i][1];
        array index = drawn(device, SHERD_I32, n, 0, -1, (double)classes + 3);
        array counts = blank(device, SHERD_I32, classes, 0);
        memset(counts.host, 0, (size_t)counts.bytes);
        for (int64_t k = 0; k < n; k++) {
            int64_t at = ((int32_t *)index.host)[k] - 2;
            if (at >= 0 && at < classes)
                ((int32_t *)counts.host)[at]++;
        }
        sherd__device_count(device, n, 2, classes, (int32_t *)counts.gpu, (int32_t *)index.gpu);
        check_same(device, &counts, "counts");
        drop(device, &index);
        drop(device, &counts);
    }
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(functions_are_those_of_the_cpu)},
    {TEST(pairs_are_those_of_the_cpu)},
    {TEST(conversions_are_those_of_the_cpu)},
    {TEST(indices_are_counted)},
};
CHECK_MAIN(tests)
