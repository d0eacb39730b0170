/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of layers.h: one body for all dtypes, where LOAD and STORE convert an element to and from double. */
#include "layers.h"

#include <math.h>
#include <string.h>

#include "half.h"
#include "ref.h"

/* factor[n] of one row of probabilities: 1 / (1 - p) or 0, as dropout in kernels.h. */
static void keep_some(const sherd__attending *s, double *factor, int64_t first)
{
    uint32_t threshold = sherd__keep_threshold(s->p), block[4];

    for (int64_t j = 0; j < s->keys; j++) {
        if (j == 0 || (first + j) % 4 == 0)
            sherd__philox(block, s->key, (uint64_t)(first + j) / 4);
        factor[j] = block[(first + j) % 4] >> 8 >= threshold ? 1 / (1 - s->p) : 0;
    }
}

/* Where a query is: in q and out, in log_sum, in the mask, and in the whole tensor of scores. */
typedef struct query {
    int64_t at, row, mask, scores;
    int64_t ahead; /* the last key that a causal one sees, counted from the first one here */
} query;

static query query_of(const sherd__attending *s, int64_t b, int64_t g, int64_t r, int64_t i)
{
    const int64_t *stride = s->mask_stride;
    int64_t head = (s->first[1] + g) * s->all_repeat + s->first[2] + r;

    return (query){.at = (((b * s->queries + i) * s->groups + g) * s->repeat + r) * s->width,
                   .row = ((b * s->groups + g) * s->repeat + r) * s->queries + i,
                   .mask = b * stride[0] + g * stride[1] + r * stride[2] + i * stride[3] +
                           s->first_key * stride[4],
                   .scores = (((s->first[0] + b) * s->all_heads + head) * s->all_queries +
                              s->first_query + i) *
                                 s->all_keys +
                             s->first_key,
                   .ahead = s->first_query - s->first_key + i};
}

#define NAME(x)  x##_f32
#define ELEMENT  float
#define STAT     float
#define LOAD(x)  (double)(x)
#define STORE(x) (float)(x)
#include "layers_body.inc"

#define NAME(x)  x##_f64
#define ELEMENT  double
#define STAT     double
#define LOAD(x)  (x)
#define STORE(x) (x)
#include "layers_body.inc"

#define NAME(x)  x##_bf16
#define ELEMENT  uint16_t
#define STAT     float
#define LOAD(x)  (double)sherd__from_bf16(x)
#define STORE(x) sherd__double_to_bf16(x)
#include "layers_body.inc"

#define NAME(x)  x##_f16
#define ELEMENT  uint16_t
#define STAT     float
#define LOAD(x)  (double)sherd__from_f16(x)
#define STORE(x) sherd__double_to_f16(x)
#include "layers_body.inc"

void sherd__turns(double *turn, int64_t n, int64_t rotated, const int32_t *position, int64_t first,
                  double base, bool inverse)
{
    int64_t pairs = rotated / 2;

    for (int64_t j = 0; j < pairs; j++) {
        double slowness = pow(base, -2.0 * (double)j / (double)rotated);
        for (int64_t i = 0; i < n; i++) {
            double angle = (double)(position ? position[i] : first + i) * slowness;
            turn[2 * (i * pairs + j)] = cos(angle);
            turn[2 * (i * pairs + j) + 1] = inverse ? -sin(angle) : sin(angle);
        }
    }
}

const sherd__layer_kernels *sherd__layer_kernels_of(sherd_dtype dtype)
{
    switch (dtype) {
    case SHERD_F32:
        return &kernels_f32;
    case SHERD_F64:
        return &kernels_f64;
    case SHERD_BF16:
        return &kernels_bf16;
    case SHERD_F16:
        return &kernels_f16;
    default:
        return NULL;
    }
}
