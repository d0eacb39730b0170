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

/* What is wrong with a selection; EINVAL with a text. */
static sherd_status check_selection(sherd_world *world, const char *function,
                                    const sherd_mesh *mesh, int axis, const char *name,
                                    int64_t index)
{
    if (mesh->root != mesh)
        return sherd__fail(&world->diag, SHERD_EINVAL, "%s: (%s) is a part of (%s): use that",
                           function, mesh->text, mesh->root->text);
    if (axis < 0)
        return sherd__fail(&world->diag, SHERD_EINVAL, "%s: no axis \"%s\" in the mesh (%s)",
                           function, name, mesh->text);
    if (index < 0 || index >= mesh->extent[axis])
        return sherd__fail(&world->diag, SHERD_EINVAL, "%s: index %lld of axis %s of (%s)",
                           function, (long long)index, name, mesh->text);
    return SHERD_OK;
}

/* The ranks with this coordinate, as a mesh of the other axes. */
static sherd_status select_ranks(const sherd_mesh **out, sherd_world *world, const sherd_mesh *mesh,
                                 int axis, int64_t index)
{
    int64_t at[SHERD_MAX_AXES], extent[SHERD_MAX_AXES] = {1};
    const char *name[SHERD_MAX_AXES] = {mesh->name[axis]};
    int axes = 0, count = 0;
    int *ranks = sherd__alloc(&world->heap, (size_t)mesh->count, sizeof *ranks);

    if (!ranks)
        return sherd__no_memory(&world->diag, "sherd_mesh_select");
    for (int i = 0; i < mesh->axes; i++)
        if (i != axis) {
            name[axes] = mesh->name[i];
            extent[axes++] = mesh->extent[i];
        }
    for (int64_t place = 0; place < mesh->count; place++) {
        sherd__mesh_coordinate_at(mesh, place, at);
        if (at[axis] == index)
            ranks[count++] = sherd__mesh_rank_at(mesh, at);
    }
    sherd_status status =
        sherd__mesh_make(out, &world->space, axes ? axes : 1, extent, name, ranks);
    sherd__free(&world->heap, ranks);
    return status;
}

sherd_status sherd_mesh_select(const sherd_mesh **out, const sherd_mesh *mesh, const char *axis,
                               int64_t index)
{
    static const char function[] = "sherd_mesh_select";
    sherd_world *world = mesh ? sherd__space_world(mesh->space) : NULL;
    const sherd_mesh *found = NULL;
    const sherd__argument list[] = {{"mesh", mesh}, {"out", out}, {"axis", axis}, {NULL, NULL}};
    sherd_status status = sherd__require(sherd__world_diag(world), function, list);

    if (out)
        *out = NULL;
    if (!world)
        return status;
    int number = status ? -1 : sherd_mesh_find_axis(mesh, axis);
    if (!status)
        status = check_selection(world, function, mesh, number, axis, index);
    if (!status)
        status = select_ranks(&found, world, mesh, number, index);
    status = sherd__groups_make(world, found, status, function);
    if (!status)
        *out = found;
    return status;
}

sherd_status sherd_layout_parse(const sherd_layout **out, sherd_world *world, const char *text,
                                sherd_dtype *dtype)
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
        *dtype = (sherd_dtype)read;
    *out = layout;
    return status;
}
