/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launches of rows.cu: a warp for a row of up to 1024 columns, a block for a longer one; loads of
 * 16 bytes where all rows begin at a multiple of that.
 */
#include "box.h"
#include "residual.h"
#include "over_rows.h"

#include "base/num.h"
#include "programs/rows_args.h"

enum { WARP = 32 };
/* Blocks, at most: enough for any GPU; beyond that each has several rows. */
static const int64_t most_blocks = 1 << 20;

static void launch(sherd__device *device, const char *family, sherd_dtype dtype, int64_t rows,
                   int64_t cols, bool is_wide, const void *args, size_t bytes)
{
    static const char *const kinds[3][2] = {
        {"warp_each", "warp_wide"}, {"block_each", "block_wide"}, {"long_each", "long_wide"}};
    static const int threads[3] = {ROWS_WARPS, ROWS_BLOCK, ROWS_LONG};
    int way = cols <= WARP * ROWS_KEPT ? 0 : cols <= ROWS_BLOCK * ROWS_KEPT ? 1 : 2;
    int64_t each = way ? 1 : ROWS_WARPS / WARP, blocks = sherd__ceil_div(rows, each);
    sherd__kernel kernel = {SHERD__PROGRAM_ROWS, family, kinds[way][is_wide], dtype,
                            SHERD_DTYPE_NONE};
    sherd__launch_grid grid = {sherd__min(blocks, most_blocks), threads[way], 0};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

void sherd__device_layer_norm(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                              void *y, void *mean, void *rstd, const void *x, const void *weight,
                              const void *bias, double eps)
{
    norm_args args = {rows, cols, y, mean, rstd, x, weight, bias, eps};
    uintptr_t together = (uintptr_t)y | (uintptr_t)x | (uintptr_t)weight | (uintptr_t)bias;
    const sherd__norm_there whole = {.dtype = dtype,
                                     .beside = dtype,
                                     .rows = rows,
                                     .cols = cols,
                                     .x = x,
                                     .weight = weight,
                                     .bias = bias,
                                     .norm = y,
                                     .mean = mean,
                                     .rstd = rstd,
                                     .eps = eps};

    if (sherd__device_add_norm(device, &whole))
        return;
    launch(device, "norm", dtype, rows, cols, sherd__rows_are_wide(dtype, cols, together), &args,
           sizeof args);
}

void sherd__device_rms_norm(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                            void *y, void *rstd, const void *x, const void *weight, double eps)
{
    sherd__device_layer_norm(device, dtype, rows, cols, y, NULL, rstd, x, weight, NULL, eps);
}

void sherd__device_norm_grad(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                             void *dx, void *dweight, void *dbias, const void *dy, const void *x,
                             const void *weight, const void *mean, const void *rstd)
{
    norm_grad_args args = {rows, cols, dx, dy, x, weight, mean, rstd};
    uintptr_t together = (uintptr_t)dx | (uintptr_t)dy | (uintptr_t)x | (uintptr_t)weight;
    const sherd__norm_back_there whole = {.dtype = dtype,
                                          .dy = dtype,
                                          .ddelta = dtype,
                                          .rows = rows,
                                          .cols = cols,
                                          .of = {.dy = dy,
                                                 .sum = x,
                                                 .weight = weight,
                                                 .mean = mean,
                                                 .rstd = rstd,
                                                 .dx = dx,
                                                 .dweight = dweight,
                                                 .dbias = dbias}};

    if (sherd__device_norm_back(device, &whole))
        return;
    launch(device, "norm_grad", dtype, rows, cols, sherd__rows_are_wide(dtype, cols, together),
           &args, sizeof args);
    if (dweight || dbias)
        sherd__device_norm_columns(device, dtype, rows, cols, dweight, dbias, dy, x, mean, rstd);
}

void sherd__device_softmax(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                           int64_t rows, int64_t cols, void *y, const void *x)
{
    softmax_args args = {rows, cols, y, x, kind == SHERD__LOG_SOFTMAX};
    uintptr_t together = (uintptr_t)y | (uintptr_t)x;

    launch(device, "softmax", dtype, cols ? rows : 0, cols,
           sherd__rows_are_wide(dtype, cols, together), &args, sizeof args);
}

void sherd__device_softmax_grad(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                                int64_t rows, int64_t cols, void *dx, const void *dy, const void *y)
{
    softmax_grad_args args = {rows, cols, dx, dy, y, kind == SHERD__LOG_SOFTMAX};
    uintptr_t together = (uintptr_t)dx | (uintptr_t)dy | (uintptr_t)y;

    launch(device, "softmax_grad", dtype, cols ? rows : 0, cols,
           sherd__rows_are_wide(dtype, cols, together), &args, sizeof args);
}

void sherd__device_cross_entropy(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                 int64_t cols, void *stats, const void *logits,
                                 const int32_t *targets, int64_t first)
{
    cross_entropy_args args = {rows, cols, first, stats, logits, targets};

    launch(device, "cross_entropy", dtype, rows, cols,
           sherd__rows_are_wide(dtype, cols, (uintptr_t)logits), &args, sizeof args);
}

void sherd__device_cross_entropy_grad(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                      int64_t cols, void *dlogits, const void *logits,
                                      const int32_t *targets, int64_t first, const double *sums,
                                      const void *dy, double factor)
{
    cross_entropy_grad_args args = {rows, cols, first, dlogits, logits, dy, sums, targets, factor};
    uintptr_t together = (uintptr_t)dlogits | (uintptr_t)logits;

    launch(device, "cross_entropy_grad", dtype, cols ? rows : 0, cols,
           sherd__rows_are_wide(dtype, cols, together), &args, sizeof args);
}
