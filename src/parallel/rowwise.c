/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise: each rank adds up some of the input features (for a table: looks up some of the
 * entries), which gives a pending sum. One all-reduce settles it, or one reduce-scatter if the
 * output is to be sharded.
 */
#include "parallel/style.h"
#include "nn/quantize.h"

static sherd_status apply(const sherd_style *style, sherd_module *module, const sherd_mesh *mesh,
                          int axis)
{
    bool table = sherd_module_kind_of(module) == SHERD_MODULE_EMBEDDING;
    sherd_placement features = table ? sherd_replicate() : sherd_shard(-1);
    const sherd__recipe recipe = {
        .name = "Rowwise",
        .taken = features,
        .desired = features,
        .output = sherd_replicate(),
        .follow = table ? -1 : 1,
    };
    sherd_status status = sherd__style_fits(style, module);

    if (!status)
        status =
            sherd__place(module, "weight", mesh, axis, sherd_shard(table ? 0 : 1), style->granule);
    if (!status && sherd__has_8_bits(module))
        status = sherd__place(module, "weight_scale", mesh, axis, sherd_replicate(), 0);
    if (!status)
        status = sherd__place(module, "bias", mesh, axis, sherd_replicate(), 0);
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_rowwise(void)
{
    return (sherd_style){.apply = apply, .name = "Rowwise"};
}
