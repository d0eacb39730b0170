/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fourier transforms of every length against the sum that defines them, in long double, and by what
 * must hold: there and back is the identity, lengths are kept (Parseval), a shift is a factor, the
 * gradient is the adjoint. For f32 and f64, and every instruction set that this machine has.
 */
#define CHECK_PURE
#include <math.h>

#include "base/hash.h"
#include "base/num.h"
#include "check.h"
#include "fast_sets.h"
#include "kernels/fft.h"

enum { MOST = 1 << 18 };

typedef struct version {
    const char *name;
    bool wide;
    sherd__kernels k;
} version;

enum { VERSIONS = 2 + 2 * FAST_SETS };

static int versions(version out[VERSIONS])
{
    fast_set sets[FAST_SETS];
    int count = fast_sets(sets), n = 2;

    out[0] = (version){"plain f32", false, sherd__ref_f32};
    out[1] = (version){"plain f64", true, sherd__ref_f64};
    for (int i = 0; i < count; i++) {
        out[n] = (version){sets[i].name, false, sherd__ref_f32};
        sets[i].f32(&out[n++].k);
        out[n] = (version){sets[i].name, true, sherd__ref_f64};
        sets[i].f64(&out[n++].k);
    }
    return n;
}

/* ---- one call -------------------------------------------------------------------------------- */

static double value(int64_t i)
{
    uint64_t h = sherd__hash_word(99, (uint64_t)i);

    return (double)(float)((double)(h >> 11) / 4503599627370496.0 - 1);
}

static int64_t half_of(int64_t n)
{
    return n / 2 + 1;
}

/* Reals of the operand, and of the result. */
static int64_t reals(const sherd__fft *t, bool result)
{
    int64_t columns = t->outer * t->inner;
    bool real = t->kind == (result ? SHERD__FFT_FROM_HALF : SHERD__FFT_TO_HALF);
    bool half = t->kind == (result ? SHERD__FFT_TO_HALF : SHERD__FFT_FROM_HALF);

    return columns * (real ? t->n : 2 * (half ? half_of(t->n) : t->n));
}

/* The kernel on f64 numbers, which are rounded for f32 and come back. */
static void transform(const version *v, const sherd__fft *t, double *y, const double *x)
{
    size_t bytes = v->wide ? sizeof(double) : sizeof(float);
    int64_t in = reals(t, false), out = reals(t, true);
    sherd_dtype dtype = v->wide ? SHERD_F64 : SHERD_F32;
    void *src = malloc((size_t)in * bytes + 1), *dst = malloc((size_t)out * bytes + 1);
    void *workspace = aligned_alloc(64, (size_t)v->k.fft_workspace(t) + 64);

    sherd__cast(dtype, SHERD_F64, in, src, x);
    v->k.fft(t, dst, src, workspace);
    sherd__cast(SHERD_F64, dtype, out, y, dst);
    free(src);
    free(dst);
    free(workspace);
}

/* ---- the sum --------------------------------------------------------------------------------- */

typedef struct complex_number {
    long double re, im;
} complex_number;

static complex_number *roots_of(int64_t n)
{
    complex_number *w = malloc((size_t)n * sizeof *w);

    for (int64_t k = 0; k < n; k++) {
        long double angle = 2 * 3.14159265358979323846264338328L * (long double)k / (long double)n;
        w[k] = (complex_number){cosl(angle), -sinl(angle)};
    }
    return w;
}

/* Element j of a column, as its kind says: real, complex, or half of them. */
static complex_number element(const sherd__fft *t, const double *x, int64_t o, int64_t j, int64_t i)
{
    int64_t count = t->kind == SHERD__FFT_FROM_HALF ? half_of(t->n) : t->n;
    bool mirrored = j >= count;
    int64_t at = (o * count + (mirrored ? t->n - j : j)) * t->inner + i;

    if (t->kind == SHERD__FFT_TO_HALF)
        return (complex_number){x[at], 0};
    complex_number z = {x[2 * at], mirrored ? -x[2 * at + 1] : x[2 * at + 1]};
    if (t->kind == SHERD__FFT_FROM_HALF) {
        bool end = j == 0 || 2 * j == t->n;
        z.im = end ? 0 : z.im;
        long double f = !end && t->folded ? 0.5L : 1;
        z = (complex_number){f * z.re, f * z.im};
    }
    return z;
}

/* Element k of the result for column (o, i). */
static complex_number sum_of(const sherd__fft *t, const complex_number *w, const double *x,
                             int64_t o, int64_t k, int64_t i)
{
    bool back = t->kind == SHERD__FFT_FROM_HALF || (t->kind == SHERD__FFT_COMPLEX && t->inverse);
    complex_number sum = {0, 0};

    for (int64_t j = 0, at = 0; j < t->n; j++, at = (at + k) % t->n) {
        complex_number z = element(t, x, o, j, i), root = w[at];
        root.im = back ? -root.im : root.im;
        sum.re += z.re * root.re - z.im * root.im;
        sum.im += z.re * root.im + z.im * root.re;
    }
    long double f = t->scale;
    if (t->kind == SHERD__FFT_TO_HALF && t->folded && k > 0 && 2 * k != t->n)
        f *= 2;
    return (complex_number){f * sum.re, f * sum.im};
}

/* ---- every length ---------------------------------------------------------------------------- */

/* Every stride-th element of each column's result, as the sum gives it. */
typedef struct sums {
    int64_t stride, count; /* of a column */
    complex_number *z;
} sums;

static sums sums_of(const sherd__fft *t, const double *x, int64_t stride)
{
    int64_t all = t->kind == SHERD__FFT_TO_HALF ? half_of(t->n) : t->n;
    int64_t columns = t->outer * t->inner, at = 0;
    sums s = {.stride = stride, .count = (all + stride - 1) / stride};
    complex_number *w = roots_of(t->n);

    s.z = malloc((size_t)(columns * s.count) * sizeof *s.z);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t k = 0; k < all; k += stride)
            s.z[at++] = sum_of(t, w, x, c / t->inner, k, c % t->inner);
    free(w);
    return s;
}

/* In units of the rounding error and log2 n: the error, as part of the result, root mean square. */
static double error_of(const version *v, const sherd__fft *t, const double *x, const sums *s)
{
    int64_t out = reals(t, true), columns = t->outer * t->inner;
    int64_t all = t->kind == SHERD__FFT_TO_HALF ? half_of(t->n) : t->n;
    bool real = t->kind == SHERD__FFT_FROM_HALF;
    double *y = malloc((size_t)out * sizeof *y);
    long double wrong = 0, whole = 0;

    transform(v, t, y, x);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t e = 0; e < s->count; e++) {
            int64_t o = c / t->inner, i = c % t->inner;
            int64_t at = (o * all + e * s->stride) * t->inner + i;
            complex_number z = s->z[c * s->count + e];
            long double re = y[real ? at : 2 * at] - z.re, im = real ? 0 : y[2 * at + 1] - z.im;
            wrong += re * re + im * im;
            whole += z.re * z.re + (real ? 0 : z.im * z.im);
        }
    free(y);
    double eps = v->wide ? 0x1p-53 : 0x1p-24;
    return sqrt((double)(wrong / (whole > 0 ? whole : 1))) / (eps * (1 + log2((double)t->n)));
}

/* Roundings in a row behave as a random walk: passes are far below 1, a chirp takes about three
 * transforms. */
static const double tolerance = 1.5;

static void try_versions(const version *v, int count, const sherd__fft *t, const double *x,
                         int64_t stride)
{
    sums s = sums_of(t, x, stride);

    for (int i = 0; i < count; i++) {
        double error = error_of(&v[i], t, x, &s);
        if (!CHECK(error < tolerance))
            fprintf(stderr, "  %s n=%lld [%lld, %lld] kind %d %d: error %g\n", v[i].name,
                    (long long)t->n, (long long)t->outer, (long long)t->inner, (int)t->kind,
                    t->folded, error);
    }
    free(s.z);
}

/* The sums are long: all versions are compared with the same. */
static void try_kinds(const version *v, int count, int64_t n, int64_t outer, int64_t inner,
                      int64_t stride)
{
    static double x[MOST];
    sherd__fft t = {.outer = outer, .n = n, .inner = inner};

    for (int64_t i = 0; i < 2 * n * outer * inner; i++)
        x[i] = value(i);
    for (int kind = 0; kind < 3; kind++)
        for (int flag = 0; flag < 2; flag++) {
            t.kind = (sherd__fft_kind)kind;
            t.inverse = t.folded = flag;
            t.scale = flag ? 0.375 : 1;
            try_versions(v, count, &t, x, stride);
        }
}

static void short_lengths_are_the_sum(void)
{
    static const int64_t boxes[][2] = {{1, 1},  {3, 1},  {1, 3}, {2, 5},
                                       {1, 17}, {19, 1}, {2, 8}, {2, 2}};
    version v[VERSIONS];

    int count = versions(v);
    for (int64_t n = 1; n <= 131; n++) {
        const int64_t *box = boxes[n % LEN(boxes)];
        try_kinds(v, count, n, box[0], box[1], 1);
        if (n < 20)
            for (int b = 0; b < LEN(boxes); b++)
                try_kinds(v, count, n, boxes[b][0], boxes[b][1], 1);
    }
}

/* Products of large primes, powers, primes; what is done in two parts and what is not. */
static void long_lengths_are_the_sum(void)
{
    static const int64_t lengths[] = {243,  343,  512,  729,  961,  997,   1000,  1001, 1024,
                                      1994, 2048, 2053, 4096, 4100, 10007, 14641, 65536};
    version v[VERSIONS];

    int count = versions(v);
    for (int j = 0; j < LEN(lengths); j++) {
        try_kinds(v, count, lengths[j], 1, 1, lengths[j] / 37 + 1);
        if (lengths[j] < 4100)
            try_kinds(v, count, lengths[j], 1 + j % 3, 1 + j % 5, lengths[j] / 37 + 1);
    }
}

/* ---- what must hold -------------------------------------------------------------------------- */

static const int64_t some[] = {1, 2, 6, 37, 64, 105, 202, 720, 997, 2049, 6000};

static double squares(const double *x, int64_t n)
{
    long double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (long double)x[i] * x[i];
    return (double)sum;
}

static double eps_of(const version *v)
{
    return v->wide ? 1e-14 : 5e-6;
}

static void there_and_back_is_the_identity(void)
{
    static double x[MOST], y[MOST], z[MOST];
    version v[VERSIONS];

    for (int i = versions(v); i-- > 0;)
        for (int j = 0; j < LEN(some); j++)
            for (int real = 0; real < 2; real++) {
                int64_t n = some[j];
                sherd__fft t = {.kind = real ? SHERD__FFT_TO_HALF : SHERD__FFT_COMPLEX,
                                .outer = 2,
                                .n = n,
                                .inner = 3,
                                .scale = 1};
                for (int64_t e = 0; e < 12 * n; e++)
                    x[e] = value(e);
                transform(&v[i], &t, y, x);
                double grown = squares(y, 12 * n) / squares(x, 12 * n);
                if (!real && !CHECK(fabs(grown / (double)n - 1) < eps_of(&v[i])))
                    fprintf(stderr, "  %s n=%lld: %g\n", v[i].name, (long long)n, grown);
                t.kind = real ? SHERD__FFT_FROM_HALF : SHERD__FFT_COMPLEX;
                t.inverse = true;
                t.scale = 1 / (double)n;
                transform(&v[i], &t, z, y);
                double far = 0;
                for (int64_t e = 0; e < (real ? 6 : 12) * n; e++)
                    far = fmax(far, fabs(z[e] - x[e]));
                if (!CHECK(far < eps_of(&v[i])))
                    fprintf(stderr, "  %s n=%lld: %g\n", v[i].name, (long long)n, far);
            }
}

static void a_shift_is_a_factor(void)
{
    static double x[MOST], shifted[MOST], y[MOST], z[MOST];
    version v[VERSIONS];

    for (int i = versions(v); i-- > 0;)
        for (int j = 0; j < LEN(some); j++) {
            int64_t n = some[j];
            sherd__fft t = {.outer = 1, .n = n, .inner = 1, .scale = 1 / sqrt((double)n)};
            for (int64_t e = 0; e < n; e++) {
                x[2 * e] = shifted[2 * ((e + 1) % n)] = value(2 * e);
                x[2 * e + 1] = shifted[2 * ((e + 1) % n) + 1] = value(2 * e + 1);
            }
            transform(&v[i], &t, y, x);
            transform(&v[i], &t, z, shifted);
            for (int64_t k = 0; k < n; k++) {
                double w[2];
                sherd__fft_root(w, k, n);
                double re = y[2 * k] * w[0] - y[2 * k + 1] * w[1];
                double im = y[2 * k] * w[1] + y[2 * k + 1] * w[0];
                CHECK(hypot(z[2 * k] - re, z[2 * k + 1] - im) < 4 * eps_of(&v[i]));
            }
        }
}

/* The sum of y times the transform of x is that of x times the adjoint's of y. */
static void the_folded_way_back_is_the_adjoint(void)
{
    static double x[MOST], y[MOST], to[MOST], back[MOST];
    version v[VERSIONS];

    for (int i = versions(v); i-- > 0;)
        for (int j = 0; j < LEN(some); j++)
            for (int folded = 0; folded < 2; folded++) {
                int64_t n = some[j];
                sherd__fft t = {.kind = SHERD__FFT_TO_HALF,
                                .outer = 1,
                                .n = n,
                                .inner = 2,
                                .scale = 1 / sqrt((double)n),
                                .folded = folded};
                sherd__fft u = t;
                double left = 0, right = 0;
                u.kind = SHERD__FFT_FROM_HALF;
                u.folded = !folded;
                for (int64_t e = 0; e < 4 * half_of(n); e++) {
                    x[e] = value(e);
                    y[e] = value(e + 5 * n);
                }
                transform(&v[i], &t, to, x);
                transform(&v[i], &u, back, y);
                for (int64_t e = 0; e < reals(&t, true); e++)
                    left += to[e] * y[e];
                for (int64_t e = 0; e < reals(&t, false); e++)
                    right += x[e] * back[e];
                CHECK(fabs(left - right) < 20 * eps_of(&v[i]) * (1 + fabs(left)));
            }
}

/* Whatever lies beside a column, and wherever it lies, it has the same bits; a NaN stays in its
 * own. */
static void a_column_depends_on_itself_alone(void)
{
    static double x[MOST], y[MOST], one[MOST], alone[MOST];
    version v[VERSIONS];

    for (int i = versions(v); i-- > 0;)
        for (int j = 0; j < LEN(some); j++)
            for (int kind = 0; kind < 3; kind++) {
                enum { INNER = 21 };
                sherd__fft t = {.kind = (sherd__fft_kind)kind,
                                .outer = 1,
                                .n = some[j],
                                .inner = INNER,
                                .scale = 0.3};
                int64_t in = reals(&t, false) / INNER, out = reals(&t, true) / INNER;
                int64_t from = kind == SHERD__FFT_TO_HALF ? 1 : 2;
                int64_t to = kind == SHERD__FFT_FROM_HALF ? 1 : 2;
                for (int64_t e = 0; e < in * INNER; e++)
                    x[e] = e / from % INNER == 7 ? (double)NAN : value(e);
                transform(&v[i], &t, y, x);
                t.inner = 1;
                for (int c = 6; c < INNER; c += 1 + 2 * (c == 6)) {
                    int64_t wrong = 0;
                    for (int64_t e = 0; e < in; e++)
                        one[e] = x[(e / from * INNER + c) * from + e % from];
                    transform(&v[i], &t, alone, one);
                    for (int64_t e = 0; e < out; e++)
                        wrong += alone[e] != y[(e / to * INNER + c) * to + e % to];
                    CHECK_EQ(wrong, 0);
                }
            }
}

static void roots_are_rounded_at_most_twice(void)
{
    static const int64_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 12, 31, 1000, 65536, 99991};
    double root[2];

    for (int i = 0; i < LEN(lengths); i++) {
        complex_number *w = roots_of(lengths[i]);
        for (int64_t k = 0; k < lengths[i]; k++) {
            sherd__fft_root(root, k, lengths[i]);
            CHECK(fabsl(root[0] - w[k].re) < 2e-16L && fabsl(root[1] - w[k].im) < 2e-16L);
        }
        free(w);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

static void products_broadcast(void)
{
    static const int64_t size[] = {3, 4, 5}, whole[] = {40, 10, 2}, row[] = {0, 0, 2},
                         stretched[] = {8, 2, 0};
    const int64_t *const strides[] = {whole, row, stretched};
    double a[120], b[120], y[120];
    float a32[120], b32[120], y32[120];
    version v[VERSIONS];

    for (int i = 0; i < 120; i++) {
        a32[i] = (float)(a[i] = value(i));
        b32[i] = (float)(b[i] = value(i + 500));
    }
    for (int i = versions(v); i-- > 0;)
        for (int turn = 0; turn < 18; turn++) {
            const int64_t *as = strides[turn % 3], *bs = strides[turn / 3 % 3];
            bool conj = turn / 9;
            if (v[i].wide)
                v[i].k.complex_mul(conj, 3, size, y, a, as, b, bs);
            else
                v[i].k.complex_mul(conj, 3, size, y32, a32, as, b32, bs);
            for (int e = 0; e < 60; e++) {
                int64_t d[] = {e / 20, e / 5 % 4, e % 5};
                const double *p = a + d[0] * as[0] + d[1] * as[1] + d[2] * as[2];
                const double *q = b + d[0] * bs[0] + d[1] * bs[1] + d[2] * bs[2];
                double im = conj ? -q[1] : q[1], re = v[i].wide ? y[2 * e] : (double)y32[2 * e];
                double other = v[i].wide ? y[2 * e + 1] : (double)y32[2 * e + 1];
                CHECK(fabs(re - (p[0] * q[0] - p[1] * im)) < (v[i].wide ? 1e-15 : 3e-7));
                CHECK(fabs(other - (p[0] * im + p[1] * q[0])) < (v[i].wide ? 1e-15 : 3e-7));
            }
        }
}

static const check_test tests[] = {
    {TEST(short_lengths_are_the_sum)},          {TEST(long_lengths_are_the_sum)},
    {TEST(there_and_back_is_the_identity)},     {TEST(a_shift_is_a_factor)},
    {TEST(the_folded_way_back_is_the_adjoint)}, {TEST(a_column_depends_on_itself_alone)},
    {TEST(roots_are_rounded_at_most_twice)},    {TEST(products_broadcast)},
};
CHECK_MAIN(tests)
