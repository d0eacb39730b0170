/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of the last moves: a ring of plans, which contain all that is reported and live as long
 * as they are in it. If no list is kept, a move costs one branch.
 */
#include "inside.h"
#include "search/plans.h"

/* The newest `room` moves: move k, counted from 0 in all, is at k % room. */
static const sherd__moved *moved_at(const sherd__moves *list, int64_t k)
{
    return &list->at[k % list->room];
}

static int64_t held(const sherd__moves *list)
{
    return list->count < list->room ? list->count : list->room;
}

void sherd__moves_clear(sherd_world *world)
{
    sherd__moves *list = &world->moves;

    for (int64_t k = list->count - held(list); k < list->count; k++)
        sherd__plan_release(moved_at(list, k)->plan);
    sherd__free(&world->heap, list->at);
    *list = (sherd__moves){NULL, 0, 0};
}

void sherd__moves_add(sherd_world *world, const sherd_plan *plan, sherd_dtype dtype)
{
    sherd__moves *list = &world->moves;

    if (list->room == 0)
        return;
    sherd__moved *place = &list->at[list->count % list->room];
    sherd__plan_retain(plan);
    if (list->count >= list->room)
        sherd__plan_release(place->plan);
    *place = (sherd__moved){plan, dtype, world->counts.now};
    list->count++;
}

sherd_status sherd_moves_keep(sherd_world *world, int count)
{
    static const char function[] = "sherd_moves_keep";
    sherd__moved *at = NULL;

    if (!world)
        return SHERD_EINVAL;
    if (count < 0 || count > SHERD_MAX_MOVES)
        return sherd__fail(&world->diag, count < 0 ? SHERD_EINVAL : SHERD_ELIMIT,
                           "%s: %d moves, not 0 to %d", function, count, SHERD_MAX_MOVES);
    if (count > 0 && !(at = sherd__alloc(&world->heap, (size_t)count, sizeof *at)))
        return sherd__no_memory(&world->diag, function);
    sherd__moves_clear(world);
    world->moves.at = at;
    world->moves.room = count;
    return SHERD_OK;
}

int sherd_moves_count(const sherd_world *world)
{
    return world ? (int)held(&world->moves) : 0;
}

/* What this rank receives in all steps; a rank outside of a step's meshes nothing. */
static int64_t bytes_of(const sherd_plan *plan)
{
    int64_t bytes = 0;

    for (int i = 0; i < plan->steps; i++)
        bytes += plan->mine[i] ? plan->mine[i]->recv_bytes : 0;
    return bytes;
}

sherd_move_entry sherd_moves_get(const sherd_world *world, int i)
{
    if (i < 0 || i >= sherd_moves_count(world))
        return (sherd_move_entry){0};
    const sherd__moves *list = &world->moves;
    const sherd__moved *moved = moved_at(list, list->count - held(list) + i);
    const sherd_plan *plan = moved->plan;

    return (sherd_move_entry){.from = plan->from->text,
                              .to = plan->to->text,
                              .trace = plan->trace,
                              .dtype = moved->dtype,
                              .bytes_received = bytes_of(plan),
                              .bytes_total = plan->price.recv_total_bytes,
                              .module = sherd__place_path(world, moved->where),
                              .backward = moved->where & SHERD__BACKWARD};
}
