/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss scaling. The norm of all gradients says whether all are finite: squares are added in f64,
 * over all ranks in rank order, so every rank sees the same bits and decides alike; and clipping
 * needs the norm anyway. The division is part of the optimizer's step.
 */
#include <math.h>

#include "nn/optimizer.h"
#include "sherd/ops.h"
#include "sherd/scaler.h"

/* The least number of f16: with a smaller factor, the gradient of a loss in f16 would be 0. */
static const double least = 0x1p-24;

static void fill_in(sherd_scaler *s)
{
    s->scale = s->scale == 0 ? 65536 : s->scale;
    s->growth = s->growth == 0 ? 2 : s->growth;
    s->backoff = s->backoff == 0 ? 0.5 : s->backoff;
    s->interval = s->interval == 0 ? 2000 : s->interval;
}

/* The scaler with its defaults; false: refused, by the alarm. */
static bool prepare(sherd_world *world, const char *function, sherd_scaler *s)
{
    if (!s) {
        sherd__raise(world, SHERD_EINVAL, "%s: scaler is NULL", function);
        return false;
    }
    fill_in(s);
    if (s->scale > 0 && isfinite(s->scale) && s->growth >= 1 && isfinite(s->growth) &&
        s->backoff > 0 && s->backoff <= 1 && s->interval > 0)
        return true;
    sherd__raise(world, SHERD_EINVAL,
                 "%s: scale %g, growth %g, backoff %g, interval %lld: scale is above 0, growth at "
                 "least 1, backoff in (0, 1], interval at least 1",
                 function, s->scale, s->growth, s->backoff, (long long)s->interval);
    return false;
}

sherd_tensor *sherd_scaler_scale(sherd_scaler *scaler, sherd_tensor *loss)
{
    if (!loss)
        return sherd_scale(loss, 1);
    return prepare(loss->world, "sherd_scaler_scale", scaler) ? sherd_scale(loss, scaler->scale)
                                                              : sherd__failed(loss->world);
}

static void adjust(sherd_scaler *s, bool good)
{
    if (!good) {
        s->scale = fmax(s->scale * s->backoff, fmin(s->scale, least));
        s->good = 0;
        s->skipped++;
        return;
    }
    if (++s->good < s->interval)
        return;
    s->good = 0;
    if (isfinite(s->scale * s->growth))
        s->scale *= s->growth;
}

/* What a step with a scaler is told, and whose gradients it is for: one of the two is NULL. */
typedef struct step {
    const char *function;
    sherd_world *world;
    sherd_optimizer *one;
    const sherd_optimizers *all;
    double rate, most;
} step;

static double norm_of(const step *s)
{
    return s->one ? sherd_optimizer_grad_norm(s->one)
                  : sherd__optimizers_norm(s->function, s->all, 2);
}

static void step_all(const step *s, double grad_scale)
{
    if (s->one)
        sherd_optimizer_step(s->one, s->rate, grad_scale);
    for (int i = 0; s->all && i < s->all->count; i++)
        sherd_optimizer_step(s->all->list[i], s->rate, grad_scale);
}

static bool run(const step *s, sherd_scaler *scaler, double *norm)
{
    double found, by = 1;

    if (!s->world || !prepare(s->world, s->function, scaler))
        return false;
    if (!sherd__optimizer_bound(s->world, s->function, "norm", s->most) ||
        !sherd__optimizer_rate(s->world, s->function, s->rate))
        return false;
    found = norm_of(s) / scaler->scale;
    if (sherd__alarmed(s->world))
        return false;
    if (norm)
        *norm = found;
    bool good = isfinite(found);
    if (good && s->most > 0 && found > s->most)
        by = s->most / found;
    if (good)
        step_all(s, by / scaler->scale);
    if (sherd__alarmed(s->world))
        return false;
    adjust(scaler, good);
    return good;
}

bool sherd_scaler_step(sherd_scaler *scaler, sherd_optimizer *optimizer, double learning_rate,
                       double most, double *norm)
{
    const step s = {"sherd_scaler_step", optimizer ? optimizer->world : NULL,
                    optimizer,           NULL,
                    learning_rate,       most};

    if (norm)
        *norm = NAN;
    return run(&s, scaler, norm);
}

bool sherd_scaler_step_all(sherd_scaler *scaler, const sherd_optimizers *all, double learning_rate,
                           double most, double *norm)
{
    const step s = {
        "sherd_scaler_step_all", sherd__optimizers_world(all), NULL, all, learning_rate, most};

    if (norm)
        *norm = NAN;
    return run(&s, scaler, norm);
}
