/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NAdam and RAdam: the state of Adam, and steps along the gradient, the mean, or both, divided by
 * the deviation or not.
 */
#include <math.h>

#include "nn/optimizer.h"

/* What both have in common. The caller sets where to go, and root and plain. */
static sherd__mean_step step_of(const sherd_nadam_options *with, const sherd__update *u)
{
    return (sherd__mean_step){.beta1 = with->beta1,
                              .beta2 = with->beta2,
                              .eps = with->eps,
                              .l2 = with->decoupled ? 0 : u->decay,
                              .keep = 1 - (with->decoupled ? u->rate * u->decay : 0),
                              .grad_scale = u->grad_scale};
}

static double correction(double beta, int64_t steps)
{
    return 1 - pow(beta, (double)steps);
}

/* ---- NAdam ----------------------------------------------------------------------------------- */

/* The momentum of step t, which approaches beta1. */
static double momentum_of(const sherd_nadam_options *with, int64_t t)
{
    return with->beta1 * (1 - 0.5 * pow(0.96, (double)t * with->momentum_decay));
}

/* The product of those of steps 1 to t; 0 when it is too small to be seen beside 1. */
static double product_of(const sherd_nadam_options *with, int64_t t)
{
    double product = 1;

    for (int64_t i = 1; i <= t && product > 0x1p-60; i++)
        product *= momentum_of(with, i);
    return product;
}

static void update_nadam(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd_nadam_options *with = &o->options.nadam;
    const sherd__update_pass pass = sherd__optimizer_pass(u);
    double now = momentum_of(with, u->steps), next = momentum_of(with, u->steps + 1);
    double product = product_of(with, u->steps);
    sherd__mean_step step = step_of(with, u);

    step.by_grad = u->rate * (1 - now) / (1 - product);
    step.by_mean = u->rate * next / (1 - product * next);
    step.root = 1 / sqrt(correction(with->beta2, u->steps));
    sherd__update_mean(&pass, &step);
}

/* ---- RAdam ----------------------------------------------------------------------------------- */

/*
 * How far the variance of v can be trusted after t steps, a factor for the step; 0: not at all, and
 * nothing is divided by it.
 */
static double trust_in(double beta2, int64_t t)
{
    double most = 2 / (1 - beta2) - 1;
    double now = most - 2 * (double)t * pow(beta2, (double)t) / correction(beta2, t);

    return now > 5 ? sqrt((now - 4) * (now - 2) * most / ((most - 4) * (most - 2) * now)) : 0;
}

static void update_radam(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd_nadam_options *with = &o->options.nadam;
    const sherd__update_pass pass = sherd__optimizer_pass(u);
    double trust = trust_in(with->beta2, u->steps);
    sherd__mean_step step = step_of(with, u);

    step.by_mean = u->rate / correction(with->beta1, u->steps);
    step.plain = trust == 0;
    if (!step.plain)
        step.by_mean *= trust * sqrt(correction(with->beta2, u->steps));
    step.root = 1;
    sherd__update_mean(&pass, &step);
}

/* ---- making one ------------------------------------------------------------------------------ */

static sherd__moments moments(sherd_optimizer *o)
{
    return (sherd__moments){.beta1 = &o->options.nadam.beta1, .beta2 = &o->options.nadam.beta2};
}

static const sherd_op compared = {
    .name = "options",
    .field = {SHERD_FIELD(sherd_nadam_options, beta1, DOUBLE),
              SHERD_FIELD(sherd_nadam_options, beta2, DOUBLE),
              SHERD_FIELD(sherd_nadam_options, eps, DOUBLE),
              SHERD_FIELD(sherd_nadam_options, momentum_decay, DOUBLE),
              SHERD_FIELD(sherd_nadam_options, weight_decay, DOUBLE),
              SHERD_FIELD(sherd_nadam_options, decoupled, BOOL),
              SHERD_FIELD(sherd_nadam_options, decay_all, BOOL)},
    .attributes = sizeof(sherd_nadam_options)};

static const sherd__optimizer_kind nadam = {.function = "sherd_nadam_create",
                                            .state = {"m", "v"},
                                            .update = update_nadam,
                                            .moments = moments,
                                            .options = &compared};
static const sherd__optimizer_kind radam = {.function = "sherd_radam_create",
                                            .state = {"m", "v"},
                                            .update = update_radam,
                                            .moments = moments,
                                            .options = &compared};

static sherd_status check(sherd_world *world, const char *function, const sherd_nadam_options *o)
{
    if (o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->eps >= 0 &&
        o->momentum_decay >= 0 && o->weight_decay >= 0)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: beta1 %g, beta2 %g, eps %g, momentum_decay %g, weight_decay %g: betas "
                       "lie in [0, 1), the others are not negative",
                       function, o->beta1, o->beta2, o->eps, o->momentum_decay, o->weight_decay);
}

static sherd_status create(sherd_optimizer **out, sherd_module *module, sherd_nadam_options with,
                           const sherd__optimizer_kind *kind)
{
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_status status = sherd__optimizer_start(out, module, kind->function);

    with.beta1 = with.beta1 == 0 ? 0.9 : with.beta1;
    with.beta2 = with.beta2 == 0 ? 0.999 : with.beta2;
    with.eps = with.eps == 0 ? 1e-8 : with.eps;
    with.momentum_decay = with.momentum_decay == 0 ? 4e-3 : with.momentum_decay;
    with.groups = NULL; /* the caller's */
    const sherd_optimizer like = {.kind = kind, .states = 2, .options.nadam = with};
    if (!status)
        status = check(sherd_module_world(module), kind->function, &with);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}

sherd_status sherd_nadam_create(sherd_optimizer **out, sherd_module *module,
                                const sherd_nadam_options *options)
{
    return create(out, module, options ? *options : (sherd_nadam_options){0}, &nadam);
}

sherd_status sherd_radam_create(sherd_optimizer **out, sherd_module *module,
                                const sherd_nadam_options *options)
{
    return create(out, module, options ? *options : (sherd_nadam_options){0}, &radam);
}
