/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that gpu_jobs.h lists: rows that ranks share, of which this is the only one. */
#ifndef SHERD_BENCH_GPU_SHARED_H
#define SHERD_BENCH_GPU_SHARED_H

#include "device/shared_rows.h"

static void soft_parts(bench *b)
{
    const sherd__soft_slab s = {b->rows, b->s->vocabulary, 1};
    float *stats = (float *)(void *)b->x[2];

    sherd__device_soft_stats(b->device, b->dtype, &s, stats, stats + b->rows, b->x[1]);
    sherd__device_soft_join(b->device, SHERD_F32, 1, b->rows, b->x[3], b->x[4], stats);
    sherd__device_soft(b->device, b->dtype, SHERD__SOFTMAX, &s, b->x[0], b->x[1], b->x[3], b->x[4]);
}

static void norm_parts(bench *b)
{
    sherd__device_row_moments(b->device, b->dtype, b->rows, b->dim, true, b->x[2], b->x[1]);
    sherd__device_row_moments_join(b->device, SHERD_F32, 1, b->rows, (double)b->dim, 1e-5, b->x[3],
                                   b->x[4], b->x[2]);
    sherd__device_row_norm(b->device, b->dtype, b->rows, b->dim, b->x[0], b->x[1], b->x[3], b->x[4],
                           b->x[5], b->x[6]);
}

#endif
