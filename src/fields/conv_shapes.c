/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes of convolutions, and whether their numbers fit. Sizes of kernels, strides, dilations and
 * padding are below 2^31, so that none of what is computed from them overflows.
 */
#include "conv.h"

#include "base/num.h"

enum { FIRST = 2, WEIGHT = 1, BIAS = 2, BEHIND = 1 }; /* dim of space; operands */

static bool is_size(int64_t n)
{
    return n > 0 && !(n >> 31);
}

static const char *check_window(sherd_call *call, const sherd__conv_attributes *a, int d)
{
    int64_t extra = a->extra[d], before = a->before[d], after = a->after[d];
    bool fits = extra == 0 || (extra > 0 && (extra < a->stride[d] || extra < a->dilation[d]));

    if (is_size(a->kernel[d]) && is_size(a->stride[d]) && is_size(a->dilation[d]) &&
        !((before | after) >> 31) && fits)
        return NULL;
    return sherd_call_reason(
        call,
        "kernel %lld, stride %lld, dilation %lld, padding %lld and %lld, extra %lld in dim %d",
        (long long)a->kernel[d], (long long)a->stride[d], (long long)a->dilation[d],
        (long long)before, (long long)after, (long long)extra, FIRST + d);
}

/* How far a kernel reaches, which is below 2^62: kernels and dilations are below 2^31. */
static int64_t reach(const sherd__conv_attributes *a, int d)
{
    return a->dilation[d] * (a->kernel[d] - 1) + 1;
}

static const char *small_size(sherd_call *call, const sherd__conv_attributes *a, int d, int64_t n,
                              int64_t *size)
{
    int64_t padded = n + a->before[d] + a->after[d];

    if (padded < reach(a, d))
        return sherd_call_reason(
            call, "a kernel that reaches over %lld in dim %d of size %lld, padded to %lld",
            (long long)reach(a, d), FIRST + d, (long long)n, (long long)padded);
    *size = (padded - reach(a, d)) / a->stride[d] + 1;
    return NULL;
}

static const char *big_size(sherd_call *call, const sherd__conv_attributes *a, int d, int64_t n,
                            int64_t *size)
{
    int64_t steps;

    if (!sherd__mul(sherd__max(n - 1, 0), a->stride[d], &steps))
        return sherd_call_reason(call, "dim %d of the result would be too large", FIRST + d);
    *size = steps + reach(a, d) - a->before[d] - a->after[d] + a->extra[d];
    return n > 0 && *size > 0
               ? NULL
               : sherd_call_reason(
                     call, "dim %d of the result would have no size: padding takes all", FIRST + d);
}

static const char *describe_dim(sherd_call *call, const sherd__conv_attributes *a, int d,
                                bool small)
{
    int64_t n = call->in[0]->shape[FIRST + d], *size = &call->shape[0][FIRST + d];
    const char *fault = check_window(call, a, d);

    if (fault)
        return fault;
    if (call->in[WEIGHT]->shape[FIRST + d] != a->kernel[d])
        return "the kernel has another size";
    *size = a->size[d];
    return a->sized ? NULL
           : small  ? small_size(call, a, d, n, size)
                    : big_size(call, a, d, n, size);
}

/* For operators with a weight: check its channels against those of the operand. */
static const char *describe_field(sherd_call *call, bool small)
{
    const sherd__conv_attributes *a = call->attributes;
    const sherd_tensor *x = call->in[0], *w = call->in[WEIGHT];
    const char *fault = NULL;
    int64_t grouped;

    if (x->ndim < FIRST + 1 || x->ndim > FIRST + SHERD__CONV_DIMS || w->ndim != x->ndim)
        return "x must be [batch, channels, ...] with one to three dims behind, and weight have as "
               "many dims";
    if (a->groups < 1 || !sherd__mul(w->shape[1], a->groups, &grouped))
        return sherd_call_reason(call, "%lld groups", (long long)a->groups);
    int64_t read = small ? grouped : w->shape[0], made = small ? w->shape[0] : grouped;
    if (w->shape[0] % a->groups || x->shape[1] != read)
        return sherd_call_reason(call, "%lld channels do not fit this weight with %lld groups",
                                 (long long)x->shape[1], (long long)a->groups);
    if (call->in[BIAS] && (call->in[BIAS]->ndim != 1 || call->in[BIAS]->shape[0] != made))
        return sherd_call_reason(call, "bias must be [%lld]", (long long)made);
    call->shape[0][0] = x->shape[0];
    call->shape[0][1] = made;
    for (int d = 0; d + FIRST < x->ndim && !fault; d++)
        fault = describe_dim(call, a, d, small);
    sherd_call_shape(call, 0, x->ndim, NULL);
    return fault;
}

const char *sherd__conv_describe_small(sherd_call *call)
{
    return describe_field(call, true);
}

const char *sherd__conv_describe_big(sherd_call *call)
{
    return describe_field(call, false);
}

const char *sherd__conv_describe_weight(sherd_call *call)
{
    const sherd__conv_attributes *a = call->attributes;
    const sherd_tensor *big = call->in[0], *small = call->in[BEHIND];

    call->shape[0][0] = small->shape[1];
    call->shape[0][1] = big->shape[1] / a->groups;
    for (int d = 0; d + FIRST < big->ndim; d++)
        call->shape[0][FIRST + d] = a->kernel[d];
    sherd_call_shape(call, 0, big->ndim, NULL);
    return NULL;
}

const char *sherd__conv_describe_both(sherd_call *call)
{
    const sherd_tensor *x = call->in[call->operands - 1], *w = call->in[WEIGHT];

    sherd_call_shape(call, 0, x->ndim, x->shape);
    sherd_call_shape(call, 1, w->ndim, w->shape);
    return NULL;
}
