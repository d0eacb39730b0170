/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plain convolutions: for each product of an element of the kernel with a plane of the input, rows that run along
 * the innermost dim. They are right for every geometry and run at some GFLOP/s; f32 that oneDNN can do goes there.
 */
#include "conv.h"

#include <string.h>

#include "base/num.h"

typedef enum sherd__conv_way { FORWARD, BACKWARD_X, BACKWARD_W } sherd__conv_way;

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

#define REAL    float
#define NAME(x) f32_##x
#define TABLE   sherd__conv_f32
#include "conv_body.inc"

#define REAL    double
#define NAME(x) f64_##x
#define TABLE   sherd__conv_f64
#include "conv_body.inc"

#ifdef SHERD_HAVE_DNNL

static void fast_forward(const sherd__conv *c, void *y, const void *x, const void *w)
{
    if (!sherd__conv_onednn(SHERD__CONV_FORWARD, c, (void *)(uintptr_t)x, (void *)(uintptr_t)w, y))
        f32_forward(c, y, x, w);
}

static void fast_backward_x(const sherd__conv *c, void *dx, const void *dy, const void *w)
{
    if (!sherd__conv_onednn(SHERD__CONV_BACKWARD_X, c, dx, (void *)(uintptr_t)w,
                            (void *)(uintptr_t)dy))
        f32_backward_x(c, dx, dy, w);
}

static void fast_backward_w(const sherd__conv *c, void *dw, const void *x, const void *dy)
{
    if (!sherd__conv_onednn(SHERD__CONV_BACKWARD_W, c, (void *)(uintptr_t)x, dw,
                            (void *)(uintptr_t)dy))
        f32_backward_w(c, dw, x, dy);
}

#endif

const sherd__conv_kernels *sherd__conv_of(const sherd__kernels *kernels, sherd_dtype dtype)
{
#ifdef SHERD_HAVE_DNNL
    static const sherd__conv_kernels fast = {fast_forward, fast_backward_x, fast_backward_w};

    if (dtype == SHERD_F32 && strcmp(kernels->gemm_name, "onednn") == 0)
        return &fast;
#else
    (void)kernels;
#endif
    return dtype == SHERD_F64 ? &sherd__conv_f64 : &sherd__conv_f32;
}
