/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a module holds by name: children, parameters and buffers share one map of names, by which
 * paths are followed. What parameters and buffers have in common.
 */
#include <string.h>

#include "base/hash.h"
#include "nn/module.h"
#include "layout/shape.h"
#include "nn/quantize.h"

/* ---- names ----------------------------------------------------------------------------------- */

typedef struct name_key {
    const sherd_module *module;
    const char *name;
    size_t length;
} name_key;

/* What the map holds in place of pointers: where in which of the module's lists a name stands. */
static void *place_of(sherd__name_kind kind, int index)
{
    return (void *)(((uintptr_t)index + 1) * SHERD__NAME_KINDS + kind);
}

static sherd__name_kind kind_at(const void *place)
{
    return (sherd__name_kind)((uintptr_t)place % SHERD__NAME_KINDS);
}

static int index_at(const void *place)
{
    return (int)((uintptr_t)place / SHERD__NAME_KINDS) - 1;
}

/* Of a module that is being destroyed, some lists are gone: "" is nobody's name. */
static const char *name_at(const sherd_module *m, const void *place)
{
    int i = index_at(place);

    switch (kind_at(place)) {
    case SHERD__CHILD:
        return i < m->children ? m->child[i].name : "";
    case SHERD__PARAMETER:
        return i < m->parameters ? m->parameter[i].name : "";
    default:
        return i < m->buffers ? m->buffer[i].name : "";
    }
}

static bool has_name(const void *place, const void *what)
{
    const name_key *key = what;
    const char *name = name_at(key->module, place);

    return strncmp(name, key->name, key->length) == 0 && name[key->length] == 0;
}

bool sherd__add_name(sherd_module *m, sherd__name_kind kind, int index, const char *name)
{
    m->names.heap = sherd__world_heap(m->world);
    return sherd__map_add(&m->names, sherd__hash_bytes(1, name, strlen(name)),
                          place_of(kind, index));
}

static uint64_t hash_of(const char *name)
{
    return sherd__hash_bytes(1, name, strlen(name));
}

static bool add_child_name(sherd__map *names, const sherd_module *m, int i, int place)
{
    const char *name = m->child[i].name;

    return sherd__map_add(names, sherd__hash_bytes(1, name, strlen(name)),
                          place_of(SHERD__CHILD, place));
}

static bool add_names(sherd__map *names, sherd__name_kind kind, const sherd__named_tensor *list,
                      int count)
{
    bool good = true;

    for (int i = 0; good && i < count; i++)
        good = sherd__map_add(names, sherd__hash_bytes(1, list[i].name, strlen(list[i].name)),
                              place_of(kind, i));
    return good;
}

bool sherd__drop_child(sherd_module *m, int child)
{
    sherd__map names = {.heap = sherd__world_heap(m->world)};
    bool good = add_names(&names, SHERD__PARAMETER, m->parameter, m->parameters) &&
                add_names(&names, SHERD__BUFFER, m->buffer, m->buffers);

    for (int i = 0; good && i < m->children; i++)
        good = i == child || add_child_name(&names, m, i, i - (i > child));
    if (!good) {
        sherd__map_clear(&names);
        return false;
    }
    sherd__map_clear(&m->names);
    m->names = names;
    m->children--;
    memmove(m->child + child, m->child + child + 1,
            (size_t)(m->children - child) * sizeof *m->child);
    return true;
}

int sherd__find_name(const sherd_module *m, const char *name, size_t length, sherd__name_kind *kind)
{
    const name_key key = {m, name, length};
    const void *place =
        sherd__map_find(&m->names, sherd__hash_bytes(1, name, length), has_name, &key);

    if (!place)
        return -1;
    *kind = kind_at(place);
    return index_at(place);
}

int sherd__find_child(const sherd_module *m, const char *name, size_t length)
{
    sherd__name_kind kind;
    int i = sherd__find_name(m, name, length, &kind);

    return i >= 0 && kind == SHERD__CHILD ? i : -1;
}

sherd_module *sherd__module_at(sherd_module *module, const char *path, size_t length)
{
    const char *end = path + length;

    while (module && path < end) {
        const char *dot = memchr(path, '.', (size_t)(end - path));
        int i = sherd__find_child(module, path, (size_t)((dot ? dot : end) - path));
        bool trailing = dot && dot + 1 == end;
        path = dot ? dot + 1 : end;
        module = i < 0 || trailing ? NULL : module->child[i].module;
    }
    return module;
}

sherd_module *sherd_module_find(sherd_module *module, const char *path)
{
    return path ? sherd__module_at(module, path, strlen(path)) : NULL;
}

int sherd__find_named(const sherd_module *m, const char *name, sherd__name_kind kind)
{
    sherd__name_kind found = kind;
    int i = m && name ? sherd__find_name(m, name, strlen(name), &found) : -1;

    return found == kind ? i : -1;
}

/* Whether a child, a parameter or a buffer has this name. */
static bool is_taken(const sherd_module *module, const char *name)
{
    sherd__name_kind kind;

    return sherd__find_name(module, name, strlen(name), &kind) >= 0;
}

/* ---- tensors --------------------------------------------------------------------------------- */

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
    if (m->ending)
        return "the module is being destroyed";
    return is_taken(m, name) ? "the name is taken" : NULL;
}

sherd_status sherd__refuse_named(const sherd_module *m, const char *function, const char *kind,
                                 const char *name, const char *fault)
{
    return sherd__module_fail(m, SHERD_EINVAL, "%s: %s \"%.120s\" of \"%.120s\": %s", function,
                              kind, name ? name : "(null)", sherd__module_name(m), fault);
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
    sherd__name_kind kind = list == &module->buffer ? SHERD__BUFFER : SHERD__PARAMETER;
    sherd__named_tensor *grown = sherd__grow(heap, *list, n, n + 1, sizeof *grown);
    char *copy;

    if (grown)
        *list = grown;
    copy = grown ? sherd__copy_text(heap, name) : NULL;
    if (!copy || !sherd__add_name(module, kind, *count, copy)) {
        sherd__free(heap, copy);
        return sherd__no_memory(sherd__world_diag(module->world), function);
    }
    grown[n] = (sherd__named_tensor){.name = copy, .tensor = sherd_tensor_retain(t)};
    ++*count;
    return SHERD_OK;
}

sherd_status sherd__set_named(sherd_module *m, const char *function, const char *kind,
                              sherd__named_tensor *named, sherd_tensor *t)
{
    sherd_tensor *old = named->tensor;

    if (t->dtype != old->dtype || !sherd__same_shape(t->ndim, t->shape, old->ndim, old->shape))
        return sherd__module_fail(
            m, SHERD_EINVAL, "%s: %s \"%s\" of \"%s\" is %s, the new tensor is %s", function, kind,
            named->name, sherd__module_name(m), sherd_tensor_text(old), sherd_tensor_text(t));
    named->tensor = sherd_tensor_retain(t);
    sherd_tensor_release(old);
    return SHERD_OK;
}

int sherd__weight_bits(const sherd_module *m)
{
    int at = sherd__find_named(m, "weight", SHERD__BUFFER);
    sherd_dtype dtype = at >= 0 ? m->buffer[at].tensor->dtype : SHERD_DTYPE_NONE;

    if (dtype == SHERD_U8)
        return sherd__find_named(m, "weight_scale", SHERD__BUFFER) >= 0 ? 4 : 0;
    return dtype == SHERD_I8 ? 8 : 0;
}

bool sherd__is_scale(const sherd_module *m, const char *name)
{
    static const char end[] = "_scale";
    size_t length = strlen(name), tail = sizeof end - 1;
    sherd__name_kind kind = SHERD__CHILD;

    if (length <= tail || strcmp(name + length - tail, end) != 0)
        return false;
    int at = sherd__find_name(m, name, length - tail, &kind);
    if (at < 0 || kind != SHERD__BUFFER)
        return false;
    sherd_dtype dtype = m->buffer[at].tensor->dtype;
    return dtype == SHERD_I8 || dtype == SHERD_U8;
}

/* All names of the module, where parameter i is the first of two new buffers. */
static bool names_without(sherd__map *names, const sherd_module *m, int i, const char *more)
{
    const char *name = m->parameter[i].name;
    bool good = add_names(names, SHERD__PARAMETER, m->parameter, i) &&
                add_names(names, SHERD__BUFFER, m->buffer, m->buffers);

    for (int c = 0; good && c < m->children; c++)
        good = add_child_name(names, m, c, c);
    for (int p = i + 1; good && p < m->parameters; p++)
        good =
            sherd__map_add(names, hash_of(m->parameter[p].name), place_of(SHERD__PARAMETER, p - 1));
    return good && sherd__map_add(names, hash_of(name), place_of(SHERD__BUFFER, m->buffers)) &&
           sherd__map_add(names, hash_of(more), place_of(SHERD__BUFFER, m->buffers + 1));
}

bool sherd__buffering_begin(sherd__buffering *t, sherd_module *m, int parameter, const char *name)
{
    sherd__heap *heap = sherd__world_heap(m->world);
    size_t n = (size_t)m->buffers;
    sherd__named_tensor *grown = sherd__grow(heap, m->buffer, n, n + 2, sizeof *grown);

    *t = (sherd__buffering){.names = {.heap = heap}};
    if (grown)
        m->buffer = grown;
    t->name = grown ? sherd__copy_text(heap, name) : NULL;
    return t->name && names_without(&t->names, m, parameter, t->name);
}

void sherd__buffering_drop(sherd__buffering *t, sherd_module *m)
{
    sherd__map_clear(&t->names);
    sherd__free(sherd__world_heap(m->world), t->name);
}

void sherd__buffering_end(sherd__buffering *t, sherd_module *m, int parameter, sherd_tensor *value,
                          sherd_tensor *more)
{
    sherd__named_tensor old = m->parameter[parameter], *grown = m->buffer + m->buffers;

    sherd__map_clear(&m->names);
    m->names = t->names;
    m->parameters--;
    memmove(m->parameter + parameter, m->parameter + parameter + 1,
            (size_t)(m->parameters - parameter) * sizeof *m->parameter);
    grown[0] = (sherd__named_tensor){
        .name = old.name, .tensor = sherd_tensor_retain(value), .placed = old.placed};
    grown[1] = (sherd__named_tensor){
        .name = t->name, .tensor = sherd_tensor_retain(more), .placed = old.placed};
    m->buffers += 2;
    sherd_tensor_release(old.tensor);
}
