/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lanes of channels, and their numbers. A number is in the names of a channel's lanes, so that no
 * two channels that live share one; it is used again when its channel is gone, because lanes stay
 * as long as the world.
 */
#include "parallel/channel.h"

#include <stdio.h>

#include "world/oneway.h"

/* ---- numbers --------------------------------------------------------------------------------- */

/* The numbers that are taken. */
typedef struct numbers {
    int room;
    bool *taken;
} numbers;

static void free_numbers(sherd_world *world, void *state)
{
    numbers *n = state;

    sherd__free(sherd__world_heap(world), n->taken);
    sherd__free(sherd__world_heap(world), n);
}

static numbers *numbers_of(sherd_world *world)
{
    numbers *n = sherd__world_state(world, SHERD__ROOM_CHANNELS);

    if (!n) {
        n = sherd__alloc(sherd__world_heap(world), 1, sizeof *n);
        if (n)
            sherd__world_set_state(world, SHERD__ROOM_CHANNELS, n, free_numbers);
    }
    return n;
}

int sherd__lane_number_take(sherd_world *world)
{
    numbers *n = numbers_of(world);
    int number = 0;

    if (!n)
        return -1;
    while (number < n->room && n->taken[number])
        number++;
    bool *list =
        sherd__reserve(sherd__world_heap(world), n->taken, number, &n->room, 8, sizeof *list);
    if (!list)
        return -1;
    n->taken = list;
    n->taken[number] = true;
    return number;
}

void sherd__lane_number_give(sherd_world *world, int number)
{
    numbers_of(world)->taken[number] = false;
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static int rank_of(const sherd_mesh *mesh, int64_t i)
{
    return mesh->ranks ? mesh->ranks[i] : (int)i;
}

int sherd__shared_rank(const sherd_mesh *a, const sherd_mesh *b)
{
    for (int64_t i = 0; i < a->count; i++)
        if (sherd_mesh_coordinate(b, rank_of(a, i), NULL))
            return rank_of(a, i);
    return -1;
}

/* A mesh of all ranks of both, with a name that no other channel's lane has. */
static sherd_status make_lane(sherd_channel *c, int which)
{
    char name[SHERD__NAME_BYTES];
    const char *names[] = {name};
    int64_t count = c->from->count + c->to->count;
    sherd__heap *heap = sherd__world_heap(c->world);
    int *ranks = sherd__alloc(heap, (size_t)count, sizeof *ranks);
    sherd_status status = ranks && sherd__drain_reserve(c->world)
                              ? SHERD_OK
                              : sherd__no_memory(c->from->space->diag, "sherd_channel_create");

    for (int64_t i = 0; ranks && i < count; i++)
        ranks[i] = i < c->from->count ? rank_of(c->from, i) : rank_of(c->to, i - c->from->count);
    snprintf(name, sizeof name, "%s%d", which == SHERD__FORTH ? "channel" : "back", c->number);
    status = sherd__agree(c->world, status, (uint64_t)c->number, "sherd_channel_create");
    if (!status)
        status = sherd_mesh_create(&c->lane[which], c->world, 1, &count, names, ranks);
    if (!status)
        sherd__goes_one_way(c->world, c->lane[which], which == SHERD__FORTH ? c->from : c->to);
    sherd__free(heap, ranks);
    return status;
}

sherd_status sherd__lanes_make(sherd_channel *c, int last, const char *function)
{
    sherd_status status = SHERD_OK;
    bool again;

    do {
        bool drained = true;
        for (int lane = 0; !status && lane <= last; lane++) {
            status = make_lane(c, lane);
            drained = !status && sherd__is_drained(c->world, c->lane[lane]) && drained;
        }
        again = !status && !drained && !sherd__alarmed(c->world);
        if (again && (c->number = sherd__lane_number_take(c->world)) < 0)
            status = sherd__no_memory(c->from->space->diag, function);
        /* Some ranks may have seen the alarm, and others not. */
        status = sherd__agree(c->world, status, (uint64_t)c->number, function);
    } while (!status && again);
    return status;
}
