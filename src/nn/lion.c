/* SPDX-License-Identifier: Apache-2.0 */
/* Lion: steps of one size, along the sign of a mean. */
#include "nn/optimizer.h"

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd_lion_options *with = &o->options.lion;
    const sherd__update_pass pass = sherd__optimizer_pass(u);
    const sherd__lion_step step = {
        .rate = u->rate,
        .decay = u->decay,
        .grad_scale = u->grad_scale,
        .beta1 = with->beta1,
        .beta2 = with->beta2,
    };

    sherd__update_lion(&pass, &step);
}

static sherd__moments moments(sherd_optimizer *o)
{
    return (sherd__moments){.beta1 = &o->options.lion.beta1, .beta2 = &o->options.lion.beta2};
}

static const sherd_op compared = {.name = "options",
                                  .field = {SHERD_FIELD(sherd_lion_options, beta1, DOUBLE),
                                            SHERD_FIELD(sherd_lion_options, beta2, DOUBLE),
                                            SHERD_FIELD(sherd_lion_options, weight_decay, DOUBLE),
                                            SHERD_FIELD(sherd_lion_options, decay_all, BOOL)},
                                  .attributes = sizeof(sherd_lion_options)};

static const sherd__optimizer_kind lion = {
    "sherd_lion_create", {"m"}, update, NULL, NULL, moments, NULL, &compared};

static sherd_status check(sherd_world *world, const sherd_lion_options *o)
{
    if (o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->weight_decay >= 0)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: beta1 %g, beta2 %g, weight_decay %g: betas lie in [0, 1), the decay is "
                       "not negative",
                       lion.function, o->beta1, o->beta2, o->weight_decay);
}

sherd_status sherd_lion_create(sherd_optimizer **out, sherd_module *module,
                               const sherd_lion_options *options)
{
    sherd_lion_options with = options ? *options : (sherd_lion_options){0};
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_status status = sherd__optimizer_start(out, module, lion.function);

    with.beta1 = with.beta1 == 0 ? 0.9 : with.beta1;
    with.beta2 = with.beta2 == 0 ? 0.99 : with.beta2;
    with.groups = NULL; /* the caller's */
    const sherd_optimizer like = {.kind = &lion, .states = 1, .options.lion = with};
    if (!status)
        status = check(sherd_module_world(module), &with);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}
