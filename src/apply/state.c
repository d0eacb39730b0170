/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a world knows of operators: handlers, times, kept answers, and the engine of its products.
 * All are short lists; an operator call only tests whether there are any handlers.
 */
#include "door.h"

#include "kernels/engine.h"

enum { FIRST_ROOM = 16 };

static void free_ops(sherd__heap *heap, sherd__ops *ops)
{
    sherd__answers_destroy(ops->answers);
    sherd__engine_destroy(ops->engine);
    sherd__free(heap, ops->registered);
    sherd__free(heap, ops->override);
    sherd__free(heap, ops->timed);
    sherd__free(heap, ops->warned);
    sherd__free(heap, ops);
}

/* The world closes. What hangs on its tensors may still apply operators, so it goes first. */
static void destroy(sherd_world *world, void *state)
{
    sherd__tensors_empty(world);
    free_ops(sherd__world_heap(world), state);
}

sherd__ops *sherd__ops_create(sherd_world *world)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd__ops *ops = sherd__alloc(heap, 1, sizeof *ops);

    if (ops) {
        ops->answers = sherd__answers_create(heap);
        ops->engine = sherd__engine_create(heap);
    }
    if (!ops || !ops->answers || !ops->engine) {
        if (ops)
            free_ops(heap, ops);
        sherd__no_memory(sherd__world_diag(world), "sherd_apply");
        return NULL;
    }
    sherd__world_set_state(world, SHERD__ROOM_OPS, ops, destroy);
    return ops;
}

sherd__engine *sherd__engine_in(const sherd_call *call)
{
    sherd__ops *ops = sherd__world_state(call->world, SHERD__ROOM_OPS);

    return sherd__world_kernels(call->world)->product ? ops->engine : NULL;
}

sherd__override *sherd__override_of(sherd__ops *ops, const sherd_op *op, sherd_op_level level)
{
    for (int i = 0; i < ops->overrides; i++)
        if (ops->override[i].op == op && ops->override[i].level == level)
            return &ops->override[i];
    return NULL;
}

void sherd__override_remove(sherd__ops *ops, sherd__override *o)
{
    *o = ops->override[--ops->overrides];
}

void sherd__end_handler(sherd__ops *ops, const sherd_op *op, sherd_op_level level)
{
    sherd__override *o = sherd__override_of(ops, op, level);

    o->running = false;
    if (!o->handler.run)
        sherd__override_remove(ops, o);
}

void sherd__add_time(sherd_world *world, sherd__ops *ops, const sherd_op *op, int64_t nanoseconds)
{
    int at = 0;

    while (at < ops->times && ops->timed[at].op != op)
        at++;
    if (at == ops->times) {
        sherd__timed *list = sherd__reserve(sherd__world_heap(world), ops->timed, at,
                                            &ops->time_room, FIRST_ROOM, sizeof *list);
        if (!list)
            return;
        ops->timed = list;
        ops->timed[ops->times++] = (sherd__timed){.op = op};
    }
    ops->timed[at].calls++;
    ops->timed[at].nanoseconds += nanoseconds;
}
