/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SequenceParallel: each rank keeps some positions of a sequence, for modules that process
 * positions independently. The gradients of its replicated parameters are pending sums, settled
 * with all others.
 */
#include "parallel/style.h"

static sherd_status apply(const sherd_style *style, sherd_module *module, const sherd_mesh *mesh,
                          int axis)
{
    sherd_placement sequence = sherd_shard(style->sequence_dim);
    const sherd__recipe recipe = {
        .name = "SequenceParallel",
        .taken = sequence,
        .desired = sequence,
        .follow = -1,
    };
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < module->parameters; i++)
        status = sherd__place(module, module->parameter[i].name, mesh, axis, sherd_replicate(), 0);
    return status ? status : sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_sequence_parallel(void)
{
    return (sherd_style){.apply = apply, .name = "SequenceParallel", .sequence_dim = 1};
}
