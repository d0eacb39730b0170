/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of entropy.cuh, a part of over_rows.cu. */
#include "box.h"
#include "entropy.h"
#include "over_rows.h"

#include "base/num.h"
#include "programs/over_rows_args.h"

enum {
    WARP = 32,
    FEW_COLUMNS = 2048, /* that a warp goes through */
    SOME_BLOCKS = 512   /* whose sums are added up */
};
static const int64_t most_blocks = 1 << 20;

static entropy_args args_of(const sherd__entropy *e, const void *logits)
{
    return (entropy_args){.rows = e->rows,
                          .cols = e->cols,
                          .first = e->first,
                          .keep = e->keep,
                          .spread = e->spread,
                          .ignored = e->ignored,
                          .threads = e->cols <= FEW_COLUMNS ? WARP : TABLE_THREADS,
                          .target = e->target,
                          .probability = e->probability,
                          .weight = e->weight,
                          .logits = logits};
}

static const char *kind_of(sherd_dtype dtype, const entropy_args *a, const void *dst)
{
    uintptr_t at =
        (uintptr_t)a->logits | (uintptr_t)a->probability | (uintptr_t)a->weight | (uintptr_t)dst;

    return sherd__rows_are_wide(dtype, a->cols, at) ? "wide" : "each";
}

static int64_t blocks_of(const entropy_args *a)
{
    return sherd__min(sherd__ceil_div(a->rows, TABLE_THREADS / a->threads), most_blocks);
}

/* For the kernel without options, which is to find no target. NULL: there are some, or *lacks. */
static sherd__device_block *no_targets(sherd__device *device, const sherd__entropy *e, bool *lacks)
{
    int64_t bytes = e->rows * (int64_t)sizeof(int32_t);
    sherd__device_block *none = e->target || !bytes ? NULL : sherd__device_take(device, bytes);

    *lacks = !e->target && bytes && !none;
    if (none)
        sherd__device_set(device, none->data, -1, bytes);
    return none;
}

void sherd__device_entropy(sherd__device *device, sherd_dtype dtype, const sherd__entropy *e,
                           void *stats, const void *logits)
{
    entropy_args args = args_of(e, logits);
    bool lacks;
    sherd__device_block *none = no_targets(device, e, &lacks);

    if (lacks) {
        sherd__device_lack(device, "out of GPU memory for a cross-entropy");
        return;
    }
    args.stats = stats;
    sherd__device_cross_entropy(device, dtype, e->rows, e->cols, stats, logits,
                                none ? none->data : e->target, e->first);
    sherd__launch_over_rows(device, "entropy", kind_of(dtype, &args, NULL), dtype, blocks_of(&args),
                            &args, sizeof args);
    sherd__device_give(device, none);
}

void sherd__device_entropy_join(sherd__device *device, sherd_dtype dtype, const sherd__entropy *e,
                                int64_t parts, double *row_sums, void *amount, void *loss,
                                double pair[2], const void *stats)
{
    int64_t blocks = sherd__min(sherd__ceil_div(e->rows, TABLE_THREADS), SOME_BLOCKS);
    sherd__device_block *sums =
        blocks ? sherd__device_take(device, 2 * blocks * (int64_t)sizeof(double)) : NULL;
    entropy_args args = args_of(e, NULL);

    if (blocks && !sums) {
        sherd__device_lack(device, "out of GPU memory for a cross-entropy");
        return;
    }
    args.parts = parts;
    args.row_sums = row_sums;
    args.amount = amount;
    args.loss = loss;
    args.sums = sums ? sums->data : NULL;
    args.stats = (void *)(uintptr_t)stats; /* only read */
    entropy_pair_args end = {blocks, args.sums, pair};
    sherd__launch_over_rows(device, "entropy_join", NULL, dtype, blocks, &args, sizeof args);
    sherd__launch_over_rows(device, "entropy_pair", NULL, SHERD_F64, 1, &end, sizeof end);
    sherd__device_give(device, sums);
}

void sherd__device_entropy_end(sherd__device *device, sherd_dtype dtype, void *loss, void *counted,
                               const double pair[2])
{
    entropy_end_args args = {pair, loss, counted};
    sherd__kernel kernel = {SHERD__PROGRAM_OVER_ROWS, "entropy_end", NULL, dtype, SHERD_DTYPE_NONE};
    sherd__launch_grid grid = {1, WARP, 0};

    sherd__device_launch(device, &kernel, grid, &args, sizeof args);
}

void sherd__device_entropy_grad(sherd__device *device, sherd_dtype dtype, const sherd__entropy *e,
                                void *dst, const void *logits, const double *row_sums,
                                const void *amount, const sherd__entropy_slope *slope)
{
    entropy_grad_args args = {.of = args_of(e, logits),
                              .dst = dst,
                              .dy = slope->dy,
                              .counted = slope->counted,
                              .each = slope->each,
                              .targets = !amount};

    args.of.row_sums = (double *)(uintptr_t)row_sums; /* only read */
    args.of.amount = (void *)(uintptr_t)amount;
    sherd__launch_over_rows(device, "entropy_grad", kind_of(dtype, &args.of, dst), dtype,
                            e->cols ? blocks_of(&args.of) : 0, &args, sizeof args);
}
