/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields at points: see sample.h. For some points at a time the elements around them and their
 * weights are found, once for all channels.
 */
#include "sample.h"

#include <string.h>
#include <tgmath.h>

enum { SPACE = 3, CORNERS = 1 << SPACE, SOME = 128 };

static int64_t field_elements(const sherd__sampling *s)
{
    int64_t n = 1;

    for (int d = 0; d < s->dims; d++)
        n *= s->size[d];
    return n;
}

static int corners_of(const sherd__sampling *s)
{
    return s->nearest ? 1 : 1 << s->dims;
}

#define REAL    float
#define NAME(x) x##_f32
#include "sample_body.inc"

#define REAL    double
#define NAME(x) x##_f64
#include "sample_body.inc"

void sherd__sample(sherd_dtype dtype, const sherd__sampling *s, void *y, const void *x,
                   const void *grid)
{
    if (dtype == SHERD_F32)
        sample_f32(s, y, x, grid);
    else
        sample_f64(s, y, x, grid);
}

void sherd__sample_grad(sherd_dtype dtype, const sherd__sampling *s, void *dx, const void *dy,
                        const void *grid, double *sums)
{
    if (dtype == SHERD_F32)
        grad_f32(s, dx, dy, grid, sums);
    else
        grad_f64(s, dx, dy, grid, sums);
}

void sherd__sample_slopes(sherd_dtype dtype, const sherd__sampling *s, void *dgrid, const void *dy,
                          const void *x, const void *grid)
{
    if (dtype == SHERD_F32)
        slopes_f32(s, dgrid, dy, x, grid);
    else
        slopes_f64(s, dgrid, dy, x, grid);
}
