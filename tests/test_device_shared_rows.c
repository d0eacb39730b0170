/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that several ranks have parts of: what the GPU finds of a part, and of all parts. */
#define CHECK_PURE
#include "check.h"
#include "device_arrays.h"

#include "device/shared_rows.h"
#include "kernels/cast.h"

static void set(array *a, int64_t i, double value)
{
    sherd__cast(a->dtype, SHERD_F64, 1, (char *)a->host + i * (int64_t)sherd_dtype_bytes(a->dtype),
                &value);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* Rows of -inf, with a NaN, with +inf. */
static array drawn_special(sherd_dtype dtype, const sherd__soft_slab *s)
{
    array x = drawn(dtype, s->outer * s->mid * s->inner, 0, -4, 4, 1);

    for (int64_t c = 0; c < s->mid && x.n && s->outer * s->inner > 1; c++)
        set(&x, c * s->inner, (double)-INFINITY);
    if (x.n > 8) {
        set(&x, x.n - 1, (double)NAN);
        set(&x, x.n - 4, (double)-INFINITY);
        set(&x, x.n - 3, (double)INFINITY);
    }
    send(&x);
    return x;
}

static void statistics_are_plain(sherd_dtype dtype, const sherd__soft_slab *s)
{
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype stat = statistics(dtype);
    int64_t n = s->outer * s->inner;
    array x = drawn_special(dtype, s), most = room_for(stat, n, 0), total = room_for(stat, n, 0);
    array sum = room_for(stat, n, 0), y = room_for(dtype, n, 0);

    k->soft_stats(s->outer, s->mid, s->inner, most.host, total.host, x.host);
    sherd__device_soft_stats(device, dtype, s, most.data, total.data, x.data);
    same(&most, 0, "most");
    same(&total, 1e-6, "total");
    for (int64_t i = 0; i < n; i++) {
        set(&sum, i, element(stat, most.host, i) + log(element(stat, total.host, i)));
        set(&y, i, element(stat, sum.host, i));
    }
    sherd__device_log_sum(device, dtype, n, y.data, sum.data, most.data, total.data);
    same(&sum, 1e-5, "log sum");
    same(&y, 1e-5, "its copy");
    drop(&x), drop(&most), drop(&total), drop(&sum), drop(&y);
}

static void softmax_is_plain(sherd_dtype dtype, const sherd__soft_slab *s, sherd__soft_kind kind)
{
    const sherd__kernels *k = plain_of(dtype);
    sherd_dtype stat = statistics(dtype);
    int64_t n = s->outer * s->inner, all = n * s->mid;
    array x = drawn_special(dtype, s), most = drawn(stat, n, 0, 3, 4, 2),
          total = drawn(stat, n, 0, 1, 9, 3);
    array y = room_for(dtype, all, 0), dy = drawn(dtype, all, 0, -1, 1, 4),
          v = drawn(dtype, all, 0, -1, 1, 5), dx = room_for(dtype, all, 0);

    k->soft(kind, s->outer, s->mid, s->inner, y.host, x.host, most.host, total.host);
    sherd__device_soft(device, dtype, kind, s, y.data, x.data, most.data, total.data);
    same(&y, 1e-6, "softmax");
    k->soft_grad(kind, s->outer, s->mid, s->inner, dx.host, dy.host, v.host, total.host);
    sherd__device_soft_grad(device, dtype, kind, s, dx.data, dy.data, v.data, total.data);
    same(&dx, 1e-6, "its gradient");
    k->soft_grad_sum(kind, s->outer, s->mid, s->inner, most.host, dy.host, v.host);
    sherd__device_soft_grad_sum(device, dtype, kind, s, most.data, dy.data, v.data);
    same(&most, 1e-5, "the gradient's sum");
    k->soft_spread(s->outer, s->mid, s->inner, dx.host, x.host, total.host, dy.host);
    sherd__device_soft_spread(device, dtype, s, dx.data, x.data, total.data, dy.data);
    same(&dx, 1e-6, "the gradient of a log sum");
    drop(&x), drop(&most), drop(&total), drop(&y), drop(&dy), drop(&v), drop(&dx);
}

static void softmax_of_parts(void)
{
    static const sherd__soft_slab slabs[] = {{3, 7, 1},   {2, 5, 4},  {1, 300, 1}, {4, 1, 33},
                                             {2, 0, 3},   {2, 0, 1},  {0, 3, 1},   {1, 40, 300},
                                             {70, 33, 1}, {3, 64, 1}, {2, 1032, 1}};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(slabs); i++) {
            statistics_are_plain(dtypes[d], &slabs[i]);
            for (int kind = 0; kind < 2 && slabs[i].mid; kind++)
                softmax_is_plain(dtypes[d], &slabs[i], kind ? SHERD__LOG_SOFTMAX : SHERD__SOFTMAX);
        }
    close_device();
}

static void parts_are_joined(void)
{
    enum { PARTS = 3, N = 300 };

    open_device();
    for (int d = 0; d < 2; d++) {
        array stats = drawn(dtypes[d], PARTS * 2 * N, 0, 1, 5, 7);
        array most = room_for(dtypes[d], N, 0), total = room_for(dtypes[d], N, 0);
        for (int p = 0; p < PARTS; p++)
            for (int i = p; i < N; i += 1 + p) /* nothing in some parts, in all, and a NaN */
                set(&stats, 2 * p * N + i, i == 77 ? (double)NAN : (double)-INFINITY);
        send(&stats);
        plain_of(dtypes[d])->soft_join(PARTS, N, most.host, total.host, stats.host);
        sherd__device_soft_join(device, dtypes[d], PARTS, N, most.data, total.data, stats.data);
        same(&most, 0, "most of all");
        same(&total, 1e-6, "total of all");
        drop(&stats), drop(&most), drop(&total);
    }
    close_device();
}

/* ---- norms ----------------------------------------------------------------------------------- */

enum { PARTS = 2 };

/* Rows in two parts of `cols` elements each, which may be none. */
typedef struct norm {
    int64_t rows, cols[PARTS];
    bool centred;
} norm;

static double at(const array *a, int64_t i)
{
    return element(a->dtype, a->host, i);
}

/* Mean and 1/deviation of all rows, as the CPU has them. */
static void moments_of(const norm *n, const array *x, array *mean, array *rstd)
{
    double length = (double)(n->cols[0] + n->cols[1]);

    for (int64_t r = 0; r < n->rows; r++) {
        double centre = 0, squares = 0;
        for (int p = 0; p < PARTS && n->centred; p++)
            for (int64_t c = 0; c < n->cols[p]; c++)
                centre += at(&x[p], r * n->cols[p] + c) / length;
        for (int p = 0; p < PARTS; p++)
            for (int64_t c = 0; c < n->cols[p]; c++) {
                double apart = at(&x[p], r * n->cols[p] + c) - centre;
                squares += apart * apart;
            }
        set(mean, r, centre);
        set(rstd, r, 1 / sqrt(squares / length + 1e-5));
    }
}

static void forward_is_plain(sherd_dtype dtype, const norm *n, const array *x, const array *weight,
                             array *mean, array *rstd)
{
    sherd_dtype stat = statistics(dtype);
    int64_t width = n->centred ? 3 : 1;
    array parts = room_for(stat, PARTS * width * n->rows, 0);

    moments_of(n, x, mean, rstd);
    for (int p = 0; p < PARTS; p++)
        sherd__device_row_moments(
            device, dtype, n->rows, n->cols[p], n->centred,
            (char *)parts.data + p * width * n->rows * (int64_t)sherd_dtype_bytes(stat), x[p].data);
    sherd__device_row_moments_join(device, stat, PARTS, n->rows, (double)(n->cols[0] + n->cols[1]),
                                   1e-5, n->centred ? mean->data : NULL, rstd->data, parts.data);
    if (n->centred)
        same(mean, 1e-6, "mean");
    same(rstd, 1e-5, "rstd");
    for (int p = 0; p < PARTS; p++) {
        array y = room_for(dtype, n->rows * n->cols[p], 0);
        for (int64_t i = 0; i < y.n; i++) {
            int64_t r = i / n->cols[p], c = i % n->cols[p];
            set(&y, i, (at(&x[p], i) - at(mean, r)) * at(rstd, r) * at(weight, c) + at(weight, c));
        }
        sherd__device_row_norm(device, dtype, n->rows, n->cols[p], y.data, x[p].data,
                               n->centred ? mean->data : NULL, rstd->data, weight->data,
                               weight->data);
        same(&y, 1e-5, "norm");
        drop(&y);
    }
    drop(&parts);
}

/* Parts that a large one before them would swallow, were they joined in f32. */
static void moments_are_joined_in_f64(void)
{
    enum { MANY = 65 };
    const double large = 1 << 24, length = large + MANY - 1;

    open_device();
    for (int centred = 0; centred < 2; centred++) {
        array parts = room_for(SHERD_F32, MANY * (centred ? 3 : 1), 0);
        array mean = room_for(SHERD_F32, 1, 0), rstd = room_for(SHERD_F32, 1, 0);
        for (int64_t p = 0; p < MANY; p++) {
            if (centred) {
                set(&parts, 3 * p, 1);
                set(&parts, 3 * p + 1, 0.5);
            }
            set(&parts, centred ? 3 * p + 2 : p, p ? 1 : large);
        }
        send(&parts);
        set(&mean, 0, 0.5);
        set(&rstd, 0, 1);
        sherd__device_row_moments_join(device, SHERD_F32, MANY, 1, length, 0,
                                       centred ? mean.data : NULL, rstd.data, parts.data);
        same(&rstd, 1e-7, "rstd of many parts");
        if (centred)
            same(&mean, 0, "mean of many parts");
        drop(&parts), drop(&mean), drop(&rstd);
    }
    close_device();
}

static void backward_is_plain(sherd_dtype dtype, const norm *n, const array *x, const array *weight,
                              const array *mean, const array *rstd)
{
    int64_t cols = n->cols[0], rows = n->rows, width = n->centred ? 2 : 1;
    double length = (double)(cols + n->cols[1]);
    array dy = drawn(dtype, rows * cols, 0, -1, 1, 4), dx = room_for(dtype, rows * cols, 0),
          sums = room_for(statistics(dtype), width * rows, 0);

    for (int64_t r = 0; r < rows; r++) {
        double one = 0, by_x = 0, f = at(rstd, r);
        for (int64_t c = 0; c < cols; c++) {
            one += at(&dy, r * cols + c) * at(weight, c);
            by_x += at(&dy, r * cols + c) * at(weight, c) * (at(&x[0], r * cols + c) - at(mean, r));
        }
        if (n->centred)
            set(&sums, r, one);
        set(&sums, n->centred ? rows + r : r, by_x);
        for (int64_t c = 0; c < cols; c++)
            set(&dx, r * cols + c,
                at(&dy, r * cols + c) * at(weight, c) * f - (n->centred ? one * f / length : 0) -
                    (at(&x[0], r * cols + c) - at(mean, r)) * by_x * f * f * f / length);
    }
    const void *centre = n->centred ? mean->data : NULL;
    sherd__device_row_sums(device, dtype, rows, cols, sums.data, dy.data, x[0].data, centre,
                           weight->data);
    same(&sums, 1e-5, "sums");
    sherd__device_row_norm_grad(device, dtype, rows, cols, length, dx.data, dy.data, x[0].data,
                                centre, rstd->data, weight->data, sums.data);
    same(&dx, 1e-5, "gradient");
    drop(&dy), drop(&dx), drop(&sums);
}

static void norms_of_parts(void)
{
    static const norm norms[] = {{5, {7, 6}, true},   {5, {7, 6}, false},   {3, {300, 40}, true},
                                 {3, {1, 0}, true},   {4, {0, 9}, false},   {0, {4, 4}, true},
                                 {40, {33, 1}, true}, {2, {513, 64}, false}};

    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(norms); i++) {
            const norm *n = &norms[i];
            array x[PARTS], weight = drawn(dtypes[d], n->cols[0] + n->cols[1], 0, -1, 1, 3);
            array mean = room_for(statistics(dtypes[d]), n->rows, 0),
                  rstd = room_for(statistics(dtypes[d]), n->rows, 0);
            for (int p = 0; p < PARTS; p++)
                x[p] = drawn(dtypes[d], n->rows * n->cols[p], 0, 1, 3, 1 + (uint64_t)p);
            forward_is_plain(dtypes[d], n, x, &weight, &mean, &rstd);
            backward_is_plain(dtypes[d], n, x, &weight, &mean, &rstd);
            drop(&x[0]), drop(&x[1]), drop(&weight), drop(&mean), drop(&rstd);
        }
    close_device();
}

/* ---- attention ------------------------------------------------------------------------------- */

static void attention_of_parts(void)
{
    const sherd__attending s = {.batch = 2, .groups = 2, .repeat = 3, .queries = 5, .width = 40};
    const int64_t rows = 60;

    open_device();
    for (int d = 0; d < LEN(dtypes); d++) {
        sherd_dtype stat = statistics(dtypes[d]);
        array out = drawn(stat, rows * s.width, 0, -1, 1, 1), sum = drawn(stat, rows, 0, -2, 2, 2),
              more = drawn(dtypes[d], rows * s.width, 0, -1, 1, 3),
              wide = room_for(stat, rows * s.width, 0), other = drawn(stat, rows, 0, -2, 2, 4);
        set(&sum, 3, (double)-INFINITY), set(&other, 7, (double)-INFINITY);
        set(&sum, 8, (double)-INFINITY), set(&other, 8, (double)-INFINITY);
        send(&sum), send(&other);
        sherd__cast(stat, dtypes[d], wide.n, wide.host, more.host);
        plain_of(stat)->attention_join(&s, out.host, sum.host, wide.host, other.host);
        sherd__device_attention_add(device, dtypes[d], &s, out.data, sum.data, more.data,
                                    other.data);
        same(&out, 1e-6, "out");
        same(&sum, 1e-6, "its log sum");
        for (int64_t i = 0; i < out.n; i++)
            set(&out, i, element(stat, out.got, i) + at(&more, i));
        sherd__device_add_up(device, dtypes[d], out.n, out.data, more.data);
        same(&out, 1e-6, "sum");
        drop(&out), drop(&sum), drop(&more), drop(&wide), drop(&other);
    }
    close_device();
}

static const check_test tests[] = {
    {TEST(softmax_of_parts)},          {TEST(parts_are_joined)},   {TEST(norms_of_parts)},
    {TEST(moments_are_joined_in_f64)}, {TEST(attention_of_parts)},
};
CHECK_MAIN(tests)
