/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of folds.cu: how many threads share a result, and in how many parts it is made. */
#include "folds.h"

#include "box.h"
#include "base/dtype.h"
#include "base/num.h"
#include "programs/folds_args.h"

enum {
    THREADS = 256,
    BLOCKS = 132 * 6,  /* that a large GPU runs at a time */
    LEAST_PART = 4096, /* elements of a row, so that a thread has some */
    LEAST_ROWS = 8,    /* of a thread, in a part of columns */
    ACROSS = 32,       /* threads along inner, at most */
    COLUMNS = 4,       /* of a thread, if wide */
    MOST_BYTES = 16,   /* of what a thread has of a result */
    WARPS = THREADS / 32
};

static const char *const family_of[SHERD__FOLDS] = {"fold_extreme", "fold_extreme", "fold_product",
                                                    "fold_total",   "fold_truth",   "fold_truth",
                                                    "fold_log_sum"};

static sherd_dtype result_of(sherd__fold_kind kind, sherd_dtype dtype)
{
    switch (kind) {
    case SHERD__FOLD_PRODUCT:
        return sherd__has_fractions(dtype) ? dtype : SHERD_I64;
    case SHERD__FOLD_SUM:
        return SHERD_I64;
    case SHERD__FOLD_ANY:
    case SHERD__FOLD_ALL:
        return SHERD_BOOL;
    case SHERD__FOLD_LOG_SUM:
        return sherd__statistics_dtype(dtype);
    default:
        return dtype;
    }
}

/* The least power of two that is no less than n, up to `most`. */
static int32_t power_of_two(int64_t n, int32_t most)
{
    int32_t p = 1;

    while (p < most && p < n)
        p *= 2;
    return p;
}

/* A kernel for all results of `args`, whose parts are known. */
static void launch(sherd__device *device, const sherd__kernel *kernel, fold_args *args,
                   bool can_be_wide)
{
    sherd_dtype from = kernel->b;
    int lanes = SHERD__WIDE / (int)sherd_dtype_bytes(from), columns, room = WARPS;
    int64_t blocks;

    if (args->inner > 1)
        lanes = (int)sherd__min(lanes, COLUMNS);
    args->wide = can_be_wide && sherd__is_aligned(args->src, SHERD__WIDE);
    if (args->inner == 1) {
        args->wide =
            args->wide && args->length % lanes == 0 && (args->outer == 1 || args->mid % lanes == 0);
        args->team =
            power_of_two(sherd__min(args->mid, args->length) / (args->wide ? lanes : 1), THREADS);
        blocks = sherd__ceil_div(args->outer * args->parts, THREADS / args->team);
    } else {
        args->wide = args->wide && args->inner % lanes == 0;
        columns = args->wide ? lanes : 1;
        room = THREADS * columns;
        int32_t across = power_of_two(args->inner / columns, ACROSS);
        args->team = THREADS / across;
        args->tiles = sherd__ceil_div(args->inner, (int64_t)across * columns);
        blocks = args->outer * args->parts * args->tiles;
    }
    sherd__device_launch(device, kernel,
                         (sherd__launch_grid){.blocks = sherd__min(blocks, BLOCKS * 2),
                                              .threads = THREADS,
                                              .shared = room * MOST_BYTES},
                         args, sizeof *args);
}

/* In how many parts: a function of the shape and the dtype alone. */
static void cut(fold_args *args, sherd_dtype dtype)
{
    int64_t parts, whole = SHERD__WIDE;

    if (args->inner == 1) {
        parts = sherd__max(1, sherd__min(args->mid / LEAST_PART, BLOCKS / args->outer));
    } else {
        int64_t lanes = sherd__min(SHERD__WIDE / (int)sherd_dtype_bytes(dtype), COLUMNS);
        int64_t tiles = sherd__ceil_div(args->inner, ACROSS * lanes);
        int64_t rows = THREADS / ACROSS * LEAST_ROWS;
        parts = sherd__max(1, sherd__min(args->mid / rows, BLOCKS / (args->outer * tiles)));
        whole = 1;
    }
    args->length = sherd__max(1, sherd__ceil_div(sherd__ceil_div(args->mid, parts), whole)) * whole;
    args->parts = sherd__max(1, sherd__ceil_div(args->mid, args->length));
}

static void fold(sherd__device *device, const sherd__kernel *kernel, fold_args args)
{
    fold_args join = args;

    if (args.outer == 0 || args.inner == 0)
        return;
    cut(&args, kernel->b);
    if (args.parts == 1) {
        launch(device, kernel, &args, !args.from_index);
        return;
    }
    sherd__device_block *scratch =
        sherd__device_take(device, args.outer * args.parts * args.inner * MOST_BYTES);
    if (!scratch) {
        sherd__device_lack(device, "out of GPU memory for the parts of a fold");
        return;
    }
    args.dst = scratch->data;
    args.partial = true;
    launch(device, kernel, &args, !args.from_index);
    join.src = scratch->data;
    join.mid = join.length = args.parts;
    join.parts = 1;
    join.joins = true;
    launch(device, kernel, &join, false);
    sherd__device_give(device, scratch);
}

void sherd__device_fold(sherd__device *device, sherd_dtype dtype, sherd__fold_kind kind, void *dst,
                        const void *src, int64_t outer, int64_t mid, int64_t inner)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_FOLDS, family_of[kind], NULL,
                                  result_of(kind, dtype), dtype};

    fold(device, &kernel,
         (fold_args){.dst = dst,
                     .src = src,
                     .outer = outer,
                     .mid = mid,
                     .inner = inner,
                     .flag = kind == SHERD__FOLD_MIN || kind == SHERD__FOLD_ALL});
}

static void find(sherd__device *device, sherd_dtype dtype, const sherd__extremes *e, void *dst,
                 int64_t *index)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_FOLDS, "fold_where", NULL, SHERD_I32, dtype};

    fold(device, &kernel,
         (fold_args){.dst = dst,
                     .src = e->src,
                     .outer = e->outer,
                     .mid = e->mid,
                     .inner = e->inner,
                     .index = index,
                     .from_index = e->index,
                     .first = e->first,
                     .step = 1,
                     .flag = e->least});
}

void sherd__device_where(sherd__device *device, sherd_dtype dtype, const sherd__extremes *e,
                         int32_t *at)
{
    find(device, dtype, e, at, NULL);
}

void sherd__device_extremes(sherd__device *device, sherd_dtype dtype, const sherd__extremes *e,
                            void *best, int64_t *index)
{
    find(device, dtype, e, best, index);
}
