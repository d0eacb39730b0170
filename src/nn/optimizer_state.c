/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of an optimizer, listed and loaded by name like that of a module: each tensor under the
 * name of its parameter. Listing costs a walk over the tree, so list the state when saving, not in
 * each step. Names are found at once in the order of the list, otherwise by a look at each item.
 */
#include <string.h>

#include "nn/module.h"
#include "nn/optimizer.h"

bool sherd__optimizer_entry(const sherd_optimizer *o, const sherd__optimized *item, int e,
                            uint64_t walk, sherd_named_state *out)
{
    if (!item->name[e] || item->p->visit.walk != walk)
        return false;
    *out = (sherd_named_state){sherd__path_below(o->module, item->p->visit.holder), item->name[e],
                               item->tensor[e], true};
    return true;
}

/* The same of a tensor that there is. */
static bool entry_at(const sherd_optimizer *o, const sherd__optimized *item, int e, uint64_t walk,
                     sherd_named_state *out)
{
    return item->tensor[e] && sherd__optimizer_entry(o, item, e, walk, out);
}

void sherd__optimizer_begun(const sherd_optimizer *o, int64_t *begun)
{
    for (int i = 0; i < o->count; i++)
        begun[i] = o->item[i].tensor[SHERD__OPTIMIZER_STEPS] != NULL;
}

sherd_status sherd__optimizer_start_begun(const sherd_optimizer *o, const int64_t *begun)
{
    sherd_status status = SHERD_OK;

    sherd_scope_begin(o->world);
    for (int i = 0; i < o->count && !status; i++)
        if (begun[i])
            status = sherd__optimizer_start_state(o, &o->item[i]);
    sherd_scope_end(o->world);
    return status;
}

int sherd_optimizer_state(sherd_optimizer *optimizer, sherd_named_state *out, int room)
{
    sherd_optimizer *o = optimizer;
    sherd_named_state entry;
    uint64_t walk = o ? sherd__mark_holders(o->module) : 0;
    int count = 0;

    for (int i = 0; o && i < o->count; i++)
        for (int e = 0; e < SHERD__OPTIMIZER_TENSORS; e++) {
            if (!entry_at(o, &o->item[i], e, walk, &entry))
                continue;
            if (out && count < room) {
                if (e == SHERD__OPTIMIZER_EXACT)
                    sherd__optimizer_refresh(&o->item[i], NULL);
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

const sherd_tensor *sherd__optimizer_owner(sherd_optimizer *o, const sherd_tensor *state)
{
    for (int i = 0; i < o->count; i++) {
        int at = (o->found + i) % o->count;
        for (int e = 0; e < SHERD__OPTIMIZER_TENSORS; e++)
            if (o->item[at].tensor[e] == state) {
                o->found = at;
                return o->item[at].p;
            }
    }
    return NULL;
}

/*
 * The item that a name such as "layers.3.weight.m" belongs to, if the module "layers.3" still has
 * that parameter under the name "weight".
 */
static sherd__optimized *find_as_named(sherd_optimizer *o, const char *name, int *e)
{
    const char *state = strrchr(name, '.'), *parameter = state;

    while (parameter && parameter > name && parameter[-1] != '.')
        parameter--;
    if (!state || parameter - name == 1)
        return NULL;
    size_t before = parameter > name ? (size_t)(parameter - name) - 1 : 0;
    sherd_module *m = sherd__module_at(o->module, name, before);
    sherd__name_kind kind;
    int i = m ? sherd__find_name(m, parameter, (size_t)(state - parameter), &kind) : -1;
    sherd__optimized *item = i >= 0 && kind == SHERD__PARAMETER
                                 ? sherd__optimizer_item(o, m->parameter[i].tensor)
                                 : NULL;
    for (*e = 0; item && *e < SHERD__OPTIMIZER_TENSORS; ++*e)
        if (item->tensor[*e] && strcmp(item->name[*e], parameter) == 0)
            return item;
    return NULL;
}

/* The item that has an entry of this name, which is its tensor *e; NULL: none has. */
static sherd__optimized *find(sherd_optimizer *o, const char *name, int *e)
{
    sherd__optimized *item = find_as_named(o, name, e);
    uint64_t walk = item ? 0 : sherd__mark_holders(o->module);
    sherd_named_state entry;

    for (int i = 0; !item && i < o->count; i++)
        for (*e = 0; *e < SHERD__OPTIMIZER_TENSORS; ++*e)
            if (entry_at(o, &o->item[i], *e, walk, &entry) && has_name(&entry, name))
                return &o->item[i];
    return item;
}

sherd_status sherd__optimizer_load(const sherd__loading *what, sherd_optimizer *optimizer,
                                   sherd_status status)
{
    const sherd__argument need[] = {{"optimizer", optimizer}, {"name", what->name}, {NULL, NULL}};
    sherd__optimized *item = NULL;
    int e = 0;

    if (!status)
        status = sherd__require(sherd__world_diag(what->world), what->function, need);
    if (!what->world)
        return status;
    if (!status && !(item = find(optimizer, what->name, &e)))
        status =
            sherd__module_fail(optimizer->module, SHERD_EINVAL, "%s: \"%s\" has no state \"%s\"",
                               what->function, sherd__module_name(optimizer->module), what->name);
    status = sherd__load(what, item ? item->tensor[e] : NULL, status);
    /*
     * From now on the parameter shows this copy; else the next step would read the parameter, which
     * is rounded.
     */
    if (!status && e == SHERD__OPTIMIZER_EXACT)
        item->version = what->anew ? -1 : item->p->storage->version;
    return status;
}

sherd_status sherd_optimizer_load(sherd_optimizer *optimizer, const char *name, sherd_tensor *t,
                                  int root)
{
    const sherd__loading what = {.function = "sherd_optimizer_load",
                                 .world = optimizer ? optimizer->world : sherd_tensor_world(t),
                                 .module = optimizer ? optimizer->module : NULL,
                                 .name = name,
                                 .t = t,
                                 .root = root};

    return sherd__optimizer_load(&what, optimizer, SHERD_OK);
}
