/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PrepareInput: moves what a module gets, once, so that several children that read it need no move
 * of their own.
 */
#include "parallel/style.h"

static sherd_status apply(const sherd_style *style, sherd_module *module, const sherd_mesh *mesh,
                          int axis)
{
    const sherd__recipe recipe = {
        .name = "PrepareInput",
        .taken = sherd_replicate(),
        .desired = sherd_replicate(),
        .follow = -1,
    };

    return sherd__style_hook(style, &recipe, module, mesh, axis);
}

sherd_style sherd_prepare_input(void)
{
    return (sherd_style){.apply = apply, .name = "PrepareInput"};
}
