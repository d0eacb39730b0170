/* SPDX-License-Identifier: Apache-2.0 */
/* Functions element by element on the GPU: every row of kernels/functions.inc and every dtype beside
 * the CPU's plain kernels, strides and places off any alignment, conversions and dropout bit for
 * bit. */
#define CHECK_PURE
#include "device_numbers.h"

static const double parameters[] = {1.75, 2.5}; /* exact in 16 bits */

/* In the place of the first of an array's numbers, where it has so many. */
static const double special[] = {0, -0.0, 1, -1, 0.5, INFINITY, -INFINITY, NAN, 40, -40, 1e4, -1e4};

static void put_special(sherd__device *device, array *a)
{
    for (int i = 0; i < LEN(special) && LEN(special) < a->n; i++)
        sherd__cast(a->dtype, SHERD_F64, 1, a->host + i * (int64_t)sherd_dtype_bytes(a->dtype),
                    &special[i]);
    upload(device, a);
}

static void check_unary(sherd__device *device, sherd_dtype dtype, int kind, int64_t n, int off)
{
    array x = drawn(device, dtype, n, off, -6, 6), y = blank(device, dtype, n, off);
    char what[32];

    snprintf(what, sizeof what, "function %d", kind);
    put_special(device, &x);
    sherd__device_unary(device, dtype, (sherd__unary_kind)kind, n, y.gpu, x.gpu, parameters);
    plain(dtype)->unary((sherd__unary_kind)kind, n, y.host, x.host, parameters);
    check_arrays(device, &y, 0.1, what);
    drop(device, &x);
    drop(device, &y);
}

static void functions_are_those_of_the_cpu(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(fractions); t++)
        for (int kind = 0; kind < SHERD__UNARY_KINDS; kind++) {
            check_unary(device, fractions[t], kind, 331, 0);
            check_unary(device, fractions[t], kind, 67, (int)sherd_dtype_bytes(fractions[t]));
        }
    for (int t = 0; device && t < LEN(fractions); t++)
        for (int64_t n = 0; n < 20; n++)
            check_unary(device, fractions[t], SHERD__SQUARE, n, 0);
    if (device) /* more than all threads take at once */
        check_unary(device, SHERD_F64, SHERD__SHIFT, 1200007, 0);
    close_gpu(&heap, device);
}

/* What a slope reads beside dy: of x the numbers from -6 to 6, of y positive ones. */
static void check_unary_grad(sherd__device *device, sherd_dtype dtype, int kind, int off)
{
    enum { N = 203 };
    array x = drawn(device, dtype, N, off, -6, 6), dy = drawn(device, dtype, N, off, -2, 2);
    array dx = blank(device, dtype, N, off);
    char what[32];

    snprintf(what, sizeof what, "slope %d", kind);
    put_special(device, &x);
    sherd__device_unary_grad(device, dtype, (sherd__unary_kind)kind, N, dx.gpu, x.gpu, dy.gpu,
                             parameters);
    plain(dtype)->unary_grad((sherd__unary_kind)kind, N, dx.host, x.host, dy.host, parameters);
    check_arrays(device, &dx, 0.2, what);
    drop(device, &x);
    drop(device, &dy);
    drop(device, &dx);
}

/* Also that a function whose slope reads nothing is asked for without what it might read. */
static void slopes_are_those_of_the_cpu(void)
{
    enum { N = 35 };
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int t = 0; device && t < LEN(fractions); t++)
        for (int kind = SHERD__NEG; kind < SHERD__UNARY_KINDS; kind++) {
            check_unary_grad(device, fractions[t], kind, 0);
            check_unary_grad(device, fractions[t], kind, (int)sherd_dtype_bytes(fractions[t]));
        }
    if (device) {
        array dy = drawn(device, SHERD_F32, N, 0, -2, 2);
        sherd__device_unary_grad(device, SHERD_F32, SHERD__NEG, N, dy.gpu, NULL, dy.gpu, NULL);
        plain(SHERD_F32)->unary_grad(SHERD__NEG, N, dy.host, dy.host, dy.host, NULL);
        check_same(device, &dy, "the slope of -x, in place,");
        drop(device, &dy);
    }
    close_gpu(&heap, device);
}

/* ---- of two operands ---- */

typedef struct shape {
    int ndim;
    int64_t size[SHERD_MAX_DIMS], a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];
} shape;

static const shape shapes[] = {
    {1, {67}, {1}, {1}},
    {1, {64}, {1}, {0}},
    {1, {37}, {0}, {1}},
    {0, {0}, {0}, {0}},
    {2, {5, 0}, {0, 1}, {0, 1}},
    {2, {9, 32}, {32, 1}, {0, 1}}, /* a bias */
    {2, {9, 32}, {32, 1}, {1, 0}}, /* a number for each row */
    {2, {9, 13}, {13, 1}, {0, 1}},
    {2, {9, 16}, {19, 1}, {16, 1}}, /* rows off any alignment */
    {2, {12, 40}, {1, 12}, {40, 1}},
    {3, {3, 1, 8}, {8, 3, 1}, {8, 5, 1}},
    {4, {3, 5, 2, 8}, {80, 8, 40, 1}, {0, 8, 0, 1}},
    {8, {2, 3, 1, 2, 2, 3, 1, 2}, {1, 2, 0, 6, 12, 24, 0, 72}, {0, 1, 0, 3, 0, 6, 0, 18}},
};

static int64_t reach(int ndim, const int64_t *size, const int64_t *stride)
{
    int64_t last = 0;

    for (int d = 0; d < ndim; d++) {
        if (size[d] == 0)
            return 0;
        last += (size[d] - 1) * stride[d];
    }
    return last + 1;
}

static int64_t count_of(const shape *s)
{
    int64_t n = 1;

    for (int d = 0; d < s->ndim; d++)
        n *= s->size[d];
    return n;
}

/* The value, and where there are slopes the gradients of both. */
static void check_binary(sherd__device *device, sherd_dtype dtype, int kind, const shape *s,
                         int off)
{
    const sherd__kernels *k = plain(dtype);
    int64_t n = count_of(s);
    array a = drawn(device, dtype, reach(s->ndim, s->size, s->a), off, -4, 4);
    array b = drawn(device, dtype, reach(s->ndim, s->size, s->b), off, -3, 5);
    array dy = drawn(device, dtype, n, off, -2, 2), d = blank(device, dtype, n, off);
    char what[64];

    snprintf(what, sizeof what, "binary %d, shape %d", kind, (int)(s - shapes));
    sherd__device_binary(device, dtype, (sherd__binary_kind)kind, s->ndim, s->size, d.gpu, a.gpu,
                         s->a, b.gpu, s->b);
    k->binary((sherd__binary_kind)kind, s->ndim, s->size, d.host, a.host, s->a, b.host, s->b);
    check_arrays(device, &d, 0.1, what);
    for (int which = 0; which < 2 && kind > SHERD__MUL; which++) {
        snprintf(what, sizeof what, "slope %d of binary %d, shape %d", which, kind,
                 (int)(s - shapes));
        sherd__device_binary_grad(device, dtype, (sherd__binary_kind)kind, which, s->ndim, s->size,
                                  d.gpu, dy.gpu, a.gpu, s->a, b.gpu, s->b);
        k->binary_grad((sherd__binary_kind)kind, which, s->ndim, s->size, d.host, dy.host, a.host,
                       s->a, b.host, s->b);
        check_arrays(device, &d, 0.1, what);
    }
    drop(device, &a);
    drop(device, &b);
    drop(device, &dy);
    drop(device, &d);
}

static void pairs_are_those_of_the_cpu(void)
{
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);
    static const shape large = {2, {4200, 130}, {130, 1}, {0, 1}};

    for (int t = 0; device && t < LEN(fractions); t++) {
        int bytes = (int)sherd_dtype_bytes(fractions[t]);
        for (int kind = 0; kind < SHERD__BINARY_KINDS; kind++)
            check_binary(device, fractions[t], kind, &shapes[0], 0);
        for (int s = 0; s < LEN(shapes); s++) {
            check_binary(device, fractions[t], SHERD__SUB, &shapes[s], 0);
            check_binary(device, fractions[t], SHERD__DIV, &shapes[s], bytes);
            check_binary(device, fractions[t], SHERD__MAXIMUM, &shapes[s], 0);
        }
    }
    if (device)
        check_binary(device, SHERD_F32, SHERD__ADD, &large, 0);
    close_gpu(&heap, device);
}

/* ---- the rest ---- */

/* Numbers that lie between those of 16 bits, and halfway but for the last bit of an f64. */
static void put_between(sherd__device *device, array *x)
{
    put_special(device, x);
    for (int64_t i = LEN(special); i < x->n && x->dtype == SHERD_F64; i += 3) {
        double y = (1 + (double)(2 * i + 1) / 256) * (i % 2 ? 1e-7 : 1) *
                   (1 + (double)(i % 5 - 2) * 0x1p-52);
        memcpy(x->host + i * 8, &y, sizeof y);
    }
    upload(device, x);
}

static void conversions_round_once(void)
{
    static const int64_t sizes[] = {0, 1, 7, 611};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(fractions) * LEN(fractions) * LEN(sizes) * 2; i++) {
        sherd_dtype from = fractions[i % 4], to = fractions[i / 4 % 4];
        int64_t n = sizes[i / 16 % LEN(sizes)];
        int far = i / 16 / LEN(sizes);
        array x = drawn(device, from, n, far * (int)sherd_dtype_bytes(from), -70000, 70000);
        array y = blank(device, to, n, 0);
        put_between(device, &x);
        sherd__device_convert(device, to, from, n, y.gpu, x.gpu);
        sherd__cast(to, from, n, y.host, x.host);
        check_arrays(device, &y, 0, sherd_dtype_name(from));
        for (int64_t j = 0; j < n; j++) {
            double want = element(to, y.host, j), got = element(to, y.got, j);
            if (!CHECK(want == got || isnan(want)))
                fprintf(stderr, "  %.17g of %s becomes %.9g\n", element(from, x.host, j),
                        sherd_dtype_name(from), got);
        }
        drop(device, &x);
        drop(device, &y);
    }
    close_gpu(&heap, device);
}

static void fills_fill(void)
{
    static const double values[] = {0, -1.5, 1.00390625000001, INFINITY};
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(fractions) * LEN(values) * 2; i++) {
        sherd_dtype dtype = fractions[i % 4];
        double value = values[i / 4 % 4];
        int far = i / 16;
        for (int64_t n = 0; n < 70; n = 3 * n + 1) {
            array x = blank(device, dtype, n, far * (int)sherd_dtype_bytes(dtype));
            sherd__device_fill(device, dtype, x.gpu, n, value);
            plain(dtype)->fill(x.host, n, value);
            check_same(device, &x, "fill");
            drop(device, &x);
        }
    }
    close_gpu(&heap, device);
}

static void dropout_has_the_numbers_of_the_cpu(void)
{
    static const int64_t firsts[] = {0, 1, 2, 3, 4, ((int64_t)1 << 34) + 5};
    const sherd__key key = sherd__philox_key(11, 2, 7);
    sherd__heap heap = {0};
    sherd__device *device = open_gpu(&heap, "cuda", 0);

    for (int i = 0; device && i < LEN(fractions) * LEN(firsts) * 2; i++) {
        sherd_dtype dtype = fractions[i % 4];
        int64_t first = firsts[i / 4 % LEN(firsts)];
        int off = i / 4 / LEN(firsts) * (int)sherd_dtype_bytes(dtype);
        for (int64_t n = 0; n < 700; n = 5 * n + 1) {
            array x = drawn(device, dtype, n, off, -2, 2);
            sherd__device_dropout(device, dtype, n, x.gpu, x.gpu, 0.3, key, first);
            plain(dtype)->dropout(n, x.host, x.host, 0.3, key, first);
            check_same(device, &x, "dropout");
            drop(device, &x);
        }
    }
    close_gpu(&heap, device);
}

static const check_test tests[] = {
    {TEST(functions_are_those_of_the_cpu)},
    {TEST(slopes_are_those_of_the_cpu)},
    {TEST(pairs_are_those_of_the_cpu)},
    {TEST(conversions_round_once)},
    {TEST(fills_fill)},
    {TEST(dropout_has_the_numbers_of_the_cpu)},
};
CHECK_MAIN(tests)
