/* SPDX-License-Identifier: Apache-2.0 */
/* RMSprop. What it keeps depends on its options, so it is of one kind or another. */
#include "nn/optimizer.h"

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd_rmsprop_options *with = &o->options.rmsprop;
    const sherd__update_pass pass = sherd__optimizer_pass(u);
    const sherd__rmsprop_step step = {
        .rate = u->rate,
        .decay = u->decay,
        .grad_scale = u->grad_scale,
        .alpha = with->alpha,
        .eps = with->eps,
        .momentum = with->momentum,
        .centered = with->centered,
    };

    sherd__update_rmsprop(&pass, &step);
}

static sherd__moments moments(sherd_optimizer *o)
{
    sherd_rmsprop_options *with = &o->options.rmsprop;

    return (sherd__moments){.momentum = &with->momentum,
                            .stateless = o->states == 1 + with->centered};
}

static const char function[] = "sherd_rmsprop_create";
static const sherd_op compared = {
    .name = "options",
    .field = {SHERD_FIELD(sherd_rmsprop_options, alpha, DOUBLE),
              SHERD_FIELD(sherd_rmsprop_options, eps, DOUBLE),
              SHERD_FIELD(sherd_rmsprop_options, momentum, DOUBLE),
              SHERD_FIELD(sherd_rmsprop_options, weight_decay, DOUBLE),
              SHERD_FIELD(sherd_rmsprop_options, centered, BOOL),
              SHERD_FIELD(sherd_rmsprop_options, decay_all, BOOL)},
    .attributes = sizeof(sherd_rmsprop_options)};

static const sherd__optimizer_kind plain = {.function = function,
                                            .state = {"v", "momentum"},
                                            .update = update,
                                            .moments = moments,
                                            .options = &compared},
                                   centered = {.function = function,
                                               .state = {"v", "mean", "momentum"},
                                               .update = update,
                                               .moments = moments,
                                               .options = &compared};

static sherd_status check(sherd_world *world, const sherd_rmsprop_options *o)
{
    const char *fault = NULL;

    if (!(o->alpha >= 0 && o->alpha < 1))
        fault = "alpha lies in [0, 1)";
    else if (!(o->momentum >= 0 && o->momentum < 1))
        fault = "momentum lies in [0, 1)";
    else if (!(o->eps >= 0 && o->weight_decay >= 0))
        fault = "eps and weight_decay are not negative";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: alpha %g, eps %g, momentum %g, weight_decay %g: %s", function, o->alpha,
                       o->eps, o->momentum, o->weight_decay, fault);
}

sherd_status sherd_rmsprop_create(sherd_optimizer **out, sherd_module *module,
                                  const sherd_rmsprop_options *options)
{
    sherd_rmsprop_options with = options ? *options : (sherd_rmsprop_options){0};
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_status status = sherd__optimizer_start(out, module, function);

    with.alpha = with.alpha == 0 ? 0.99 : with.alpha;
    with.eps = with.eps == 0 ? 1e-8 : with.eps;
    with.groups = NULL; /* the caller's */
    const sherd_optimizer like = {.kind = with.centered ? &centered : &plain,
                                  .states = 1 + with.centered + (with.momentum != 0),
                                  .options.rmsprop = with};
    if (!status)
        status = check(sherd_module_world(module), &with);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}
