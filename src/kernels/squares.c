/* SPDX-License-Identifier: Apache-2.0 */
/* Sums in f64, of squares too, and gradients: see squares.h. Bound by memory. */
#include "squares.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "cast.h"

/* Numbers that are widened at a time; from how many rows on narrow ones become one; the longest
 * rows that are widened together. */
enum { BLOCK = 512, FEW_ROWS = 8, SHORT = 8 };

/* x[n] as f32: x itself, or widened into `room`. */
static const float *as_f32(const sherd__kernels *k, sherd_dtype dtype, int64_t n, float *room,
                           const void *x)
{
    if (dtype == SHERD_F32)
        return x;
    k->widen(n, room, x);
    return room;
}

/* sum[n] += squares of x[n] */
static void add_squares(const sherd__kernels *k, sherd_dtype dtype, int64_t n, double *sum,
                        const void *x)
{
    float room[BLOCK];

    if (dtype == SHERD_F64) {
        for (int64_t i = 0; i < n; i++)
            sum[i] += ((const double *)x)[i] * ((const double *)x)[i];
        return;
    }
    const float *f = as_f32(k, dtype, n, room, x);
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)f[i] * (double)f[i];
}

/* sum[inner] += squares of x[mid,inner], of few columns: rows one behind the other are one. */
static void add_narrow(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                       double *sum, const char *x)
{
    double part[BLOCK] = {0};
    int64_t rows = BLOCK / s->inner, row = s->inner * (int64_t)sherd_dtype_bytes(dtype);

    for (int64_t m = 0; m < s->mid; m += rows)
        add_squares(k, dtype, sherd__min(rows, s->mid - m) * s->inner, part, x + m * row);
    for (int64_t i = 0; i < rows * s->inner; i++)
        sum[i % s->inner] += part[i];
}

/* sum[outer] of squares of x[outer,mid], rows for which a call each would take too long. */
static void add_short(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                      double *sum, const char *x)
{
    float room[BLOCK];
    int64_t rows = BLOCK / s->mid, row = s->mid * (int64_t)sherd_dtype_bytes(dtype);

    for (int64_t o = 0; o < s->outer; o += rows) {
        int64_t n = sherd__min(rows, s->outer - o);
        const float *f = as_f32(k, dtype, n * s->mid, room, x + o * row);
        for (int64_t r = 0; r < n; r++)
            for (int64_t m = 0; m < s->mid; m++)
                sum[o + r] += (double)f[r * s->mid + m] * (double)f[r * s->mid + m];
    }
}

void sherd__sum_squares_of(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                           double *sum, const void *x)
{
    size_t bytes = sherd_dtype_bytes(dtype), row = (size_t)s->inner * bytes;
    const char *from = x;

    memset(sum, 0, (size_t)(s->outer * s->inner) * sizeof *sum);
    if (s->inner == 1 && s->mid > 0 && s->mid <= SHORT && dtype != SHERD_F64) {
        add_short(k, dtype, s, sum, x);
        return;
    }
    for (int64_t o = 0; o < s->outer; o++, from += (size_t)s->mid * row, sum += s->inner) {
        if (s->inner == 1) {
            *sum = k->sum_squares(from, s->mid);
            continue;
        }
        if (s->inner <= BLOCK / FEW_ROWS && s->mid >= FEW_ROWS) {
            add_narrow(k, dtype, s, sum, from);
            continue;
        }
        for (int64_t i = 0; i < s->inner; i += BLOCK)
            for (int64_t m = 0; m < s->mid; m++)
                add_squares(k, dtype, sherd__min(BLOCK, s->inner - i), sum + i,
                            from + (size_t)m * row + (size_t)i * bytes);
    }
}

/* ---- about a mean ---------------------------------------------------------------------------- */

enum { LANES = 8 };

/* x[n], n <= BLOCK, in f64. */
static const double *as_f64(const sherd__kernels *k, sherd_dtype dtype, int64_t n, double *room,
                            const void *x)
{
    float wide[BLOCK];

    if (dtype == SHERD_F64)
        return x;
    const float *f = as_f32(k, dtype, n, wide, x);
    for (int64_t i = 0; i < n; i++)
        room[i] = (double)f[i];
    return room;
}

/* part[LANES] += x[n], or the squares of their differences from the mean. */
static void add_line(int64_t n, double *restrict part, const double *mean, const double *x)
{
    double less = mean ? *mean : 0;
    int64_t i = 0;

    for (; i + LANES <= n && !mean; i += LANES)
        for (int j = 0; j < LANES; j++)
            part[j] += x[i + j];
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            part[j] += (x[i + j] - less) * (x[i + j] - less);
    for (; i < n; i++)
        part[i % LANES] += mean ? (x[i] - less) * (x[i] - less) : x[i];
}

/* The same of sum[n], each with its own numbers and mean. */
static void add_lines(int64_t n, double *restrict sum, const double *mean, const double *x)
{
    for (int64_t i = 0; i < n && !mean; i++)
        sum[i] += x[i];
    for (int64_t i = 0; i < n && mean; i++)
        sum[i] += (x[i] - mean[i]) * (x[i] - mean[i]);
}

static void add_f32_lines(int64_t n, double *restrict sum, const double *mean, const float *x)
{
    for (int64_t i = 0; i < n && !mean; i++)
        sum[i] += (double)x[i];
    for (int64_t i = 0; i < n && mean; i++)
        sum[i] += ((double)x[i] - mean[i]) * ((double)x[i] - mean[i]);
}

/* Of a row. */
static double sum_about(const sherd__kernels *k, sherd_dtype dtype, int64_t n, const double *mean,
                        const char *x)
{
    double part[LANES] = {0}, room[BLOCK], sum = 0;

    for (int64_t i = 0; i < n; i += BLOCK) {
        int64_t some = sherd__min(BLOCK, n - i);
        add_line(some, part, mean,
                 as_f64(k, dtype, some, room, x + (size_t)i * sherd_dtype_bytes(dtype)));
    }
    for (int j = 0; j < LANES; j++)
        sum += part[j];
    return sum;
}

void sherd__sums_about(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                       double *sum, const double *mean, const void *x)
{
    size_t bytes = sherd_dtype_bytes(dtype), row = (size_t)s->inner * bytes;
    const char *from = x;
    float room[BLOCK];

    memset(sum, 0, (size_t)(s->outer * s->inner) * sizeof *sum);
    for (int64_t o = 0; o < s->outer; o++, from += (size_t)s->mid * row) {
        for (int64_t m = 0; m < s->mid && s->inner > 1; m++)
            for (int64_t i = 0; i < s->inner; i += BLOCK) {
                int64_t some = sherd__min(BLOCK, s->inner - i), at = o * s->inner + i;
                const void *line = from + (size_t)m * row + (size_t)i * bytes;
                if (dtype == SHERD_F64)
                    add_lines(some, sum + at, mean ? mean + at : NULL, line);
                else
                    add_f32_lines(some, sum + at, mean ? mean + at : NULL,
                                  as_f32(k, dtype, some, room, line));
            }
        if (s->inner == 1)
            sum[o] = sum_about(k, dtype, s->mid, mean ? mean + o : NULL, from);
    }
}

/* by (x - mean) of n numbers, which have the first mean and factor, or each its own. */
static void slope_line(int64_t n, bool each, float *restrict dx, const double *by,
                       const double *mean, const float *x)
{
    double b = *by, m = *mean;

    for (int64_t i = 0; i < n && !each; i++)
        dx[i] = (float)(((double)x[i] - m) * b);
    for (int64_t i = 0; i < n && each; i++)
        dx[i] = (float)(((double)x[i] - mean[i]) * by[i]);
}

void sherd__spread_slope(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                         void *dx, const double *by, const double *mean, const void *x)
{
    size_t bytes = sherd_dtype_bytes(dtype);
    int64_t all = s->outer * s->mid * s->inner, step = s->inner == 1 ? 0 : 1;
    int64_t row = s->inner == 1 ? s->mid : s->inner;
    double room[BLOCK], out[BLOCK];

    /* Rows of numbers that have the same mean, or each its own. */
    for (int64_t r = 0; r < (row ? all / row : 0); r++) {
        int64_t at = s->inner == 1 ? r : r / s->mid * s->inner;
        for (int64_t i = 0; i < row; i += BLOCK) {
            int64_t some = sherd__min(BLOCK, row - i);
            size_t to = (size_t)(r * row + i) * bytes;
            const double *b = by + at + step * i, *m = mean + at + step * i;
            if (dtype == SHERD_F32) {
                slope_line(some, step > 0, (float *)dx + r * row + i, b, m,
                           (const float *)x + r * row + i);
                continue;
            }
            const double *from = as_f64(k, dtype, some, room, (const char *)x + to);
            for (int64_t j = 0; j < some; j++)
                out[j] = (from[j] - m[step * j]) * b[step * j];
            sherd__cast(dtype, SHERD_F64, some, (char *)dx + to, out);
        }
    }
}

/* ---- the gradient ---------------------------------------------------------------------------- */

/*
 * dx of one number, in f64. If the length is less than 1, x is divided, since dy / length may
 * overflow.
 */
static double slope(double dy, double length, double x)
{
    return length == 0 ? 0 : fabs(length) < 1 ? x / length * dy : dy / length * x;
}

/*
 * dx of n numbers one by one, for factors that f32 does not hold. step 0: all have the first dy and
 * length.
 */
static void slopes(sherd_dtype dtype, int64_t n, void *dx, const double *dy, const double *length,
                   int step, const void *x)
{
    size_t bytes = sherd_dtype_bytes(dtype);

    for (int64_t i = 0; i < n && dtype == SHERD_F64; i++)
        ((double *)dx)[i] = slope(dy[i * step], length[i * step], ((const double *)x)[i]);
    for (int64_t i = 0; i < n && dtype != SHERD_F64; i++) {
        double value;
        sherd__cast(SHERD_F64, dtype, 1, &value, (const char *)x + (size_t)i * bytes);
        value = slope(dy[i * step], length[i * step], value);
        sherd__cast(dtype, SHERD_F64, 1, (char *)dx + (size_t)i * bytes, &value);
    }
}

/* Whether a factor is 0, or well within the range of f32. */
static bool fits_f32(double factor)
{
    return factor == 0 || (fabs(factor) > (double)FLT_MIN && fabs(factor) < (double)FLT_MAX);
}

/* dx of a row whose numbers all have the same length. */
static void scale_row(const sherd__kernels *k, sherd_dtype dtype, int64_t n, void *dx, double dy,
                      double length, const void *x)
{
    double factor = length == 0 ? 0 : dy / length;

    if (length == 0)
        memset(dx, 0, (size_t)n * sherd_dtype_bytes(dtype));
    else if (dtype == SHERD_F64 || fits_f32(factor))
        k->unary(SHERD__SCALE, n, dx, x, &factor);
    else
        slopes(dtype, n, dx, &dy, &length, 0, x);
}

/*
 * dx of a row of at most BLOCK numbers, each with its own length. factor NULL: f32 does not hold
 * all of them.
 */
static void multiply_row(const sherd__kernels *k, sherd_dtype dtype, int64_t n, void *dx,
                         const double *dy, const double *length, const float *factor, const void *x)
{
    float room[BLOCK], out[BLOCK];

    if (dtype == SHERD_F64 || !factor) {
        slopes(dtype, n, dx, dy, length, 1, x);
        return;
    }
    const float *f = as_f32(k, dtype, n, room, x);
    float *to = dtype == SHERD_F32 ? dx : out;
    for (int64_t i = 0; i < n; i++)
        to[i] = f[i] * factor[i];
    if (to == out)
        k->narrow(n, dx, out);
}

/* Columns: mid rows of at most BLOCK numbers, `row` bytes apart. */
static void multiply_rows(const sherd__kernels *k, sherd_dtype dtype, int64_t n, int64_t mid,
                          size_t row, char *dx, const double *dy, const double *length,
                          const char *x)
{
    float factor[BLOCK];
    bool good = true;

    for (int64_t i = 0; i < n; i++) {
        double by = length[i] == 0 ? 0 : dy[i] / length[i];
        factor[i] = (float)by;
        good &= length[i] > 0 && fits_f32(by); /* 0 times an infinite number is not 0 */
    }
    for (int64_t m = 0; m < mid; m++, dx += row, x += row)
        multiply_row(k, dtype, n, dx, dy, length, good ? factor : NULL, x);
}

void sherd__length_slope(const sherd__kernels *k, sherd_dtype dtype, const sherd__squares *s,
                         void *dx, const void *dy, const double *length, const void *x)
{
    size_t bytes = sherd_dtype_bytes(dtype), row = (size_t)s->inner * bytes;
    int64_t rows = s->outer * s->inner;
    double some[BLOCK];

    for (int64_t at = 0; at < rows;) {
        int64_t o = at / s->inner, i = at % s->inner;
        int64_t n = sherd__min(BLOCK, s->inner == 1 ? rows - at : s->inner - i);
        size_t first = (size_t)(o * s->mid) * row + (size_t)i * bytes;
        sherd__cast(SHERD_F64, dtype, n, some, (const char *)dy + (size_t)at * bytes);
        for (int64_t r = 0; r < n && s->inner == 1; r++)
            scale_row(k, dtype, s->mid, (char *)dx + first + (size_t)(r * s->mid) * bytes, some[r],
                      length[at + r], (const char *)x + first + (size_t)(r * s->mid) * bytes);
        if (s->inner > 1)
            multiply_rows(k, dtype, n, s->mid, row, (char *)dx + first, some, length + at,
                          (const char *)x + first);
        at += n;
    }
}
