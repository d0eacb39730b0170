/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rowwise: each rank adds up some of the input features (for a table: looks up some of the
 * entries), which gives a pending sum. One all-reduce settles it, or one reduce-scatter if the
 * output is to be sharded.
 */
#include "parallel/style.h"
#include "nn/quantize.h"

/* How many elements of the weight's dim stay together: of 4 bits it is a dim of bytes. */
static sherd_status granule_of(int64_t *out, const sherd_style *style, const sherd_module *module)
{
    bool pairs = sherd__weight_bits(module) == 4 && style->granule > 1;

    *out = pairs ? style->granule / 2 : style->granule;
    if (!pairs || style->granule % 2 == 0)
        return SHERD_OK;
    return sherd__module_fail(module, SHERD_EINVAL,
                              "sherd_parallelize: Rowwise of \"%s\": a granule of %lld columns: of "
                              "4 bits it must be even",
                              sherd__module_name(module), (long long)style->granule);
}

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
    int64_t granule = 0;

    if (!status)
        status = granule_of(&granule, style, module);
    if (!status)
        status = sherd__place(module, "weight", mesh, axis, sherd_shard(table ? 0 : 1), granule);
    if (!status && sherd__weight_bits(module))
        status = sherd__place(module, "weight_scale", mesh, axis, sherd_replicate(), 0);
    if (!status)
        status = sherd__place(module, "bias", mesh, axis, sherd_replicate(), 0);
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_rowwise(void)
{
    return (sherd_style){.apply = apply, .name = "Rowwise"};
}
