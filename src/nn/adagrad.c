/* SPDX-License-Identifier: Apache-2.0 */
/* Adagrad. What its sum begins with is added in the first step. */
#include "nn/optimizer.h"

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    const sherd_adagrad_options *with = &o->options.adagrad;
    const sherd__update_pass pass = sherd__optimizer_pass(u);
    const sherd__adagrad_step step = {
        .rate = u->rate / (1 + (double)(u->steps - 1) * with->rate_decay),
        .decay = u->decay,
        .grad_scale = u->grad_scale,
        .more = u->steps == 1 ? with->initial : 0,
        .eps = with->eps,
    };

    sherd__update_adagrad(&pass, &step);
}

static const sherd_op compared = {
    .name = "options",
    .field = {SHERD_FIELD(sherd_adagrad_options, rate_decay, DOUBLE),
              SHERD_FIELD(sherd_adagrad_options, initial, DOUBLE),
              SHERD_FIELD(sherd_adagrad_options, eps, DOUBLE),
              SHERD_FIELD(sherd_adagrad_options, weight_decay, DOUBLE),
              SHERD_FIELD(sherd_adagrad_options, decay_all, BOOL)},
    .attributes = sizeof(sherd_adagrad_options)};

static const sherd__optimizer_kind adagrad = {
    "sherd_adagrad_create", {"sum"}, update, NULL, NULL, NULL, NULL, &compared};

static sherd_status check(sherd_world *world, const sherd_adagrad_options *o)
{
    if (o->rate_decay >= 0 && o->initial >= 0 && o->eps >= 0 && o->weight_decay >= 0)
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(world), SHERD_EINVAL,
                       "%s: rate_decay %g, initial %g, eps %g, weight_decay %g: they are not "
                       "negative",
                       adagrad.function, o->rate_decay, o->initial, o->eps, o->weight_decay);
}

sherd_status sherd_adagrad_create(sherd_optimizer **out, sherd_module *module,
                                  const sherd_adagrad_options *options)
{
    sherd_adagrad_options with = options ? *options : (sherd_adagrad_options){0};
    const sherd__grouping grouping = {with.weight_decay, with.decay_all, with.groups,
                                      with.group_count};
    sherd_status status = sherd__optimizer_start(out, module, adagrad.function);

    with.eps = with.eps == 0 ? 1e-10 : with.eps;
    with.groups = NULL; /* the caller's */
    const sherd_optimizer like = {.kind = &adagrad, .states = 1, .options.adagrad = with};
    if (!status)
        status = check(sherd_module_world(module), &with);
    return status ? status : sherd__optimizer_create(out, module, &like, &grouping);
}
