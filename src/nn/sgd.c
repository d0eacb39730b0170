/* SPDX-License-Identifier: Apache-2.0 */
/* SGD. Without momentum it has no state at all. */
#include "nn/optimizer.h"

#include "device/update.h"

static sherd__sgd_step step_of(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd_sgd_options *with = &o->options.sgd;
    bool first = u->steps == 1;

    return (sherd__sgd_step){
        .rate = u->rate,
        .decay = u->decay,
        .grad_scale = u->grad_scale,
        .keep = first ? 0 : with->momentum,
        .add = first ? 1 : 1 - with->dampening,
        .momentum = with->momentum,
        .nesterov = with->nesterov,
    };
}

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd__sgd_step step = step_of(o, u);

    u->kernels->sgd(u->count, u->p, u->state[0], u->grad, &step);
}

static void update_there(const sherd_optimizer *o, const sherd__update *u, int count)
{
    for (int i = 0; i < count; i++) {
        const sherd__sgd_step step = step_of(o, &u[i]);
        sherd__device_sgd(u->device, u->dtype, u[i].count, u[i].p, u[i].state[0], u[i].grad, &step);
    }
}

static sherd__moments moments(sherd_optimizer *o)
{
    return (sherd__moments){.momentum = &o->options.sgd.momentum, .stateless = o->states == 0};
}

static const sherd_op compared = {.name = "options",
                                  .field = {SHERD_FIELD(sherd_sgd_options, momentum, DOUBLE),
                                            SHERD_FIELD(sherd_sgd_options, dampening, DOUBLE),
                                            SHERD_FIELD(sherd_sgd_options, weight_decay, DOUBLE),
                                            SHERD_FIELD(sherd_sgd_options, nesterov, BOOL),
                                            SHERD_FIELD(sherd_sgd_options, decay_all, BOOL)},
                                  .attributes = sizeof(sherd_sgd_options)};

static const sherd__optimizer_kind sgd = {
    "sherd_sgd_create", {"momentum"}, update, update_there, NULL, moments, NULL, &compared};

static sherd_status check(sherd_world *world, const sherd_sgd_options *o)
{
    const char *fault = NULL;

    if (!(o->momentum >= 0 && o->momentum < 1))
        fault = "momentum lies in [0, 1)";
    else if (!(o->weight_decay >= 0))
        fault = "weight_decay is not negative";
    else if (!(o->dampening >= 0 && o->dampening <= 1))
        fault = "dampening lies in [0, 1]";
    else if (o->nesterov && (o->momentum == 0 || o->dampening != 0))
        fault = "nesterov needs a momentum and no dampening";
    if (!fault)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: momentum %g, dampening %g, weight_decay %g: %s", sgd.function,
                       o->momentum, o->dampening, o->weight_decay, fault);
}

sherd_status sherd_sgd_create(sherd_optimizer **out, sherd_module *module,
                              const sherd_sgd_options *options)
{
    const sherd_sgd_options with = options ? *options : (sherd_sgd_options){0};
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_optimizer like = {.kind = &sgd, .options.sgd = with};
    sherd_status status = sherd__optimizer_start(out, module, sgd.function);

    like.states = like.options.sgd.momentum != 0;
    like.options.sgd.groups = NULL; /* the caller's */
    if (!status)
        status = check(sherd_module_world(module), &like.options.sgd);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}
