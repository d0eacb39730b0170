/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running what an operator is made of: its forward, its compose, or the handler that replaces one
 * of them. Functions of the program are guarded (guard.c); the library's own run without.
 */
#include "door.h"

#include <string.h>

bool sherd__say_failed(const sherd__run *run)
{
    sherd_world *world = run->call.world;

    if (!sherd__alarmed(world) && !sherd__has_failed_locally(world))
        sherd__refuse(&run->call, SHERD_EINVAL, "it failed and did not say why (sherd_call_fail)");
    return false;
}

bool sherd__begin_handler(sherd_op_handler *out, sherd__ops *ops, const sherd_op *op,
                          sherd_op_level level)
{
    sherd__override *o = ops->overrides ? sherd__override_of(ops, op, level) : NULL;

    if (!o || o->running || !o->handler.run)
        return false;
    *out = o->handler;
    o->running = true;
    return true;
}

/* Run a function that may be the user's: the handler, or (NULL) forward or, dry, its stand-in. */
static bool compute_guarded(sherd__run *run, sherd__ops *ops, const sherd_op_handler *handler,
                            bool dry)
{
    sherd_call *call = &run->call;
    sherd__guard guard;
    bool good;

    sherd__guard_begin(&guard, run);
    if (handler) {
        run->below = guard.in;
        run->device = NULL;
        good = handler->run(call, handler->context);
        run->below = NULL;
    } else {
        good = dry ? sherd__rehearse(run) : call->op->forward(call);
    }
    sherd__guard_end(&guard, run);
    if (handler)
        sherd__end_handler(ops, call->op, SHERD_BELOW_TAPE);
    return sherd__guard_results(&guard, run, good);
}

static bool is_empty(const sherd_tensor *t)
{
    return t->count == 0 && sherd_tensor_count(t) == 0;
}

/*
 * Whether neither operands nor results have an element, on any rank: then nothing is computed and
 * nobody is told, and rows of none are not counted, of which there may be 2^40. A view is still to
 * be set.
 */
static bool is_of_nothing(const sherd_call *call)
{
    bool none = call->operands > 0 && call->in[0];

    for (int i = 0; i < call->operands && none; i++)
        none = !call->in[i] || is_empty(call->in[i]);
    for (int j = 0; j < call->results && none; j++)
        none = is_empty(call->out[j]) && call->out[j]->storage != call->in[0]->storage;
    return none;
}

/* Run the operator's forward, or the handler that replaces it. */
static bool compute(sherd__run *run, sherd__ops *ops)
{
    sherd_call *call = &run->call;
    bool dry = sherd__is_dry(call->world);
    sherd_op_handler handler;

    run->replaced = !dry && sherd__begin_handler(&handler, ops, call->op, SHERD_BELOW_TAPE);
    if (run->own && !run->replaced)
        return is_of_nothing(call) || (dry ? sherd__rehearse(run) : call->op->forward(call));
    return compute_guarded(run, ops, run->replaced ? &handler : NULL, dry);
}

bool sherd__compute(sherd__run *run, sherd__ops *ops)
{
    if (!ops->timing)
        return compute(run, ops);
    int64_t begin = sherd__clock(run->call.world);
    bool good = compute(run, ops);
    sherd__add_time(run->call.world, ops, run->call.op, sherd__clock(run->call.world) - begin);
    return good;
}

/* Whether a compose or a handler has set all results. */
static bool check_results(sherd__run *run)
{
    for (int j = 0; j < run->visible; j++) {
        const sherd_tensor *out = run->call.out[j];
        if (!out || out->world != run->call.world) {
            sherd__refuse(&run->call, SHERD_EINVAL,
                          out ? "result %d is of another world" : "it has left no result %d", j);
            return false;
        }
        if (sherd_tensor_failed(out))
            return false;
    }
    return true;
}

/* What fails inside is said of the outermost call: see sherd__refuse. */
bool sherd__compose(sherd__run *run, sherd__ops *ops)
{
    const sherd_call *before = ops->composed;
    sherd__guard guard;

    sherd__guard_begin(&guard, run);
    memset(run->call.out, 0, sizeof run->call.out);
    ops->composed = before ? before : &run->call;
    bool good = run->call.op->compose(&run->call);
    ops->composed = before;
    sherd__guard_end(&guard, run);
    good = (good && check_results(run)) || sherd__say_failed(run);
    sherd__close(run, good);
    return good;
}

bool sherd__handle(sherd__run *run, const sherd_op_handler *handler)
{
    const sherd_mesh *mesh = handler->promoted ? sherd__mesh_of(run, run->call.in) : NULL;
    sherd__guard guard;

    sherd__guard_begin(&guard, run);
    memset(run->call.out, 0, sizeof run->call.out);
    bool good = (!mesh || sherd__promote_all(run, run->call.in, mesh)) &&
                handler->run(&run->call, handler->context);
    sherd__guard_end(&guard, run);
    good = (good && check_results(run)) || sherd__say_failed(run);
    sherd__close(run, good);
    return good;
}
