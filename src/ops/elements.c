/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What elementwise operators do on a rank's pieces, by the CPU's kernels or, where the call runs
 * there, the GPU's.
 */
#include "shared.h"

#include <string.h>

#include "base/num.h"
#include "device/whole.h"
#include "kernels/cast.h"

void sherd__broadcast_strides(const sherd_call *call, int i, int64_t *stride)
{
    const sherd_tensor *t = call->in[i], *out = call->out[0];
    int skipped = out->ndim - t->ndim;

    for (int d = 0; d < out->ndim; d++) {
        int at = d - skipped;
        stride[d] = at < 0 || t->shape[at] != out->shape[d] ? 0 : t->stride[at];
    }
}

void sherd__unary_in(const sherd_call *call, sherd__unary_kind kind, const void *from,
                     const double *parameter)
{
    const sherd_tensor *out = call->out[0];
    sherd__device *device = sherd__device_in(call);

    if (device && !sherd__device_computes(out->dtype))
        sherd__device_whole_unary(device, out->dtype, kind, out->count, call->to[0], from,
                                  parameter);
    else if (device)
        sherd__device_unary(device, out->dtype, kind, out->count, call->to[0], from, parameter);
    else
        sherd__kernels_in(call)->unary(kind, out->count, call->to[0], from, parameter);
}

/* The dim along which elements lie closest together. */
static int densest_dim(const sherd_tensor *a)
{
    int densest = a->ndim - 1;

    for (int d = 0; d < a->ndim; d++)
        if (a->local[d] > 1 && a->stride[d] < a->stride[densest])
            densest = d;
    return densest;
}

/*
 * Some indices of a dim at a time, for each index of the dims before it: so many elements as stay
 * in a cache until they are computed with, but of the densest dim at least a cache line.
 */
typedef struct blocks {
    int dim;
    int64_t outer, some, inner;
} blocks;

static blocks blocks_of(const sherd_tensor *a, size_t element)
{
    enum { BLOCK = 64 << 10 /* bytes */, LEAST = 16 };
    blocks b = {.outer = 1, .inner = a->count / a->local[0]};

    for (int densest = densest_dim(a);
         b.dim < a->ndim - 2 && b.dim < densest && b.inner * (int64_t)element > BLOCK; b.dim++) {
        b.outer *= a->local[b.dim];
        b.inner /= a->local[b.dim + 1];
    }
    b.some = sherd__max(BLOCK / (b.inner * (int64_t)element), LEAST);
    return b;
}

/* How far apart in memory are the first element and that of an index of the dims before `dim`. */
static int64_t offset_of(const sherd_tensor *a, int dim, int64_t index)
{
    int64_t at = 0;

    for (int d = dim - 1; d >= 0; index /= a->local[d--])
        at += index % a->local[d] * a->stride[d];
    return at;
}

/* Copied into the result, in whose order they are computed with, block by block. */
static void unary_in_blocks(const sherd_call *call, sherd__unary_kind kind, const double *parameter)
{
    const sherd_tensor *a = call->in[0], *out = call->out[0];
    size_t element = sherd_dtype_bytes(a->dtype);
    const blocks b = blocks_of(a, element);
    int64_t size[SHERD_MAX_DIMS], n = a->local[b.dim];
    char *to = call->to[0];

    memcpy(size, a->local, sizeof size);
    for (int64_t i = 0; i < b.outer; i++)
        for (int64_t j = 0; j < n; j += b.some) {
            size[b.dim] = sherd__min(b.some, n - j);
            const char *from = (const char *)call->from[0] +
                               (offset_of(a, b.dim, i) + j * a->stride[b.dim]) * (int64_t)element;
            sherd__copy_box(element, a->ndim - b.dim, size + b.dim, to, out->stride + b.dim, from,
                            a->stride + b.dim);
            sherd__kernels_in(call)->unary(kind, size[b.dim] * b.inner, to, to, parameter);
            to += size[b.dim] * b.inner * (int64_t)element;
        }
}

void sherd__unary_of(const sherd_call *call, sherd__unary_kind kind, const double *parameter)
{
    const sherd_tensor *a = call->in[0], *out = call->out[0];
    const void *from = call->from[0];

    if (sherd__is_contiguous(a) || a->count == 0) {
        sherd__unary_in(call, kind, from, parameter);
    } else if (sherd__device_in(call)) {
        sherd__copy_in(call, sherd_dtype_bytes(a->dtype), a->ndim, a->local, call->to[0],
                       out->stride, from, a->stride);
        sherd__unary_in(call, kind, call->to[0], parameter);
    } else {
        unary_in_blocks(call, kind, parameter);
    }
}

void sherd__unary_grad_in(const sherd_call *call, sherd__unary_kind kind, const void *at,
                          const void *dy, const double *parameter)
{
    const sherd_tensor *out = call->out[0];
    sherd__device *device = sherd__device_in(call);

    if (device)
        sherd__device_unary_grad(device, out->dtype, kind, out->count, call->to[0], at, dy,
                                 parameter);
    else
        sherd__kernels_in(call)->unary_grad(kind, out->count, call->to[0], at, dy, parameter);
}

void sherd__binary_in(const sherd_call *call, sherd__binary_kind kind)
{
    const sherd_tensor *out = call->out[0];
    sherd__device *device = sherd__device_in(call);
    int64_t a[SHERD_MAX_DIMS], b[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, 0, a);
    sherd__broadcast_strides(call, 1, b);
    if (out->count == 0)
        return;
    if (device && !sherd__device_computes(out->dtype))
        sherd__device_whole_binary(device, out->dtype, kind, out->ndim, out->local, call->to[0],
                                   call->from[0], a, call->from[1], b);
    else if (device)
        sherd__device_binary(device, out->dtype, kind, out->ndim, out->local, call->to[0],
                             call->from[0], a, call->from[1], b);
    else
        sherd__kernels_in(call)->binary(kind, out->ndim, out->local, call->to[0], call->from[0], a,
                                        call->from[1], b);
}

void sherd__fill_in(const sherd_call *call, int j, double value)
{
    const sherd_tensor *out = call->out[j];
    sherd__device *device = sherd__device_in(call);

    if (out->count == 0)
        return;
    if (!device) {
        sherd__fill(call->out[j], value);
    } else if (sherd__device_computes(out->dtype)) {
        sherd__device_fill(device, out->dtype, call->to[j], out->count, value);
    } else {
        const int64_t one = 1;
        uint64_t element;
        sherd__cast(out->dtype, SHERD_F64, 1, &element, &value);
        sherd__device_fill_box(device, sherd_dtype_bytes(out->dtype), 1, &out->count, call->to[j],
                               &one, &element);
    }
}

void sherd__copy_in(const sherd_call *call, size_t element_bytes, int ndim, const int64_t *size,
                    void *dst, const int64_t *dst_stride, const void *src,
                    const int64_t *src_stride)
{
    sherd__device *device = sherd__device_in(call);

    if (device)
        sherd__device_copy_box(device, element_bytes, ndim, size, dst, dst_stride, src, src_stride);
    else
        sherd__copy_box(element_bytes, ndim, size, dst, dst_stride, src, src_stride);
}
