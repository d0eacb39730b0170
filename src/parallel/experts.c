/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Styles of a mixture of experts. Sharded by experts, nothing is moved around the module: operators
 * on groups of rows (functional/grouped.c) find their weights sharded, and take rows there. Sharded
 * by hidden features, it is Colwise and Rowwise inside: the output is a pending sum.
 */
#include "nn/quantize.h"
#include "parallel/style.h"

/* The weights of experts, their scales where they are of few bits, and their hidden dim. */
static const struct {
    const char *name, *scale;
    int dim;
} weights[] = {{"w1", "w1_scale", 1}, {"w3", "w3_scale", 1}, {"w2", "w2_scale", 2}};
enum { WEIGHTS = sizeof weights / sizeof *weights };

/* The bits of weight i, if it is whole numbers; else 0. */
static int bits_of(const sherd_module *m, int i)
{
    const sherd__whole_numbers *numbers = sherd__experts_numbers(m);

    return numbers && sherd__find_buffer(m, weights[i].name) >= 0 ? numbers->bits : 0;
}

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
    for (int i = 0; !status && i < WEIGHTS; i++) {
        if (!bits_of(module, i))
            continue;
        found++;
        status = sherd__place(module, weights[i].name, mesh, axis, sherd_shard(0), style->granule);
        if (!status)
            status =
                sherd__place(module, weights[i].scale, mesh, axis, sherd_shard(0), style->granule);
    }
    if (!status && !found)
        return refuse(style, module, "it has no parameter of three dims");
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_expert_parallel(void)
{
    return (sherd_style){.apply = by_expert, .name = "ExpertParallel"};
}

/* Hidden features of weight i: of 4 bits those of w2 are a dim of bytes. Groups of scales are
 * whole, so scales of w2 are on all ranks. */
static sherd_status place_features(const sherd_style *style, sherd_module *m,
                                   const sherd_mesh *mesh, int axis, int i)
{
    int bits = bits_of(m, i), dim = weights[i].dim;
    bool bytes = bits == 4 && dim == 2 && style->granule > 1;
    sherd_status status = sherd__place(m, weights[i].name, mesh, axis, sherd_shard(dim),
                                       bytes ? style->granule / 2 : style->granule);

    if (status || !bits)
        return status;
    return sherd__place(m, weights[i].scale, mesh, axis,
                        dim == 2 ? sherd_replicate() : sherd_shard(dim),
                        dim == 2 ? 0 : style->granule);
}

static sherd_status by_feature(const sherd_style *style, sherd_module *module,
                               const sherd_mesh *mesh, int axis)
{
    const sherd__recipe recipe = {.name = "ExpertTensorParallel",
                                  .taken = sherd_replicate(),
                                  .desired = sherd_replicate(),
                                  .output = sherd_replicate(),
                                  .follow = -1,
                                  .only_first = true}; /* the balance is a scalar */
    sherd_status status = SHERD_OK;

    if (style->granule < 0)
        return refuse(style, module, "the granule is negative");
    for (int i = 0; i < WEIGHTS; i++) {
        const sherd_tensor *t = sherd_module_parameter(module, weights[i].name);
        if (!bits_of(module, i) && (!t || t->ndim != 3))
            return refuse(style, module, "it needs parameters w1, w2 and w3 of three dims");
        if (bits_of(module, i) == 4 && style->granule > 1 && style->granule % 2)
            return refuse(style, module, "of 4 bits the granule must be even");
    }
    for (int i = 0; !status && i < WEIGHTS; i++)
        status = place_features(style, module, mesh, axis, i);
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_expert_tensor_parallel(void)
{
    return (sherd_style){.apply = by_feature, .name = "ExpertTensorParallel"};
}
