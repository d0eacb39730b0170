/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that gpu_jobs.h lists: attention, causal, also with a mask or dropout. */
#ifndef SHERD_BENCH_GPU_ATTENTION_H
#define SHERD_BENCH_GPU_ATTENTION_H

#include "attending.h"

static sherd__attending attending_of(const bench *b)
{
    return self_attention(b->s->batch, b->s->heads, b->s->context, b->s->width, true);
}

static void attention(bench *b)
{
    const sherd__attending s = attending_of(b);

    if (!sherd__device_attention(b->device, b->dtype, &s, b->x[0], b->x[1], b->x[2], b->x[3],
                                 b->x[4]))
        sherd__device_fail(b->device, "attention is not for the GPU");
}

static void attention_grad(bench *b)
{
    const sherd__attending s = attending_of(b);

    if (!sherd__device_attention_grad(b->device, b->dtype, &s, b->x[0], b->x[1], b->x[2], b->x[3],
                                      b->x[4], b->x[5], b->x[6], b->x[7], b->x[8]))
        sherd__device_fail(b->device, "the gradient of attention is not for the GPU");
}

/* With a mask that is added, the same for all heads; or with dropout. */
static sherd__attending masked(const bench *b, const void *mask)
{
    sherd__attending s = attending_of(b);

    s.mask = mask;
    s.mask_dtype = b->dtype;
    s.mask_stride[3] = s.keys;
    s.mask_stride[4] = 1;
    return s;
}

static void attention_masked(bench *b)
{
    const sherd__attending s = masked(b, b->x[5]);

    sherd__device_attention(b->device, b->dtype, &s, b->x[0], b->x[1], b->x[2], b->x[3], b->x[4]);
}

static void attention_masked_grad(bench *b)
{
    const sherd__attending s = masked(b, b->x[9]);

    sherd__device_attention_grad(b->device, b->dtype, &s, b->x[0], b->x[1], b->x[2], b->x[3],
                                 b->x[4], b->x[5], b->x[6], b->x[7], b->x[8]);
}

static void attention_dropped(bench *b)
{
    sherd__attending s = attending_of(b);

    s.p = 0.1;
    s.all_queries = s.all_keys = s.keys;
    s.all_heads = s.groups;
    s.all_repeat = 1;
    sherd__device_attention(b->device, b->dtype, &s, b->x[0], b->x[1], b->x[2], b->x[3], b->x[4]);
}

static double flops_attention(const bench *b)
{
    const shape *s = b->s;

    return 2.0 * (double)(s->batch * s->heads * s->context * (s->context + 1) * s->width);
}

static double flops_attention_grad(const bench *b)
{
    return 2.5 * flops_attention(b);
}

#endif
