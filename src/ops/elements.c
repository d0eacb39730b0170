/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What elementwise operators do on a rank's pieces, by the CPU's kernels or, where the call runs
 * there, the GPU's.
 */
#include "shared.h"

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

const void *sherd__in_order(const sherd_call *call)
{
    const sherd_tensor *a = call->in[0], *out = call->out[0];

    if (sherd__is_contiguous(a) || a->count == 0)
        return call->from[0];
    sherd__copy_in(call, sherd_dtype_bytes(a->dtype), a->ndim, a->local, call->to[0], out->stride,
                   call->from[0], a->stride);
    return call->to[0];
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

void sherd__copy_broadcast(const sherd_call *call, int i)
{
    const sherd_tensor *out = call->out[0];
    int64_t stride[SHERD_MAX_DIMS];

    sherd__broadcast_strides(call, i, stride);
    sherd__copy_in(call, sherd_dtype_bytes(out->dtype), out->ndim, out->local, call->to[0],
                   out->stride, call->from[i], stride);
}
