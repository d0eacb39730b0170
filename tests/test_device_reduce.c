/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions on the GPU beside the CPU's plain kernels: of 1 to 16 tensors by each operation, NaN
 * and strides included; sums over a dim of all shapes, which have the same bits in
 * every run. */
#define CHECK_PURE
#include "device_numbers.h"

#include "kernels/rows.h"

static const sherd_dtype summed[] = {SHERD_F32, SHERD_F64, SHERD_BF16, SHERD_F16,
                                     SHERD_I32, SHERD_I64, SHERD_BOOL};

/* ---- of several tensors ---- */

typedef struct layout {
    int ndim;
    int64_t size[SHERD_MAX_DIMS], dst[SHERD_MAX_DIMS], src[2][SHERD_MAX_DIMS];
    int64_t room; /* elements that any of them reaches */
} layout;

static const layout layouts[] = {
    {1, {0}, {1}, {{1}, {1}}, 0},
    {1, {71}, {1}, {{1}, {1}}, 71},
    {1, {128}, {1}, {{1}, {1}}, 128},
    {2, {6, 32}, {32, 1}, {{48, 1}, {32, 1}}, 300},
    {2, {6, 9}, {9, 1}, {{1, 6}, {10, 1}}, 60},
    {3, {3, 4, 5}, {1, 3, 12}, {{20, 5, 1}, {0, 5, 1}}, 60},
};

/* With a NaN in the first one and another in the last. */
static void draw_sources(sherd__device *device, sherd_dtype dtype, const layout *l, int count,
                         int off, array *src)
{
    double nan = NAN;

    for (int k = 0; k < count; k++) {
        src[k] = drawn(device, dtype, l->room, off, -3, 4);
        for (int64_t i = k; i < l->room && sherd__device_computes(dtype) && k % 7 == 0; i += 17)
            sherd__cast(dtype, SHERD_F64, 1, src[k].host + i * (int64_t)sherd_dtype_bytes(dtype),
                        &nan);
        upload(device, &src[k]);
    }
}

/* The CPU's kernel takes one element after another. */
static void reduce_plainly(sherd_dtype dtype, sherd_reduce_op op, const layout *l, array *dst,
                           int count, const array *src)
{
    int64_t bytes = (int64_t)sherd_dtype_bytes(dtype);
    sherd__rows r =
        sherd__rows_of(l->ndim, l->size, 3, (const int64_t *[]){l->dst, l->src[0], l->src[1]});

    for (int64_t i = 0; i < r.rows; i++, sherd__rows_next(&r))
        for (int64_t j = 0; j < r.n; j++) {
            const void *from[SHERD__DEVICE_ADDENDS];
            for (int k = 0; k < count; k++)
                from[k] = src[k].host + (r.at[1 + k % 2] + j * r.step[1 + k % 2]) * bytes;
            plain(dtype)->reduce(op, dst->host + (r.at[0] + j * r.step[0]) * bytes, from, count, 1,
                                 3);
        }
}

static void check_reduce(sherd__device *device, sherd_dtype dtype, sherd_reduce_op op,
                         const layout *l, int count, int off)
{
    array dst = blank(device, dtype, l->room, off), src[SHERD__DEVICE_ADDENDS];
    const void *from[SHERD__DEVICE_ADDENDS];
    int64_t stride[SHERD__DEVICE_ADDENDS][SHERD_MAX_DIMS];
    char what[64];

    draw_sources(device, dtype, l, count, off, src);
    for (int k = 0; k < count; k++) {
        from[k] = src[k].gpu;
        memcpy(stride[k], l->src[k % 2], sizeof stride[k]);
    }
    sherd__device_reduce(device, dtype, op, l->ndim, l->size, dst.gpu, l->dst, count, from,
                         (const int64_t(*)[SHERD_MAX_DIMS])stride, 3);
    reduce_plainly(dtype, op, l, &dst, count, src);
    snprintf(what, sizeof what, "reduction %d of %d, layout %d", (int)op, count,
             (int)(l - layouts));
    check_arrays(device, &dst, 1e-3, what);
    for (int k = 0; k < count; k++)
        drop(device, &src[k]);
    drop(device, &dst);
}

static void reductions_are_those_of_the_cpu(void)
{
    static const int counts[] = {1, 2, 3, 4, 5, 8, 9, 16};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(summed); t++)
        for (int op = SHERD_SUM; op <= SHERD_PRODUCT; op++) {
            if (op == SHERD_AVG && !sherd__device_computes(summed[t]))
                continue;
            for (int c = 0; c < LEN(counts); c++)
                check_reduce(device, summed[t], (sherd_reduce_op)op, &layouts[1], counts[c], 0);
            for (int l = 0; l < LEN(layouts); l++) {
                check_reduce(device, summed[t], (sherd_reduce_op)op, &layouts[l], 3, 0);
                check_reduce(device, summed[t], (sherd_reduce_op)op, &layouts[l], 2,
                             (int)sherd_dtype_bytes(summed[t]));
            }
        }
    close_gpu(&heap, device);
}

/* ---- over a dim ---- */

static void sum_exactly(const array *x, array *dst, int64_t outer, int64_t mid, int64_t inner,
                        bool add)
{
    for (int64_t i = 0; i < outer * inner; i++) {
        double sum = add ? element(dst->dtype, dst->host, i) : 0;
        for (int64_t m = 0; m < mid; m++)
            sum += element(x->dtype, x->host, (i / inner * mid + m) * inner + i % inner);
        sherd__cast(dst->dtype, SHERD_F64, 1,
                    dst->host + i * (int64_t)sherd_dtype_bytes(dst->dtype), &sum);
    }
}

/* Positive numbers, so that a sum is as exact as its addends. Twice, for the bits. */
static void check_sum(sherd__device *device, sherd_dtype dtype, const int64_t shape[3], int off,
                      bool add)
{
    int64_t outer = shape[0], mid = shape[1], inner = shape[2];
    array x = drawn(device, dtype, outer * mid * inner, off, 0, 1);
    array dst = drawn(device, dtype, outer * inner, off, 0, 1);
    array again = drawn(device, dtype, outer * inner, 0, 0, 1);
    char what[96];

    memcpy(again.host, dst.host, (size_t)dst.bytes);
    upload(device, &again);
    snprintf(what, sizeof what, "sum over %lld,(%lld),%lld", (long long)outer, (long long)mid,
             (long long)inner);
    sherd__device_sum(device, dtype, dst.gpu, x.gpu, outer, mid, inner, add);
    sherd__device_sum(device, dtype, again.gpu, x.gpu, outer, mid, inner, add);
    sum_exactly(&x, &dst, outer, mid, inner, add);
    check_arrays(device, &dst, 1e-3, what);
    memcpy(again.host, dst.got, (size_t)dst.bytes);
    check_same(device, &again, what);
    drop(device, &x);
    drop(device, &dst);
    drop(device, &again);
}

static void sums_are_those_of_their_addends(void)
{
    static const int64_t shapes[][3] = {
        {0, 3, 4},    {2, 0, 3},    {3, 0, 1},     {5, 3, 0},    {1, 1, 1},     {3, 7, 1},
        {130, 64, 1}, {3, 1500, 1}, {1, 20011, 1}, {2, 9000, 1}, {1, 16384, 1}, {1, 5, 7},
        {1, 700, 64}, {1, 700, 65}, {1, 5000, 3},  {4, 33, 40},  {37, 3, 2},    {2, 600, 24},
        {1, 9, 1100}, {1, 40, 640}, {600, 257, 1},
    };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(fractions); t++)
        for (int s = 0; s < LEN(shapes); s++) {
            /* aligned and not; in the short form each for two of the dtypes */
            int off = (int)sherd_dtype_bytes(fractions[t]);
            for (int a = (s + t) % check_stride(2); a < 2; a += check_stride(2))
                check_sum(device, fractions[t], shapes[s], a * off, s / 2 % 2 == a);
        }
    close_gpu(&heap, device);
}

/* In f32, where one would be lost by sums of 16 bits. */
static void sums_of_16_bits_are_rounded_once(void)
{
    enum { N = 12000 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    const double one = 1;

    for (int i = 0; device && i < 4; i++) {
        sherd_dtype dtype = i % 2 ? SHERD_F16 : SHERD_BF16;
        array x = blank(device, dtype, N, 0), sum = blank(device, dtype, 1, 0);
        for (int j = 0; j < N; j++)
            sherd__cast(dtype, SHERD_F64, 1, x.host + 2 * j, &one);
        upload(device, &x);
        sherd__device_sum(device, dtype, sum.gpu, x.gpu, 1, i < 2 ? N : N / 2, i < 2 ? 1 : 2,
                          false);
        if (i >= 2) {
            drop(device, &sum);
            sum = blank(device, dtype, 2, 0);
            sherd__device_sum(device, dtype, sum.gpu, x.gpu, 1, N / 2, 2, false);
        }
        if (download(device, &sum))
            CHECK_NEAR(element(dtype, sum.got, 0), i < 2 ? N : N / 2, N / 256.0);
        drop(device, &x);
        drop(device, &sum);
    }
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(reductions_are_those_of_the_cpu)},
    {TEST(sums_are_those_of_their_addends)},
    {TEST(sums_of_16_bits_are_rounded_once)},
};
CHECK_MAIN(tests)
