/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers and sums of squares on the GPU: see update.cu. */
#include "box.h"
#include "update.h"
#include "programs/update_args.h"

#include "base/dtype.h"
#include "base/num.h"

#include <math.h>

/* What a thread takes at once, and whether places allow it. */
static bool is_wide(sherd_dtype dtype, const void *const real[3], const void *grad, int64_t *lanes)
{
    *lanes = SHERD__WIDE / (int64_t)sherd_dtype_bytes(sherd__statistics_dtype(dtype));
    bool wide = sherd__is_aligned(grad, (size_t)*lanes * sherd_dtype_bytes(dtype));
    for (int i = 0; i < 3; i++)
        wide = wide && sherd__is_aligned(real[i], SHERD__WIDE);
    return wide;
}

static void launch(sherd__device *device, const char *family, sherd_dtype dtype,
                   sherd__launch_grid grid, const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_UPDATE, family, NULL, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, grid, args, bytes);
}

/* ---- AdamW ----------------------------------------------------------------------------------- */

static adamw_item item_of(sherd_dtype dtype, const sherd__adamw_there *t, int64_t first)
{
    const sherd__adamw_step *step = &t->step;
    int64_t lanes;

    return (adamw_item){.p = t->p,
                        .m = t->m,
                        .v = t->v,
                        .grad = t->grad,
                        .n = t->n,
                        .rate = step->rate / step->correction1,
                        .root = 1 / sqrt(step->correction2),
                        .shrink = step->rate * step->decay,
                        .l2 = step->l2,
                        .first = (int32_t)first,
                        .wide =
                            is_wide(dtype, (const void *[]){t->p, t->m, t->v}, t->grad, &lanes)};
}

void sherd__device_adamw(sherd__device *device, sherd_dtype dtype, int count,
                         const sherd__adamw_there *all)
{
    int64_t blocks = 0;
    adamw_args args;

    if (count == 0)
        return;
    const sherd__adamw_step *step = &all->step;
    args.count = 0;
    args.eps = step->eps;
    args.grad_scale = step->grad_scale;
    args.beta1 = step->beta1;
    args.rest1 = 1 - step->beta1;
    args.beta2 = step->beta2;
    args.rest2 = 1 - step->beta2;
    for (int i = 0; i < count; i++) {
        if (all[i].n == 0)
            continue;
        args.item[args.count++] = item_of(dtype, &all[i], blocks);
        blocks += sherd__ceil_div(all[i].n, UPDATE_CHUNK);
        if (args.count < UPDATE_MOST)
            continue;
        launch(device, "adamw", dtype, (sherd__launch_grid){blocks, UPDATE_THREADS, 0}, &args,
               sizeof args);
        args.count = 0;
        blocks = 0;
    }
    if (args.count)
        launch(device, "adamw", dtype, (sherd__launch_grid){blocks, UPDATE_THREADS, 0}, &args,
               sizeof args);
}

/* ---- sums of squares ------------------------------------------------------------------------- */

/* The sums of a launch's blocks are added to *dst by one more. */
static void add_chunks(sherd__device *device, sherd_dtype dtype, double *dst, squares_args *args,
                       int64_t blocks)
{
    sherd__device_block *sums = sherd__device_take(device, blocks * (int64_t)sizeof(double));

    if (!sums) {
        sherd__device_lack(device, "out of GPU memory for a sum of squares");
        return;
    }
    args->sums = sums->data;
    launch(device, "squares", dtype, (sherd__launch_grid){blocks, UPDATE_THREADS, 0}, args,
           sizeof *args);
    sherd__device_sum(device, SHERD_F64, dst, sums->data, 1, blocks, 1, true);
    sherd__device_give(device, sums);
}

void sherd__device_add_squares(sherd__device *device, sherd_dtype dtype, double *dst, int count,
                               const void *const *src, const int64_t *n)
{
    int64_t blocks = 0;
    squares_args args;

    args.count = 0;
    for (int i = 0; i < count; i++) {
        if (n[i] == 0)
            continue;
        args.item[args.count++] =
            (squares_item){src[i], n[i], (int32_t)blocks, sherd__is_aligned(src[i], SHERD__WIDE)};
        blocks += sherd__ceil_div(n[i], SQUARES_CHUNK);
        if (args.count < SQUARES_MOST)
            continue;
        add_chunks(device, dtype, dst, &args, blocks);
        args.count = 0;
        blocks = 0;
    }
    if (args.count)
        add_chunks(device, dtype, dst, &args, blocks);
}

/* ---- SGD ------------------------------------------------------------------------------------- */

void sherd__device_sgd(sherd__device *device, sherd_dtype dtype, int64_t n, void *p, void *m,
                       const void *grad, const sherd__sgd_step *step)
{
    int64_t lanes;
    bool wide = is_wide(dtype, (const void *[]){p, m, NULL}, grad, &lanes);
    const sgd_args args = {.p = p,
                           .m = m,
                           .grad = grad,
                           .n = n,
                           .wide = wide,
                           .nesterov = step->nesterov,
                           .rate = step->rate,
                           .decay = step->decay,
                           .grad_scale = step->grad_scale,
                           .keep = step->keep,
                           .add = step->add,
                           .momentum = step->momentum};

    launch(device, "sgd", dtype, sherd__grid_of(wide ? n / lanes + (n > 0) : n), &args,
           sizeof args);
}
