/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a module says of itself: its names, what belongs to it, and whether something needs it now.
 */
#include "nn/module.h"

const char *sherd__module_name(const sherd_module *module)
{
    return module->path[0] ? module->path : "(root)";
}

const char *sherd__module_called(const sherd_module *module)
{
    return module->called ? module->called : "sherd_module_run";
}

bool sherd__is_running(const sherd_module *m)
{
    bool running = m->running > 0;

    for (int i = 0; !running && i < m->children; i++)
        running = sherd__is_running(m->child[i].module);
    return running;
}

/* Whether a backward may still need it: to run it again, or because a parameter is on a tape. */
static bool is_recorded(const sherd_module *m)
{
    bool recorded = m->checkpoint != NULL;

    for (int i = 0; !recorded && i < m->parameters; i++)
        recorded = m->parameter[i].tensor->refs > 1;
    for (int i = 0; !recorded && i < m->children; i++)
        recorded = is_recorded(m->child[i].module);
    return recorded;
}

bool sherd__is_in_backward(const sherd_module *m)
{
    return sherd__where_now(m->world) & SHERD__BACKWARD && !m->of_backward && is_recorded(m);
}

sherd_module *sherd__module_root(sherd_module *m)
{
    while (m->parent)
        m = m->parent;
    return m;
}

bool sherd__runs_again(const sherd_module *m)
{
    bool again = m->checkpoint != NULL;

    for (int i = 0; !again && i < m->children; i++)
        again = sherd__runs_again(m->child[i].module);
    return again;
}

sherd_world *sherd_module_world(const sherd_module *module)
{
    return module ? module->world : NULL;
}

void *sherd_module_payload(const sherd_module *module)
{
    return module ? module->options.payload : NULL;
}

sherd_module_kind sherd_module_kind_of(const sherd_module *module)
{
    return module ? module->options.kind : SHERD_MODULE_OTHER;
}

const char *sherd_module_path(const sherd_module *module)
{
    return module ? module->path : "";
}

int sherd_module_children(const sherd_module *module)
{
    return module ? module->children : 0;
}

sherd_module *sherd_module_child(const sherd_module *module, int i)
{
    return i >= 0 && i < sherd_module_children(module) ? module->child[i].module : NULL;
}

const char *sherd_module_child_name(const sherd_module *module, int i)
{
    return i >= 0 && i < sherd_module_children(module) ? module->child[i].name : NULL;
}

bool sherd_module_is_training(const sherd_module *module)
{
    return module && !module->eval;
}
