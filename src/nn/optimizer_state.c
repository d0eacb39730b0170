/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an optimizer, listed and loaded by name like that of a module: each tensor under the
 * name of its parameter. Finding a name costs a walk over the tree for each parameter, so list the
 * state when saving, not in each step.
 */
#include <string.h>

#include "nn/module.h"
#include "nn/optimizer.h"

/* The e-th tensor of an item; false: it has none, or its parameter is no longer in the module. */
static bool entry_at(const sherd_optimizer *o, sherd__optimized *item, int e,
                     sherd_named_state *out)
{
    const sherd_module *holder = item->tensor[e] ? sherd__holder_of(o->module, item->p) : NULL;

    if (!holder)
        return false;
    *out = (sherd_named_state){sherd__path_below(o->module, holder), item->name[e], item->tensor[e],
                               true};
    return true;
}

int sherd_optimizer_state(sherd_optimizer *optimizer, sherd_named_state *out, int room)
{
    sherd_optimizer *o = optimizer;
    sherd_named_state entry;
    int count = 0;

    for (int i = 0; o && i < o->count; i++)
        for (int e = 0; e < SHERD__OPTIMIZER_TENSORS; e++) {
            if (!entry_at(o, &o->item[i], e, &entry))
                continue;
            if (out && count < room) {
                if (e == SHERD__OPTIMIZER_EXACT)
                    sherd__optimizer_refresh(&o->item[i]);
                out[count] = entry;
            }
            count++;
        }
    return count;
}

/* Whether an entry has this dotted name. */
static bool has_name(const sherd_named_state *entry, const char *name)
{
    size_t length = strlen(entry->path);

    if (length == 0)
        return strcmp(name, entry->name) == 0;
    return strncmp(name, entry->path, length) == 0 && name[length] == '.' &&
           strcmp(name + length + 1, entry->name) == 0;
}

/* The item that has an entry of this name, which is its tensor *e; NULL: none has. */
static sherd__optimized *find(const sherd_optimizer *o, const char *name, int *e)
{
    sherd_named_state entry;

    for (int i = 0; i < o->count; i++)
        for (*e = 0; *e < SHERD__OPTIMIZER_TENSORS; ++*e)
            if (entry_at(o, &o->item[i], *e, &entry) && has_name(&entry, name))
                return &o->item[i];
    return NULL;
}

sherd_status sherd_optimizer_load(sherd_optimizer *optimizer, const char *name, sherd_tensor *t,
                                  int root)
{
    const sherd__loading what = {"sherd_optimizer_load",
                                 optimizer ? optimizer->world : sherd_tensor_world(t),
                                 optimizer ? optimizer->module : NULL,
                                 name,
                                 t,
                                 root};
    const sherd__argument need[] = {{"optimizer", optimizer}, {"name", name}, {NULL, NULL}};
    sherd__optimized *item = NULL;
    sherd_status status = sherd__require(sherd__world_diag(what.world), what.function, need);
    int e = 0;

    if (!what.world)
        return status;
    if (!status && !(item = find(optimizer, name, &e)))
        status =
            sherd__module_fail(optimizer->module, SHERD_EINVAL, "%s: \"%s\" has no state \"%s\"",
                               what.function, sherd__module_name(optimizer->module), name);
    status = sherd__load(&what, item ? item->tensor[e] : NULL, status);
    /*
     * From now on the parameter shows this copy; else the next step would read the parameter, which
     * is rounded.
     */
    if (!status && e == SHERD__OPTIMIZER_EXACT)
        item->version = item->p->storage->version;
    return status;
}
