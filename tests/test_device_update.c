/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of AdamW and SGD on the GPU beside the CPU's plain kernels: all that is kept, all dtypes of
 * gradients, places off any alignment. */
#define CHECK_PURE
#include "device_numbers.h"

#include "base/dtype.h"

static const int64_t lengths[] = {0, 1, 5, 257, 1031};

static void check_adamw(sherd__device *device, sherd_dtype dtype, int64_t n, bool far,
                        const sherd__adamw_step *step)
{
    sherd_dtype kept = sherd__statistics_dtype(dtype);
    int off = far ? (int)sherd_dtype_bytes(kept) : 0;
    array p = drawn(device, kept, n, off, -1, 1), m = drawn(device, kept, n, off, -0.1, 0.1);
    array v = drawn(device, kept, n, off, 0, 0.01);
    array grad = drawn(device, dtype, n, far ? (int)sherd_dtype_bytes(dtype) : 0, -1, 1);

    for (int i = 0; i < 2; i++) {
        sherd__device_adamw(device, dtype, n, p.gpu, m.gpu, v.gpu, grad.gpu, step);
        plain(dtype)->adamw(n, p.host, m.host, v.host, grad.host, step);
    }
    check_arrays(device, &p, 0.01, "adamw's p");
    check_arrays(device, &m, 0.01, "adamw's m");
    check_arrays(device, &v, 0.001, "adamw's v");
    drop(device, &p);
    drop(device, &m);
    drop(device, &v);
    drop(device, &grad);
}

static void adamw_is_that_of_the_cpu(void)
{
    static const sherd__adamw_step steps[] = {
        {0.01, 0.9, 0.999, 1e-8, 0.1, 0.271, 0.003, 0.5, 0},
        {0.3, 0.5, 0.75, 1e-3, 0, 1, 1, 1, 0.25},
    };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(fractions) * LEN(lengths) * 4; i++)
        check_adamw(device, fractions[i % 4], lengths[i / 4 % LEN(lengths)],
                    i / 4 / LEN(lengths) % 2, &steps[i / 8 / LEN(lengths)]);
    if (device) /* more than all threads take at once */
        check_adamw(device, SHERD_F64, 1100003, false, &steps[0]);
    close_gpu(&heap, device);
}

static void check_sgd(sherd__device *device, sherd_dtype dtype, int64_t n, bool far, bool has_mean,
                      const sherd__sgd_step *step)
{
    sherd_dtype kept = sherd__statistics_dtype(dtype);
    int off = far ? (int)sherd_dtype_bytes(kept) : 0;
    array p = drawn(device, kept, n, off, -1, 1), m = drawn(device, kept, n, 0, -0.1, 0.1);
    array grad = drawn(device, dtype, n, 0, -1, 1);

    for (int i = 0; i < 2; i++) {
        sherd__device_sgd(device, dtype, n, p.gpu, has_mean ? m.gpu : NULL, grad.gpu, step);
        plain(dtype)->sgd(n, p.host, has_mean ? m.host : NULL, grad.host, step);
    }
    check_arrays(device, &p, 0.01, "sgd's p");
    check_arrays(device, &m, 0.01, "sgd's m");
    drop(device, &p);
    drop(device, &m);
    drop(device, &grad);
}

static void sgd_is_that_of_the_cpu(void)
{
    static const sherd__sgd_step steps[] = {
        {0.1, 0.25, 0.5, 0.9, 0.8, 0.9, false},
        {0.3, 0, 1, 0.5, 1, 0.5, true},
    };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(fractions) * LEN(lengths) * 4; i++)
        for (int has_mean = 0; has_mean < 2; has_mean++)
            check_sgd(device, fractions[i % 4], lengths[i / 4 % LEN(lengths)],
                      i / 4 / LEN(lengths) % 2, has_mean, &steps[i / 8 / LEN(lengths)]);
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(adamw_is_that_of_the_cpu)},
    {TEST(sgd_is_that_of_the_cpu)},
};
CHECK_MAIN(tests)
