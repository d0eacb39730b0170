/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of AdamW and SGD on the GPU beside the CPU's plain kernels: all that is kept, all dtypes of
 * gradients, places off any alignment. */
#define CHECK_PURE
#include "device_numbers.h"

#include "base/dtype.h"
#include "device/update.h"

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
        const sherd__adamw_there one = {p.gpu, m.gpu, v.gpu, grad.gpu, n, *step};
        sherd__device_adamw(device, dtype, 1, &one);
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

static void check_squares(sherd__device *device, sherd_dtype dtype, int64_t n, int off)
{
    array x = drawn(device, dtype, n, off, -2, 2), sum = drawn(device, SHERD_F64, 2, 0, 1, 1);
    double want = plain(dtype)->sum_squares(x.host, n) + 1;
    const void *src = x.gpu;

    for (int i = 0; i < 2; i++)
        sherd__device_add_squares(device, dtype, (double *)(void *)sum.gpu + i, 1, &src, &n);
    if (download(device, &sum)) {
        CHECK_NEAR(element(SHERD_F64, sum.got, 0), want, 1e-12 * want);
        CHECK(memcmp(sum.got, sum.got + 8, 8) == 0);
    }
    drop(device, &x);
    drop(device, &sum);
}

static void squares_add_up(void)
{
    static const int64_t many[] = {0, 1, 3, 255, 4099, 16385, 50021};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(fractions); t++)
        for (int i = 0; i < LEN(many); i++) {
            check_squares(device, fractions[t], many[i], 0);
            check_squares(device, fractions[t], many[i], (int)sherd_dtype_bytes(fractions[t]));
        }
    close_gpu(&heap, device);
}

enum { MANY = 150 }; /* more than a launch takes, of either */

/* Of all sizes, the chunks' borders among them; some have nothing. */
static int64_t length_of(int i)
{
    return i % 7 == 3 ? 0 : i == 40 ? 4096 : i == 41 ? 8193 : i == 100 ? 16384 : 1 + i * 5 % 37;
}

/* A list of tensors gives what each gives by itself. */
static void lists_are_as_one_after_the_other(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    const sherd__adamw_step step = {0.01, 0.9, 0.999, 1e-8, 0.1, 0.271, 0.003, 0.5, 0};
    array x[MANY][4], sums;
    sherd__adamw_there all[MANY];
    const void *src[MANY];
    int64_t n[MANY];
    double want = 1;

    if (!device)
        return;
    sums = drawn(device, SHERD_F64, 1, 0, 1, 1);
    for (int i = 0; i < MANY; i++) {
        n[i] = length_of(i);
        for (int k = 0; k < 4; k++)
            x[i][k] = drawn(device, SHERD_F32, n[i], i % 3 ? 0 : 4, k == 2 ? 0 : -1, 1);
        all[i] =
            (sherd__adamw_there){x[i][0].gpu, x[i][1].gpu, x[i][2].gpu, x[i][3].gpu, n[i], step};
        all[i].step.rate = 0.01 * (1 + i % 5);
        all[i].step.decay = i % 2 ? 0.1 : 0;
        src[i] = x[i][3].gpu;
        want += plain(SHERD_F32)->sum_squares(x[i][3].host, n[i]);
        plain(SHERD_F32)->adamw(n[i], x[i][0].host, x[i][1].host, x[i][2].host, x[i][3].host,
                                &all[i].step);
    }
    sherd__device_adamw(device, SHERD_F32, MANY, all);
    sherd__device_add_squares(device, SHERD_F32, (double *)(void *)sums.gpu, MANY, src, n);
    if (download(device, &sums))
        CHECK_NEAR(element(SHERD_F64, sums.got, 0), want, 1e-12 * want);
    for (int i = 0; i < MANY; i++) {
        check_arrays(device, &x[i][0], 0.01, "p of a list");
        check_arrays(device, &x[i][1], 0.01, "m of a list");
        check_arrays(device, &x[i][2], 0.001, "v of a list");
        for (int k = 0; k < 4; k++)
            drop(device, &x[i][k]);
    }
    drop(device, &sums);
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(adamw_is_that_of_the_cpu)},
    {TEST(sgd_is_that_of_the_cpu)},
    {TEST(squares_add_up)},
    {TEST(lists_are_as_one_after_the_other)},
};
CHECK_MAIN(tests)
