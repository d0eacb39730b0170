/* SPDX-License-Identifier: Apache-2.0 */
/* A module: made, destroyed, and what is set of it; about.c is what it says of itself. */
#include <stdio.h>
#include <string.h>

#include "nn/module.h"
#include "tensor/state.h"

static sherd__heap *heap_of(const sherd_module *module)
{
    return sherd__world_heap(module->world);
}

sherd_status sherd_module_create(sherd_module **out, sherd_world *world, sherd_forward forward,
                                 const sherd_module_options *options)
{
    const sherd__argument need[] = {{"out", out}, {"world", world}, {NULL, NULL}};

    if (out)
        *out = NULL;
    if (sherd__require(sherd__world_diag(world), "sherd_module_create", need))
        return SHERD_EINVAL;

    sherd__heap *heap = sherd__world_heap(world);
    sherd_module *m = sherd__alloc(heap, 1, sizeof *m);
    char *path = m ? sherd__copy_text(heap, "") : NULL;
    if (!path) {
        sherd__free(heap, m);
        return sherd__no_memory(sherd__world_diag(world), "sherd_module_create");
    }
    m->world = world;
    m->forward = forward;
    m->path = path;
    m->generator = sherd_generator_named(path);
    m->of_backward = sherd__where_now(world) & SHERD__BACKWARD;
    if (options)
        m->options = *options;
    *out = m;
    return SHERD_OK;
}

/* Take a list off a module, and free it. */
static void free_named(sherd__heap *heap, sherd__named_tensor **of, int *count)
{
    sherd__named_tensor *list = *of;
    int n = *count;

    *of = NULL;
    *count = 0;
    for (int i = 0; i < n; i++) {
        sherd_tensor_release(list[i].tensor);
        sherd__free(heap, list[i].name);
    }
    sherd__free(heap, list);
}

static void destroy_tree(sherd_module *m);

static void destroy_children(sherd_module *m)
{
    sherd__heap *heap = heap_of(m);
    sherd__named_child *list = m->child;
    int n = m->children;

    m->child = NULL;
    m->children = 0;
    for (int i = 0; i < n; i++) {
        destroy_tree(list[i].module);
        sherd__free(heap, list[i].name);
    }
    sherd__free(heap, list);
}

/* Destroy functions may look at the module: they find nothing of it that is gone. */
static void destroy_tree(sherd_module *m)
{
    sherd__heap *heap = heap_of(m);

    m->running++;
    m->ending = true;
    sherd__standing_drop(&m->stand);
    destroy_children(m);
    sherd__hooks_sweep(m, true);
    sherd__checkpoint_forget(m);
    free_named(heap, &m->parameter, &m->parameters);
    free_named(heap, &m->buffer, &m->buffers);
    sherd__give_back(m->world, m->options.payload, m->options.destroy);
    sherd__map_clear(&m->names);
    sherd__free(heap, m->styles);
    sherd__free(heap, m->keeps);
    sherd__free(heap, m->path);
    sherd__free(heap, m);
}

void sherd_module_destroy(sherd_module *module)
{
    const char *fault = NULL;

    if (!module || module->parent)
        return;
    /* Otherwise its forward, or a caller of that, would go on with a module that is gone. */
    if (sherd__is_running(module))
        fault = "or one below it is being called, or destroyed";
    else if (sherd__is_in_backward(module))
        fault = "is in a backward that is under way: destroy it when that has returned";
    if (fault)
        sherd__raise(module->world, SHERD_EINVAL, "sherd_module_destroy: module \"%s\" %s",
                     sherd__module_name(module), fault);
    else
        destroy_tree(module);
}

/* ---- what a module is ----------------------------------------------------------------------- */

sherd_status sherd__note_style(sherd_module *module, const char *style, const char *axis)
{
    sherd__heap *heap = heap_of(module);
    const char *before = module->styles ? module->styles : "";
    size_t room = strlen(before) + strlen(style) + strlen(axis) + 5;
    char *text = sherd__alloc(heap, room, 1);

    if (!text)
        return sherd__no_memory(sherd__world_diag(module->world), "sherd_parallelize");
    snprintf(text, room, "%s%s%s(%s)", before, before[0] ? ", " : "", style, axis);
    sherd__free(heap, module->styles);
    module->styles = text;
    return SHERD_OK;
}

sherd_status sherd_module_set_payload(sherd_module *module, void *payload,
                                      void (*destroy)(void *payload))
{
    const char *fault = !module            ? NULL
                        : module->is_layer ? "it is a layer, whose payload is its own"
                        : module->running  ? "it is being called"
                                           : NULL;

    if (!module)
        return SHERD_EINVAL;
    if (fault)
        return sherd__fail(sherd__world_diag(module->world), SHERD_EINVAL,
                           "sherd_module_set_payload: module \"%s\": %s",
                           sherd__module_name(module), fault);
    const sherd_module_options before = module->options;
    module->options.payload = payload;
    module->options.destroy = destroy;
    if (before.payload != payload)
        sherd__give_back(module->world, before.payload, before.destroy);
    return SHERD_OK;
}

void sherd_module_train(sherd_module *module, bool training)
{
    if (!module)
        return;
    module->eval = !training;
    for (int i = 0; i < module->children; i++)
        sherd_module_train(module->child[i].module, training);
}

sherd_generator *sherd_module_generator(sherd_module *module)
{
    if (!module)
        return NULL;
    sherd__standing_keep(module->world, &module->stand, &module->generator);
    return &module->generator;
}
