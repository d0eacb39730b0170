/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons, choices, triangles and classes on the GPU beside the CPU's plain kernels: every kind
 * and dtype, NaN and infinities, strides and places off any alignment; all bit for bit. */
#define CHECK_PURE
#include "device_numbers.h"

#include "device/compare.h"
#include "vector/choose.h"

static const sherd_dtype all_dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                         SHERD_I64, SHERD_U8,  SHERD_I8,   SHERD_BOOL};

typedef struct shape {
    int ndim;
    int64_t size[3], stride[3][3]; /* of mask, a and b */
    int64_t room;                  /* elements that any of them reaches */
} shape;

static const shape shapes[] = {
    {1, {0}, {{1}, {1}, {1}}, 0},
    {1, {67}, {{1}, {1}, {1}}, 67},
    {1, {160}, {{1}, {1}, {0}}, 160},
    {0, {0}, {{0}, {0}, {0}}, 1},
    {2, {9, 32}, {{32, 1}, {0, 1}, {32, 1}}, 288},
    {2, {5, 13}, {{13, 1}, {13, 1}, {1, 0}}, 65},
    {2, {6, 16}, {{16, 1}, {19, 1}, {16, 1}}, 120}, /* rows off any alignment */
    {3, {3, 4, 8}, {{1, 3, 12}, {32, 8, 1}, {0, 8, 1}}, 96},
};

static int64_t count_of(const shape *s)
{
    int64_t n = 1;

    for (int d = 0; d < s->ndim; d++)
        n *= s->size[d];
    return n;
}

/* Small whole numbers, so that many are equal, and of fractions what is not ordered. */
static array numbers(sherd__device *device, sherd_dtype dtype, int64_t n, int off)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0};
    array a = drawn(device, dtype, n, off, dtype == SHERD_BOOL ? 0 : -3, 4);
    int64_t bytes = (int64_t)sherd_dtype_bytes(dtype);

    for (int64_t i = 0; i < n; i++) {
        double x = floor(element(dtype, a.host, i));
        if (sherd__device_computes(dtype) && i % 5 == 1)
            x = special[i / 5 % LEN(special)];
        sherd__cast(dtype, SHERD_F64, 1, a.host + i * bytes, &x);
    }
    upload(device, &a);
    return a;
}

static const sherd__kernels *table(const sherd__kernel_set *set, sherd_dtype dtype)
{
    return sherd__kernels_of_any(set, dtype);
}

static void check_compare(sherd__device *device, const sherd__kernel_set *set, sherd_dtype dtype,
                          int kind, const shape *s, int off)
{
    int far = off * (int)sherd_dtype_bytes(dtype);
    array a = numbers(device, dtype, s->room, far), b = numbers(device, dtype, s->room, far);
    array y = blank(device, SHERD_BOOL, count_of(s), off);
    char what[64];

    snprintf(what, sizeof what, "comparison %d of %s, shape %d", kind, sherd_dtype_name(dtype),
             (int)(s - shapes));
    sherd__device_compare(device, dtype, (sherd__compare_kind)kind, s->ndim, s->size, y.gpu, a.gpu,
                          s->stride[1], b.gpu, s->stride[2]);
    if (y.n)
        table(set, dtype)
            ->compare((sherd__compare_kind)kind, s->ndim, s->size, (uint8_t *)y.host, a.host,
                      s->stride[1], b.host, s->stride[2]);
    check_same(device, &y, what);
    drop(device, &a);
    drop(device, &b);
    drop(device, &y);
}

static void comparisons_are_those_of_the_cpu(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int t = 0; device && t < LEN(all_dtypes); t++) {
        for (int kind = 0; kind < SHERD__COMPARE_KINDS; kind++)
            check_compare(device, &set, all_dtypes[t], kind, &shapes[1], 0);
        for (int s = 0; s < LEN(shapes); s++) {
            check_compare(device, &set, all_dtypes[t], SHERD__LT, &shapes[s], 0);
            check_compare(device, &set, all_dtypes[t], SHERD__NE, &shapes[s], 1);
        }
    }
    close_gpu(&heap, device);
}

static void numbers_are_compared_with(void)
{
    static const double fractions_to[] = {1, -0.0, INFINITY, NAN};
    static const int64_t integers_to[] = {1, 300, -1, INT64_MAX};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    const int64_t n = 77, one = 1, none = 0;
    sherd__kernel_set set;

    sherd__kernels_choose(&set);
    for (int i = 0; device && i < LEN(all_dtypes) * 4 * SHERD__LOGICAL_AND; i++) {
        sherd_dtype dtype = all_dtypes[i % LEN(all_dtypes)];
        sherd__compare_kind kind = (sherd__compare_kind)(i / LEN(all_dtypes) % SHERD__LOGICAL_AND);
        int k = i / LEN(all_dtypes) / SHERD__LOGICAL_AND;
        bool whole = !sherd__device_computes(dtype);
        array a = numbers(device, dtype, n, 0), y = blank(device, SHERD_BOOL, n, k);
        int64_t wide[77];
        double with;
        sherd__device_compare_number(device, dtype, kind, n, y.gpu, a.gpu, fractions_to[k],
                                     integers_to[k]);
        sherd__cast(whole ? SHERD_I64 : dtype, whole ? dtype : SHERD_F64, whole ? n : 1,
                    whole ? (void *)wide : &with, whole ? (void *)a.host : &fractions_to[k]);
        table(&set, whole ? SHERD_I64 : dtype)
            ->compare(kind, 1, &n, (uint8_t *)y.host, whole ? (void *)wide : a.host, &one,
                      whole ? (const void *)&integers_to[k] : &with, &none);
        check_same(device, &y, "comparison with a number");
        drop(device, &a);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

/* a and b strided, and each once a number. */
static void check_pick(sherd__device *device, sherd_dtype dtype, const shape *s, int number,
                       int off)
{
    size_t bytes = sherd_dtype_bytes(dtype);
    int far = off * (int)bytes;
    array mask = numbers(device, SHERD_BOOL, s->room, off),
          y = blank(device, dtype, count_of(s), far);
    array x[2] = {numbers(device, dtype, s->room, far), numbers(device, dtype, s->room, far)};
    static const int64_t none[3];
    const uint64_t value = 0x4142434445464748;
    sherd__picked gpu[2];
    const void *host[2];
    const int64_t *stride[2];

    for (int i = 0; i < 2; i++) {
        gpu[i] = (sherd__picked){x[i].gpu, s->stride[1 + i], 0};
        host[i] = x[i].host;
        stride[i] = s->stride[1 + i];
        if (i == number) {
            gpu[i] = (sherd__picked){NULL, NULL, value};
            host[i] = &value;
            stride[i] = none;
        }
    }
    sherd__device_pick(device, bytes, s->ndim, s->size, y.gpu, mask.gpu, s->stride[0], gpu[0],
                       gpu[1]);
    if (y.n)
        sherd__pick_box(bytes, s->ndim, s->size, y.host, (uint8_t *)mask.host, s->stride[0],
                        host[0], stride[0], host[1], stride[1]);
    check_same(device, &y, "choice");
    drop(device, &mask);
    drop(device, &y);
    drop(device, &x[0]);
    drop(device, &x[1]);
}

static void one_of_two_is_chosen(void)
{
    static const sherd_dtype sizes[] = {SHERD_U8, SHERD_BF16, SHERD_F32, SHERD_I64};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(sizes) * LEN(shapes) * 3 * 2; i++)
        check_pick(device, sizes[i % LEN(sizes)], &shapes[i / LEN(sizes) % LEN(shapes)],
                   i / LEN(sizes) / LEN(shapes) % 3 - 1, i / LEN(sizes) / LEN(shapes) / 3);
    close_gpu(&heap, device);
}

/* ---- rows ---- */

static void triangles_are_cut(void)
{
    static const sherd_dtype sizes[] = {SHERD_BOOL, SHERD_F16, SHERD_I32, SHERD_F64};
    static const int64_t matrix[][3] = {{2, 5, 7}, {1, 9, 300}, {3, 4, 1}, {1, 0, 5}};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(sizes) * LEN(matrix) * 2 * 3; i++) {
        const int64_t *s = matrix[i / LEN(sizes) % LEN(matrix)];
        int64_t edge = (i / LEN(sizes) / LEN(matrix) / 2 - 1) * 3, bytes;
        const sherd__corner c = {s[0] * s[1], s[2], s[1], edge, i / LEN(sizes) / LEN(matrix) % 2};
        array x = numbers(device, sizes[i % LEN(sizes)], c.rows * c.cols, 0);
        array y = blank(device, x.dtype, x.n, 0);
        bytes = (int64_t)sherd_dtype_bytes(x.dtype);
        sherd__device_corner(device, (size_t)bytes, &c, y.gpu, x.gpu);
        for (int64_t k = 0; k < x.n; k++) {
            bool behind = k % c.cols >= edge + k / c.cols % c.height;
            if (behind == c.upper)
                memcpy(y.host + k * bytes, x.host + k * bytes, (size_t)bytes);
            else
                memset(y.host + k * bytes, 0, (size_t)bytes);
        }
        check_same(device, &y, "triangle");
        drop(device, &x);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

/* Column j of row i is that number; weights 0 hide even what is no number. */
static void classes_are_taken_and_put(void)
{
    enum { ROWS = 5, COLS = 6, FIRST = 2 };
    const int32_t target[ROWS] = {3, 1, 7, -100, 4};
    const double weight[COLS] = {1, 2, 0, 4, 5, 0.5};
    const double want[ROWS] = {1 * 2, 0, 25 * 0.5, 0, 0};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(fractions); t++) {
        array x = blank(device, fractions[t], ROWS * COLS, 0), w = blank(device, x.dtype, COLS, 0);
        array y = blank(device, x.dtype, ROWS, 0), dx = blank(device, x.dtype, x.n, 0);
        array at = blank(device, SHERD_I32, ROWS, 0);
        int64_t bytes = (int64_t)sherd_dtype_bytes(x.dtype);
        sherd__classes c = {ROWS, COLS, FIRST, (int32_t *)at.gpu, w.gpu, true, -100};
        for (int i = 0; i < ROWS * COLS; i++) {
            double number = i == 26 ? (double)NAN : i % COLS + 20 * (i / COLS == 2), none = 0;
            int row = i / COLS;
            bool here = i % COLS == target[row] - FIRST;
            sherd__cast(x.dtype, SHERD_F64, 1, x.host + i * bytes, &number);
            sherd__cast(x.dtype, SHERD_F64, 1, dx.host + i * bytes,
                        here ? (double[]){want[row] * weight[i % COLS]} : &none);
        }
        sherd__cast(x.dtype, SHERD_F64, COLS, w.host, weight);
        sherd__cast(x.dtype, SHERD_F64, ROWS, y.host, want);
        memcpy(at.host, target, sizeof target);
        upload(device, &x);
        upload(device, &w);
        upload(device, &at);
        sherd__device_take_class(device, x.dtype, &c, y.gpu, x.gpu);
        check_same(device, &y, "class");
        sherd__device_put_class(device, x.dtype, &c, dx.gpu, y.gpu);
        check_same(device, &dx, "gradient of a class");
        array *every[] = {&x, &w, &y, &dx, &at};
        for (int i = 0; i < LEN(every); i++)
            drop(device, every[i]);
    }
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(comparisons_are_those_of_the_cpu)},
    {TEST(numbers_are_compared_with)},
    {TEST(one_of_two_is_chosen)},
    {TEST(triangles_are_cut)},
    {TEST(classes_are_taken_and_put)},
};
CHECK_MAIN(tests)
