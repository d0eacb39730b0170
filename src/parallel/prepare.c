/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PrepareInput, PrepareOutput and both: they move a module's inputs and outputs once, so that
 * several children that read an input need no move of their own. They fit any module.
 */
#include "parallel/style.h"

static sherd_status prepare(const sherd_style *style, sherd_module *module, const sherd_mesh *mesh,
                            int axis, const char *name, bool only_out)
{
    const sherd__recipe recipe = {
        .name = name,
        .taken = sherd_replicate(),
        .desired = sherd_replicate(),
        .follow = -1,
        .slots = true,
        .only_out = only_out,
    };

    return sherd__style_hook(style, &recipe, module, mesh, axis);
}

static sherd_status apply_input(const sherd_style *style, sherd_module *module,
                                const sherd_mesh *mesh, int axis)
{
    return prepare(style, module, mesh, axis, "PrepareInput", false);
}

static sherd_status apply_output(const sherd_style *style, sherd_module *module,
                                 const sherd_mesh *mesh, int axis)
{
    return prepare(style, module, mesh, axis, "PrepareOutput", true);
}

static sherd_status apply_both(const sherd_style *style, sherd_module *module,
                               const sherd_mesh *mesh, int axis)
{
    return prepare(style, module, mesh, axis, "PrepareInputOutput", false);
}

sherd_style sherd_prepare_input(void)
{
    return (sherd_style){.apply = apply_input, .name = "PrepareInput"};
}

sherd_style sherd_prepare_output(void)
{
    return (sherd_style){.apply = apply_output, .name = "PrepareOutput"};
}

sherd_style sherd_prepare_input_output(void)
{
    return (sherd_style){.apply = apply_both, .name = "PrepareInputOutput"};
}
