/* SPDX-License-Identifier: Apache-2.0 */
/* Rows on the GPU: norms, softmax, cross-entropy against the plain kernels. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"

/* Each shape in the short form as one of f32 and f64, and one of 16 bits. Around what a warp, a block, and nobody holds, with and without pieces of 16 bytes. */
static const struct {
    int64_t rows, cols;
    int shift;
} shapes[] = {{0, 5, 0},    {3, 0, 0},    {1, 1, 0},    {5, 7, 1},    {9, 64, 0},
              {3, 1024, 0}, {9, 64, 1},   {2, 1021, 0}, {3, 1032, 0}, {2, 1031, 0},
              {1, 8192, 0}, {2, 8209, 0}, {2, 8208, 0}, {70, 37, 0},  {131, 32, 0}};

static void norm_is_plain(sherd_dtype dtype, int64_t rows, int64_t cols, int shift, int form)
{
    bool rms = form & 1, weighted = form & 2;
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype s = statistics(dtype);
    array x = drawn(dtype, rows * cols, shift, -1, 3, 1), w = drawn(dtype, cols, shift, -2, 2, 2);
    array b = drawn(dtype, cols, shift, -2, 2, 3), dy = drawn(dtype, rows * cols, shift, -2, 2, 4);
    array y = room_for(dtype, rows * cols, shift), dx = room_for(dtype, rows * cols, shift);
    array mean = room_for(s, rows, 0), rstd = room_for(s, rows, 0);
    array dw = drawn(dtype, cols, shift, -1, 1, 5), db = drawn(dtype, cols, shift, -1, 1, 6);
    void *weight = weighted ? w.host : NULL, *bias = weighted ? b.host : NULL;
    void *on_weight = weighted ? w.data : NULL, *on_bias = weighted ? b.data : NULL;

    if (rms) {
        k->rms_norm(rows, cols, y.host, rstd.host, x.host, weight, 1e-5);
        k->rms_norm_grad(rows, cols, dx.host, weighted ? dw.host : NULL, dy.host, x.host, weight,
                         rstd.host, false);
        sherd__device_rms_norm(device, dtype, rows, cols, y.data, rstd.data, x.data, on_weight,
                               1e-5);
    } else {
        k->layer_norm(rows, cols, y.host, mean.host, rstd.host, x.host, weight, bias, 1e-5);
        k->layer_norm_grad(rows, cols, dx.host, weighted ? dw.host : NULL,
                           weighted ? db.host : NULL, dy.host, x.host, weight, mean.host, rstd.host,
                           false);
        sherd__device_layer_norm(device, dtype, rows, cols, y.data, mean.data, rstd.data, x.data,
                                 on_weight, on_bias, 1e-5);
    }
    for (int run = 0; run < 2; run++) {
        sherd__device_norm_grad(device, dtype, rows, cols, dx.data, weighted ? dw.data : NULL,
                                weighted && !rms ? db.data : NULL, dy.data, x.data, on_weight,
                                rms ? NULL : mean.data, rstd.data);
        (run ? same_bits(&dw, "dweight") : same(&dw, 1e-4, "dweight"));
    }
    same(&y, 3e-6, "norm");
    same(&mean, 3e-6, "mean");
    same(&rstd, 3e-6, "rstd");
    same(&dx, 2e-5, "dx");
    same(&db, 1e-4, "dbias");
    drop(&x), drop(&w), drop(&b), drop(&dy), drop(&y), drop(&dx);
    drop(&mean), drop(&rstd), drop(&dw), drop(&db);
}

static void norms_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % check_stride(2); i < LEN(shapes); i += check_stride(2))
            for (int form = 0; form < 4; form++)
                if (form > 1 || (shapes[i].shift && (form + d + i) % check_stride(2) == 0))
                    norm_is_plain(dtypes[d], shapes[i].rows, shapes[i].cols, shapes[i].shift, form);
    close_device();
}

static void put_element(array *a, int64_t i, float x)
{
    if (a->dtype == SHERD_F64)
        ((double *)a->host)[i] = (double)x;
    else
        plain_of(a->dtype)->narrow(1, (char *)a->host + i * (int64_t)sherd_dtype_bytes(a->dtype),
                                   &x);
}

/* Rows with numbers that are not finite. */
static void spoil(array *a, int64_t rows, int64_t cols)
{
    static const float bad[] = {-INFINITY, INFINITY, NAN};

    for (int64_t r = 1; r < rows && r <= 3 && cols; r++)
        put_element(a, r * cols + cols / 2, bad[r - 1]);
    for (int64_t c = 0; c < cols && rows > 4; c++)
        put_element(a, 4 * cols + c, -INFINITY);
    send(a);
}

static void softmax_is_plain(sherd_dtype dtype, int64_t rows, int64_t cols, int shift,
                             sherd__soft_kind kind)
{
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype s = statistics(dtype);
    array x = drawn(dtype, rows * cols, shift, -4, 4, 1), y = room_for(dtype, rows * cols, shift);
    array dy = drawn(dtype, rows * cols, shift, -2, 2, 2), dx = room_for(dtype, rows * cols, shift);
    array most = room_for(s, rows, 0), total = room_for(s, rows, 0);

    spoil(&x, rows, cols);
    k->soft_stats(rows, cols, 1, most.host, total.host, x.host);
    k->soft(kind, rows, cols, 1, y.host, x.host, most.host, total.host);
    sherd__device_softmax(device, dtype, kind, rows, cols, y.data, x.data);
    same(&y, 5e-6, "softmax");
    send(&y);
    k->soft_grad_sum(kind, rows, cols, 1, total.host, dy.host, y.host);
    k->soft_grad(kind, rows, cols, 1, dx.host, dy.host, y.host, total.host);
    sherd__device_softmax_grad(device, dtype, kind, rows, cols, dx.data, dy.data, y.data);
    same(&dx, kind == SHERD__SOFTMAX ? 2e-5 : 1e-4, "softmax's dx");
    sherd__device_softmax_grad(device, dtype, kind, rows, cols, dx.data, dy.data, y.data);
    same_bits(&dx, "softmax's dx");
    drop(&x), drop(&y), drop(&dy), drop(&dx), drop(&most), drop(&total);
}

static void softmaxes_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = d % check_stride(2); i < LEN(shapes); i += check_stride(2))
            for (int kind = 0; kind < 2; kind++)
                softmax_is_plain(dtypes[d], shapes[i].rows, shapes[i].cols, shapes[i].shift,
                                 kind ? SHERD__LOG_SOFTMAX : SHERD__SOFTMAX);
    close_device();
}

/* Beside a maximum that is large a logarithm keeps all of its digits. */
static void logarithms_beside_large_numbers(void)
{
    enum { ROWS = 2 };
    static const int64_t sizes[] = {3, 1028, 8200};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(sizes); i++) {
            const sherd__kernels *k = plain_of(dtypes[d]);
            sherd_dtype s = statistics(dtypes[d]);
            array x = room_for(dtypes[d], ROWS * sizes[i], 0), y = room_for(dtypes[d], x.n, 0);
            array most = room_for(s, ROWS, 0), total = room_for(s, ROWS, 0);
            for (int64_t n = 0; n < x.n; n++)
                put_element(&x, n, n % 7 ? 16384 : 16368);
            send(&x);
            k->soft_stats(ROWS, sizes[i], 1, most.host, total.host, x.host);
            k->soft(SHERD__LOG_SOFTMAX, ROWS, sizes[i], 1, y.host, x.host, most.host, total.host);
            sherd__device_softmax(device, dtypes[d], SHERD__LOG_SOFTMAX, ROWS, sizes[i], y.data,
                                  x.data);
            same(&y, 5e-6, "logarithms");
            drop(&x), drop(&y), drop(&most), drop(&total);
        }
    close_device();
}

/* Classes first.. of more, so some targets are elsewhere; statistics of the rest in a second part. */
static void cross_entropy_is_plain(sherd_dtype dtype, int64_t rows, int64_t cols, int shift)
{
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype s = statistics(dtype);
    int64_t half = rows * cols;
    array l = drawn(dtype, 2 * half, shift, -4, 4, 1), targets = drawn_ids(rows, 2 * cols - 1, 2);
    array stats = room_for(s, 6 * rows, 0), sums = room_for(SHERD_F64, 2 * rows, 0);
    array loss = room_for(dtype, 1, 0), dy = drawn(dtype, 1, 0, 1, 2, 3);
    array dl = room_for(dtype, half, shift);
    size_t part = (size_t)half * sherd_dtype_bytes(dtype);
    size_t stats_part = (size_t)(3 * rows) * sherd_dtype_bytes(s);
    double factor = 0.25 / (double)(rows + 1);

    for (size_t i = 0; i < 2; i++) {
        int64_t at = i ? cols : 0;
        k->cross_entropy(rows, cols, (char *)stats.host + i * stats_part, (char *)l.host + i * part,
                         targets.host, at);
        sherd__device_cross_entropy(device, dtype, rows, cols, (char *)stats.data + i * stats_part,
                                    (char *)l.data + i * part, targets.data, at);
    }
    same(&stats, 1e-5, "statistics");
    double sum = k->cross_entropy_join(2, rows, sums.host, stats.host);
    put_element(&loss, 0, (float)(factor * sum));
    if (dtype == SHERD_F64)
        *(double *)loss.host = factor * sum;
    sherd__device_cross_entropy_join(device, dtype, 2, rows, loss.data, sums.data, stats.data,
                                     factor);
    same(&sums, log_sum_of(dtype, 1e-5), "sums");
    same(&loss, 1e-5, "loss");
    sherd__device_cross_entropy_join(device, dtype, 2, rows, loss.data, sums.data, stats.data,
                                     factor);
    same_bits(&loss, "loss");
    k->cross_entropy_grad(rows, cols, dl.host, (char *)l.host + part, targets.host, cols, sums.host,
                          element(dtype, dy.host, 0) * factor);
    sherd__device_cross_entropy_grad(device, dtype, rows, cols, dl.data, (char *)l.data + part,
                                     targets.data, cols, sums.data, dy.data, factor);
    same(&dl, 1e-6, "dlogits");
    drop(&l), drop(&targets), drop(&stats), drop(&sums), drop(&loss), drop(&dy), drop(&dl);
}

static void cross_entropies_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++) {
        for (int i = d % check_stride(2); i < LEN(shapes); i += check_stride(2))
            cross_entropy_is_plain(dtypes[d], shapes[i].rows, shapes[i].cols, shapes[i].shift);
        cross_entropy_is_plain(dtypes[d], 1500, 3, 0);
    }
    close_device();
}

/* Classes of -inf alone have the sum 0: those elsewhere may be finite. */
static void classes_of_nothing_add_nothing(void)
{
    open_device();
    array l = room_for(SHERD_F32, 6, 0), targets = drawn_ids(2, 3, 1);
    array stats = room_for(SHERD_F32, 6, 0);
    for (int i = 0; i < 6; i++)
        put_element(&l, i, i < 3 ? -INFINITY : 1);
    send(&l);
    sherd__ref_f32.cross_entropy(2, 3, stats.host, l.host, targets.host, 0);
    sherd__device_cross_entropy(device, SHERD_F32, 2, 3, stats.data, l.data, targets.data, 0);
    same(&stats, 1e-6, "statistics of nothing");
    CHECK(element(SHERD_F32, stats.got, 2) == 0);
    drop(&l), drop(&targets), drop(&stats);
    close_device();
}

static const check_test tests[] = {
    {TEST(norms_are_plain)},
    {TEST(softmaxes_are_plain)},
    {TEST(logarithms_beside_large_numbers)},
    {TEST(cross_entropies_are_plain)},
    {TEST(classes_of_nothing_add_nothing)},
};
CHECK_MAIN(tests)
