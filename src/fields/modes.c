/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frequencies that two sizes of a dim have in common, positive and negative: to keep the
 * lowest, as Fourier neural operators do, and to go back. Composed: what is kept is copied once, or
 * twice where it is padded.
 */
#include "ops/shared.h"

#include "apply/sketch.h"
#include "base/num.h"
#include "sherd/ops_fft.h"

typedef struct resizing {
    int dim;
    int64_t n;
} resizing;

static const char *describe(sherd_call *call)
{
    const resizing *at = call->attributes;
    const sherd_tensor *a = call->in[0];

    if (a->ndim < 1 || a->shape[a->ndim - 1] != 2)
        return "the last dim must have 2 elements, the real and the imaginary part";
    if (sherd__is_half(a->dtype))
        return "it takes f32 and f64 only: cast first (sherd_cast)";
    if (sherd__dim_of(at->dim, a->ndim - 1) < 0)
        return sherd_call_reason(call, "no dim %d", at->dim);
    return at->n < 1 ? sherd_call_reason(call, "a size of %lld", (long long)at->n) : NULL;
}

static bool resize(sherd_call *call)
{
    const resizing *at = call->attributes;
    sherd_tensor *a = call->in[0];
    int dim = sherd__dim_of(at->dim, a->ndim - 1);
    int64_t size = a->shape[dim], kept = sherd__min(size, at->n), negative = kept / 2;
    int64_t before[SHERD_MAX_DIMS] = {0}, after[SHERD_MAX_DIMS] = {0};

    call->out[0] = a;
    if (size == at->n)
        return true;
    sherd_tensor *parts[] = {sherd_narrow(a, dim, 0, kept - negative),
                             sherd_narrow(a, dim, size - negative, negative)};
    after[dim] = at->n - kept;
    if (after[dim])
        parts[0] = sherd_pad(parts[0], before, after, 0);
    call->out[0] = sherd_cat(parts, negative ? 2 : 1, dim);
    return true;
}

const sherd_op sherd__fft_resize_op = {
    .name = "sherd_fft_resize",
    .summary = "fewer or more frequencies of a dim",
    .operand = {{"a", 0}},
    .result = {{"y", 0}},
    .field = {SHERD_FIELD(resizing, dim, INT), SHERD_FIELD(resizing, n, INT64)},
    .attributes = sizeof(resizing),
    .autocast = SHERD_AUTOCAST_FULL,
    .describe = describe,
    .compose = resize};

sherd_tensor *sherd_fft_resize(sherd_tensor *a, int dim, int64_t n)
{
    return sherd_apply(&sherd__fft_resize_op, &a, 1, &(resizing){dim, n});
}
