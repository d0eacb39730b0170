/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that a module holds by name: what parameters and buffers have in common. */
#include <string.h>

#include "nn/module.h"

int sherd__find_named(const sherd__named_tensor *list, int count, const char *name)
{
    for (int i = 0; name && i < count; i++)
        if (strcmp(list[i].name, name) == 0)
            return i;
    return -1;
}

const char *sherd__named_fault(const sherd_module *m, const sherd_tensor *t)
{
    if (!t)
        return "the tensor is NULL";
    if (sherd_tensor_failed(t))
        return "the tensor has failed";
    return t->world != m->world ? "the tensor is of another world" : NULL;
}

const char *sherd__name_fault(const sherd_module *m, const char *name)
{
    if (!name || !name[0] || strchr(name, '.'))
        return "a name is not empty and has no dot";
    return sherd__name_is_taken(m, name) ? "the name is taken" : NULL;
}

sherd_status sherd__refuse_named(const sherd_module *m, const char *function, const char *kind,
                                 const char *name, const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: %s \"%s\" of \"%s\": %s", function, kind,
                              name ? name : "(null)", sherd__module_name(m), fault);
}

/* The tensor's world, if there is one, gets the error text. */
sherd_status sherd__no_module(const char *function, const sherd_tensor *t)
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
