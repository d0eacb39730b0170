/* SPDX-License-Identifier: Apache-2.0 */
/* Order on the GPU is the CPU's: of short rows, of the first of long ones, and of all of them; with
 * numbers that come again, NaN, infinities and both zeroes. */
#define CHECK_PURE
#include "check.h"
#include "device/order.h"
#include "device_arrays.h"
#include "kernels/pick.h"

/* Few different numbers, some of them peculiar. */
static array drawn_numbers(sherd_dtype dtype, int64_t n, int many)
{
    static const double peculiar[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0};
    array wide = drawn(SHERD_F64, n, 0, -many, many, 1), a = room_for(dtype, n, 1);

    for (int64_t i = 0; i < n; i++) {
        double x = floor(((double *)wide.host)[i]), odd = peculiar[i % LEN(peculiar)];
        float f = (float)(i % 7 ? x : odd);
        if (dtype == SHERD_F64)
            ((double *)a.host)[i] = i % 7 ? x : odd;
        else if (dtype == SHERD_I32)
            ((int32_t *)a.host)[i] = (int32_t)x;
        else if (dtype == SHERD_I64)
            ((int64_t *)a.host)[i] = (int64_t)x * (1LL << 33);
        else if (dtype == SHERD_I8)
            ((int8_t *)a.host)[i] = (int8_t)x;
        else if (dtype == SHERD_U8 || dtype == SHERD_BOOL)
            ((uint8_t *)a.host)[i] = (uint8_t)(dtype == SHERD_BOOL ? x > 0 : fabs(x));
        else if (dtype == SHERD_F32)
            ((float *)a.host)[i] = f;
        else
            plain_of(dtype)->narrow(1, (uint16_t *)a.host + i, &f);
    }
    send(&a);
    drop(&wide);
    return a;
}

/* Keys that the CPU's kernel knows. */
static void plain_order(sherd_dtype dtype, const int64_t size[3], int64_t k, bool descending,
                        array *index, const array *src)
{
    void *scratch = malloc((size_t)sherd__order_scratch(size[1]) + 8);
    float *wide = malloc((size_t)(src->n + 1) * sizeof *wide);
    bool half = dtype == SHERD_BF16 || dtype == SHERD_F16;

    if (!scratch || !wide)
        abort();
    if (half)
        plain_of(dtype)->widen(src->n, wide, src->host);
    sherd__order(half ? SHERD_F32 : dtype, size, k, descending, index->host,
                 half ? (const void *)wide : src->host, scratch);
    free(scratch);
    free(wide);
}

static void check_order(sherd_dtype dtype, const int64_t size[3], int64_t k, int many)
{
    array src = drawn_numbers(dtype, size[0] * size[1] * size[2], many);
    size_t bytes = sherd_dtype_bytes(dtype);

    for (int descending = 0; descending < 2; descending++) {
        array index = room_for(SHERD_I32, size[0] * k * size[2], 0);
        array values = room_for(dtype, size[0] * k * size[2], 1);
        const sherd__pick p = {size[0], k, size[2], size[1], 0, index.host, false};
        plain_order(dtype, size, k, descending, &index, &src);
        sherd__gather(bytes, &p, values.host, src.host);
        sherd__device_order(device, dtype, size, k, descending, values.data, index.data, src.data);
        fetch(&index);
        fetch(&values);
        if (!CHECK(memcmp(index.host, index.got, (size_t)index.bytes) == 0) ||
            !CHECK(memcmp(values.host, values.got, (size_t)values.bytes) == 0))
            fprintf(stderr, "%s [%lld,%lld,%lld], %lld\n", sherd_dtype_name(dtype),
                    (long long)size[0], (long long)size[1], (long long)size[2], (long long)k);
        drop(&index), drop(&values);
    }
    drop(&src);
}

static void order_is_that_of_the_cpu(void)
{
    static const struct {
        int64_t size[3], k;
        int many;
    } shapes[] = {
        {{3, 1, 1}, 1, 5},     {{2, 33, 3}, 33, 4},      {{5, 8, 1}, 2, 100},
        {{1, 300, 2}, 300, 9}, {{1, 0, 4}, 0, 1},        {{2, 7, 1}, 0, 1},
        {{2, 1100, 1}, 3, 2}, /* many equal */
        {{1, 1030, 2}, 9, 60}, {{1, 1300, 1}, 1300, 50},
    };
    static const sherd_dtype all[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                      SHERD_I64, SHERD_U8,  SHERD_BOOL, SHERD_I8};

    open_device();
    for (int d = 0; d < LEN(all); d++)
        for (int i = d % 2; i < LEN(shapes); i += 1 + (d > 0)) /* f32 all, the others some */
            check_order(all[d], shapes[i].size, shapes[i].k, shapes[i].many);
    check_order(SHERD_F32, (int64_t[]){2, 4500, 1}, 1100, 3000); /* of several tiles */
    close_device();
}

static const check_test tests[] = {
    {TEST(order_is_that_of_the_cpu)},
};
CHECK_MAIN(tests)
