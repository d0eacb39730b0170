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
        s->scale *= s->backoff;
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

bool sherd_scaler_step(sherd_scaler *scaler, sherd_optimizer *optimizer, double learning_rate,
                       double most, double *norm)
{
    static const char function[] = "sherd_scaler_step";
    double found = NAN, by = 1;

    if (norm)
        *norm = NAN;
    if (!optimizer || !prepare(optimizer->world, function, scaler))
        return false;
    if (!(most >= 0)) {
        sherd__raise(optimizer->world, SHERD_EINVAL, "%s: the norm %g is negative", function, most);
        return false;
    }
    found = sherd_optimizer_grad_norm(optimizer) / scaler->scale;
    if (sherd__alarmed(optimizer->world))
        return false;
    if (norm)
        *norm = found;
    bool good = isfinite(found);
    if (good && most > 0 && found > most)
        by = most / found;
    if (good)
        sherd_optimizer_step(optimizer, learning_rate, by / scaler->scale);
    if (sherd__alarmed(optimizer->world))
        return false;
    adjust(scaler, good);
    return good;
}
