/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of update.h: each once in f32 and once in f64 (update_body.inc). A gradient of 16 bits
 * is made f32 by blocks that stay in the cache.
 */
#include "update.h"

#include <math.h>

#include "base/num.h"
#include "cast.h"

#define NAME(x) x##_f32
#define REAL    float
#define SQRT(x) sqrtf(x)
#include "update_body.inc"

#define NAME(x) x##_f64
#define REAL    double
#define SQRT(x) sqrt(x)
#include "update_body.inc"

enum { BLOCK = 1024, STATES = sizeof(((sherd__update_pass *)0)->state) / sizeof(void *) };

typedef void (*rule)(const sherd__update_pass *a, const void *step);

static void run_half(const sherd__update_pass *a, rule in_f32, const void *step)
{
    float g[BLOCK];

    for (int64_t i = 0; i < a->n; i += BLOCK) {
        sherd__update_pass part = {
            SHERD_F32, sherd__min(a->n - i, BLOCK), (float *)a->p + i, {0}, g};
        for (int k = 0; k < STATES; k++)
            part.state[k] = a->state[k] ? (float *)a->state[k] + i : NULL;
        sherd__cast(SHERD_F32, a->dtype, part.n, g, (const uint16_t *)a->grad + i);
        in_f32(&part, step);
    }
}

static void run(const sherd__update_pass *a, rule in_f32, rule in_f64, const void *step)
{
    if (a->dtype == SHERD_F64)
        in_f64(a, step);
    else if (a->dtype == SHERD_F32)
        in_f32(a, step);
    else
        run_half(a, in_f32, step);
}

void sherd__update_amsgrad(const sherd__update_pass *a, const sherd__adamw_step *step)
{
    run(a, amsgrad_f32, amsgrad_f64, step);
}

void sherd__update_rmsprop(const sherd__update_pass *a, const sherd__rmsprop_step *step)
{
    run(a, rmsprop_f32, rmsprop_f64, step);
}

void sherd__update_adagrad(const sherd__update_pass *a, const sherd__adagrad_step *step)
{
    run(a, adagrad_f32, adagrad_f64, step);
}

void sherd__update_lion(const sherd__update_pass *a, const sherd__lion_step *step)
{
    run(a, lion_f32, lion_f64, step);
}

void sherd__update_mean(const sherd__update_pass *a, const sherd__mean_step *step)
{
    run(a, mean_f32, mean_f64, step);
}
