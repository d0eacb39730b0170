/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpointing: a call of a module as something that the tape can recompute (autograd/replay.h).
 * The call remembers the module and the names of the arguments; the tape keeps the tensors. The
 * call does not keep the module alive: if it is destroyed before backward, backward fails.
 */
#include "nn/module.h"

struct sherd__checkpoint {
    sherd_world *world;
    sherd_module *module; /* NULL once it is gone */
    void (*again)(sherd_module *module, sherd_args *in, sherd_args *out);
    sherd__checkpoint *previous, *next;
    int count;
    char *name[SHERD_MAX_ARGS];
};

static void unlink_from(sherd__checkpoint *c)
{
    if (!c->module)
        return;
    if (c->previous)
        c->previous->next = c->next;
    else
        c->module->checkpoint = c->next;
    if (c->next)
        c->next->previous = c->previous;
    c->module = NULL;
}

static void destroy(void *self)
{
    sherd__checkpoint *c = self;

    unlink_from(c);
    for (int i = 0; i < c->count; i++)
        sherd__free(sherd__world_heap(c->world), c->name[i]);
    sherd__free(sherd__world_heap(c->world), c);
}

static const char *name(const void *self)
{
    const sherd__checkpoint *c = self;
    return c->module ? sherd__module_name(c->module) : "(destroyed)";
}

static bool keeps(const void *self, const sherd_op *op)
{
    const sherd_module *m = ((const sherd__checkpoint *)self)->module;

    for (int i = 0; m && i < m->keep_count; i++)
        if (m->keeps[i] == op)
            return true;
    return false;
}

static void run_again(void *self, sherd_tensor *const *tensors, int count)
{
    sherd__checkpoint *c = self;
    sherd_args in = {.count = count}, out = {0};

    if (!c->module) {
        sherd__raise(
            c->world, SHERD_EINVAL,
            "sherd_module_checkpoint: a module that backward must run again was destroyed: "
            "destroy it after backward");
        return;
    }
    for (int i = 0; i < count; i++) {
        in.value[i] = tensors[i];
        in.name[i] = c->name[i];
    }
    c->again(c->module, &in, &out);
}

static bool copy_names(sherd__checkpoint *c, const sherd_args *in)
{
    c->count = in->count;
    for (int i = 0; i < in->count; i++) {
        c->name[i] =
            in->name[i] ? sherd__copy_text(sherd__world_heap(c->world), in->name[i]) : NULL;
        if (in->name[i] && !c->name[i])
            return false;
    }
    return true;
}

sherd__replay *sherd__checkpoint_begin(sherd_module *m, const sherd_args *in,
                                       void (*again)(sherd_module *module, sherd_args *in,
                                                     sherd_args *out))
{
    sherd__checkpoint *c;

    if (!m->checkpointed)
        return NULL;
    c = sherd__alloc(sherd__world_heap(m->world), 1, sizeof *c);
    if (!c) {
        sherd__raise(m->world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        return NULL;
    }
    c->world = m->world;
    if (!copy_names(c, in)) {
        sherd__raise(m->world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        destroy(c);
        return NULL;
    }
    c->module = m;
    c->again = again;
    c->next = m->checkpoint;
    if (c->next)
        c->next->previous = c;
    m->checkpoint = c;
    return sherd__replay_begin(m->world, in->count,
                               &(sherd__replayed){run_again, name, keeps, destroy, c});
}

void sherd__checkpoint_keep(sherd__replay *replay, const sherd_args *in)
{
    for (int i = 0; i < in->count; i++)
        sherd__replay_keep(replay, i, in->value[i]);
}

void sherd__checkpoint_forget(sherd_module *module)
{
    while (module->checkpoint)
        unlink_from(module->checkpoint);
}

void sherd_module_checkpoint(sherd_module *module, bool on)
{
    if (module)
        module->checkpointed = on;
}

bool sherd_module_is_checkpointed(const sherd_module *module)
{
    return module && module->checkpointed;
}

static const char *fault_of(const sherd_op *op)
{
    return !op           ? "there is no such operator"
           : op->compose ? "it is made of other operators"
           : op->views   ? "its result is a view"
                         : NULL;
}

sherd_status sherd_module_checkpoint_keep(sherd_module *module, const char *const *operators,
                                          int count)
{
    static const char function[] = "sherd_module_checkpoint_keep";
    const sherd__argument need[] = {
        {"module", module}, {"operators", count > 0 ? (const void *)operators : ""}, {NULL, NULL}};
    sherd_world *world = sherd_module_world(module);
    sherd__diag *diag = sherd__world_diag(world);
    sherd_status status = sherd__require(diag, function, need);

    if (status)
        return status;
    if (count < 0)
        return sherd__fail(diag, SHERD_EINVAL, "%s: %d operators", function, count);
    const sherd_op **list = sherd__alloc(sherd__world_heap(world), (size_t)count + 1, sizeof *list);
    if (!list)
        return sherd__no_memory(diag, function);
    for (int i = 0; i < count && !status; i++) {
        list[i] = sherd_op_find(world, operators[i]);
        if (fault_of(list[i]))
            status = sherd__fail(diag, SHERD_EINVAL, "%s: operator %d, \"%.60s\": %s", function, i,
                                 operators[i] ? operators[i] : "(NULL)", fault_of(list[i]));
    }
    if (!status) {
        const sherd_op **before = module->keeps;
        module->keeps = list;
        module->keep_count = count;
        list = before;
    }
    sherd__free(sherd__world_heap(world), list);
    return status;
}
