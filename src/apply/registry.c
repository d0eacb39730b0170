/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The public side of what a world knows of operators (state.c): a user's operators by name,
 * handlers, and the times of operators.
 */
#include "door.h"

#include <string.h>

/* ---- the state ------------------------------------------------------------------------------ */

enum { FIRST_ROOM = 16 };

/* ---- by name -------------------------------------------------------------------------------- */

const sherd_op *sherd_op_at(int i)
{
    for (int n = 0; i >= 0 && sherd__operators[n]; n++)
        if (n == i)
            return sherd__operators[n];
    return NULL;
}

const sherd_op *sherd_op_find(const sherd_world *world, const char *name)
{
    const sherd__ops *ops = world ? sherd__world_state(world, SHERD__ROOM_OPS) : NULL;

    if (!name)
        return NULL;
    for (int i = 0; sherd__operators[i]; i++)
        if (strcmp(sherd__operators[i]->name, name) == 0)
            return sherd__operators[i];
    for (int i = 0; ops && i < ops->registers; i++)
        if (strcmp(ops->registered[i]->name, name) == 0)
            return ops->registered[i];
    return NULL;
}

sherd_status sherd_op_register(sherd_world *world, const sherd_op *op)
{
    const sherd__argument need[] = {{"world", world}, {"op", op}, {NULL, NULL}};
    sherd__diag *diag = sherd__world_diag(world);

    if (sherd__require(diag, "sherd_op_register", need))
        return SHERD_EINVAL;
    char room[SHERD__REASON_BYTES];
    const char *fault = sherd__op_fault(op, room);
    if (fault)
        return sherd__fail(diag, SHERD_EINVAL, "sherd_op_register: %s: %s",
                           op->name ? op->name : "an operator", fault);
    const sherd_op *other = sherd_op_find(world, op->name);
    if (other == op)
        return SHERD_OK;
    if (other)
        return sherd__fail(diag, SHERD_EINVAL, "sherd_op_register: there is another operator %s",
                           op->name);
    sherd__ops *ops = sherd__ops_of(world);
    const sherd_op **list =
        ops ? sherd__reserve(sherd__world_heap(world), ops->registered, ops->registers,
                             &ops->register_room, FIRST_ROOM, sizeof op)
            : NULL;
    if (!list)
        return sherd__no_memory(diag, "sherd_op_register");
    ops->registered = list;
    ops->registered[ops->registers++] = op;
    return SHERD_OK;
}

/* ---- handlers ------------------------------------------------------------------------------- */

static sherd_status check_override(sherd_world *world, const char *name, const sherd_op *op,
                                   sherd_op_level level, const sherd_op_handler *handler)
{
    static const char function[] = "sherd_op_override";
    const sherd__argument need[] = {{"world", world}, {"name", name}, {NULL, NULL}};
    sherd__diag *diag = sherd__world_diag(world);

    if (sherd__require(diag, function, need))
        return SHERD_EINVAL;
    if (!op)
        return sherd__fail(diag, SHERD_EINVAL, "%s: there is no operator \"%.60s\"", function,
                           name);
    if (level != SHERD_ABOVE_TAPE && level != SHERD_BELOW_TAPE)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %d is no level", function, (int)level);
    if (handler && !handler->run)
        return sherd__fail(diag, SHERD_EINVAL, "%s: the handler of %s has no run", function, name);
    if (handler && level == SHERD_BELOW_TAPE && !op->forward)
        return sherd__fail(diag, SHERD_EINVAL,
                           "%s: %s is made of other operators, there is nothing below the tape",
                           function, name);
    return SHERD_OK;
}

static sherd_status add_override(sherd_world *world, sherd__ops *ops, const sherd__override *o)
{
    sherd__override *list = sherd__reserve(sherd__world_heap(world), ops->override, ops->overrides,
                                           &ops->override_room, FIRST_ROOM, sizeof *list);

    if (!list)
        return sherd__no_memory(sherd__world_diag(world), "sherd_op_override");
    ops->override = list;
    ops->override[ops->overrides++] = *o;
    return SHERD_OK;
}

sherd_status sherd_op_override(sherd_world *world, const char *name, sherd_op_level level,
                               const sherd_op_handler *handler)
{
    const sherd_op *op = sherd_op_find(world, name);
    sherd_status status = check_override(world, name, op, level, handler);

    if (status)
        return status;
    sherd__ops *ops = sherd__ops_of(world);
    if (!ops)
        return SHERD_ENOMEM;
    sherd__override *o = sherd__override_of(ops, op, level);
    if (o && (handler || o->running))
        o->handler = handler ? *handler : (sherd_op_handler){.run = NULL};
    else if (o)
        sherd__override_remove(ops, o);
    else if (handler)
        return add_override(world, ops,
                            &(sherd__override){.op = op, .level = level, .handler = *handler});
    return SHERD_OK;
}

/* Called by a handler below the tape: run the operator's forward on the same data. */
static bool original_below(sherd_call *call, sherd_tensor *const *in)
{
    if (memcmp(call->in, in, (size_t)call->operands * sizeof *in) == 0)
        return call->op->forward(call);
    sherd__refuse(call, SHERD_EINVAL,
                  "sherd_call_original: below the tape its operands are what call->from points to, "
                  "and call->in was replaced");
    return false;
}

bool sherd_call_original(sherd_call *call)
{
    const sherd__run *run = (const sherd__run *)(const void *)call;

    if (!call)
        return false;
    if (run->below)
        return original_below(call, run->below);
    return sherd_apply_all(call->out, call->op, call->in, call->operands, call->attributes);
}

/* ---- times ---------------------------------------------------------------------------------- */

void sherd_op_times(sherd_world *world, bool on)
{
    sherd__ops *ops = world ? sherd__ops_of(world) : NULL;

    if (!ops)
        return;
    ops->timing = on;
    if (on)
        ops->times = 0;
}

sherd_op_time sherd_op_time_at(const sherd_world *world, int i)
{
    const sherd__ops *ops = world ? sherd__world_state(world, SHERD__ROOM_OPS) : NULL;

    if (!ops || i < 0 || i >= ops->times)
        return (sherd_op_time){0};
    return (sherd_op_time){ops->timed[i].op->name, ops->timed[i].calls, ops->timed[i].nanoseconds};
}
