/* SPDX-License-Identifier: Apache-2.0 */
/* Momentum and betas of an optimizer, changed between steps. */
#include "nn/optimizer.h"

static sherd_status refuse(const sherd_optimizer *o, const char *function, const char *fault)
{
    return sherd__fail(sherd__world_diag(o->world), SHERD_EINVAL, "%s: of %s: %s", function,
                       o->kind->function, fault);
}

static sherd__moments moments_of(sherd_optimizer *o)
{
    return o->kind->moments ? o->kind->moments(o) : (sherd__moments){NULL, NULL, NULL, false};
}

static bool is_weight(double x)
{
    return x >= 0 && x < 1;
}

sherd_status sherd_optimizer_momentum(sherd_optimizer *o, double momentum)
{
    static const char function[] = "sherd_optimizer_momentum";

    if (!o)
        return SHERD_EINVAL;
    const sherd__moments m = moments_of(o);
    if (!m.momentum)
        return refuse(o, function,
                      m.beta1 ? "it has betas: call sherd_optimizer_betas" : "it has no momentum");
    if (!is_weight(momentum))
        return refuse(o, function, "momentum lies in [0, 1)");
    if (m.stateless && momentum != 0)
        return refuse(o, function, "it was made without momentum, and has no state for it");
    *m.momentum = momentum;
    sherd__optimizer_hash(o);
    return SHERD_OK;
}

sherd_status sherd_optimizer_betas(sherd_optimizer *o, double beta1, double beta2)
{
    static const char function[] = "sherd_optimizer_betas";

    if (!o)
        return SHERD_EINVAL;
    const sherd__moments m = moments_of(o);
    if (!m.beta1)
        return refuse(o, function, "it has no betas");
    if (!is_weight(beta1) || !is_weight(beta2))
        return refuse(o, function, "betas lie in [0, 1)");
    *m.beta1 = beta1;
    *m.beta2 = beta2;
    sherd__optimizer_hash(o);
    return SHERD_OK;
}
