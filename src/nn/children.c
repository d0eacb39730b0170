/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The children of a module. A path is set when a module gets a parent or loses it, for the whole
 * subtree at once, so that reading one costs nothing. Adding, removing and replacing cost a walk
 * over the subtree.
 */
#include <stdio.h>
#include <string.h>

#include "nn/module.h"

static sherd__heap *heap_of(const sherd_module *module)
{
    return sherd__world_heap(module->world);
}

static int count_modules(const sherd_module *m)
{
    int n = 1;
    for (int i = 0; i < m->children; i++)
        n += count_modules(m->child[i].module);
    return n;
}

static char *join(sherd__heap *heap, const char *path, const char *name)
{
    size_t room = strlen(path) + strlen(name) + 2;
    char *text = sherd__alloc(heap, room, 1);
    if (text)
        snprintf(text, room, "%s%s%s", path, path[0] ? "." : "", name);
    return text;
}

/* The paths that m and all below it will have, parents first; false for lack of memory. */
static bool make_paths(const sherd_module *m, const char *path, const char *name, char **paths,
                       int *count)
{
    char *mine = join(heap_of(m), path, name);
    if (!mine)
        return false;
    paths[(*count)++] = mine;
    for (int i = 0; i < m->children; i++)
        if (!make_paths(m->child[i].module, mine, m->child[i].name, paths, count))
            return false;
    return true;
}

static void take_paths(sherd_module *m, char **paths, int *count)
{
    sherd__free(heap_of(m), m->path);
    m->path = paths[(*count)++];
    m->place = 0;
    m->generator = sherd_generator_named(m->path);
    sherd__standing_renew(&m->stand);
    for (int i = 0; i < m->children; i++)
        take_paths(m->child[i].module, paths, count);
}

/* The paths of a module and all below it, as if it had this parent's path and name; NULL: ENOMEM.
 */
static char **new_paths(const sherd_module *m, const char *path, const char *name)
{
    sherd__heap *heap = heap_of(m);
    char **paths = sherd__alloc(heap, (size_t)count_modules(m), sizeof *paths);
    int made = 0;

    if (!paths || make_paths(m, path, name, paths, &made))
        return paths;
    for (int i = 0; i < made; i++)
        sherd__free(heap, paths[i]);
    sherd__free(heap, paths);
    return NULL;
}

static void free_paths(const sherd_module *m, char **paths)
{
    for (int i = 0; paths && i < count_modules(m); i++)
        sherd__free(heap_of(m), paths[i]);
    sherd__free(heap_of(m), paths);
}

static void use_paths(sherd_module *m, char **paths)
{
    int taken = 0;

    take_paths(m, paths, &taken);
    sherd__free(heap_of(m), paths);
}

/* Nothing has changed if it returns false. */
static bool adopt(sherd_module *m, const char *name, sherd_module *child)
{
    sherd__heap *heap = heap_of(m);
    size_t n = (size_t)m->children;
    char **paths = new_paths(child, m->path, name);
    char *copy = sherd__copy_text(heap, name);
    sherd__named_child *grown = sherd__grow(heap, m->child, n, n + 1, sizeof *grown);
    bool good;

    if (grown)
        m->child = grown;
    good = paths && copy && grown && sherd__add_name(m, SHERD__CHILD, m->children, copy);
    if (good) {
        use_paths(child, paths);
        child->parent = m;
        m->child[m->children++] = (sherd__named_child){copy, child};
    } else {
        free_paths(child, paths);
        sherd__free(heap, copy);
    }
    return good;
}

static sherd_status refuse(const sherd_module *m, const char *function, const char *name,
                           const char *fault)
{
    return sherd__refuse_named(m, function, "child", name, fault);
}

/*
 * Whether a child and its new parent are given. A child that is not refused is the callee's: if the
 * parent is missing, it is destroyed.
 */
static sherd_status check_given(const char *function, const sherd_module *module,
                                sherd_module *child)
{
    sherd_status status;

    if (module && child)
        return SHERD_OK;
    if (module)
        return sherd__no_memory(sherd__world_diag(module->world), function);
    status = child ? sherd__module_fail(child, SHERD_EINVAL, "%s: module is NULL", function)
                   : SHERD_EINVAL;
    sherd_module_destroy(child);
    return status;
}

/* Why `child` belongs to a tree already, which would lose it; NULL: it does not. */
static const char *belongs(sherd_module *module, const sherd_module *child)
{
    if (child->parent)
        return "it has a parent";
    /* Only what has children is above another module: no walk for the others. */
    bool above = child == module || (child->children > 0 && child == sherd__module_root(module));
    return above ? "it is the root of this tree" : NULL;
}

sherd_status sherd_module_add(sherd_module *module, const char *name, sherd_module *child)
{
    static const char function[] = "sherd_module_add";
    sherd_status status = check_given(function, module, child);

    if (status)
        return status;
    const char *fault = belongs(module, child);
    if (fault)
        return refuse(module, function, name, fault);
    fault = sherd__name_fault(module, name);
    if (!fault && child->world != module->world)
        fault = "the child is of another world";
    if (fault)
        status = refuse(module, function, name, fault);
    else if (!adopt(module, name, child))
        status = sherd__no_memory(sherd__world_diag(module->world), function);
    if (status)
        sherd_module_destroy(child);
    return status;
}

/* ---- taking out ------------------------------------------------------------------------------ */

/* Why a child cannot leave its parent; NULL: it can. `destroyed`: then it ends. */
static const char *stays(const sherd_module *child, bool destroyed)
{
    for (const sherd_module *m = child->parent; m; m = m->parent)
        if (m->running)
            return "a module above it is being called, or destroyed";
    if (sherd__is_running(child))
        return "it or one below it is being called";
    if (child->in_unit)
        return "its parameters are gathered with those of a module above it (sherd_fully_shard, "
               "options.unit): take that one out";
    if (destroyed && sherd__is_in_backward(child))
        return "it is in a backward that is under way: destroy it when that has returned";
    if (!destroyed && sherd__runs_again(child))
        return "backward may still run it again (sherd_module_checkpoint)";
    return NULL;
}

static sherd_status find_leaving(int *at, const char *function, sherd_module *module,
                                 const char *name, bool destroyed)
{
    const sherd__argument need[] = {{"module", module}, {"name", name}, {NULL, NULL}};
    sherd_status status =
        sherd__require(sherd__world_diag(sherd_module_world(module)), function, need);

    if (status)
        return status;
    *at = sherd__find_child(module, name, strlen(name));
    const char *fault =
        *at < 0 ? "there is none of this name" : stays(module->child[*at].module, destroyed);
    return fault ? refuse(module, function, name, fault) : SHERD_OK;
}

/* A child becomes a root. What is on a mesh stays there, also for ranks outside that. */
static void free_from(sherd_module *child)
{
    for (const sherd_module *m = child->parent; m; m = m->parent)
        child->spread |= m->spread;
    child->parent = NULL;
}

static void hand_over(sherd_module *child, sherd_module **out)
{
    if (out)
        *out = child;
    else
        sherd_module_destroy(child);
}

sherd_status sherd_module_remove(sherd_module **out, sherd_module *module, const char *name)
{
    static const char function[] = "sherd_module_remove";
    sherd_status status;
    int at;

    if (out)
        *out = NULL;
    status = find_leaving(&at, function, module, name, !out);
    if (status)
        return status;
    if (module->is_layer)
        return refuse(module, function, name, "it is a part of a layer: replace it");
    sherd__named_child gone = module->child[at];
    char **paths = new_paths(gone.module, "", "");
    if (!paths || !sherd__drop_child(module, at)) {
        free_paths(gone.module, paths);
        return sherd__no_memory(sherd__world_diag(module->world), function);
    }
    sherd__free(heap_of(module), gone.name);
    free_from(gone.module);
    use_paths(gone.module, paths);
    hand_over(gone.module, out);
    return SHERD_OK;
}

/* Nothing has changed if it returns false. */
static bool exchange(sherd_module *module, sherd__named_child *place, sherd_module *child)
{
    sherd_module *gone = place->module;
    char **its = new_paths(gone, "", ""), **fresh = new_paths(child, module->path, place->name);

    if (!its || !fresh) {
        free_paths(gone, its);
        free_paths(child, fresh);
        return false;
    }
    free_from(gone);
    use_paths(gone, its);
    child->parent = module;
    use_paths(child, fresh);
    place->module = child;
    return true;
}

sherd_status sherd_module_replace(sherd_module **out, sherd_module *module, const char *name,
                                  sherd_module *child)
{
    static const char function[] = "sherd_module_replace";
    sherd_status status = check_given(function, module, child);
    const char *fault;
    int at = 0;

    if (out)
        *out = NULL;
    if (status)
        return status;
    if ((fault = belongs(module, child)))
        return refuse(module, function, name, fault);
    status = child->world == module->world
                 ? find_leaving(&at, function, module, name, !out)
                 : refuse(module, function, name, "the new one is of another world");
    sherd_module *gone = status ? NULL : module->child[at].module;
    if (!status && !exchange(module, &module->child[at], child))
        status = sherd__no_memory(sherd__world_diag(module->world), function);
    if (status)
        sherd_module_destroy(child);
    else
        hand_over(gone, out);
    return status;
}
