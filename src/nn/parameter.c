/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of modules, and iteration over all of them. A tensor that two modules share (tied
 * weights) is visited once, in the first module: each walk has a number, which tensors that it has
 * met bear.
 */
#include "nn/module.h"

int sherd__find_parameter(const sherd_module *module, const char *name)
{
    return sherd__find_named(module, name, SHERD__PARAMETER);
}

/* Why t can't be a parameter; NULL = it can. */
static const char *tensor_fault(const sherd_module *m, const sherd_tensor *t)
{
    const char *fault = sherd__named_fault(m, t);

    if (fault)
        return fault;
    if (t->autograd.node)
        return "the tensor is the result of a recorded operator, not a leaf";
    if (!sherd__has_fractions(t->dtype))
        return "the dtype has no fractions";
    return NULL;
}

static sherd_status refuse(const sherd_module *m, const char *function, const char *name,
                           const char *fault)
{
    return sherd__refuse_named(m, function, "parameter", name, fault);
}

sherd_status sherd_module_add_parameter(sherd_module *module, const char *name, sherd_tensor *t)
{
    static const char function[] = "sherd_module_add_parameter";

    if (!module)
        return sherd__no_module(function, t);

    const char *fault = tensor_fault(module, t);
    const char *wrong = sherd__name_fault(module, name);
    if (wrong || fault)
        return refuse(module, function, name, wrong ? wrong : fault);
    sherd_status status =
        sherd__add_named(module, function, &module->parameter, &module->parameters, name, t);
    if (!status)
        sherd_require_grad(t, true);
    return status;
}

sherd_status sherd_module_set_parameter(sherd_module *module, const char *name, sherd_tensor *t)
{
    static const char function[] = "sherd_module_set_parameter";
    int i = sherd__find_parameter(module, name);

    if (!module)
        return sherd__no_module(function, t);

    const char *fault = tensor_fault(module, t);
    if (i < 0)
        fault = "there is none of this name";
    if (!fault && module->parameter[i].sharded && !t->layout)
        fault = "it is fully sharded, and the tensor plain: give it a layout (sherd_distribute)";
    if (fault)
        return refuse(module, function, name, fault);
    bool trained = sherd_requires_grad(module->parameter[i].tensor);
    sherd_status status = sherd__set_named(module, function, "parameter", &module->parameter[i], t);
    if (!status && trained)
        sherd_require_grad(t, true);
    if (!status)
        sherd__serve(t->storage, SHERD_MEMORY_PARAMETERS);
    return status;
}

sherd_tensor *sherd_module_parameter(const sherd_module *module, const char *name)
{
    int i = sherd__find_parameter(module, name);
    return i < 0 ? NULL : module->parameter[i].tensor;
}

int sherd_module_parameters(const sherd_module *module)
{
    return module ? module->parameters : 0;
}

const char *sherd_module_parameter_name(const sherd_module *module, int i)
{
    return i >= 0 && i < sherd_module_parameters(module) ? module->parameter[i].name : NULL;
}

/* ---- the walk ------------------------------------------------------------------------------- */

typedef struct walk {
    uint64_t number;
    sherd_named_parameter *out;
    int room, count;
} walk;

static void visit(walk *w, const sherd_module *m)
{
    for (int i = 0; i < m->parameters; i++) {
        const sherd__named_tensor *p = &m->parameter[i];
        if (p->tensor->visit.walk == w->number)
            continue;
        p->tensor->visit.walk = w->number;
        p->tensor->visit.holder = m;
        if (w->out && w->count < w->room)
            w->out[w->count] = (sherd_named_parameter){m->path, p->name, p->tensor};
        w->count++;
    }
    for (int i = 0; i < m->children; i++)
        visit(w, m->child[i].module);
}

int sherd_module_all_parameters(const sherd_module *module, sherd_named_parameter *out, int room)
{
    walk w = {0, out, room, 0};

    if (!module)
        return 0;
    w.number = sherd__walk_number(module->world);
    visit(&w, module);
    return w.count;
}

uint64_t sherd__mark_holders(const sherd_module *module)
{
    walk w = {.number = sherd__walk_number(module->world)};

    visit(&w, module);
    return w.number;
}
