/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of over_rows.cu: how many blocks, and memory for sums of parts. */
#include "box.h"
#include "over_rows.h"

#include "base/dtype.h"
#include "base/num.h"
#include "programs/over_rows_args.h"

enum {
    WARP = 32,
    PART_ROWS = 32,    /* of a part that is added up by a block, at least */
    SOME_BLOCKS = 512, /* more gain nothing where each costs something */
};
static const int64_t most_blocks = 1 << 20;

void sherd__launch_over_rows(sherd__device *device, const char *family, const char *kind,
                             sherd_dtype dtype, int64_t blocks, const void *args, size_t bytes)
{
    sherd__kernel kernel = {SHERD__PROGRAM_OVER_ROWS, family, kind, dtype, SHERD_DTYPE_NONE};
    sherd__launch_grid grid = {blocks, TABLE_THREADS, 0};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

/* Parts of rows: as many as keep the GPU busy; a function of the shape alone, as is the order of
 * additions. */
void sherd__device_norm_columns(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                int64_t cols, void *dweight, void *dbias, const void *dy,
                                const void *x, const void *mean, const void *rstd)
{
    bool is_wide = sherd__rows_are_wide(dtype, cols, (uintptr_t)dy | (uintptr_t)x);
    int64_t width = WARP * (is_wide ? SHERD__WIDE / (int64_t)sherd_dtype_bytes(dtype) : 1);
    int64_t tiles = sherd__ceil_div(cols, width);
    int64_t parts = sherd__min(sherd__ceil_div(rows, PART_ROWS),
                               tiles ? sherd__ceil_div(SOME_BLOCKS, tiles) : 0);
    size_t bytes = (size_t)(2 * parts * cols) * sherd_dtype_bytes(sherd__statistics_dtype(dtype));
    sherd__device_block *sums = bytes ? sherd__device_take(device, (int64_t)bytes) : NULL;

    if (bytes && !sums) {
        sherd__device_lack(device, "out of GPU memory for the gradients of a norm's weights");
        return;
    }
    norm_columns_args args = {
        rows, cols, parts, tiles, dy, x, mean, rstd, sums ? sums->data : NULL};
    norm_columns_end_args end = {cols, parts, dweight, dbias, args.sums};
    sherd__launch_over_rows(device, "norm_columns", is_wide ? "wide" : "each", dtype, parts * tiles,
                            &args, sizeof args);
    sherd__launch_over_rows(device, "norm_columns_end", NULL, dtype, sherd__ceil_div(cols, WARP),
                            &end, sizeof end);
    sherd__device_give(device, sums);
}

void sherd__device_cross_entropy_join(sherd__device *device, sherd_dtype dtype, int64_t parts,
                                      int64_t rows, void *loss, double *row_sums, const void *stats,
                                      double factor)
{
    int64_t blocks = sherd__min(sherd__ceil_div(rows, TABLE_THREADS), SOME_BLOCKS);
    sherd__device_block *sums = NULL;

    if (blocks) {
        sums = sherd__device_take(device, blocks * (int64_t)sizeof(double));
        if (!sums) {
            sherd__device_lack(device, "out of GPU memory for a cross-entropy");
            return;
        }
    }
    cross_entropy_join_args args = {parts, rows, stats, row_sums, sums ? sums->data : NULL};
    cross_entropy_end_args end = {blocks, loss, args.sums, factor};
    sherd__launch_over_rows(device, "cross_entropy_join", NULL, dtype, blocks, &args, sizeof args);
    sherd__launch_over_rows(device, "cross_entropy_end", NULL, dtype, 1, &end, sizeof end);
    sherd__device_give(device, sums);
}

void sherd__device_embedding(sherd__device *device, sherd_dtype dtype, int64_t n, int64_t width,
                             void *y, const void *weight, const int32_t *ids, int64_t first,
                             int64_t entries)
{
    embedding_args args = {n, width, first, entries, y, weight, ids};
    bool is_wide = sherd__rows_are_wide(dtype, width, (uintptr_t)y | (uintptr_t)weight);
    int64_t blocks = width ? sherd__ceil_div(n, TABLE_WARPS) : 0;

    sherd__launch_over_rows(device, "embedding", is_wide ? "wide" : "each", dtype,
                            sherd__min(blocks, most_blocks), &args, sizeof args);
}

void sherd__device_embedding_grad(sherd__device *device, sherd_dtype dtype, int64_t n,
                                  int64_t width, void *dweight, const void *dy, const int32_t *ids,
                                  int64_t first, int64_t entries)
{
    embedding_grad_args args = {n, width, first, entries, dweight, dy, ids};
    bool is_wide = sherd__rows_are_wide(dtype, width, (uintptr_t)dweight | (uintptr_t)dy);
    int64_t blocks = width ? sherd__min(entries, SOME_BLOCKS) : 0;

    sherd__launch_over_rows(device, "embedding_grad", is_wide ? "wide" : "each", dtype, blocks,
                            &args, sizeof args);
}
