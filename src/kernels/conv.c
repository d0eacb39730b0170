/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain convolutions: for each product of an element of the kernel with a plane of the input, rows
 * that run along the innermost dim. They are right for every geometry and run at some GFLOP/s; what
 * oneDNN can do goes there.
 */
#include "conv.h"

#include <string.h>

#include "base/num.h"

typedef enum sherd__conv_way { FORWARD, BACKWARD_X, BACKWARD_W } sherd__conv_way;

enum { LANES = 8, PART = 1024 /* terms that are added up in the element type */ };

typedef struct span {
    int64_t first, end;
} span;

static int64_t product(const int64_t *size)
{
    return size[0] * size[1] * size[2];
}

/* Index of x that element k of the kernel reads for output e. */
static int64_t source(const sherd__conv *c, int d, int64_t e, int64_t k)
{
    return e * c->stride[d] - c->before[d] + k * c->dilation[d];
}

/* Outputs for which that lies in x. */
static span meeting(const sherd__conv *c, int d, int64_t k)
{
    int64_t at = c->before[d] - k * c->dilation[d];
    int64_t first = -sherd__floor_div(-at, c->stride[d]);
    int64_t end = sherd__floor_div(c->in[d] - 1 + at, c->stride[d]) + 1;

    return (span){sherd__max(first, 0), sherd__min(end, c->out[d])};
}

/* The indices of element t in the kernel. */
static const int64_t *tap(const sherd__conv *c, int64_t t, int64_t k[SHERD__CONV_DIMS])
{
    k[0] = t / (c->kernel[1] * c->kernel[2]);
    k[1] = t / c->kernel[2] % c->kernel[1];
    k[2] = t % c->kernel[2];
    return k;
}

#define REAL    float
#define NAME(x) f32_##x
#define TABLE   sherd__conv_f32
#include "conv_body.inc"

#define REAL    double
#define NAME(x) f64_##x
#define TABLE   sherd__conv_f64
#include "conv_body.inc"

void sherd__conv_plain(const sherd__conv *c, sherd_dtype dtype, const sherd__conv_task *task)
{
    const sherd__conv_kernels *k = dtype == SHERD_F64 ? &sherd__conv_f64 : &sherd__conv_f32;
    void *x = task->array[SHERD__CONV_X], *w = task->array[SHERD__CONV_W];
    void *y = task->array[SHERD__CONV_Y];

    if (task->kind == SHERD__CONV_BACKWARD_X)
        k->backward_x(c, x, y, w);
    else if (task->kind == SHERD__CONV_BACKWARD_W)
        k->backward_w(c, w, x, y);
    else
        k->forward(c, y, x, w);
}
