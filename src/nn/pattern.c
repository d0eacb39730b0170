/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Paths with wildcards: each name of a path is a shell pattern for one level of the tree, or "**"
 * for any number of them. It notes where a path came to nothing, for messages.
 */
#include <fnmatch.h>
#include <string.h>

#include "nn/pattern.h"

char *sherd__path_names(sherd__heap *heap, const char *path, int *levels)
{
    char *names = sherd__copy_text(heap, path);

    *levels = path[0] != 0;
    for (char *c = names; c && *c; c++)
        if (*c == '.') {
            *c = 0;
            ++*levels;
        }
    return names;
}

static bool is_any_depth(const sherd__descent *d, const char *name)
{
    return d->any_depth && strcmp(name, "**") == 0;
}

static sherd_status descend_child(sherd__descent *d, sherd_module *m, int i, const char *names,
                                  int left)
{
    sherd_status status;

    d->depth++;
    status = sherd__descend(d, sherd_module_child(m, i), names, left);
    d->depth--;
    return status;
}

/* "**": the rest of the path from here, and the same from each child. */
static sherd_status descend_all(sherd__descent *d, sherd_module *m, const char *names, int left)
{
    sherd_status status = sherd__descend(d, m, names + strlen(names) + 1, left - 1);

    /* Two in a row are one. */
    if (left > 1 && is_any_depth(d, names + strlen(names) + 1))
        return status;
    for (int i = 0; !status && i < sherd_module_children(m); i++)
        status = descend_child(d, m, i, names, left);
    return status;
}

sherd_status sherd__descend(sherd__descent *d, sherd_module *m, const char *names, int left)
{
    sherd_status status = SHERD_OK;
    bool met = false;

    if (left == 0)
        return d->visit(d->data, m, names);
    if (is_any_depth(d, names))
        return descend_all(d, m, names, left);
    for (int i = 0; !status && i < sherd_module_children(m); i++)
        if (fnmatch(names, sherd_module_child_name(m, i), 0) == 0) {
            met = true;
            status = descend_child(d, m, i, names + strlen(names) + 1, left - 1);
        }
    if (!met && d->depth > d->deepest) {
        d->deepest = d->depth;
        d->stop = m;
        d->missed = names;
    }
    return status;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void meet_named(const sherd__matching *how, const sherd__named_tensor *list, int count,
                       const char *name)
{
    for (int i = 0; i < count; i++)
        if (fnmatch(name, list[i].name, 0) == 0)
            how->meet(how->data, &list[i]);
}

/* Those of a module that have this name, and of all modules below it. */
static void meet_all(const sherd__matching *how, const sherd_module *m, const char *name,
                     bool below)
{
    meet_named(how, m->parameter, m->parameters, name);
    if (how->buffers)
        meet_named(how, m->buffer, m->buffers, name);
    for (int i = 0; below && i < m->children; i++)
        meet_all(how, m->child[i].module, name, below);
}

static sherd_status visit_tensors(void *data, sherd_module *m, const char *rest)
{
    bool all = strcmp(rest, "**") == 0;

    meet_all(data, m, all ? "*" : rest, all);
    return SHERD_OK;
}

bool sherd__match_pattern(sherd_module *m, const char *pattern, const sherd__matching *how)
{
    sherd__heap *heap = sherd__world_heap(m->world);
    sherd__descent d = {
        .visit = visit_tensors, .data = (void *)(uintptr_t)how, .any_depth = true, .deepest = -1};
    int levels;
    char *names = sherd__path_names(heap, pattern, &levels);

    /* The last name is that of a tensor. */
    if (names && levels > 0)
        sherd__descend(&d, m, names, levels - 1);
    sherd__free(heap, names);
    return names != NULL;
}
