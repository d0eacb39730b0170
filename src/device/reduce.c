/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions on the GPU: see reduce.cu. Sums of few long rows or columns are made in parts, whose
 * sums lie in scratch, and are summed by a second kernel.
 */
#include "box.h"
#include "reduce.h"
#include "programs/reduce_args.h"

#include "base/dtype.h"
#include "base/num.h"

#include <string.h>

enum {
    THREADS = 256,
    WARP = 32,
    BLOCKS = 132 * 4,  /* that a large GPU is busy with */
    LEAST_PART = 4096, /* elements of a row, so that a thread has some */
    LEAST_ROWS = 8,    /* of a thread, in a part of columns */
    SHORT_ROW = 1024,  /* elements; up to here a warp is enough */
    TEAM_ACROSS = 32
};

static void launch(sherd__device *device, const char *family, const char *kind, sherd_dtype a,
                   sherd_dtype b, sherd__launch_grid grid, const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_REDUCE, family, kind, a, b};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

/* ---- of several tensors ---- */

/* The kind of kernel (see reduce.cu): the operation, and for how many operands at most. */
static const char *kind_of(sherd_reduce_op op, int count)
{
    static const char *const name[][4] = {
        [SHERD_SUM] = {"sum_2", "sum_4", "sum_8", "sum_16"},
        [SHERD_AVG] = {"sum_2", "sum_4", "sum_8", "sum_16"},
        [SHERD_MIN] = {"min_2", "min_4", "min_8", "min_16"},
        [SHERD_MAX] = {"max_2", "max_4", "max_8", "max_16"},
        [SHERD_PRODUCT] = {"product_2", "product_4", "product_8", "product_16"}};

    return name[op][count <= 2 ? 0 : count <= 4 ? 1 : count <= 8 ? 2 : 3];
}

/* Whether all operands have neighbours where others have, and lie on whole accesses. */
static bool all_wide(const sherd__box *box, int lanes, const void *dst, const void *const *src)
{
    bool wide = sherd__box_is_wide(box, lanes) && sherd__is_aligned(dst, SHERD__WIDE);

    for (int k = 0; k < box->operands; k++)
        wide = wide && box->stride[k][box->ndim - 1] == 1;
    for (int k = 0; k + 1 < box->operands; k++)
        wide = wide && sherd__is_aligned(src[k], SHERD__WIDE);
    return wide;
}

void sherd__device_reduce(sherd__device *device, sherd_dtype dtype, sherd_reduce_op op, int ndim,
                          const int64_t *size, void *dst, const int64_t *dst_stride, int count,
                          const void *const *src, const int64_t (*src_stride)[SHERD_MAX_DIMS],
                          double divisor)
{
    int lanes = SHERD__WIDE / (int)sherd_dtype_bytes(dtype);
    const int64_t *stride[SHERD__BOX_OPERANDS] = {dst_stride};
    reduce_args args = {.dst = dst, .count = count, .average = op == SHERD_AVG, .divisor = divisor};
    sherd__box box;

    for (int k = 0; k < count; k++) {
        stride[k + 1] = src_stride[k];
        args.src[k] = src[k];
    }
    sherd__box_of(&box, ndim, size, count + 1, stride);
    if (box.n == 0)
        return;
    args.wide = all_wide(&box, lanes, dst, src);
    if (args.wide)
        sherd__box_widen(&box, lanes);
    args.items = box.n;
    args.ndim = box.ndim;
    args.small = sherd__box_divisors(&box, args.multiplier, args.shift);
    memcpy(args.size, box.size, sizeof args.size);
    memcpy(args.stride, box.stride, (size_t)(count + 1) * sizeof args.stride[0]);
    launch(device, "reduce", kind_of(op, count), dtype, SHERD_DTYPE_NONE, sherd__grid_of(box.n),
           &args, sizeof args);
}

/* ---- over a dim ---- */

static sherd__device_block *scratch_of(sherd__device *device, int64_t sums, sherd_dtype dtype)
{
    sherd__device_block *block =
        sherd__device_take(device, sums * (int64_t)sherd_dtype_bytes(dtype));

    if (!block)
        sherd__device_lack(device, "out of GPU memory for the parts of a sum");
    return block;
}

/* dst[rows,parts] of `to` from src[rows,mid] of `from`. */
static void sum_rows(sherd__device *device, sherd_dtype to, sherd_dtype from, sum_rows_args args)
{
    int lanes = SHERD__WIDE / (int)sherd_dtype_bytes(from);
    int64_t sums = args.rows * args.parts;

    args.team = sherd__min(args.mid, args.length) <= SHORT_ROW ? WARP : THREADS;
    args.wide = sherd__is_aligned(args.src, SHERD__WIDE) && args.length % lanes == 0 &&
                (args.rows == 1 || args.mid % lanes == 0);
    launch(device, "sum_rows", NULL, to, from,
           (sherd__launch_grid){
               .blocks = sherd__min(sherd__ceil_div(sums, THREADS / args.team), BLOCKS * 4),
               .threads = THREADS},
           &args, sizeof args);
}

static void sum_of_rows(sherd__device *device, sherd_dtype to, sherd_dtype from, void *dst,
                        const void *src, int64_t rows, int64_t mid, bool add)
{
    sherd_dtype sums = sherd__statistics_dtype(from);
    int64_t parts = sherd__max(1, sherd__min(mid / LEAST_PART, BLOCKS / rows));
    int64_t lanes = SHERD__WIDE, length = sherd__ceil_div(sherd__ceil_div(mid, parts), lanes);
    sum_rows_args args = {.dst = dst, .src = src, .rows = rows, .mid = mid, .add = add};

    args.length = sherd__max(length, 1) * lanes;
    args.parts = sherd__max(1, sherd__ceil_div(mid, args.length));
    if (args.parts == 1) {
        sum_rows(device, to, from, args);
        return;
    }
    sherd__device_block *scratch = scratch_of(device, rows * args.parts, sums);
    if (!scratch)
        return;
    args.dst = scratch->data;
    args.add = false;
    sum_rows(device, sums, from, args);
    sum_rows(device, to, sums,
             (sum_rows_args){.dst = dst,
                             .src = scratch->data,
                             .rows = rows,
                             .mid = args.parts,
                             .parts = 1,
                             .length = (int64_t)sherd__round_up((size_t)args.parts, SHERD__WIDE),
                             .add = add});
    sherd__device_give(device, scratch);
}

/* How the blocks lie over the columns; the number of tiles. */
static void lay_columns(sum_columns_args *args, sherd_dtype from)
{
    int lanes = SHERD__WIDE / (int)sherd_dtype_bytes(from);

    args->wide = sherd__is_aligned(args->src, SHERD__WIDE) && args->inner % lanes == 0;
    int64_t columns = args->wide ? args->inner / lanes : args->inner;
    args->across = 1;
    while (args->across < TEAM_ACROSS && args->across < columns)
        args->across *= 2;
    args->tiles = sherd__ceil_div(columns, args->across);
}

static void sum_columns(sherd__device *device, sherd_dtype to, sherd_dtype from,
                        const sum_columns_args *args)
{
    size_t sum = sherd_dtype_bytes(sherd__statistics_dtype(from));
    int lanes = args->wide ? SHERD__WIDE / (int)sherd_dtype_bytes(from) : 1;
    int64_t blocks = args->outer * args->parts * args->tiles;

    launch(device, "sum_columns", NULL, to, from,
           (sherd__launch_grid){.blocks = sherd__min(blocks, BLOCKS * 4),
                                .threads = THREADS,
                                .shared = THREADS * lanes * (int)sum},
           args, sizeof *args);
}

static void sum_of_columns(sherd__device *device, sherd_dtype to, sherd_dtype from,
                           sum_columns_args args)
{
    sherd_dtype sums = sherd__statistics_dtype(from);

    lay_columns(&args, from);
    int64_t rows = THREADS / args.across * LEAST_ROWS;
    int64_t parts = sherd__max(1, sherd__min(args.mid / rows, BLOCKS / (args.outer * args.tiles)));
    args.length = sherd__max(1, sherd__ceil_div(args.mid, parts));
    args.parts = sherd__max(1, sherd__ceil_div(args.mid, args.length));
    if (args.parts == 1) {
        sum_columns(device, to, from, &args);
        return;
    }
    sherd__device_block *scratch = scratch_of(device, args.outer * args.parts * args.inner, sums);
    if (!scratch)
        return;
    sum_columns_args second = {.dst = args.dst,
                               .src = scratch->data,
                               .outer = args.outer,
                               .mid = args.parts,
                               .inner = args.inner,
                               .parts = 1,
                               .length = args.parts,
                               .add = args.add};
    args.dst = scratch->data;
    args.add = false;
    sum_columns(device, sums, from, &args);
    lay_columns(&second, sums);
    sum_columns(device, to, sums, &second);
    sherd__device_give(device, scratch);
}

void sherd__device_sum_to(sherd__device *device, sherd_dtype to, sherd_dtype from, void *dst,
                          const void *src, int64_t outer, int64_t mid, int64_t inner, bool add)
{
    if (outer == 0 || inner == 0)
        return;
    if (inner == 1)
        sum_of_rows(device, to, from, dst, src, outer, mid, add);
    else
        sum_of_columns(
            device, to, from,
            (sum_columns_args){
                .dst = dst, .src = src, .outer = outer, .mid = mid, .inner = inner, .add = add});
}

void sherd__device_sum(sherd__device *device, sherd_dtype dtype, void *dst, const void *src,
                       int64_t outer, int64_t mid, int64_t inner, bool add)
{
    sherd__device_sum_to(device, dtype, dtype, dst, src, outer, mid, inner, add);
}
