/* SPDX-License-Identifier: Apache-2.0 */
/* The collective part of making a mesh, or a layout from text: all ranks agree, and get its groups. */
#include "inside.h"

sherd_status sherd_mesh_create(const sherd_mesh **out, sherd_world *world, int axes,
                               const int64_t *extents, const char *const *names, const int *ranks)
{
    const sherd_mesh *mesh = NULL;
    sherd_status status = sherd__mesh_make(&mesh, &world->space, axes, extents, names, ranks);

    *out = NULL;
    status = sherd__groups_make(world, mesh, status, "sherd_mesh_create");
    if (!status)
        *out = mesh;
    return status;
}

sherd_status sherd_mesh_parse(const sherd_mesh **out, sherd_world *world, const char *text)
{
    const sherd_mesh *mesh = NULL;
    sherd_status status = sherd__mesh_read(&mesh, &world->space, text);

    *out = NULL;
    status = sherd__groups_make(world, mesh, status, "sherd_mesh_parse");
    if (!status)
        *out = mesh;
    return status;
}

sherd_status sherd_layout_parse(const sherd_layout **out, sherd_world *world, const char *text,
                                int *dtype)
{
    const sherd_layout *layout = NULL;
    int read = 0;
    sherd_status status = sherd__layout_read(&layout, &world->space, text, &read);

    *out = NULL;
    status =
        sherd__groups_make(world, layout ? layout->spec.mesh : NULL, status, "sherd_layout_parse");
    if (status)
        return status;
    if (dtype)
        *dtype = read;
    *out = layout;
    return status;
}
