/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of optimizers on the GPU: see update.cu. One launch for a tensor. */
#include "box.h"
#include "update_args.h"

#include "base/dtype.h"

/* What a thread takes at once, and whether places allow it. */
static bool is_wide(sherd_dtype dtype, const void *const real[3], const void *grad, int64_t *lanes)
{
    *lanes = SHERD__WIDE / (int64_t)sherd_dtype_bytes(sherd__statistics_dtype(dtype));
    bool wide = sherd__is_aligned(grad, (size_t)*lanes * sherd_dtype_bytes(dtype));
    for (int i = 0; i < 3; i++)
        wide = wide && sherd__is_aligned(real[i], SHERD__WIDE);
    return wide;
}

static void launch(sherd__device *device, const char *family, sherd_dtype dtype, int64_t items,
                   const void *args, size_t bytes)
{
    const sherd__kernel kernel = {SHERD__PROGRAM_UPDATE, family, NULL, dtype, SHERD_DTYPE_NONE};

    sherd__device_launch(device, &kernel, sherd__grid_of(items), args, bytes);
}

void sherd__device_adamw(sherd__device *device, sherd_dtype dtype, int64_t n, void *p, void *m,
                         void *v, const void *grad, const sherd__adamw_step *step)
{
    int64_t lanes;
    bool wide = is_wide(dtype, (const void *[]){p, m, v}, grad, &lanes);
    const adamw_args args = {.p = p,
                             .m = m,
                             .v = v,
                             .grad = grad,
                             .n = n,
                             .wide = wide,
                             .rate = step->rate,
                             .eps = step->eps,
                             .decay = step->decay,
                             .grad_scale = step->grad_scale,
                             .l2 = step->l2,
                             .beta1 = step->beta1,
                             .rest1 = 1 - step->beta1,
                             .beta2 = step->beta2,
                             .rest2 = 1 - step->beta2,
                             .correction1 = step->correction1,
                             .correction2 = step->correction2};

    launch(device, "adamw", dtype, wide ? n / lanes + (n > 0) : n, &args, sizeof args);
}

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

    launch(device, "sgd", dtype, wide ? n / lanes + (n > 0) : n, &args, sizeof args);
}
