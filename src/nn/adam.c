/* SPDX-License-Identifier: Apache-2.0 */
/* Adam: the decay is part of the gradient, so m and v see it. */
#include "nn/optimizer.h"

static void update(const sherd_optimizer *o, const sherd__update *u)
{
    sherd__adam_update(&o->options.adam, u, false);
}

static void update_there(const sherd_optimizer *o, const sherd__update *u, int count)
{
    sherd__adam_update_there(&o->options.adam, u, count, false);
}

static const sherd__optimizer_kind adam = {
    "sherd_adam_create", {"m", "v"}, update, update_there, NULL, sherd__adam_moments, NULL,
    &sherd__adam_options};

static const sherd__optimizer_kind amsgrad = {
    "sherd_adam_create", {"m", "v", "vmax"}, update, NULL, NULL, sherd__adam_moments, NULL,
    &sherd__adam_options};

sherd_status sherd_adam_create(sherd_optimizer **out, sherd_module *module,
                               const sherd_adamw_options *options)
{
    return sherd__adam_create(out, module, options, options && options->amsgrad ? &amsgrad : &adam);
}
