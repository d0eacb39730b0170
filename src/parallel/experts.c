/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles of a mixture of experts. Sharded by experts, nothing is moved around the module: operators
 * on groups of rows (functional/grouped.c) find their weights sharded, and take rows there. Sharded
 * by hidden features, it is Colwise and Rowwise inside: the output is a pending sum.
 */
#include "parallel/style.h"

static sherd_status refuse(const sherd_style *style, const sherd_module *module, const char *why)
{
    return sherd__module_fail(module, SHERD_EINVAL, "sherd_parallelize: %s of module \"%s\": %s",
                              style->name ? style->name : "style", sherd__module_name(module), why);
}

static sherd_status by_expert(const sherd_style *style, sherd_module *module,
                              const sherd_mesh *mesh, int axis)
{
    const sherd__recipe recipe = {.name = "ExpertParallel", .follow = -1};
    sherd_status status = SHERD_OK;
    int found = 0;

    if (style->granule < 0)
        return refuse(style, module, "the granule is negative");
    for (int i = 0; !status && i < module->parameters; i++) {
        if (module->parameter[i].tensor->ndim != 3)
            continue;
        found++;
        status = sherd__place(module, module->parameter[i].name, mesh, axis, sherd_shard(0),
                              style->granule);
    }
    if (!status && !found)
        return refuse(style, module, "it has no parameter of three dims");
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_expert_parallel(void)
{
    return (sherd_style){.apply = by_expert, .name = "ExpertParallel"};
}

static sherd_status by_feature(const sherd_style *style, sherd_module *module,
                               const sherd_mesh *mesh, int axis)
{
    static const struct {
        const char *name;
        int dim;
    } weight[] = {{"w1", 1}, {"w3", 1}, {"w2", 2}};
    const sherd__recipe recipe = {.name = "ExpertTensorParallel",
                                  .taken = sherd_replicate(),
                                  .desired = sherd_replicate(),
                                  .output = sherd_replicate(),
                                  .follow = -1,
                                  .only_first = true}; /* the balance is a scalar */
    sherd_status status = SHERD_OK;

    if (style->granule < 0)
        return refuse(style, module, "the granule is negative");
    for (int i = 0; i < 3; i++) {
        const sherd_tensor *t = sherd_module_parameter(module, weight[i].name);
        if (!t || t->ndim != 3)
            return refuse(style, module, "it needs parameters w1, w2 and w3 of three dims");
    }
    for (int i = 0; !status && i < 3; i++)
        status = sherd__place(module, weight[i].name, mesh, axis, sherd_shard(weight[i].dim),
                              style->granule);
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_expert_tensor_parallel(void)
{
    return (sherd_style){.apply = by_feature, .name = "ExpertTensorParallel"};
}
