/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Colwise: each rank computes some of the output features. Only an input that is not replicated yet
 * is moved, in forward, and the pending gradient of the input is settled, in backward.
 */
#include "parallel/style.h"
#include "nn/quantize.h"

static sherd_status apply(const sherd_style *style, sherd_module *module, const sherd_mesh *mesh,
                          int axis)
{
    const sherd__recipe recipe = {
        .name = "Colwise",
        .taken = sherd_replicate(),
        .desired = sherd_replicate(),
        .follow = -1,
    };
    bool table = sherd_module_kind_of(module) == SHERD_MODULE_EMBEDDING;
    sherd_placement weight = sherd_shard(table ? 1 : 0);
    sherd_status status = sherd__style_fits(style, module);

    if (!status)
        status = sherd__place(module, "weight", mesh, axis, weight, style->granule);
    if (!status && sherd__weight_bits(module))
        status = sherd__place(module, "weight_scale", mesh, axis, sherd_shard(0), style->granule);
    if (!status)
        status = sherd__place(module, "bias", mesh, axis, sherd_shard(0), style->granule);
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_colwise(void)
{
    return (sherd_style){.apply = apply, .name = "Colwise"};
}
