/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that gpu_jobs.h lists: a token's attention to a cache, order, and what an index names. */
#ifndef SHERD_BENCH_GPU_TOKENS_H
#define SHERD_BENCH_GPU_TOKENS_H

#include "device/decode.h"
#include "device/order.h"
#include "device/tables.h"

enum { MOST_CHOSEN = 8 };

/* Positions of a block of a paged cache. */
static int64_t together(const shape *s)
{
    return sherd__min(16, s->context);
}

static int64_t groups(const shape *s)
{
    return sherd__max(1, s->heads / 8);
}

/* A query of each item to a full cache, whose heads may be fewer; in a row, or in blocks of a pool. */
static void attend_cached(bench *b, int64_t heads, bool paged)
{
    const shape *s = b->s;
    const sherd__caching c = {.batch = s->batch,
                              .queries = 1,
                              .groups = heads,
                              .repeat = s->heads / heads,
                              .width = s->width,
                              .room = s->context,
                              .seen = s->context,
                              .scale = 0.125,
                              .table = paged ? b->table : NULL,
                              .entries = s->context / together(s),
                              .together = together(s)};

    sherd__device_attention_cached(b->device, b->dtype, &c, b->last, b->x[0], b->x[3], b->x[1],
                                   b->x[2]);
}

static void attention_cached(bench *b)
{
    attend_cached(b, b->s->heads, false);
}

static void attention_paged(bench *b)
{
    attend_cached(b, b->s->heads, true);
}

static void attention_grouped(bench *b)
{
    attend_cached(b, groups(b->s), false);
}

static void sort_rows(bench *b, int64_t k)
{
    const int64_t size[] = {b->rows, b->s->vocabulary, 1};

    sherd__device_order(b->device, b->dtype, size, k, true, b->x[0], (int32_t *)(void *)b->x[1],
                        b->x[2]);
}

static void topk(bench *b)
{
    sort_rows(b, MOST_CHOSEN);
}

static void sort(bench *b)
{
    sort_rows(b, b->s->vocabulary);
}

static sherd__pick rows_by_ids(const bench *b)
{
    return (sherd__pick){1, b->rows, b->dim, b->s->vocabulary, 0, b->ids, true};
}

static void index_select(bench *b)
{
    const sherd__pick p = rows_by_ids(b);

    sherd__device_gather(b->device, sherd_dtype_bytes(b->dtype), &p, b->x[0], b->x[1]);
}

static void scatter_add(bench *b)
{
    const sherd__pick p = rows_by_ids(b);

    sherd__device_scatter_add(b->device, b->dtype, &p, b->x[0], b->x[1]);
}

#endif
