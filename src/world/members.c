/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is in which group: the group of a lane, of some axes of a mesh, of a step, and the text for
 * it. Below all that calls, waits and tells, which ask here; groups are made far above (group.c).
 * Costs a search of the list of meshes, from the newest, and a look at each rank for a text.
 */
#include "inside.h"

#include <stdio.h>

unsigned sherd__wide_axes(const sherd_mesh *mesh)
{
    unsigned bits = 0;

    for (int a = 0; a < mesh->axes; a++)
        if (mesh->extent[a] > 1)
            bits |= 1u << a;
    return bits;
}

static const sherd__member *find_member(const sherd_world *world, const sherd_mesh *mesh)
{
    for (int i = world->meshes - 1; i >= 0; i--)
        if (world->mesh[i].mesh == mesh)
            return &world->mesh[i];
    return NULL;
}

void sherd__axes_text(const sherd_mesh *mesh, unsigned axes, char *out, size_t room)
{
    size_t at = 0;

    out[0] = '\0';
    for (int a = 0; a < mesh->axes && at < room; a++)
        if (axes >> a & 1)
            at += (size_t)snprintf(out + at, room - at, "%s%s", at ? "," : "", mesh->name[a]);
}

const sherd__member *sherd__member_of(const sherd_world *world, const sherd_mesh *mesh)
{
    return find_member(world, mesh);
}

bool sherd__group_find(sherd_world *world, const sherd_mesh *mesh, unsigned axes,
                       sherd__group **out)
{
    const sherd__member *member = find_member(world, mesh);

    *out = NULL;
    if (!member || !member->inside)
        return false;
    axes &= sherd__wide_axes(mesh);
    if (axes)
        *out = &member->group[member->index[axes]];
    return true;
}

bool sherd__mesh_holds(const sherd_world *world, const sherd_mesh *outer, const sherd_mesh *inner)
{
    const sherd__member *member = find_member(world, outer);
    const int *ranks = inner->root->ranks;
    bool all = member && member->inside && inner->space == &world->space;

    for (int64_t i = 0; i < inner->root->count && all; i++)
        all = sherd_mesh_coordinate(outer, ranks ? ranks[i] : (int)i, NULL);
    return all;
}

static void lane_axes(const sherd_world *world, int lane, char *out, size_t room)
{
    snprintf(out, room, "world");
    for (int i = 0; i < world->meshes; i++) {
        const sherd__member *member = &world->mesh[i];
        for (unsigned bits = 0; bits < 1u << SHERD_MAX_AXES; bits++)
            if (member->index[bits] >= 0 && member->first + member->index[bits] == lane)
                sherd__axes_text(member->mesh, bits, out, room);
    }
}

void sherd__lane_text(const sherd_world *world, int lane, int rank, char *out, size_t room)
{
    char axes[64];
    int leader = atomic_load(&sherd__lane_of(world, rank, lane)->leader);
    const char *mark = " (ranks ";

    lane_axes(world, lane, axes, sizeof axes);
    size_t at = (size_t)snprintf(out, room, "%s", axes);
    for (int q = 0; q < world->ranks && at < room; q++)
        if (atomic_load(&sherd__lane_of(world, q, lane)->leader) == leader) {
            at += (size_t)snprintf(out + at, room - at, "%s%d", mark, q);
            mark = ",";
        }
    if (at < room)
        snprintf(out + at, room - at, ")");
}

/* Lanes go to meshes in their order. */
const sherd__member *sherd__member_at(const sherd_world *world, int lane)
{
    int low = 0, high = world->meshes; /* the last that begins at it, or before */

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (world->mesh[middle].first <= lane)
            low = middle + 1;
        else
            high = middle;
    }
    return low ? &world->mesh[low - 1] : NULL;
}

bool sherd__step_group(sherd_world *world, const sherd_step *step, const sherd_mesh *among,
                       sherd__group **out)
{
    const sherd_mesh *mesh = step->from->spec.mesh;
    bool across = mesh != step->to->spec.mesh;

    *out = &world->whole;
    if (across && !among)
        return true;
    if (across)
        mesh = among;
    return sherd__group_find(world, mesh, across ? sherd__mesh_axis_bits(mesh) : step->axes, out);
}

void sherd__group_places(const sherd__group *group, int16_t place[SHERD_MAX_RANKS])
{
    int n = 0;

    for (int q = -1; (q = sherd__ranks_next(&group->members, q + 1)) >= 0;)
        place[q] = (int16_t)n++;
}
