/* SPDX-License-Identifier: Apache-2.0 */
/* Plain maxima over windows: a walk through each window, in row-major order; those of a line
 * together, so that the compiler has a loop to vectorise. */
#include "pool.h"

#include <math.h>
#include <string.h>

#include "base/num.h"

/* Outputs of a line that are looked for together; lines shorter than this go one by one. */
enum { RUN = 128, SHORTEST = 4 };

typedef struct span {
    int64_t first, end, step; /* indices of x */
} span;

/* What output o looks at, without what lies outside. */
static span window_of(const sherd__pool *p, int d, int64_t o)
{
    if (p->parts[d]) {
        int64_t at = (o + p->first_part[d]) * p->whole[d];
        return (span){at / p->parts[d] - p->offset[d],
                      sherd__ceil_div(at + p->whole[d], p->parts[d]) - p->offset[d], 1};
    }
    int64_t first = o * p->stride[d] - p->before[d], step = p->dilation[d];
    int64_t end = sherd__min(first + (p->kernel[d] - 1) * step + 1, p->in[d]);

    if (first < 0)
        first += (-first + step - 1) / step * step;
    return (span){first, end, step};
}

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* Where element (i, j, k) of x is in the whole. */
static int64_t position_of(const sherd__pool *p, int64_t i, int64_t j, int64_t k)
{
    return ((i + p->offset[0]) * p->whole[1] + j + p->offset[1]) * p->whole[2] + k + p->offset[2];
}

static bool is_whole(const sherd__pool *p)
{
    bool whole = true;

    for (int d = 0; d < SHERD__POOL_DIMS; d++)
        whole = whole && p->in[d] == p->whole[d];
    return whole;
}

#define REAL    float
#define NAME(x) f32_##x
#define TABLE   f32_pool
#include "pool_body.inc"

#define REAL    double
#define NAME(x) f64_##x
#define TABLE   f64_pool
#include "pool_body.inc"

const sherd__pool_kernels *sherd__pool_kernels_of(sherd_dtype dtype)
{
    return dtype == SHERD_F64 ? &f64_pool : &f32_pool;
}
