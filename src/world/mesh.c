/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The collective part of making a mesh, or a layout from text: all ranks agree, and get its groups.
 * A rank that passed a NULL agrees too, as long as it has a world to do it in.
 */
#include "inside.h"

static sherd_status need(sherd_world *world, const char *function, const void *out,
                         const char *name, const void *value)
{
    const sherd__argument list[] = {{"world", world}, {"out", out}, {name, value}, {NULL, NULL}};

    return sherd__require(sherd__world_diag(world), function, list);
}

sherd_status sherd_mesh_create(const sherd_mesh **out, sherd_world *world, int axes,
                               const int64_t *extents, const char *const *names, const int *ranks)
{
    static const char function[] = "sherd_mesh_create";
    const sherd_mesh *mesh = NULL;
    sherd_status status = need(world, function, out, "extents", extents);

    if (out)
        *out = NULL;
    if (!world)
        return status;
    if (!status)
        status = sherd__mesh_make(&mesh, &world->space, axes, extents, names, ranks);
    status = sherd__groups_make(world, mesh, status, function);
    if (!status)
        *out = mesh;
    return status;
}

sherd_status sherd_mesh_parse(const sherd_mesh **out, sherd_world *world, const char *text)
{
    static const char function[] = "sherd_mesh_parse";
    const sherd_mesh *mesh = NULL;
    sherd_status status = need(world, function, out, "text", text);

    if (out)
        *out = NULL;
    if (!world)
        return status;
    if (!status)
        status = sherd__mesh_read(&mesh, &world->space, text);
    status = sherd__groups_make(world, mesh, status, function);
    if (!status)
        *out = mesh;
    return status;
}

sherd_status sherd_layout_parse(const sherd_layout **out, sherd_world *world, const char *text,
                                int *dtype)
{
    static const char function[] = "sherd_layout_parse";
    const sherd_layout *layout = NULL;
    int read = 0;
    sherd_status status = need(world, function, out, "text", text);

    if (out)
        *out = NULL;
    if (!world)
        return status;
    if (!status)
        status = sherd__layout_read(&layout, &world->space, text, &read);
    status = sherd__groups_make(world, sherd_layout_mesh(layout), status, function);
    if (status)
        return status;
    if (dtype)
        *dtype = read;
    *out = layout;
    return status;
}
