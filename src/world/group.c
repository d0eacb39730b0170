/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups: the ranks that differ only in some axes of a mesh. A mesh takes one lane for every subset
 * of its axes (with extent above 1) when it is made, which is collective, so that no step has to;
 * lanes are numbered alike on all ranks because they are taken only when all have agreed.
 */
#include "inside.h"

#include <stdio.h>
#include <string.h>

bool sherd__seen_reserve(sherd_world *world, int lanes)
{
    size_t ranks = (size_t)world->slots;

    if (lanes <= world->seen_lanes)
        return true;
    uint64_t *grown = sherd__grow(&world->heap, world->seen, (size_t)world->seen_lanes * ranks,
                                  (size_t)lanes * ranks, sizeof *grown);
    if (!grown)
        return false;
    world->seen = grown;
    world->seen_lanes = lanes;
    return true;
}

/* Whether two coordinates of a mesh are the same along all but some axes. */
static bool differ_only_in(const sherd_mesh *mesh, unsigned axes, const int64_t *a,
                           const int64_t *b)
{
    for (int i = 0; i < mesh->axes; i++)
        if (a[i] != b[i] && !(axes >> i & 1))
            return false;
    return true;
}

static void fill_group(sherd_world *world, sherd__group *group, const sherd_mesh *mesh,
                       unsigned axes, int lane)
{
    int64_t mine[SHERD_MAX_AXES], theirs[SHERD_MAX_AXES];

    group->mesh = mesh;
    group->axes = axes;
    group->lane = lane;
    group->own = sherd__own_lane(world, lane);
    sherd__axes_text(mesh, axes, group->name, sizeof group->name);
    if (world->dry) { /* it waits for nobody, and there may be any number of members */
        group->count = 1;
        for (int a = 0; a < mesh->axes; a++)
            group->count *= axes >> a & 1 ? (int)mesh->extent[a] : 1;
        return;
    }
    sherd_mesh_coordinate(mesh, world->rank, mine);
    for (int q = world->ranks - 1; q >= 0; q--)
        if (sherd_mesh_coordinate(mesh, q, theirs) && differ_only_in(mesh, axes, mine, theirs)) {
            sherd__ranks_add(&group->members, q);
            group->count++;
            group->leader = q;
        }
}

static void give_up(sherd_world *world, sherd__member *member)
{
    sherd__free(&world->heap, member->group);
    sherd__free(&world->heap, member->ledger);
    member->group = NULL;
    member->ledger = NULL;
}

/* All of a mesh's groups, not yet in force; on failure nothing is left over. */
static sherd_status prepare(sherd_world *world, const sherd_mesh *mesh, sherd__member *out)
{
    int64_t mine[SHERD_MAX_AXES];
    unsigned wide = sherd__wide_axes(mesh);

    memset(out, 0, sizeof *out);
    out->mesh = mesh;
    out->first = world->lanes;
    out->inside = sherd_mesh_coordinate(mesh, world->rank, mine);
    for (unsigned bits = 0; bits < 1u << SHERD_MAX_AXES; bits++)
        out->index[bits] = bits && (bits & ~wide) == 0 ? (int16_t)out->lanes++ : -1;
    if (world->lanes + out->lanes > SHERD__LANES)
        return sherd__fail(&world->diag, SHERD_ELIMIT,
                           "mesh %s needs %d groups, but a world has %d for meshes, and %d are "
                           "taken, as long as it lives: make meshes once and use them again",
                           mesh->text, out->lanes, SHERD__LANES - 1, world->lanes - 1);
    sherd__member *list = sherd__reserve(&world->heap, world->mesh, world->meshes,
                                         &world->mesh_room, 8, sizeof *list);
    if (!list)
        return sherd__no_memory(&world->diag, "sherd_mesh_create");
    world->mesh = list;
    if (!out->inside || out->lanes == 0)
        return SHERD_OK;
    out->group = sherd__alloc(&world->heap, (size_t)out->lanes, sizeof *out->group);
    out->ledger = sherd__ledger_create(world, out->first + out->lanes - 1);
    if (!out->group || !out->ledger || !sherd__seen_reserve(world, world->lanes + out->lanes)) {
        give_up(world, out);
        return sherd__no_memory(&world->diag, "sherd_mesh_create");
    }
    for (unsigned bits = 0; bits < 1u << SHERD_MAX_AXES; bits++) {
        int i = out->index[bits];
        if (i < 0)
            continue;
        fill_group(world, &out->group[i], mesh, bits, out->first + i);
        if (!sherd__log_add(world, &out->group[i])) {
            give_up(world, out);
            return sherd__no_memory(&world->diag, "sherd_mesh_create");
        }
    }
    out->widest = &out->group[out->index[wide]];
    return SHERD_OK;
}

static void put_in_force(sherd_world *world, const sherd__member *member)
{
    if (member->widest)
        memset(&member->widest->own->work, 0, sizeof member->widest->own->work);
    ((sherd_mesh *)(uintptr_t)member->mesh)->ledger = member->ledger;
    world->mesh[world->meshes++] = *member;
    world->lanes += member->lanes;
    if (world->remote)
        sherd__remote_mesh(world, member);
    for (int i = 0; i < member->lanes; i++) {
        sherd__lane *lane = sherd__own_lane(world, member->first + i);
        lane->opened.count = 0;
        lane->claimed = 0;
        atomic_store(&lane->leader, member->inside ? member->group[i].leader + 1 : 0);
    }
}

sherd_status sherd__groups_make(sherd_world *world, const sherd_mesh *mesh, sherd_status mine,
                                const char *name)
{
    sherd__member member = {.mesh = NULL};
    char what[SHERD__MEETING_NAME];

    if (!world->transport->meet)
        return mine;
    if (!mine && !sherd__member_of(world, mesh))
        mine = prepare(world, mesh, &member);
    snprintf(what, sizeof what, "%s: (%s)", name, mine ? "" : mesh->text);
    sherd_status all = sherd__agree(world, mine, mine ? 0 : mesh->hash, what);
    if (all == SHERD_OK && member.mesh)
        put_in_force(world, &member);
    else
        give_up(world, &member);
    return all;
}

void sherd__groups_clear(sherd_world *world)
{
    for (int i = 0; i < world->meshes; i++) {
        for (int g = 0; world->mesh[i].group && g < world->mesh[i].lanes; g++)
            sherd__free(&world->heap, world->mesh[i].group[g].claim);
        give_up(world, &world->mesh[i]);
    }
    sherd__free(&world->heap, world->mesh);
    world->mesh = NULL;
    world->meshes = world->mesh_room = 0;
}
