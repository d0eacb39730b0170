/* SPDX-License-Identifier: Apache-2.0 */
/* Folds over a dim on the GPU beside the CPU's plain kernels: the largest and least and where they
 * are, NaN and equal ones included, products, sums of integers, truths, logarithms of sums of
 * exponentials; and running sums. Few long rows, which are made in parts, and many short ones. */
#define CHECK_PURE
#include "device_numbers.h"

#include "device/folds.h"
#include "device/shared_rows.h"
#include "device/running.h"

static const sherd_dtype all_dtypes[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16, SHERD_I32,
                                         SHERD_I64, SHERD_U8,  SHERD_I8,   SHERD_BOOL};

typedef struct shape {
    int64_t outer, mid, inner;
} shape;

static const shape shapes[] = {{1, 1, 1}, {7, 5, 1},  {3, 64, 1}, {1, 9000, 1},
                               {2, 4, 3}, {3, 6, 16}, {2, 0, 3},  {1, 700, 8},
                               {0, 4, 4}, {5, 40, 1}, {4, 1, 6},  {2, 300, 1}};

/* The long ones of every other dtype: the emulation is slow. */
static bool takes_part(const shape *s, sherd_dtype dtype)
{
    return s->outer * s->mid * s->inner < 2000 || (int)dtype % 2 == 1;
}

static const sherd__kernels *kernels_of(sherd_dtype dtype)
{
    return dtype == SHERD_U8     ? &sherd__whole_u8
           : dtype == SHERD_I8   ? &sherd__whole_i8
           : dtype == SHERD_BOOL ? &sherd__whole_bool
                                 : plain(dtype);
}

/* Whole numbers, many of them equal; `special`: NaN among fractions. */
static array numbers(sherd__device *device, sherd_dtype dtype, int64_t n, int off, bool special)
{
    array a = drawn(device, dtype, n, off, dtype == SHERD_BOOL ? 0 : -3, 4);
    int64_t bytes = (int64_t)sherd_dtype_bytes(dtype);

    for (int64_t i = 0; i < n; i++) {
        double x = floor(element(dtype, a.host, i));
        if (dtype == SHERD_BOOL)
            x = i % 11 != 3;
        if (special && sherd__device_computes(dtype) && i % 37 == 5)
            x = i % 2 ? NAN : -INFINITY;
        sherd__cast(dtype, SHERD_F64, 1, a.host + i * bytes, &x);
    }
    upload(device, &a);
    return a;
}

/* One element after the other, in f64 or i64, from what nothing gives. */
static double fold_plainly(sherd__fold_kind kind, const array *x, const shape *s, int64_t at)
{
    double sum = kind == SHERD__FOLD_PRODUCT || kind == SHERD__FOLD_ALL, most = -INFINITY;

    for (int pass = 0; pass < 2; pass++)
        for (int64_t m = 0; m < s->mid; m++) {
            double y =
                element(x->dtype, x->host, (at / s->inner * s->mid + m) * s->inner + at % s->inner);
            if (pass == 0)
                most = y > most || y != y ? y : most;
            else if (kind == SHERD__FOLD_PRODUCT)
                sum *= y;
            else if (kind == SHERD__FOLD_SUM)
                sum += y;
            else if (kind == SHERD__FOLD_ANY)
                sum = sum != 0 || y != 0;
            else if (kind == SHERD__FOLD_ALL)
                sum = sum != 0 && y != 0;
            else
                sum += y == -INFINITY ? 0 : exp(y - most);
        }
    return kind == SHERD__FOLD_LOG_SUM ? most + log(sum) : sum;
}

/* The largest or least by the CPU's kernel, from the least there is. */
static void extreme_plainly(bool least, array *y, const array *x, const shape *s)
{
    const int64_t size[] = {s->outer, s->mid, s->inner}, stride[] = {s->inner, 0, 1};
    double none = x->dtype == SHERD_BOOL ? least : least ? INFINITY : -INFINITY;

    kernels_of(x->dtype)->fill(y->host, y->n, none);
    if (x->n)
        kernels_of(x->dtype)->fold(least ? SHERD_MIN : SHERD_MAX, 3, size, y->host, stride,
                                   x->host);
}

static void check_fold(sherd__device *device, sherd_dtype dtype, sherd__fold_kind kind,
                       const shape *s, int off)
{
    bool whole = !sherd__has_fractions(dtype);
    sherd_dtype to = kind <= SHERD__FOLD_MIN                              ? dtype
                     : kind == SHERD__FOLD_ANY || kind == SHERD__FOLD_ALL ? SHERD_BOOL
                     : kind == SHERD__FOLD_LOG_SUM ? sherd__statistics_dtype(dtype)
                     : whole                       ? SHERD_I64
                                                   : dtype;
    bool special = kind != SHERD__FOLD_PRODUCT && kind != SHERD__FOLD_LOG_SUM;
    array x = numbers(device, dtype, s->outer * s->mid * s->inner, off, special);
    array y = blank(device, to, s->outer * s->inner, 0);
    char what[64];

    snprintf(what, sizeof what, "fold %d of %s, shape %d", (int)kind, sherd_dtype_name(dtype),
             (int)(s - shapes));
    for (int64_t i = 0; i < x.n && kind == SHERD__FOLD_PRODUCT; i++) { /* the rest would be 0 */
        double one = whole ? (i % 701 == 9  ? 2
                              : i % 29 == 3 ? -1
                                            : 1)
                           : (i % 29 == 3   ? -2
                              : i % 31 == 5 ? 0.5
                                            : 1);
        sherd__cast(dtype, SHERD_F64, 1, x.host + i * (int64_t)sherd_dtype_bytes(dtype), &one);
    }
    upload(device, &x);
    sherd__device_fold(device, dtype, kind, y.gpu, x.gpu, s->outer, s->mid, s->inner);
    if (kind <= SHERD__FOLD_MIN) {
        extreme_plainly(kind == SHERD__FOLD_MIN, &y, &x, s);
        check_arrays(device, &y, 0, what);
    } else {
        for (int64_t i = 0; i < y.n; i++) {
            double want = fold_plainly(kind, &x, s, i);
            sherd__cast(to, SHERD_F64, 1, y.host + i * (int64_t)sherd_dtype_bytes(to), &want);
        }
        check_arrays(device, &y, 0.1, what);
    }
    drop(device, &x);
    drop(device, &y);
}

static bool there_is(sherd__fold_kind kind, sherd_dtype dtype)
{
    return kind == SHERD__FOLD_SUM       ? !sherd__has_fractions(dtype)
           : kind == SHERD__FOLD_LOG_SUM ? sherd__has_fractions(dtype)
                                         : true;
}

static void folds_are_those_of_the_cpu(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(all_dtypes) * SHERD__FOLDS * LEN(shapes); i++) {
        sherd_dtype dtype = all_dtypes[i % LEN(all_dtypes)];
        sherd__fold_kind kind = (sherd__fold_kind)(i / LEN(all_dtypes) % SHERD__FOLDS);
        const shape *s = &shapes[i / LEN(all_dtypes) / SHERD__FOLDS];
        if (there_is(kind, dtype) && takes_part(s, dtype))
            check_fold(device, dtype, kind, s, i % 3 == 0 ? (int)sherd_dtype_bytes(dtype) : 0);
    }
    close_gpu(&heap, device);
}

/* In two steps, as ranks do: of each piece the best and its index, then of all pieces. */
static void check_where(sherd__device *device, sherd_dtype dtype, bool least, const shape *s)
{
    enum { FIRST = 4 };
    const int64_t size[] = {s->outer, s->mid, s->inner}, kept[] = {s->inner, 0, 1};
    const int64_t index_stride[] = {0, 1, 0};
    int64_t n = s->outer * s->inner;
    array x = numbers(device, dtype, s->outer * s->mid * s->inner, 0, true);
    array at = blank(device, SHERD_I32, n, 0), best = blank(device, dtype, n, 0);
    array index = blank(device, SHERD_I64, n, 0), again = blank(device, SHERD_I32, n, 0);
    sherd__extremes e = {least, s->outer, s->mid, s->inner, FIRST, x.gpu, NULL};

    kernels_of(dtype)->fill(best.host, n, 0);
    if (x.n)
        kernels_of(dtype)->extreme(least, 3, size, best.host, kept, (int64_t *)index.host,
                                   index_stride, FIRST, x.host);
    kernels_of(dtype)->extreme_join(least, 1, n, (int32_t *)at.host, best.host,
                                    (int64_t *)index.host);
    memcpy(again.host, at.host, (size_t)at.bytes);
    sherd__device_where(device, dtype, &e, (int32_t *)at.gpu);
    check_same(device, &at, "where");
    sherd__device_extremes(device, dtype, &e, best.gpu, (int64_t *)index.gpu);
    check_same(device, &index, "indices");
    check_arrays(device, &best, 0, "extremes");
    e = (sherd__extremes){least, 1, 1, n, 0, best.gpu, (int64_t *)index.gpu};
    sherd__device_where(device, dtype, &e, (int32_t *)again.gpu);
    check_same(device, &again, "where, joined,");
    array *every[] = {&x, &at, &best, &index, &again};
    for (int i = 0; i < LEN(every); i++)
        drop(device, every[i]);
}

static void the_first_of_equals_is_found(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(all_dtypes) * LEN(shapes) * 2; i++) {
        sherd_dtype dtype = all_dtypes[i % LEN(all_dtypes)];
        const shape *s = &shapes[i / LEN(all_dtypes) % LEN(shapes)];
        if (takes_part(s, dtype))
            check_where(device, dtype, i / LEN(all_dtypes) / LEN(shapes), s);
    }
    close_gpu(&heap, device);
}

static void gradients_of_log_sums(void)
{
    enum { OUTER = 3, MID = 5, INNER = 4 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(fractions); t++) {
        sherd_dtype dtype = fractions[t], sums = sherd__statistics_dtype(dtype);
        array x = drawn(device, dtype, OUTER * MID * INNER, 0, -3, 3);
        array dy = drawn(device, dtype, OUTER * INNER, 0, -1, 1), dx = blank(device, dtype, x.n, 0);
        array log_sum = drawn(device, sums, OUTER * INNER, 0, 1, 4);
        memset(x.host, 0, (size_t)x.bytes / 3);
        sherd__cast(dtype, SHERD_F64, 1, x.host, (double[]){-INFINITY});
        upload(device, &x);
        sherd__device_soft_spread(device, dtype, &(sherd__soft_slab){OUTER, MID, INNER}, dx.gpu,
                                  x.gpu, log_sum.gpu, dy.gpu);
        plain(dtype)->soft_spread(OUTER, MID, INNER, dx.host, x.host, log_sum.host, dy.host);
        check_arrays(device, &dx, 0.1, "gradient of a log sum");
        drop(device, &x);
        drop(device, &dy);
        drop(device, &dx);
        drop(device, &log_sum);
    }
    close_gpu(&heap, device);
}

/* Of whole numbers, whose sums are exact; an infinity stays behind those before it. */
static void sums_run(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < (LEN(all_dtypes) - 1) * LEN(shapes) * 2; i++) {
        sherd_dtype dtype = all_dtypes[i % (LEN(all_dtypes) - 1)];
        const shape *s = &shapes[i / (LEN(all_dtypes) - 1) % LEN(shapes)];
        const int64_t size[] = {s->outer, s->mid, s->inner};
        bool reverse = i / (LEN(all_dtypes) - 1) / LEN(shapes);
        int64_t bytes = (int64_t)sherd_dtype_bytes(dtype);
        array x = numbers(device, dtype, s->outer * s->mid * s->inner, 0, false);
        array y = blank(device, dtype, x.n, 0);
        for (int64_t k = 0; k < x.n && sherd__has_fractions(dtype); k++)
            sherd__cast(dtype, SHERD_F64, 1, x.host + k * bytes,
                        (double[]){k == 45      ? INFINITY
                                   : k % 64 < 2 ? 3 - 6 * (double)(k % 2)
                                                : 0});
        upload(device, &x);
        sherd__device_running_sum(device, dtype, size, reverse, y.gpu, x.gpu);
        for (int64_t k = 0; k < s->outer * s->inner; k++) {
            double sum = 0;
            for (int64_t m = 0; m < s->mid; m++) {
                int64_t at = (k / s->inner * s->mid + (reverse ? s->mid - 1 - m : m)) * s->inner +
                             k % s->inner;
                double mine = element(dtype, x.host, at);
                sum += mine;
                if (dtype == SHERD_U8)
                    sum = fmod(sum, 256);
                else if (dtype == SHERD_I8)
                    sum = sum - 256 * floor((sum + 128) / 256);
                sherd__cast(dtype, SHERD_F64, 1, y.host + at * bytes, &sum);
            }
        }
        check_same(device, &y, "running sums");
        drop(device, &x);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

/* Numbers that a large one before them would swallow, were they added in the dtype. */
static void small_numbers_add_up(void)
{
    static const int64_t sizes[][3] = {{2, 300, 1}, {2, 300, 3}, {1, 9000, 1}, {1, 700, 8}};
    const float large = 1 << 24;
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(sizes); i++) {
        const int64_t *size = sizes[i], columns = size[0] * size[2];
        array x = blank(device, SHERD_F32, columns * size[1], 0);
        array y = blank(device, SHERD_F32, x.n, 0);
        for (int64_t k = 0; k < x.n; k++) {
            int64_t m = k / size[2] % size[1];
            ((float *)(void *)x.host)[k] = m ? 1 : large;
            ((float *)(void *)y.host)[k] = (float)((double)large + (double)m);
        }
        upload(device, &x);
        sherd__device_running_sum(device, SHERD_F32, size, false, y.gpu, x.gpu);
        check_same(device, &y, "running sums beside a large number");
        drop(device, &x);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* Law 0: products, 1: logarithms of sums, 2 to 5: recurrences, on the CPU and on the GPU. */
static void run_law(sherd__device *device, int law, sherd_dtype dtype, const int64_t size[3],
                    void *dst, const void *a, const void *b)
{
    const sherd__course course = {.reverse = law & 1, .behind = law > 3};

    if (law == 0 && device)
        sherd__device_running_product(device, dtype, size, dst, a);
    else if (law == 0)
        sherd__running_product(dtype, size, dst, a);
    else if (law == 1 && device)
        sherd__device_running_log_sum(device, dtype, size, dst, a);
    else if (law == 1)
        sherd__running_log_sum(dtype, size, dst, a);
    else if (device)
        sherd__device_recurrence(device, dtype, size, course, dst, a, b);
    else
        sherd__recurrence(dtype, size, course, dst, a, b);
}

/* 16 bits go by f32 on the CPU, as they do in the operator. */
static void check_law(sherd__device *device, int law, sherd_dtype dtype, const shape *s)
{
    const int64_t size[] = {s->outer, s->mid, s->inner};
    int64_t n = s->outer * s->mid * s->inner, bytes = (int64_t)sherd_dtype_bytes(dtype);
    sherd_dtype plainly = sherd__is_half(dtype) ? SHERD_F32 : dtype;
    array a = drawn(device, dtype, n, 0, -1.1, 1.1), b = drawn(device, dtype, n, 0, -1, 2);
    array y = blank(device, dtype, n, 0);
    double *wide[3];

    for (int i = 0; i < 3; i++)
        wide[i] = calloc((size_t)n + 1, sizeof *wide[i]);
    sherd__cast(plainly, dtype, n, wide[0], a.host);
    sherd__cast(plainly, dtype, n, wide[1], b.host);
    run_law(NULL, law, plainly, size, wide[2], wide[0], wide[1]);
    sherd__cast(dtype, plainly, n, y.host, wide[2]);
    run_law(device, law, dtype, size, y.gpu, a.gpu, b.gpu);
    check_arrays(device, &y, bytes < 4 ? 1e-2 : bytes == 4 ? 1e-5 : 1, "lines");
    for (int i = 0; i < 3; i++)
        free(wide[i]);
    drop(device, &a);
    drop(device, &b);
    drop(device, &y);
}

static void lines_run(void)
{
    enum { LAWS = 6 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LAWS * LEN(fractions) * LEN(shapes); i++)
        if (i % 3 == 0 || i < LAWS * LEN(shapes))
            check_law(device, i % LAWS, fractions[i / LAWS / LEN(shapes)],
                      &shapes[i / LAWS % LEN(shapes)]);
    CHECK(sherd__device_runs((int64_t[]){1, 4096, 1}));
    CHECK(!sherd__device_runs((int64_t[]){2, 1 << 20, 4}));
    close_gpu(&heap, device);
}

/* Of few different numbers: the last of equal ones; NaN stays. */
static void extremes_run(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(all_dtypes) * LEN(shapes); i++) {
        sherd_dtype dtype = all_dtypes[i % LEN(all_dtypes)];
        const shape *s = &shapes[i / LEN(all_dtypes)];
        const int64_t size[] = {s->outer, s->mid, s->inner};
        int64_t n = s->outer * s->mid * s->inner, bytes = (int64_t)sherd_dtype_bytes(dtype);
        bool least = i % 2;
        array x = numbers(device, dtype, n, 0, false), y = blank(device, dtype, n, 0);
        array at = blank(device, SHERD_I32, n, 0);
        for (int64_t k = n / 2; k < n && k < n / 2 + 1 && sherd__has_fractions(dtype); k++)
            sherd__cast(dtype, SHERD_F64, 1, x.host + k * bytes, (double[]){NAN});
        upload(device, &x);
        for (int64_t k = 0; k < s->outer * s->inner; k++) {
            double best = 0;
            int64_t first = k / s->inner * s->mid * s->inner + k % s->inner, place = 0;
            for (int64_t m = 0; m < s->mid; m++) {
                double mine = element(dtype, x.host, first + m * s->inner);
                if (m == 0 || isnan(mine) ||
                    (!isnan(best) && (least ? mine <= best : mine >= best)))
                    best = mine, place = m;
                memcpy(y.host + (first + m * s->inner) * bytes,
                       x.host + (first + place * s->inner) * bytes, (size_t)bytes);
                ((int32_t *)(void *)at.host)[first + m * s->inner] = (int32_t)place;
            }
        }
        sherd__device_running_most(device, dtype, size, least, y.gpu, (int32_t *)(void *)at.gpu,
                                   x.gpu);
        check_same(device, &y, "running extremes");
        check_same(device, &at, "where they are");
        drop(device, &x);
        drop(device, &y);
        drop(device, &at);
    }
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(folds_are_those_of_the_cpu)},
    {TEST(the_first_of_equals_is_found)},
    {TEST(gradients_of_log_sums)},
    {TEST(sums_run)},
    {TEST(small_numbers_add_up)},
    {TEST(lines_run)},
    {TEST(extremes_run)},
};
CHECK_MAIN(tests)
