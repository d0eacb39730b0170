/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hooks of modules. A removed hook is freed at once, or, while its module runs, after the run: a
 * hook may remove itself and go on using its payload. Of the hooks before, those run that were
 * there when the call began; of those after, those that were there when the forward had ended: so a
 * hook that adds another one of its kind does not go on for ever.
 */
#include <limits.h>

#include "nn/module.h"
#include "tensor/state.h"

/* Registration failed; the payload is the module's, so it is destroyed. */
static sherd_status refuse(sherd_module *m, const sherd__hook_entry *hook, const char *why)
{
    if (!m) {
        if (hook->destroy)
            hook->destroy(hook->payload);
        return SHERD_EINVAL;
    }
    sherd__give_back(m->world, hook->payload, hook->destroy);
    if (why)
        return sherd__module_fail(m, SHERD_EINVAL, "sherd_module_hook: %s", why);
    return sherd__no_memory(sherd__world_diag(m->world), "sherd_module_hook");
}

static bool is_taken(const sherd__hook_entry *entry, int id)
{
    while (entry && entry->id != id)
        entry = entry->next;
    return entry != NULL;
}

/* One that no hook has. Only after 2^31 - 1 others does it come again: a module may get one in each
 * call, for days. */
static int next_id(const sherd_module *m)
{
    int id = (int)(m->hooked % INT_MAX) + 1;

    while (is_taken(m->before, id) || is_taken(m->after, id))
        id = id % INT_MAX + 1;
    return id;
}

static sherd_status insert(int *id, sherd_module *m, const sherd__hook_entry *hook, bool prepend)
{
    sherd__hook_entry *entry, **list;

    if (id)
        *id = 0;
    if (!m || (!hook->before && !hook->after))
        return refuse(m, hook, "hook is NULL");
    if (m->ending)
        return refuse(m, hook, "the module is being destroyed");
    entry = sherd__alloc(sherd__world_heap(m->world), 1, sizeof *entry);
    if (!entry)
        return refuse(m, hook, NULL);
    list = hook->before ? &m->before : &m->after;
    while (*list && !prepend)
        list = &(*list)->next;
    *entry = *hook;
    entry->id = next_id(m);
    entry->turn = m->hooked++;
    entry->next = *list;
    *list = entry;
    if (id)
        *id = entry->id;
    return SHERD_OK;
}

sherd_status sherd_module_hook_before(int *id, sherd_module *module, sherd_pre_hook hook,
                                      const sherd_hook_options *options)
{
    static const sherd_hook_options none;
    const sherd_hook_options *o = options ? options : &none;
    sherd__hook_entry entry = {.before = hook, .payload = o->payload, .destroy = o->destroy};

    return insert(id, module, &entry, o->prepend);
}

sherd_status sherd_module_hook_after(int *id, sherd_module *module, sherd_hook hook,
                                     const sherd_hook_options *options)
{
    static const sherd_hook_options none;
    const sherd_hook_options *o = options ? options : &none;
    sherd__hook_entry entry = {.after = hook, .payload = o->payload, .destroy = o->destroy};

    return insert(id, module, &entry, o->prepend);
}

/*
 * A destroy function may remove other hooks: so all are taken out before the first is called.
 * Returns whether there were any.
 */
static bool sweep(sherd_module *m, sherd__hook_entry **list, bool all)
{
    sherd__hook_entry *gone = NULL, **end = &gone;

    while (*list) {
        sherd__hook_entry *entry = *list;
        if (entry->id && !all) {
            list = &entry->next;
            continue;
        }
        *list = entry->next;
        entry->next = NULL;
        *end = entry;
        end = &entry->next;
    }
    bool any = gone != NULL;
    while (gone) {
        sherd__hook_entry *entry = gone;
        gone = entry->next;
        sherd__give_back(m->world, entry->payload, entry->destroy);
        sherd__free(sherd__world_heap(m->world), entry);
    }
    return any;
}

/* As if it ran, so that no destroy function ends the module; what they remove is swept after. */
void sherd__hooks_sweep(sherd_module *module, bool all)
{
    bool any = true;

    module->running++;
    while (any) {
        any = sweep(module, &module->before, all);
        any |= sweep(module, &module->after, all);
    }
    module->running--;
}

static void mark(sherd__hook_entry *entry, int id)
{
    for (; entry; entry = entry->next)
        if (entry->id == id)
            entry->id = 0;
}

void sherd_module_unhook(sherd_module *module, int id)
{
    if (!module || id <= 0)
        return;
    mark(module->before, id);
    mark(module->after, id);
    if (!module->running)
        sherd__hooks_sweep(module, false);
}
