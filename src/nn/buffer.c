/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers of modules: state without gradients. They share one set of names with parameters and
 * children.
 */
#include "nn/module.h"

int sherd__find_buffer(const sherd_module *module, const char *name)
{
    return sherd__find_named(module, name, SHERD__BUFFER);
}

/* Why t can't be a buffer; NULL = it can. */
static const char *tensor_fault(const sherd_module *m, const sherd_tensor *t)
{
    const char *fault = sherd__named_fault(m, t);

    if (fault)
        return fault;
    if (t->autograd.node)
        return "the tensor is the result of a recorded operator";
    if (t->autograd.requires_grad)
        return "the tensor wants a gradient";
    return NULL;
}

sherd_status sherd_module_add_buffer(sherd_module *module, const char *name, sherd_tensor *t)
{
    static const char function[] = "sherd_module_add_buffer";

    if (!module)
        return sherd__no_module(function, t);

    const char *fault = tensor_fault(module, t);
    const char *wrong = sherd__name_fault(module, name);
    if (wrong || fault)
        return sherd__refuse_named(module, function, "buffer", name, wrong ? wrong : fault);
    return sherd__add_named(module, function, &module->buffer, &module->buffers, name, t);
}

sherd_status sherd_module_set_buffer(sherd_module *module, const char *name, sherd_tensor *t)
{
    static const char function[] = "sherd_module_set_buffer";
    int i = sherd__find_buffer(module, name);

    if (!module)
        return sherd__no_module(function, t);

    const char *fault = tensor_fault(module, t);
    if (i < 0)
        fault = "there is none of this name";
    if (fault)
        return sherd__refuse_named(module, function, "buffer", name, fault);
    return sherd__set_named(module, function, "buffer", &module->buffer[i], t);
}

sherd_tensor *sherd_module_buffer(const sherd_module *module, const char *name)
{
    int i = sherd__find_buffer(module, name);
    return i < 0 ? NULL : module->buffer[i].tensor;
}

int sherd_module_buffers(const sherd_module *module)
{
    return module ? module->buffers : 0;
}

const char *sherd_module_buffer_name(const sherd_module *module, int i)
{
    return i >= 0 && i < sherd_module_buffers(module) ? module->buffer[i].name : NULL;
}
