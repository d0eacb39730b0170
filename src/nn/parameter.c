/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters of modules, and the walk over all of them. A tensor that two modules share (tied
 * weights) is walked once, where it is met first; finding that out costs a walk per parameter,
 * which is nothing beside making the tensors.
 */
#include <string.h>

#include "nn/module.h"

int sherd__find_parameter(const sherd_module *module, const char *name)
{
    for (int i = 0; module && name && i < module->parameters; i++)
        if (strcmp(module->parameter[i].name, name) == 0)
            return i;
    return -1;
}

/* Why t can't be a parameter; NULL = it can. */
static const char *tensor_fault(const sherd_module *m, const sherd_tensor *t)
{
    if (!t)
        return "the tensor is NULL";
    if (sherd_tensor_failed(t))
        return "the tensor has failed";
    if (t->world != m->world)
        return "the tensor is of another world";
    if (t->node)
        return "the tensor is the result of a recorded operator, not a leaf";
    if (!sherd__has_fractions(t->dtype))
        return "the dtype has no fractions";
    return NULL;
}

sherd_status sherd__refuse_named(const sherd_module *m, const char *function, const char *kind,
                                 const char *name, const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: %s \"%s\" of \"%s\": %s", function, kind,
                              name ? name : "(null)", sherd__module_name(m), fault);
}

static sherd_status refuse(const sherd_module *m, const char *function, const char *name,
                           const char *fault)
{
    return sherd__refuse_named(m, function, "parameter", name, fault);
}

/* The tensor may lead to a world that can be told. */
static sherd_status no_module(const char *function, const sherd_tensor *t)
{
    const sherd__argument need[] = {{"module", NULL}, {NULL, NULL}};
    return sherd__require(sherd__world_diag(sherd_tensor_world(t)), function, need);
}

sherd_status sherd__add_named(sherd_module *module, const char *function,
                              sherd__named_tensor **list, int *count, const char *name,
                              sherd_tensor *t)
{
    sherd__heap *heap = sherd__world_heap(module->world);
    size_t n = (size_t)*count;
    sherd__named_tensor *grown = sherd__grow(heap, *list, n, n + 1, sizeof *grown);
    char *copy;

    if (grown)
        *list = grown;
    copy = grown ? sherd__copy_text(heap, name) : NULL;
    if (!copy)
        return sherd__no_memory(sherd__world_diag(module->world), function);
    grown[n] = (sherd__named_tensor){copy, sherd_tensor_retain(t), false};
    ++*count;
    return SHERD_OK;
}

sherd_status sherd_module_add_parameter(sherd_module *module, const char *name, sherd_tensor *t)
{
    static const char function[] = "sherd_module_add_parameter";

    if (!module)
        return no_module(function, t);

    const char *fault = tensor_fault(module, t);
    if (!name || !name[0] || strchr(name, '.'))
        fault = "a name is not empty and has no dot";
    else if (sherd__name_is_taken(module, name))
        fault = "the name is taken";
    if (fault)
        return refuse(module, function, name, fault);
    sherd_status status =
        sherd__add_named(module, function, &module->parameter, &module->parameters, name, t);
    if (!status)
        sherd_require_grad(t, true);
    return status;
}

sherd_status sherd__set_named(sherd_module *m, const char *function, const char *kind,
                              sherd__named_tensor *named, sherd_tensor *t)
{
    sherd_tensor *old = named->tensor;

    if (t->dtype != old->dtype || t->ndim != old->ndim ||
        memcmp(t->shape, old->shape, (size_t)t->ndim * sizeof t->shape[0]) != 0)
        return sherd__module_fail(
            m, SHERD_EINVAL, "%s: %s \"%s\" of \"%s\" is %s, the new tensor is %s", function, kind,
            named->name, sherd__module_name(m), sherd_tensor_text(old), sherd_tensor_text(t));
    named->tensor = sherd_tensor_retain(t);
    sherd_tensor_release(old);
    return SHERD_OK;
}

sherd_status sherd_module_set_parameter(sherd_module *module, const char *name, sherd_tensor *t)
{
    static const char function[] = "sherd_module_set_parameter";
    int i = sherd__find_parameter(module, name);

    if (!module)
        return no_module(function, t);

    const char *fault = tensor_fault(module, t);
    if (i < 0)
        fault = "there is none of this name";
    if (fault)
        return refuse(module, function, name, fault);
    return sherd__set_named(module, function, "parameter", &module->parameter[i], t);
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
    const sherd_module *root;
    sherd_named_parameter *out;
    int room, count;
} walk;

/* Where t is met first in a walk from m; false if it is not below m. */
static bool first_holder(const sherd_module *m, const sherd_tensor *t, const sherd_module **holder,
                         int *index)
{
    for (int i = 0; i < m->parameters; i++)
        if (m->parameter[i].tensor == t) {
            *holder = m;
            *index = i;
            return true;
        }
    for (int i = 0; i < m->children; i++)
        if (first_holder(m->child[i].module, t, holder, index))
            return true;
    return false;
}

static void visit(walk *w, const sherd_module *m)
{
    for (int i = 0; i < m->parameters; i++) {
        const sherd__named_tensor *p = &m->parameter[i];
        const sherd_module *holder = NULL;
        int index = -1;
        first_holder(w->root, p->tensor, &holder, &index);
        if (holder != m || index != i)
            continue;
        if (w->out && w->count < w->room)
            w->out[w->count] = (sherd_named_parameter){m->path, p->name, p->tensor};
        w->count++;
    }
    for (int i = 0; i < m->children; i++)
        visit(w, m->child[i].module);
}

int sherd_module_all_parameters(const sherd_module *module, sherd_named_parameter *out, int room)
{
    walk w = {module, out, room, 0};
    if (module)
        visit(&w, module);
    return w.count;
}
