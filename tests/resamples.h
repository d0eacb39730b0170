/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random pools and interpolations for tests, and by their formulas what each element of a result
 * reads of a dim, with which weight, and whose it is.
 */
#ifndef SHERD_TESTS_RESAMPLES_H
#define SHERD_TESTS_RESAMPLES_H

#include "missing.h"

#include <math.h>

#include "sherd/ops_stencil.h"

enum { MAXIMUM, AVERAGE, ADAPTIVE, LARGEST, INTERPOLATION, KINDS, MOST = 64 };

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int dims, kind;
    int64_t x[FIELD], made[FIELD], size[3];
    sherd_pool_options pool;
    sherd_interpolate_options to;
} scene;

/* ---- random cases ---------------------------------------------------------------------------- */

static inline void draw_pool(scene *s, int d)
{
    int64_t k = s->pool.kernel[d] = between(&s->dice, 1, s->dims < 3 ? 7 : 4), *n = &s->x[2 + d];
    bool dilated = s->kind == MAXIMUM && roll(&s->dice, 3) == 0;
    int64_t reach = (k - 1) * (s->pool.dilation[d] = dilated ? 2 : roll(&s->dice, 2)) + 1;

    reach = dilated ? reach : k;
    s->pool.stride[d] = between(&s->dice, 0, 5);
    s->pool.padding[d] = between(&s->dice, 0, (int)reach / 2);
    if (*n + 2 * s->pool.padding[d] < reach)
        *n = reach;
}

static inline void draw_size(scene *s, int d)
{
    int64_t n = s->x[2 + d], m = between(&s->dice, 1, 2 * (int)n + 3);

    s->size[d] = s->to.size[d] = m;
    if (s->kind == INTERPOLATION && roll(&s->dice, 2)) {
        s->to.size[d] = 0;
        s->to.factor[d] =
            roll(&s->dice, 2) ? (double)between(&s->dice, 1, 3) : (double)m / (double)n + 0.03;
    }
}

static inline void draw(scene *s)
{
    int largest[] = {24, 11, 6};

    s->dims = (int)between(&s->dice, 1, 3);
    s->kind = roll(&s->dice, KINDS);
    s->x[0] = between(&s->dice, 1, 3);
    s->x[1] = between(&s->dice, 1, 3);
    memset(&s->pool, 0, sizeof s->pool);
    memset(&s->to, 0, sizeof s->to);
    for (int d = 0; d < s->dims; d++) {
        s->x[2 + d] = between(&s->dice, 1, largest[s->dims - 1]);
        draw_pool(s, d);
        draw_size(s, d);
    }
    s->pool.ceil = roll(&s->dice, 2);
    if (s->kind == AVERAGE) {
        s->pool.without_padding = roll(&s->dice, 2);
        s->pool.divisor = roll(&s->dice, 3) ? 0 : between(&s->dice, 1, 9);
    }
    s->to.kind = (sherd_interpolation)roll(&s->dice, SHERD_INTERPOLATIONS);
    s->to.align_corners =
        (s->to.kind == SHERD_INTERPOLATE_LINEAR || s->to.kind == SHERD_INTERPOLATE_CUBIC) &&
        roll(&s->dice, 2);
}

static inline bool is_maximum(const scene *s)
{
    return s->kind == MAXIMUM || s->kind == LARGEST;
}

/* Of a given number of parts. */
static inline bool is_of_parts(const scene *s)
{
    return s->kind == ADAPTIVE || s->kind == LARGEST ||
           (s->kind == INTERPOLATION && s->to.kind == SHERD_INTERPOLATE_AREA);
}

static inline sherd_tensor *apply(const scene *s, sherd_tensor *x, sherd_tensor **indices)
{
    *indices = NULL;
    switch (s->kind) {
    case MAXIMUM:
        return sherd_max_pool(x, &s->pool, indices);
    case AVERAGE:
        return sherd_avg_pool(x, &s->pool);
    case ADAPTIVE:
        return sherd_adaptive_avg_pool(x, s->size);
    case LARGEST:
        return sherd_adaptive_max_pool(x, s->size, indices);
    default:
        return sherd_interpolate(x, &s->to);
    }
}

/* ---- the formula ----------------------------------------------------------------------------- */

/* What one output reads of one dim. */
typedef struct reading {
    int count;
    int64_t at[MOST];
    double weight[MOST];
} reading;

static inline void add(reading *r, int64_t at, double weight)
{
    r->at[r->count] = at;
    r->weight[r->count++] = weight;
}

static inline void read_pool(const scene *s, int d, int64_t o, reading *r)
{
    int64_t stride = s->pool.stride[d] ? s->pool.stride[d] : s->pool.kernel[d], n = s->x[2 + d];
    int64_t dilation = s->pool.dilation[d] ? s->pool.dilation[d] : 1, padded = 0;

    for (int64_t k = 0; k < s->pool.kernel[d]; k++) {
        int64_t at = o * stride - s->pool.padding[d] + k * dilation;
        padded += at < n + s->pool.padding[d];
        if (at >= 0 && at < n)
            add(r, at, 1);
    }
    double divisor = s->pool.without_padding ? r->count : (double)padded;
    if (s->pool.divisor)
        divisor = d ? 1 : (double)s->pool.divisor;
    for (int k = 0; k < r->count; k++)
        r->weight[k] = 1 / divisor;
}

static inline void read_part(int64_t n, int64_t m, int64_t o, reading *r)
{
    int64_t first = o * n / m, end = ((o + 1) * n + m - 1) / m;

    for (int64_t at = first; at < end; at++)
        add(r, at, 1 / (double)(end - first));
}

static inline double cubic(double x)
{
    x = fabs(x);
    return x <= 1 ? 1.25 * x * x * x - 2.25 * x * x + 1
                  : -0.75 * x * x * x + 3.75 * x * x - 6 * x + 3;
}

static inline double scale_of(const scene *s, int d, int64_t m)
{
    int64_t n = s->x[2 + d];

    return s->to.factor[d] > 0 ? 1 / s->to.factor[d] : (double)n / (double)m;
}

/* Where element o lies in the input. */
static inline double place(const scene *s, int d, int64_t m, int64_t o)
{
    int64_t n = s->x[2 + d];

    if (s->to.align_corners)
        return m > 1 ? (double)o * ((double)(n - 1) / (double)(m - 1)) : 0;
    if (s->to.kind == SHERD_INTERPOLATE_LINEAR && n == m)
        return (double)o;
    return fma(scale_of(s, d, m), (double)o + 0.5, -0.5);
}

static inline void read_point(const scene *s, int d, int64_t m, int64_t o, reading *r)
{
    int64_t n = s->x[2 + d];
    double at = place(s, d, m, o);

    if (s->to.kind == SHERD_INTERPOLATE_NEAREST || s->to.kind == SHERD_INTERPOLATE_NEAREST_EXACT) {
        at = s->to.kind == SHERD_INTERPOLATE_NEAREST ? (double)o * scale_of(s, d, m) : at + 0.5;
        at = floor((double)(float)at);
        add(r, at < (double)n ? (int64_t)at : n - 1, 1);
    } else if (s->to.kind == SHERD_INTERPOLATE_LINEAR) {
        at = n == m ? (double)o : fmin(fmax(at, 0), (double)(n - 1));
        int64_t i = (int64_t)floor(at);
        add(r, i, (double)i + 1 - at);
        if (i + 1 < n && n != m) /* an equal size is a copy */
            add(r, i + 1, at - (double)i);
    } else {
        double low = fmin(floor(at), (double)(n - 1)), behind = fmin(at - low, 1);
        for (int k = -1; k < 3; k++) {
            double i = fmin(fmax(low + k, 0), (double)(n - 1));
            add(r, (int64_t)i, cubic(behind - k));
        }
    }
}

static inline void read_dim(const scene *s, int d, int64_t m, int64_t o, reading *r)
{
    r->count = 0;
    if (s->kind == MAXIMUM || s->kind == AVERAGE)
        read_pool(s, d, o, r);
    else if (is_of_parts(s))
        read_part(s->x[2 + d], m, o, r);
    else
        read_point(s, d, m, o, r);
}

/* The element of dim d of the input whose owner makes element o: in the middle of what is read, or
 * nearest to it. */
static inline int64_t middle(const scene *s, int d, int64_t m, int64_t o)
{
    int64_t n = s->x[2 + d], at;
    reading r;

    read_dim(s, d, m, o, &r);
    if (s->kind == MAXIMUM || s->kind == AVERAGE) {
        int64_t stride = s->pool.stride[d] ? s->pool.stride[d] : s->pool.kernel[d];
        int64_t dilation = s->pool.dilation[d] ? s->pool.dilation[d] : 1;
        at = o * stride - s->pool.padding[d] + dilation * (s->pool.kernel[d] - 1) / 2;
    } else if (is_of_parts(s)) {
        at = (r.at[0] + r.at[r.count - 1]) / 2;
    } else if (s->to.kind < SHERD_INTERPOLATE_LINEAR) {
        at = r.at[0];
    } else {
        at = (int64_t)ceil(place(s, d, m, o) - 0.5);
    }
    return at < 0 ? 0 : at < n ? at : n - 1;
}

#endif
