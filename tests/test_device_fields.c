/* SPDX-License-Identifier: Apache-2.0 */
/* Pooling, weighted sums and products of complex numbers on the GPU are the plain ones of the CPU;
 * those of 16 bits are what these are in f32, rounded once. */
#define CHECK_PURE
#include "check.h"
#include "device/fields.h"
#include "device_arrays.h"
#include "kernels/cast.h"

/* An array as f32 or f64 of the CPU's: itself, or a copy to be freed. */
static void *widened(const array *a)
{
    if (sherd_dtype_bytes(a->dtype) != 2)
        return a->host;
    float *wide = malloc((size_t)a->n * sizeof *wide + 1);
    if (!wide)
        abort();
    plain_of(a->dtype)->widen(a->n, wide, a->host);
    return wide;
}

static void settle(array *made, void *wide)
{
    if (wide == made->host)
        return;
    plain_of(made->dtype)->narrow(made->n, made->host, wide);
    free(wide);
}

static void let_go(const array *a, void *wide)
{
    if (wide != a->host)
        free(wide);
}

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* ---- maxima ---------------------------------------------------------------------------------- */

static const sherd__pool pools[] = {
    {.outer = 3,
     .in = {1, 6, 7},
     .out = {1, 3, 7},
     .kernel = {1, 2, 3},
     .stride = {1, 2, 1},
     .dilation = {1, 1, 1},
     .before = {0, 0, 1},
     .offset = {0, 0, 0},
     .whole = {1, 6, 7}},
    {.outer = 2,
     .in = {4, 5, 3},
     .out = {2, 3, 3},
     .kernel = {3, 2, 2},
     .stride = {2, 2, 1},
     .dilation = {1, 1, 2},
     .before = {1, 1, 1},
     .offset = {0, 0, 0},
     .whole = {4, 5, 3}},
    {.outer = 2,
     .in = {1, 4, 6},
     .out = {1, 3, 3},
     .kernel = {1, 3, 3},
     .stride = {1, 1, 2},
     .dilation = {1, 2, 1},
     .before = {0, 1, -1},
     .offset = {0, 3, 2},
     .whole = {1, 9, 8}},
    {.outer = 1,
     .in = {1, 1, 4},
     .out = {1, 1, 3},
     .kernel = {1, 1, 2},
     .stride = {1, 1, 1},
     .dilation = {1, 1, 9},
     .before = {0, 0, 5},
     .offset = {0, 0, 0},
     .whole = {1, 1, 4}},
};

static void pool_is_plain(sherd_dtype dtype, const sherd__pool *p)
{
    const sherd__pool_kernels *kernels = sherd__pool_kernels_of(dtype);
    int64_t reads = p->outer * product(p->in), makes = p->outer * product(p->out);
    array x = drawn(SHERD_F64, reads, 0, -2, 2, 1), y = room_for(dtype, makes, 0);
    array at = room_for(SHERD_I64, makes, 0), dy = drawn(dtype, makes, 0, -1, 1, 2);
    array dx = room_for(dtype, reads, 0), narrow = room_for(dtype, reads, 0);

    for (int64_t i = 0; i < reads; i++) /* many equal ones, zeros of both signs, some NaN */
        ((double *)x.host)[i] =
            i % 11 == 7 ? (double)NAN
                        : copysign(floor(fabs(((double *)x.host)[i])), i % 2 ? 0.5 : -0.5);
    sherd__cast(dtype, SHERD_F64, reads, narrow.host, x.host);
    send(&narrow);
    void *wide[] = {widened(&narrow), widened(&y), widened(&dy), widened(&dx)};
    kernels->forward(p, wide[1], at.host, wide[0]);
    kernels->backward(p, wide[3], wide[2], at.host);
    settle(&y, wide[1]);
    settle(&dx, wide[3]);
    let_go(&narrow, wide[0]);
    let_go(&dy, wide[2]);
    sherd__device_max_pool(device, dtype, p, y.data, at.data, narrow.data);
    sherd__device_max_pool_grad(device, dtype, p, dx.data, dy.data, at.data);
    fetch(&at);
    CHECK(memcmp(at.got, at.host, (size_t)at.bytes) == 0);
    same(&y, 0, "maxima");
    same(&dx, 1e-6, "gradients of maxima");
    drop(&x), drop(&y), drop(&at), drop(&dy), drop(&dx), drop(&narrow);
}

static void maxima_are_plain(void)
{
    open_device();
    for (int d = 0; d < LEN(dtypes); d++)
        for (int i = 0; i < LEN(pools); i++)
            pool_is_plain(dtypes[d], &pools[i]);
    close_device();
}

/* ---- weighted sums --------------------------------------------------------------------------- */

/* Averages of three; linear weights; more readers than a piece of a table has. */
static sherd__tap tap_of(int kind, int64_t o, int64_t in)
{
    sherd__tap t = {.first = o, .count = 3, .even = true, .divisor = 3};

    if (kind == 1)
        t = (sherd__tap){.first = o / 2, .count = o % 2 + 1, .weight = {0.25, 0.75}, .divisor = 1};
    if (t.first + t.count > in)
        t.count = in - t.first;
    return t;
}

static void taps_are_plain(sherd_dtype to, sherd_dtype from, int kind,
                           const sherd__taps_pass *shape)
{
    const sherd__taps_kernels *kernels = sherd__taps_kernels_of(to);
    sherd__tap *tap = malloc((size_t)shape->rows * sizeof *tap);
    sherd__taps_pass p = *shape;
    array x = drawn(from, p.outer * p.in * p.inner, 1, -1, 1, 1);
    array y = room_for(to, p.outer * p.rows * p.inner, 1);
    array dy = drawn(from, y.n, 1, -1, 1, 2), dx = room_for(to, x.n, 1);

    if (!tap)
        abort();
    for (int64_t o = 0; o < p.rows; o++)
        tap[o] = tap_of(kind, o, p.in);
    p.tap = tap;
    void *wide[] = {widened(&x), widened(&y), widened(&dy), widened(&dx)};
    kernels->forward(&p, wide[1], wide[0]);
    kernels->backward(&p, wide[3], wide[2]);
    settle(&y, wide[1]);
    settle(&dx, wide[3]);
    let_go(&x, wide[0]);
    let_go(&dy, wide[2]);
    sherd__device_taps(device, to, from, &p, y.data, x.data);
    sherd__device_taps_grad(device, to, from, &p, dx.data, dy.data);
    memset(tap, 0, (size_t)p.rows * sizeof *tap);
    same(&y, 1e-6, "weighted sums");
    same(&dx, 1e-6, "gradients of weighted sums");
    free(tap);
    drop(&x), drop(&y), drop(&dy), drop(&dx);
}

static void weighted_sums_are_plain(void)
{
    static const sherd_dtype pairs[][2] = {{SHERD_F32, SHERD_F32},   {SHERD_F64, SHERD_F64},
                                           {SHERD_BF16, SHERD_BF16}, {SHERD_F16, SHERD_F16},
                                           {SHERD_BF16, SHERD_F32},  {SHERD_F32, SHERD_BF16},
                                           {SHERD_F16, SHERD_F32},   {SHERD_F32, SHERD_F16}};
    static const sherd__taps_pass shapes[] = {
        {2, 9, 7, 3, NULL}, {3, 5, 5, 1, NULL}, {1, 1300, 1300, 1, NULL}};

    open_device();
    for (int d = 0; d < LEN(pairs); d++)
        for (int kind = 0; kind < 2; kind++)
            for (int i = 0; i < (d ? 2 : 3); i++)
                taps_are_plain(pairs[d][0], pairs[d][1], kind, &shapes[i]);
    close_device();
}

/* ---- complex numbers ------------------------------------------------------------------------- */

static void complex_products_are_plain(void)
{
    static const int64_t size[] = {3, 4, 5}, whole[] = {40, 10, 2}, row[] = {0, 2, 8},
                         one[] = {0, 0, 0};
    static const int64_t *const strides[] = {whole, row, one};

    open_device();
    for (int d = 0; d < 2; d++)
        for (int i = 0; i < LEN(strides); i++)
            for (int conj = 0; conj < 2; conj++) {
                array a = drawn(dtypes[d], 120, i % 2, -1, 1, 1), /* pairs of views lie anywhere */
                    b = drawn(dtypes[d], 120, i / 2, -1, 1, 2);
                array c = room_for(dtypes[d], 120, 0);
                plain_of(dtypes[d])->complex_mul(conj, 3, size, c.host, a.host, whole, b.host,
                                                 strides[i]);
                sherd__device_complex_mul(device, dtypes[d], conj, 3, size, c.data, a.data, whole,
                                          b.data, strides[i]);
                same(&c, 1e-6, "complex products");
                drop(&a), drop(&b), drop(&c);
            }
    close_device();
}

static const check_test tests[] = {
    {TEST(maxima_are_plain)},
    {TEST(weighted_sums_are_plain)},
    {TEST(complex_products_are_plain)},
};
CHECK_MAIN(tests)
