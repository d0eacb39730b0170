/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of shared_rows.cu: who has a position or a row, and how many blocks. */
#include "box.h"
#include "shared_rows.h"

#include "base/num.h"
#include "programs/shared_rows_args.h"

enum { WARP = 32 };
static const int64_t most_blocks = 1 << 20, some_blocks = 2048;

/* kind: NULL of a kernel that knows no pieces. */
static void launch(sherd__device *device, const char *family, const char *kind, sherd_dtype dtype,
                   sherd__launch_grid grid, const void *args, size_t bytes)
{
    sherd__kernel kernel = {SHERD__PROGRAM_SHARED_ROWS, family, kind, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

/* A thread for each of n. */
static void launch_each(sherd__device *device, const char *family, const char *kind,
                        sherd_dtype dtype, int64_t n, const void *args, size_t bytes)
{
    sherd__launch_grid grid = {sherd__min(sherd__ceil_div(n, SHARED_THREADS), some_blocks),
                               SHARED_THREADS, 0};

    launch(device, family, kind, dtype, grid, args, bytes);
}

/* A block for each of n rows, no larger than a row. `together`: all pointers to elements. */
static void launch_rows(sherd__device *device, const char *family, sherd_dtype dtype, int64_t n,
                        int64_t cols, uintptr_t together, const void *args, size_t bytes)
{
    bool is_wide = sherd__rows_are_wide(dtype, cols, together);
    int64_t width = WARP * (is_wide ? SHERD__WIDE / (int64_t)sherd_dtype_bytes(dtype) : 1);
    int64_t warps = sherd__min(sherd__max(sherd__ceil_div(cols, width), 1), SHARED_THREADS / WARP);
    sherd__launch_grid grid = {sherd__min(n, most_blocks), (int)(warps * WARP), 0};

    launch(device, family, is_wide ? "wide" : "each", dtype, grid, args, bytes);
}

/* ---- softmax --------------------------------------------------------------------------------- */

static soft_place place_of(const sherd__soft_slab *s, sherd__soft_kind kind)
{
    return (soft_place){.n = s->outer * s->inner,
                        .mid = s->mid,
                        .inner = s->inner,
                        .along = s->inner == 1,
                        .of_log = kind == SHERD__LOG_SOFTMAX};
}

static void launch_soft(sherd__device *device, const char *family, sherd_dtype dtype,
                        const soft_place *at, uintptr_t together, const void *args, size_t bytes)
{
    if (at->along)
        launch_rows(device, family, dtype, at->n, at->mid, together, args, bytes);
    else
        launch_each(device, family, "each", dtype, at->n, args, bytes);
}

void sherd__device_soft_stats(sherd__device *device, sherd_dtype dtype, const sherd__soft_slab *s,
                              void *most, void *total, const void *src)
{
    soft_stats_args args = {place_of(s, SHERD__SOFTMAX), most, total, src};

    launch_soft(device, "soft_stats", dtype, &args.at, (uintptr_t)src, &args, sizeof args);
}

void sherd__device_soft_join(sherd__device *device, sherd_dtype dtype, int64_t parts, int64_t n,
                             void *most, void *total, const void *stats)
{
    soft_join_args args = {parts, n, most, total, stats};

    launch_each(device, "soft_join", NULL, dtype, n, &args, sizeof args);
}

void sherd__device_soft(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                        const sherd__soft_slab *s, void *dst, const void *src, const void *most,
                        const void *total)
{
    soft_args args = {place_of(s, kind), dst, src, most, total};

    launch_soft(device, "soft", dtype, &args.at, (uintptr_t)dst | (uintptr_t)src, &args,
                sizeof args);
}

void sherd__device_soft_grad_sum(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                                 const sherd__soft_slab *s, void *total, const void *dy,
                                 const void *y)
{
    soft_grad_sum_args args = {place_of(s, kind), total, dy, y};

    launch_soft(device, "soft_grad_sum", dtype, &args.at, (uintptr_t)dy | (uintptr_t)y, &args,
                sizeof args);
}

void sherd__device_soft_grad(sherd__device *device, sherd_dtype dtype, sherd__soft_kind kind,
                             const sherd__soft_slab *s, void *dx, const void *dy, const void *y,
                             const void *total)
{
    soft_grad_with_args args = {place_of(s, kind), dx, dy, y, total};

    launch_soft(device, "soft_grad_with", dtype, &args.at,
                (uintptr_t)dx | (uintptr_t)dy | (uintptr_t)y, &args, sizeof args);
}

void sherd__device_soft_spread(sherd__device *device, sherd_dtype dtype, const sherd__soft_slab *s,
                               void *dx, const void *src, const void *log_sum, const void *dy)
{
    soft_spread_args args = {place_of(s, SHERD__SOFTMAX), dx, src, log_sum, dy};

    launch_soft(device, "soft_spread", dtype, &args.at, (uintptr_t)dx | (uintptr_t)src, &args,
                sizeof args);
}

void sherd__device_log_sum(sherd__device *device, sherd_dtype dtype, int64_t n, void *y,
                           void *log_sum, const void *most, const void *total)
{
    log_sum_args args = {n, y, log_sum, most, total};

    launch_each(device, "log_sum", NULL, dtype, n, &args, sizeof args);
}

/* ---- norms ----------------------------------------------------------------------------------- */

void sherd__device_row_moments(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                               bool centred, void *moments, const void *x)
{
    row_moments_args args = {rows, cols, centred, moments, x};

    launch_rows(device, "row_moments", dtype, rows, cols, (uintptr_t)x, &args, sizeof args);
}

void sherd__device_row_moments_join(sherd__device *device, sherd_dtype dtype, int64_t parts,
                                    int64_t rows, double length, double eps, void *mean, void *rstd,
                                    const void *moments)
{
    row_moments_join_args args = {parts, rows, length, eps, mean, rstd, moments};

    launch_each(device, "row_moments_join", NULL, dtype, rows, &args, sizeof args);
}

void sherd__device_row_norm(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                            void *y, const void *x, const void *mean, const void *rstd,
                            const void *weight, const void *bias)
{
    row_norm_args args = {rows, cols, y, x, mean, rstd, weight, bias};

    launch_rows(device, "row_norm", dtype, cols ? rows : 0, cols,
                (uintptr_t)y | (uintptr_t)x | (uintptr_t)weight | (uintptr_t)bias, &args,
                sizeof args);
}

void sherd__device_row_sums(sherd__device *device, sherd_dtype dtype, int64_t rows, int64_t cols,
                            void *sums, const void *dy, const void *x, const void *mean,
                            const void *weight)
{
    row_sums_args args = {rows, cols, sums, dy, x, mean, weight};

    launch_rows(device, "row_sums", dtype, rows, cols,
                (uintptr_t)dy | (uintptr_t)x | (uintptr_t)weight, &args, sizeof args);
}

void sherd__device_row_norm_grad(sherd__device *device, sherd_dtype dtype, int64_t rows,
                                 int64_t cols, double length, void *dx, const void *dy,
                                 const void *x, const void *mean, const void *rstd,
                                 const void *weight, const void *sums)
{
    row_norm_grad_args args = {rows, cols, length, dx, dy, x, mean, rstd, weight, sums};

    launch_rows(device, "row_norm_grad", dtype, cols ? rows : 0, cols,
                (uintptr_t)dx | (uintptr_t)dy | (uintptr_t)x | (uintptr_t)weight, &args,
                sizeof args);
}

/* ---- attention ------------------------------------------------------------------------------- */

void sherd__device_attention_add(sherd__device *device, sherd_dtype dtype,
                                 const sherd__attending *s, void *out, void *log_sum,
                                 const void *more, const void *more_log_sum)
{
    attention_add_args args = {s->batch, s->queries, s->groups * s->repeat, s->width, out,
                               log_sum,  more,       more_log_sum};

    launch_each(device, "attention_add", NULL, dtype,
                s->batch * s->queries * s->groups * s->repeat * WARP, &args, sizeof args);
}

void sherd__device_add_up(sherd__device *device, sherd_dtype dtype, int64_t n, void *sum,
                          const void *x)
{
    add_up_args args = {n, sum, x};

    launch_each(device, "add_up", NULL, dtype, n, &args, sizeof args);
}
