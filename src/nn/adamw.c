/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW, and what Adam has of it: the same step but for the decay. */
#include <math.h>

#include "nn/optimizer.h"

#include "device/update.h"

sherd_status sherd__adam_check(sherd_world *world, const char *function,
                               const sherd_adamw_options *o)
{
    bool good = o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1 && o->eps >= 0 &&
                o->weight_decay >= 0;
    if (good)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: beta1 %g, beta2 %g, eps %g, weight_decay %g: betas lie in "
                       "[0, 1), the others are not negative",
                       function, o->beta1, o->beta2, o->eps, o->weight_decay);
}

sherd_adamw_options sherd__adam_defaults(const sherd_adamw_options *options)
{
    sherd_adamw_options o = options ? *options : (sherd_adamw_options){0};

    o.beta1 = o.beta1 == 0 ? 0.9 : o.beta1;
    o.beta2 = o.beta2 == 0 ? 0.999 : o.beta2;
    o.eps = o.eps == 0 ? 1e-8 : o.eps;
    return o;
}

static sherd__adamw_step step_of(const sherd_adamw_options *with, const sherd__update *u,
                                 bool decoupled)
{
    return (sherd__adamw_step){
        .rate = u->rate,
        .beta1 = with->beta1,
        .beta2 = with->beta2,
        .eps = with->eps,
        .decay = decoupled ? u->decay : 0,
        .l2 = decoupled ? 0 : u->decay,
        .correction1 = 1 - pow(with->beta1, (double)u->steps),
        .correction2 = 1 - pow(with->beta2, (double)u->steps),
        .grad_scale = u->grad_scale,
    };
}

void sherd__adam_update(const sherd_adamw_options *with, const sherd__update *u, bool decoupled)
{
    const sherd__adamw_step step = step_of(with, u, decoupled);

    if (with->amsgrad) {
        const sherd__update_pass pass = sherd__optimizer_pass(u);
        sherd__update_amsgrad(&pass, &step);
    } else {
        u->kernels->adamw(u->count, u->p, u->state[0], u->state[1], u->grad, &step);
    }
}

void sherd__adam_update_there(const sherd_adamw_options *with, const sherd__update *u, int count,
                              bool decoupled)
{
    sherd__adamw_there all[SHERD__TOGETHER];

    for (int i = 0; i < count; i++)
        all[i] = (sherd__adamw_there){u[i].p,    u[i].state[0], u[i].state[1],
                                      u[i].grad, u[i].count,    step_of(with, &u[i], decoupled)};
    sherd__device_adamw(u->device, u->dtype, count, all);
}

sherd_status sherd__adam_create(sherd_optimizer **out, sherd_module *module,
                                const sherd_adamw_options *options,
                                const sherd__optimizer_kind *kind)
{
    const sherd_adamw_options with = sherd__adam_defaults(options);
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_optimizer like = {.kind = kind, .states = kind->state[2] ? 3 : 2, .options.adam = with};
    sherd_status status = sherd__optimizer_start(out, module, kind->function);

    like.options.adam.groups = NULL; /* the caller's */
    if (!status)
        status = sherd__adam_check(sherd_module_world(module), kind->function, &with);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}

sherd__moments sherd__adam_moments(sherd_optimizer *o)
{
    return (sherd__moments){.beta1 = &o->options.adam.beta1, .beta2 = &o->options.adam.beta2};
}

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    sherd__adam_update(&o->options.adam, u, true);
}

static void update_there(const sherd_optimizer *o, const sherd__update *u, int count)
{
    sherd__adam_update_there(&o->options.adam, u, count, true);
}

const sherd_op sherd__adam_options = {
    .name = "options",
    .field = {SHERD_FIELD(sherd_adamw_options, beta1, DOUBLE),
              SHERD_FIELD(sherd_adamw_options, beta2, DOUBLE),
              SHERD_FIELD(sherd_adamw_options, eps, DOUBLE),
              SHERD_FIELD(sherd_adamw_options, weight_decay, DOUBLE),
              SHERD_FIELD(sherd_adamw_options, decay_all, BOOL),
              SHERD_FIELD(sherd_adamw_options, amsgrad, BOOL)},
    .attributes = sizeof(sherd_adamw_options)};

static const sherd__optimizer_kind adamw = {
    "sherd_adamw_create", {"m", "v"}, update, update_there, NULL, sherd__adam_moments, NULL,
    &sherd__adam_options};

static const sherd__optimizer_kind amsgrad = {
    "sherd_adamw_create", {"m", "v", "vmax"}, update, NULL, NULL, sherd__adam_moments, NULL,
    &sherd__adam_options};

sherd_status sherd_adamw_create(sherd_optimizer **out, sherd_module *module,
                                const sherd_adamw_options *options)
{
    return sherd__adam_create(out, module, options,
                              options && options->amsgrad ? &amsgrad : &adamw);
}
