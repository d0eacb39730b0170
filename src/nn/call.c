/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calling a module: a scope, the pre-forward hooks, the forward, the forward hooks. The hooks after
 * run whatever happened before, so that what a hook before has set up is taken down again. Only the
 * outputs leave the scope; everything else that the forward made is released here, unless the tape
 * holds it.
 */
#include <string.h>

#include "nn/module.h"
#include "tensor/state.h"

sherd_tensor *sherd_args_find(const sherd_args *args, const char *name)
{
    for (int i = 0; args && name && i < args->count && i < SHERD_MAX_ARGS; i++)
        if (args->name[i] && strcmp(args->name[i], name) == 0)
            return args->value[i];
    return NULL;
}

static bool count_fits(const sherd_args *args)
{
    return args->count >= 0 && args->count <= SHERD_MAX_ARGS;
}

/* Raise a module's own error, unless an earlier failure is there. */
static void complain(sherd_module *m, const char *fault)
{
    sherd__raise_local(m->world);
    sherd__raise(m->world, SHERD_EINVAL, "%s: module \"%.200s\": %s", sherd__module_called(m),
                 sherd__module_name(m), fault);
}

/* Set the running module for the comm log; returns the previous one. */
static sherd__where enter(sherd_module *m)
{
    sherd__where before = sherd__where_now(m->world);

    if (m->place == 0) {
        int place = sherd__place_find(m->world, m->path);
        if (place < 0)
            sherd__raise(m->world, SHERD_ENOMEM, "%s: module \"%.200s\": out of memory",
                         sherd__module_called(m), sherd__module_name(m));
        else
            m->place = place + 1;
    }
    return sherd__where_set(m->world,
                            sherd__where_at(m->place ? m->place - 1 : 0, before & SHERD__BACKWARD));
}

/*
 * Run hooks and forward in the caller's scope. The arguments are kept as they were passed, packed
 * by the hooks that are in force when the forward begins.
 */
static void run(sherd_module *m, sherd_args *in, sherd_args *out, sherd__replay *replay)
{
    const sherd_args given = *in;
    sherd__where before = enter(m);
    int64_t first_new = m->hooked;

    m->running++;
    for (sherd__hook_entry *e = m->before; e; e = e->next)
        if (e->id && e->turn < first_new)
            e->before(m, in, e->payload);
    if (!count_fits(in)) {
        complain(m, "a hook left a number of arguments that is out of range");
        in->count = 0;
    }
    sherd__checkpoint_keep(replay, &given);
    if (m->forward)
        m->forward(m, in, out);
    else
        complain(m, "it is a container without a forward function");
    first_new = m->hooked;
    for (sherd__hook_entry *e = m->after; e; e = e->next)
        if (e->id && e->turn < first_new)
            e->after(m, in, out, e->payload);
    if (--m->running == 0)
        sherd__hooks_sweep(m, false);
    sherd__where_set(m->world, before);
}

static void run_again(sherd_module *m, sherd_args *in, sherd_args *out)
{
    run(m, in, out, NULL);
}

/* Whether there is an output and none has failed. */
static bool is_good(sherd_module *m, const sherd_args *out)
{
    const char *fault = NULL;

    if (!count_fits(out))
        fault = "it gave a number of outputs that is out of range";
    else if (out->count == 0)
        fault = "it gave no output";
    for (int i = 0; !fault && i < out->count; i++)
        if (!out->value[i])
            fault = "one of its outputs is NULL";
        else if (out->value[i]->world != m->world)
            fault = "one of its outputs is of another world";
    if (fault) {
        complain(m, fault);
        return false;
    }
    for (int i = 0; i < out->count; i++)
        if (sherd_tensor_failed(out->value[i]))
            return false;
    return true;
}

/* Set every slot, since the caller may use any of them. */
static void fill(sherd_args *out, sherd_tensor *failed)
{
    out->count = count_fits(out) && out->count ? out->count : 1;
    for (int i = 0; i < SHERD_MAX_ARGS; i++)
        out->value[i] = failed;
}

/*
 * Whether there is something to run; otherwise it has failed in the world of the module or of an
 * argument.
 */
static bool is_given(const char *function, sherd_module *module, const sherd_args *in,
                     sherd_args *out)
{
    const sherd__argument need[] = {{"module", module}, {"in", in}, {"out", out}, {NULL, NULL}};
    sherd_world *world = sherd_module_world(module);
    sherd_tensor *failed;

    for (int i = 0; !world && in && i < in->count && i < SHERD_MAX_ARGS; i++)
        world = sherd_tensor_world(in->value[i]);
    if (sherd__given(world, function, need, &failed))
        return true;
    if (out) {
        *out = (sherd_args){.count = 0};
        fill(out, failed);
    }
    return false;
}

/* A stack that overflows would end the process without a word. */
static bool has_room(const char *function, sherd_module *m, sherd_args *out)
{
    if (!sherd__is_deep(m->world))
        return true;
    sherd__raise_local(m->world);
    sherd__raise(m->world, SHERD_ELIMIT,
                 "%s: module \"%.200s\": %d functions are running, each called by the one before, "
                 "and no more may: does a forward call itself?",
                 function, sherd__module_name(m), (int)SHERD__DEEPEST);
    *out = (sherd_args){.count = 0};
    fill(out, sherd__failed(m->world));
    return false;
}

static void run_whole(const char *function, sherd_module *module, const sherd_args *in,
                      sherd_args *out)
{
    sherd_args arguments, result = {0};

    if (!is_given(function, module, in, out) || !has_room(function, module, out))
        return;
    arguments = *in;
    int floor = sherd__scope_enter(module->world);
    const char *before = module->called;
    module->called = function;
    if (!count_fits(in)) {
        complain(module, "the number of arguments is out of range");
        arguments.count = 0;
    }
    sherd__replay *replay = sherd__checkpoint_begin(module, &arguments, run_again);
    run(module, &arguments, &result, replay);
    sherd__replay_end(replay);
    sherd__scope_leave(module->world, floor);
    if (is_good(module, &result)) {
        for (int i = 0; i < result.count; i++)
            sherd_scope_pass(result.value[i]);
    } else {
        fill(&result, sherd__failed(module->world));
    }
    module->called = before;
    sherd_scope_end(module->world);
    *out = result;
}

void sherd_module_run(sherd_module *module, const sherd_args *in, sherd_args *out)
{
    run_whole("sherd_module_run", module, in, out);
}

sherd_tensor *sherd_module_call(sherd_module *module, sherd_tensor *x)
{
    sherd_args in = {.count = 1, .value = {x}}, out;

    run_whole("sherd_module_call", module, &in, &out);
    return out.value[0];
}
