/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Applying a plan of styles. All paths are matched before anything changes, so that a misspelt one
 * leaves the module as it was. Each name of a path is a shell pattern for one level of the tree.
 * Ranks agree at the end: the hash of the plan and of what it matched must be the same on all.
 */
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/near.h"
#include "base/text.h"
#include "nn/pattern.h"
#include "parallel/style.h"

typedef struct job {
    sherd_world *world;
    sherd_module *module;
    const sherd_mesh *mesh;
    int axis;
    uint64_t hash;
    /* Of the entry that is looked at: */
    const sherd_parallel_entry *entry;
    int matches;
} job;

typedef sherd_status (*visitor)(void *data, sherd_module *module, const char *rest);

static sherd_status note(void *data, sherd_module *module, const char *rest)
{
    job *j = data;

    (void)rest;
    j->matches++;
    j->hash = sherd__hash_text(j->hash, sherd_module_path(module));
    return SHERD_OK;
}

sherd_status sherd__told(sherd_module *module, const char *function, const char *what,
                         sherd_status returned)
{
    bool known = returned <= SHERD_OK && returned >= SHERD_ETIMEDOUT;

    if (!returned || (known && sherd__world_diag(module->world)->status == returned))
        return returned;
    return sherd__module_fail(
        module, known ? returned : SHERD_EINVAL, "%s: %s of module \"%s\" returned %d (%s)",
        function, what, sherd__module_name(module), (int)returned, sherd_status_name(returned));
}

static sherd_status apply(void *data, sherd_module *module, const char *rest)
{
    job *j = data;
    const sherd_style *style = &j->entry->style;
    const char *name = style->name ? style->name : "of your own";
    char what[64];

    (void)rest;
    snprintf(what, sizeof what, "style %.48s", name);
    sherd__world_diag(j->world)->status = SHERD_OK;
    int floor = sherd__scope_fence(j->world);
    sherd_status status = style->apply(style, module, j->mesh, j->axis);
    sherd__scope_leave(j->world, floor);
    status = sherd__told(module, "sherd_parallelize", what, status);
    return status ? status
                  : sherd__note_style(module, name, sherd_mesh_axis_name(j->mesh, j->axis));
}

static const char *child_at(void *of, int i)
{
    return sherd_module_child_name(of, i);
}

static sherd_status no_match(const job *j, const sherd__descent *d)
{
    char near[256];

    sherd__near_names(near, sizeof near, child_at, d->stop, d->missed);
    return sherd__module_fail(j->module, SHERD_EINVAL,
                              "sherd_parallelize: path \"%s\" matches nothing: \"%s\" has no child "
                              "\"%s\"%s%s",
                              j->entry->path, sherd__module_name(d->stop), d->missed,
                              near[0] ? "; it has " : "", near);
}

/* Visit all modules that the entry's path matches. */
static sherd_status each_match(job *j, const sherd_parallel_entry *entry, visitor visit)
{
    sherd__heap *heap = sherd__world_heap(j->world);
    sherd__descent d = {.visit = visit, .data = j, .deepest = -1};
    int levels;
    char *names = sherd__path_names(heap, entry->path, &levels);
    sherd_status status;

    if (!names)
        return sherd__no_memory(sherd__world_diag(j->world), "sherd_parallelize");
    j->entry = entry;
    j->matches = 0;
    status = sherd__descend(&d, j->module, names, levels);
    if (!status && visit == note && j->matches == 0)
        status = no_match(j, &d);
    sherd__free(heap, names);
    return status;
}

/* ---- what ranks must agree on --------------------------------------------------------------- */

static uint64_t hash_placement(uint64_t hash, sherd_placement p)
{
    hash = sherd__hash_word(hash, (uint64_t)p.kind);
    hash = sherd__hash_word(hash, (uint64_t)p.dim);
    return sherd__hash_word(hash, (uint64_t)p.op);
}

static uint64_t hash_slots(uint64_t hash, const sherd_slot *slot, int count)
{
    for (int i = 0; i < count; i++) {
        hash = sherd__hash_text(hash, slot[i].name ? slot[i].name : "");
        hash = hash_placement(hash, slot[i].lies);
        hash = hash_placement(hash, slot[i].desired);
    }
    return sherd__hash_word(hash, (uint64_t)count);
}

static uint64_t hash_style(uint64_t hash, const sherd_style *s)
{
    hash = sherd__hash_text(hash, s->name ? s->name : "");
    hash = hash_placement(hash, s->input);
    hash = hash_placement(hash, s->desired);
    hash = hash_placement(hash, s->output);
    hash = hash_slots(hash, s->inputs, s->input_count);
    hash = hash_slots(hash, s->outputs, s->output_count);
    hash = sherd__hash_word(hash, s->to_local + 2u * s->local_input + 4u * s->keep_gathered);
    hash = sherd__hash_word(hash, (uint64_t)s->granule);
    return sherd__hash_word(hash, (uint64_t)s->sequence_dim);
}

static uint64_t hash_named(uint64_t hash, const sherd__named_tensor *list, int count)
{
    for (int i = 0; i < count; i++) {
        const sherd_tensor *t = list[i].tensor;
        hash = sherd__hash_text(hash, list[i].name);
        hash = sherd__hash_word(hash, (uint64_t)t->dtype);
        for (int d = 0; d < t->ndim; d++)
            hash = sherd__hash_word(hash, (uint64_t)t->shape[d]);
    }
    return hash;
}

uint64_t sherd__hash_tree(uint64_t hash, const sherd_module *m)
{
    hash = hash_named(hash, m->parameter, m->parameters);
    hash = hash_named(hash, m->buffer, m->buffers);
    for (int i = 0; i < m->children; i++)
        hash = sherd__hash_tree(sherd__hash_text(hash, m->child[i].name), m->child[i].module);
    return hash;
}

/* ---- the steps ------------------------------------------------------------------------------ */

static sherd_status check_entry(job *j, const sherd_parallel_entry *entry)
{
    const char *fault = sherd__style_fault(&entry->style);

    if (fault)
        return sherd__module_fail(j->module, SHERD_EINVAL,
                                  "sherd_parallelize: the style of path \"%s\": %s",
                                  entry->path ? entry->path : "(null)", fault);
    if (!entry->path || !entry->style.apply)
        return sherd__module_fail(j->module, SHERD_EINVAL,
                                  "sherd_parallelize: an entry lacks its %s",
                                  entry->path ? "style" : "path");
    j->hash = sherd__hash_text(j->hash, entry->path);
    j->hash = hash_style(j->hash, &entry->style);
    return each_match(j, entry, note);
}

static sherd_status run(job *j, const sherd_parallel_entry *plan, int count)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; !status && i < count; i++)
        status = check_entry(j, &plan[i]);
    if (!sherd__in_mesh(j->world, j->mesh))
        return status ? status : sherd__replicate_rest(j->module, j->mesh);
    for (int i = 0; !status && i < count; i++)
        status = each_match(j, &plan[i], apply);
    return status ? status : sherd__replicate_rest(j->module, j->mesh);
}

/* Elements of all parameters, here and below. */
static int64_t elements(const sherd_module *m)
{
    int64_t sum = 0;

    for (int i = 0; i < m->parameters; i++)
        sum += sherd_tensor_count(m->parameter[i].tensor);
    for (int i = 0; i < m->children; i++)
        sum += elements(m->child[i].module);
    return sum;
}

/* "sherd_parallelize: 72 parameters on axis x, \"up\" Colwise", as far as there is room. */
static void write_call(char *out, size_t room, const job *j, const char *function,
                       const sherd_parallel_entry *plan, int count)
{
    const char *axis = sherd_mesh_axis_name(j->mesh, j->axis);
    sherd__writer w = {out, room, 0};

    sherd__write(&w, "%s: %lld parameters on axis %s", function, (long long)elements(j->module),
                 axis);
    for (int i = 0; i < count && plan; i++)
        sherd__write(&w, ", \"%s\" %s", plan[i].path ? plan[i].path : "",
                     plan[i].style.name ? plan[i].style.name : "of your own");
}

sherd_status sherd_parallelize(sherd_module *module, const sherd_mesh *mesh, const char *axis,
                               const sherd_parallel_entry *plan, int count)
{
    static const char function[] = "sherd_parallelize";
    job j = {.module = module, .mesh = mesh};
    char text[90];
    sherd_status status = sherd__style_axis(&j.axis, &j.world, module, mesh, axis, function);

    if (!j.world)
        return status;
    if (!status && (count < 0 || (count > 0 && !plan)))
        status = sherd__module_fail(module, SHERD_EINVAL, "%s: %d entries%s", function, count,
                                    plan ? "" : ", but plan is NULL");
    if (!status) {
        j.hash = sherd__hash_word(mesh->hash, (uint64_t)j.axis);
        j.hash = sherd__hash_tree(j.hash, module);
        status = run(&j, plan, count);
        module->spread = true;
    }
    if (!status)
        write_call(text, sizeof text, &j, function, plan, count);
    return sherd__agree(j.world, status, j.hash, status ? function : text);
}
