/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of decode.cu: how keys are cut into parts, and the memory for what parts give. */
#include "box.h"
#include "decode.h"

#include "base/dtype.h"
#include "base/num.h"
#include "programs/decode_args.h"

enum { WARP = 32, ROW_THREADS = 128 };

/* Short parts keep the GPU busy, long ones leave less to join. By the room alone: see decode.cu. */
static int64_t keys_of_part(int64_t room)
{
    return room <= 4096 ? 64 : room <= 16384 ? 128 : CACHED_KEYS;
}

/* Rows of a block. */
enum { KINDS = 3 };
static const int64_t rows_of_kind[KINDS] = {1, 4, 8};

static int kind_of(int64_t rows)
{
    return rows <= 1 ? 0 : rows <= 4 ? 1 : 2;
}

static const char *name_of(int64_t width, int kind)
{
    static const char *const name[][KINDS] = {{"w32_x1", "w32_x4", "w32_x8"},
                                              {"w64_x1", "w64_x4", "w64_x8"},
                                              {"w128_x1", "w128_x4", "w128_x8"},
                                              {"w256_x1", "w256_x4", "w256_x8"}};

    return name[width <= 32 ? 0 : width <= 64 ? 1 : width <= 128 ? 2 : 3][kind];
}

/* Memory for what parts give: sums, maxima, totals. */
static sherd__device_block *take_parts(sherd__device *device, sherd_dtype dtype,
                                       cached_part_args *args)
{
    int64_t element = (int64_t)sherd_dtype_bytes(sherd__statistics_dtype(dtype));
    int64_t n = args->batch * args->groups * args->queries * args->repeat * args->parts;
    sherd__device_block *room = sherd__device_take(device, n * (args->width + 2) * element);

    if (!room) {
        sherd__device_lack(device, "out of GPU memory for attention to a cache");
        return NULL;
    }
    args->sums = room->data;
    args->most = (char *)room->data + n * args->width * element;
    args->total = (char *)args->most + n * element;
    return room;
}

bool sherd__device_attention_cached(sherd__device *device, sherd_dtype dtype,
                                    const sherd__caching *s, const int32_t *positions, void *out,
                                    const void *q, const void *k, const void *v)
{
    int64_t rows = s->queries * s->repeat, keys = keys_of_part(s->room);
    int kind = kind_of(rows);
    cached_part_args args = {.batch = s->batch,
                             .queries = s->queries,
                             .groups = s->groups,
                             .repeat = s->repeat,
                             .width = s->width,
                             .room = s->room,
                             .first = s->first,
                             .chunks = sherd__ceil_div(rows, rows_of_kind[kind]),
                             .parts = sherd__max(1, sherd__ceil_div(s->seen, keys)),
                             .keys = keys,
                             .window = s->window,
                             .scale = s->scale,
                             .cap = s->softcap,
                             .where = positions,
                             .q = q,
                             .k = k,
                             .v = v,
                             .out = out,
                             .log_sum = s->log_sum,
                             .table = s->table,
                             .entries = s->entries,
                             .together = s->together,
                             .first_block = s->first_block};
    sherd__kernel part = {SHERD__PROGRAM_DECODE, "cached_part", name_of(s->width, kind), dtype,
                          SHERD_DTYPE_NONE};
    sherd__kernel join = {SHERD__PROGRAM_DECODE, "cached_join", NULL, dtype, SHERD_DTYPE_NONE};
    sherd__device_block *room = NULL;
    int64_t heads = s->batch * s->groups;

    if (!sherd__device_computes(dtype) || s->width > SHERD__CACHED_WIDTH)
        return false;
    if (heads * rows * s->width == 0)
        return true;
    args.wide = sherd__rows_are_wide(dtype, s->width, (uintptr_t)q | (uintptr_t)k | (uintptr_t)v);
    if (args.parts > 1 && !(room = take_parts(device, dtype, &args)))
        return true;
    sherd__device_launch(device, &part,
                         (sherd__launch_grid){heads * args.parts * args.chunks, CACHED_THREADS, 0},
                         &args, sizeof args);
    if (args.parts > 1)
        sherd__device_launch(device, &join, (sherd__launch_grid){heads * rows, CACHED_THREADS, 0},
                             &args, sizeof args);
    sherd__device_give(device, room);
    return true;
}

/* The largest unit that all of these are multiples of. */
static int64_t unit_of(uintptr_t together)
{
    int64_t unit = SHERD__WIDE;

    while (together % (uintptr_t)unit)
        unit /= 2;
    return unit;
}

void sherd__device_write_rows(sherd__device *device, const sherd__row_writes *w, void *dst,
                              const void *src, const int32_t *index)
{
    static const char *const name[SHERD__WIDE + 1] = {
        [1] = "unit_1", [2] = "unit_2", [4] = "unit_4", [8] = "unit_8", [16] = "unit_16"};
    int64_t unit =
        unit_of((uintptr_t)dst | (uintptr_t)src |
                (uintptr_t)(w->bytes | w->dst_batch | w->dst_row | w->src_batch | w->src_row));
    const sherd__kernel kernel = {SHERD__PROGRAM_DECODE, "write_rows", name[unit], SHERD_DTYPE_NONE,
                                  SHERD_DTYPE_NONE};
    const write_rows_args args = {.batch = w->batch,
                                  .n = w->n,
                                  .units = w->bytes / unit,
                                  .first = w->first,
                                  .entries = w->entries,
                                  .together = w->together,
                                  .dst_batch = w->dst_batch / unit,
                                  .dst_row = w->dst_row / unit,
                                  .src_batch = w->src_batch / unit,
                                  .src_row = w->src_row / unit,
                                  .index = index,
                                  .table = w->table,
                                  .dst = dst,
                                  .src = src};
    int64_t rows = w->bytes ? w->batch * w->n : 0;

    sherd__device_launch(
        device, &kernel,
        (sherd__launch_grid){sherd__min(sherd__ceil_div(rows, ROW_THREADS / WARP), 1 << 16),
                             ROW_THREADS, 0},
        &args, sizeof args);
}
