/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that gpu_jobs.h lists: comparisons, choices, folds and running sums. */
#ifndef SHERD_BENCH_GPU_NUMBERS_H
#define SHERD_BENCH_GPU_NUMBERS_H

#include "device/compare.h"
#include "device/folds.h"
#include "device/running.h"

static void less(bench *b)
{
    const int64_t n = b->rows * b->mlp, one = 1;

    sherd__device_compare(b->device, b->dtype, SHERD__LT, 1, &n, b->x[0], b->x[1], &one, b->x[2],
                          &one);
}

static void where(bench *b)
{
    const int64_t n = b->rows * b->mlp, one = 1;

    sherd__device_pick(b->device, sherd_dtype_bytes(b->dtype), 1, &n, b->x[0], b->x[1], &one,
                       (sherd__picked){b->x[2], &one, 0}, (sherd__picked){b->x[3], &one, 0});
}

static void max_inner(bench *b)
{
    sherd__device_fold(b->device, b->dtype, SHERD__FOLD_MAX, b->x[0], b->x[1], b->rows, b->mlp, 1);
}

static void max_outer(bench *b)
{
    sherd__device_fold(b->device, b->dtype, SHERD__FOLD_MAX, b->x[0], b->x[1], 1, b->rows, b->mlp);
}

static void argmax_of(bench *b, int64_t rows, int64_t cols)
{
    const sherd__extremes e = {false, rows, cols, 1, 0, b->x[1], NULL};

    sherd__device_where(b->device, b->dtype, &e, (int32_t *)(void *)b->x[0]);
}

static void argmax(bench *b)
{
    argmax_of(b, b->rows, b->s->vocabulary);
}

static void argmax_all(bench *b)
{
    argmax_of(b, 1, b->rows * b->mlp);
}

static void logsumexp(bench *b)
{
    sherd__device_fold(b->device, b->dtype, SHERD__FOLD_LOG_SUM, b->x[0], b->x[1], b->rows,
                       b->s->vocabulary, 1);
}

static void cumsum_of(bench *b, int64_t outer, int64_t mid, int64_t inner)
{
    const int64_t size[] = {outer, mid, inner};

    sherd__device_running_sum(b->device, b->dtype, size, false, b->x[0], b->x[1]);
}

static void cumsum_inner(bench *b)
{
    cumsum_of(b, b->rows, b->mlp, 1);
}

static void cumsum_outer(bench *b)
{
    cumsum_of(b, 1, b->rows, b->mlp);
}

static void cumprod_inner(bench *b)
{
    sherd__device_running_product(b->device, b->dtype, (int64_t[]){b->rows, b->mlp, 1}, b->x[0],
                                  b->x[1]);
}

static void cumprod_outer(bench *b)
{
    sherd__device_running_product(b->device, b->dtype, (int64_t[]){1, b->rows, b->mlp}, b->x[0],
                                  b->x[1]);
}

static void cummax_inner(bench *b)
{
    sherd__device_running_most(b->device, b->dtype, (int64_t[]){b->rows, b->mlp, 1}, false, b->x[0],
                               (int32_t *)(void *)b->x[2], b->x[1]);
}

#endif
