/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Call objects: what a rank keeps of a call that it has made, from before its record is out until
 * it has ended or was dropped. They are lent again, so that a call allocates nothing.
 */
#include "inside.h"
#include "search/plans.h"

sherd__call_state *sherd__call_take(sherd_world *world, int count)
{
    sherd__call_state *call = world->spare;

    if (call)
        world->spare = call->next;
    else if (!(call = sherd__alloc(&world->heap, 1, sizeof *call)))
        return NULL;
    if (call->room < count) {
        sherd__task *task =
            sherd__grow(&world->heap, call->task, 0, (size_t)count, sizeof *call->task);
        if (!task) {
            sherd__call_give(world, call);
            return NULL;
        }
        call->task = task;
        call->room = count;
    }
    call->next = NULL;
    sherd__ranks_clear(&call->awaited);
    sherd__ranks_clear(&call->sharers);
    call->own = call->finished = call->ended = call->waited = false;
    call->count = 0;
    call->numbers = NULL;
    call->slices = NULL;
    return call;
}

void sherd__call_give(sherd_world *world, sherd__call_state *call)
{
    call->next = world->spare;
    world->spare = call;
}

static void unlink_call(sherd_world *world, sherd__call_state *call)
{
    sherd__call_state **at = &world->open;

    while (*at != call)
        at = &(*at)->next;
    *at = call->next;
    world->opens--;
}

void sherd__call_release(sherd__call_state *call, bool spoil)
{
    for (int i = 0; i < call->count; i++) {
        sherd__task *task = &call->task[i];
        if (task->source && !call->finished)
            task->source->reading--;
        if (task->result) {
            task->result->filling--;
            /* A result that is its own source still has the contents of that. */
            task->result->spoiled |= spoil && task->result != task->source;
        }
        sherd__plan_release(task->plan);
    }
}

void sherd__call_end(sherd_world *world, sherd__call_state *call)
{
    sherd__call_release(call, false);
    unlink_call(world, call);
    call->ended = true;
    if (!call->waited)
        sherd__call_give(world, call);
}

void sherd__drop_calls(sherd_world *world)
{
    while (world->open) {
        sherd__call_state *call = world->open;
        world->open = call->next;
        world->opens--;
        sherd__call_release(call, true);
        if (world->remote)
            sherd__remote_drop(world, call);
        sherd__call_give(world, call);
    }
}
