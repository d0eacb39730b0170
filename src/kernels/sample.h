/* SPDX-License-Identifier: Apache-2.0 */
/* Fields at points (sherd_grid_sample), and gradients by both. */
#ifndef SHERD__KERNELS_SAMPLE_H
#define SHERD__KERNELS_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "sherd/dtype.h"

/* x[batch, channels, size...], grid[batch, points, dims], y[batch, channels, points]; see the
 * options of sherd_grid_sample. At most three dims. */
typedef struct sherd__sampling {
    int64_t batch, channels, points, size[3];
    int dims;
    bool nearest, border, align_corners;
} sherd__sampling;

/* Of f32 and f64. */
typedef struct sherd__sampler {
    /* Each sum in its dtype, corner by corner, the first dim fastest. */
    void (*sample)(sherd_dtype dtype, const sherd__sampling *s, void *y, const void *x,
                   const void *grid);
    /* Sums are f64. sums[channels, size...] is scratch. */
    void (*grad)(sherd_dtype dtype, const sherd__sampling *s, void *dx, const void *dy,
                 const void *grid, double *sums);
    void (*slopes)(sherd_dtype dtype, const sherd__sampling *s, void *dgrid, const void *dy,
                   const void *x, const void *grid);
} sherd__sampler;

/* One body, compiled for several instruction sets; sherd__sampler_by (vector/bodies.h) chooses. */
extern const sherd__sampler sherd__sampler_plain;

#endif
