/* SPDX-License-Identifier: Apache-2.0 */
/* What the rooms above ask of a world's transport: calls, slices, shared numbers, one status for
 * all. */
#include "devices.h"
#include "whole.h"

#include <string.h>

static bool no_peers(sherd_world *world, const char *name)
{
    sherd__raise(world, SHERD_ENOTSUP, "%s: a paper world moves no data", name);
    return false;
}

static bool no_group(sherd_world *world, const sherd_mesh *mesh, const char *name)
{
    sherd__raise(world, SHERD_EINVAL,
                 "%s: mesh %s was not made by all ranks together, or this rank is not in it", name,
                 mesh->text);
    return false;
}

/* Whether something may be published; a rank that has seen the alarm is quiet until the check. */
static bool may_publish(sherd_world *world)
{
    if (!sherd__alarmed(world))
        return true;
    world->quiet = true;
    return false;
}

static int64_t bytes_received(const sherd__move *moves, int count)
{
    int64_t bytes = 0;

    for (int i = 0; i < count; i++)
        bytes += moves[i].plan->mine[moves[i].step]->recv_bytes;
    return bytes;
}

static void trace_call(sherd_world *world, const sherd__group *group, const char *name,
                       const sherd__move *moves, int count, int64_t start)
{
    const sherd_plan *plan = moves[0].plan;

    sherd__trace_add(
        world, &(sherd__event){"call",
                               sherd_step_kind_name(plan->step[moves[0].step].kind),
                               start,
                               {{.key = "of", .text = name},
                                {.key = "axes", .text = group->name},
                                {.key = "bytes received", .number = bytes_received(moves, count)},
                                {.key = "tensors", .number = count},
                                {.key = "plan", .text = plan->what}}});
}

static bool find_group(sherd_world *world, const sherd__move *move, const char *name,
                       sherd__group **out)
{
    const sherd_step *step = &move->plan->step[move->step];
    const sherd_mesh *mesh = step->from->spec.mesh;

    if (mesh == step->to->spec.mesh)
        return sherd__group_find(world, mesh, step->axes, out) || no_group(world, mesh, name);
    return sherd__step_group(world, step, move->among, out) || no_group(world, move->among, name);
}

static bool make_call(sherd_world *world, sherd__group *group, const char *name,
                      const sherd__move *moves, int count, bool begin)
{
    const sherd_step *step = &moves[0].plan->step[moves[0].step];

    if (!moves[0].on_device)
        return world->transport->call(world, group, name, moves, count, begin);
    return step->from->spec.mesh == step->to->spec.mesh
               ? sherd__device_call(world, group, name, moves, count)
               : sherd__device_send(world, group, name, moves, count);
}

bool sherd__call(sherd_world *world, const char *name, const sherd__move *moves, int count,
                 bool begin)
{
    const sherd_step *step = &moves[0].plan->step[moves[0].step];
    sherd__group *group;

    if (!world->transport->call)
        return no_peers(world, name);
    if (!may_publish(world) || !find_group(world, &moves[0], name, &group))
        return false;
    if (!group) { /* all axes have extent 1 */
        bool good = true;
        for (int i = 0; i < count; i++)
            good = good && sherd__slice(world, &moves[i]);
        return good;
    }
    int64_t bytes = bytes_received(moves, count), start = sherd__trace_start(world);
    sherd__timing timing = sherd__log_begin(world, group, (int)step->kind, bytes);
    if (!make_call(world, group, name, moves, count, begin))
        return false;
    sherd__log_end(world, group, (int)step->kind, bytes, timing);
    if (start)
        trace_call(world, group, name, moves, count, start);
    return true;
}

bool sherd__slice(sherd_world *world, const sherd__move *move)
{
    sherd__task task;

    if (!world->transport->take)
        return no_peers(world, "slice");
    if (sherd__is_forked(world))
        return false;
    if (move->on_device)
        return sherd__device_slice(world, move);
    if (!sherd__block_readable(world, move->source) || !sherd__block_writable(world, move->result))
        return false;
    if (sherd__left_out(world, "slice", move->dtype, 0, 2 * sherd__block_bytes(move->result)))
        return true;
    sherd__task_fill(world, &task, move);
    sherd__run_local(world, &task);
    return true;
}

/* The index of each rank in a mesh, row-major by its coordinates. */
static void places(const sherd_world *world, const sherd_mesh *mesh, int16_t *place)
{
    int64_t at[SHERD_MAX_AXES];

    for (int q = 0; q < world->ranks; q++) {
        bool inside = sherd_mesh_coordinate(mesh, q, at);
        place[q] = inside ? (int16_t)sherd__mesh_place(mesh, at) : 0;
    }
}

/* Share numbers in a group; count and trace it. */
static bool share_in(sherd_world *world, sherd__group *group, const char *name,
                     const sherd__sharing *numbers)
{
    int64_t bytes = (int64_t)(group->count - 1) * numbers->words * 8;
    int64_t start = sherd__trace_start(world);
    sherd__timing timing = sherd__log_begin(world, group, SHERD__SHARE, bytes);

    if (!world->transport->share(world, group, name, numbers))
        return false;
    sherd__log_end(world, group, SHERD__SHARE, bytes, timing);
    if (start)
        sherd__trace_add(world, &(sherd__event){"call",
                                                sherd__log_op(SHERD__SHARE),
                                                start,
                                                {{.key = "of", .text = name},
                                                 {.key = "axes", .text = group->name},
                                                 {.key = "bytes received", .number = bytes}}});
    return true;
}

bool sherd__share(sherd_world *world, const sherd_mesh *mesh, const char *name, const int64_t *mine,
                  int words, int64_t *all)
{
    int16_t place[SHERD_MAX_RANKS];
    sherd__group *group;

    if (!world->transport->share)
        return no_peers(world, name);
    if (!may_publish(world))
        return false;
    if (!sherd__group_find(world, mesh->root, sherd__mesh_axis_bits(mesh), &group))
        return no_group(world, mesh, name);
    if (!group) {
        memcpy(all, mine, (size_t)words * sizeof *mine);
        return true;
    }
    if (!world->dry)
        places(world, mesh, place);
    return share_in(world, group, name,
                    &(sherd__sharing){.mine = mine, .words = words, .all = all, .place = place});
}

bool sherd__share_whole(sherd_world *world, const char *name, int64_t mine, int64_t *all)
{
    int16_t place[SHERD_MAX_RANKS];
    sherd__sharing numbers = {.mine = &mine, .words = 1, .all = all, .place = place};

    if (!world->transport->share)
        return no_peers(world, name);
    if (!may_publish(world))
        return false;
    all[0] = mine;
    if (world->ranks == 1)
        return true;
    if (world->dry) { /* nothing comes from others */
        sherd__group one = world->whole;
        one.count = 1;
        return share_in(world, &one, name, &numbers);
    }
    sherd__group_places(&world->whole, place);
    return share_in(world, &world->whole, name, &numbers);
}

bool sherd__in_mesh(const sherd_world *world, const sherd_mesh *mesh)
{
    int64_t at[SHERD_MAX_AXES];
    return sherd_mesh_coordinate(mesh, world->rank, at);
}
