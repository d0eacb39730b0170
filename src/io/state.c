/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a module and of its optimizer, written to and read from a file by name. Names are
 * compared with those of the file before anything is read. Costs some walks over the tree, besides
 * writing and reading.
 */
#include "io/file.h"
#include "io/rows.h"

#include "base/dtype.h"
#include "nn/optimizer.h"
#include "sherd/ops.h"

#include <string.h>

static const char prefix[] = "optimizer.";

/* Everything that has a name: the module's tensors, then the optimizer's. */
typedef struct state {
    const char *function;
    sherd_world *world;
    sherd_module *module;
    sherd_optimizer *optimizer;
    sherd_named_state *entry; /* [count] */
    int count, of_module;
    sherd_named_tensor *named; /* the same, with their names in the file */
} state;

static void clear(state *s)
{
    sherd__heap *heap = sherd__world_heap(s->world);

    for (int i = 0; s->named && i < s->count; i++)
        sherd__free(heap, (char *)(uintptr_t)s->named[i].name);
    sherd__free(heap, s->named);
    sherd__free(heap, s->entry);
}

static char *name_of(const state *s, int i)
{
    size_t before = i < s->of_module ? 0 : strlen(prefix);
    size_t length = (size_t)sherd_state_name(&s->entry[i], NULL, 0);
    char *name = sherd__alloc(sherd__world_heap(s->world), before + length + 1, 1);

    if (name) {
        memcpy(name, prefix, before);
        sherd_state_name(&s->entry[i], name + before, length + 1);
    }
    return name;
}

static sherd_status list(state *s)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    sherd__diag *diag = sherd__world_diag(s->world);

    s->of_module = sherd_module_state(s->module, NULL, 0);
    int count = s->of_module + sherd_optimizer_state(s->optimizer, NULL, 0);
    s->entry = sherd__alloc(heap, (size_t)count + 1, sizeof *s->entry);
    s->named = sherd__alloc(heap, (size_t)count + 1, sizeof *s->named);
    if (!s->entry || !s->named)
        return sherd__no_memory(diag, s->function);
    sherd_module_state(s->module, s->entry, s->of_module);
    sherd_optimizer_state(s->optimizer, s->entry + s->of_module, count - s->of_module);
    for (; s->count < count; s->count++) {
        char *name = name_of(s, s->count);
        if (!name)
            return sherd__no_memory(diag, s->function);
        s->named[s->count] = (sherd_named_tensor){name, s->entry[s->count].tensor};
    }
    return SHERD_OK;
}

/* The list of a module, on all ranks or on none. */
static sherd_status open_state(state *s, sherd_module *module, sherd_optimizer *optimizer,
                               const char *path, const char *function)
{
    const sherd__argument need[] = {{"module", module}, {"path", path}, {NULL, NULL}};

    *s = (state){.function = function,
                 .module = module,
                 .world = module      ? sherd_module_world(module)
                          : optimizer ? optimizer->world
                                      : NULL,
                 .optimizer = optimizer};
    sherd_status status = sherd__require(sherd__world_diag(s->world), function, need);
    if (!s->world)
        return status;
    if (!status)
        status = list(s);
    return sherd__agree(s->world, status, 0, function);
}

sherd_status sherd_module_write(sherd_module *module, sherd_optimizer *optimizer, const char *path)
{
    state s;
    sherd_status status = open_state(&s, module, optimizer, path, "sherd_module_write");

    if (!status)
        status = sherd__file_write(&(sherd__to_write){s.world, path, s.named, s.count, NULL, 0},
                                   s.function);
    if (s.world)
        clear(&s);
    return status;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Why an entry cannot be loaded into a tensor; NULL: it can. */
static const char *fault_of(const sherd_file_entry *e, const sherd_tensor *t, bool cast)
{
    if (!e)
        return "the file has none";
    if (e->ndim != t->ndim || memcmp(e->shape, t->shape, (size_t)e->ndim * sizeof *e->shape) != 0)
        return "the file has another shape";
    if (e->dtype == t->dtype ||
        (cast && sherd__has_fractions(e->dtype) && sherd__has_fractions(t->dtype)))
        return NULL;
    return cast ? "the file has another dtype, and one of the two has no fractions"
                : "the file has another dtype (see cast)";
}

/*
 * A name of the file that nothing here has; NULL: there is none. Optimizer state that is not asked
 * for is ignored.
 */
static const char *unknown(const state *s, const sherd_file *file, const bool *known)
{
    for (int k = 0; k < file->header.entries; k++) {
        const char *name = file->header.entry[k].name;
        if (!known[k] && (s->optimizer || strncmp(name, prefix, strlen(prefix)) != 0))
            return name;
    }
    return NULL;
}

/* known: [entries of the file], false */
static sherd_status match(const state *s, const sherd_file *file, const sherd_read_options *options,
                          bool *known)
{
    sherd__diag *diag = sherd__world_diag(s->world);

    for (int i = 0; i < s->count; i++) {
        const sherd_file_entry *e = sherd_file_find(file, s->named[i].name);
        const char *why = fault_of(e, s->named[i].tensor, options->cast);
        if (why && (e || !options->partial))
            return sherd__fail(diag, SHERD_EINVAL, "%s: \"%.180s\": \"%.80s\", %.80s: %s",
                               s->function, file->path, s->named[i].name,
                               sherd_tensor_text(s->named[i].tensor), why);
        if (e)
            known[e - file->header.entry] = true;
    }
    const char *name = options->partial ? NULL : unknown(s, file, known);
    return name ? sherd__fail(diag, SHERD_EINVAL,
                              "%s: \"%.180s\": the module has no \"%.120s\" (see partial)",
                              s->function, file->path, name)
                : SHERD_OK;
}

static sherd_status match_all(const state *s, const sherd_file *file,
                              const sherd_read_options *options)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    size_t entries = (size_t)file->header.entries;
    bool *known = sherd__alloc(heap, entries + 1, sizeof *known);

    if (!known)
        return sherd__no_memory(sherd__world_diag(s->world), s->function);
    sherd_status status = match(s, file, options, known);
    sherd__free(heap, known);
    return status;
}

static sherd_status read_one(const state *s, const sherd_file *file, int i, sherd__load_kind kind)
{
    sherd__loading what = {s->function, s->world, s->module, s->named[i].name, NULL, -1, kind};
    sherd_tensor *t = s->named[i].tensor;
    const sherd_file_entry *e = sherd_file_find(file, what.name);
    sherd_status status;

    if (!e)
        return SHERD_OK;
    bool recording = sherd_set_recording(s->world, false);
    sherd_scope_begin(s->world);
    sherd_tensor *rows = sherd__file_rows(file, e, t->layout, s->function);
    if (e->dtype != t->dtype && !sherd__is_failed(rows))
        rows = sherd_cast(rows, t->dtype);
    what.t = rows;
    if (i >= s->of_module) {
        what.module = s->optimizer->module;
        what.name += strlen(prefix);
        status = sherd__optimizer_load(&what, s->optimizer);
    } else {
        status = sherd__load(&what, t, SHERD_OK);
    }
    sherd_scope_end(s->world);
    sherd_set_recording(s->world, recording);
    return status;
}

sherd_status sherd_module_read(sherd_module *module, sherd_optimizer *optimizer, const char *path,
                               const sherd_read_options *options)
{
    static const sherd_read_options none;
    sherd_file *file = NULL;
    state s;
    sherd_status status = open_state(&s, module, optimizer, path, "sherd_module_read");

    options = options ? options : &none;
    if (!status)
        status = sherd__file_open(&file, s.world, path, s.function);
    if (!status) {
        status = match_all(&s, file, options);
        status =
            sherd__agree(s.world, status,
                         1 + (uint64_t)options->partial + 2 * (uint64_t)options->cast, s.function);
    }
    sherd__load_kind own = sherd__load_kind_of(module),
                     its = sherd__load_kind_of(optimizer ? optimizer->module : NULL);
    for (int i = 0; !status && i < s.count; i++)
        status = read_one(&s, file, i, i < s.of_module ? own : its);
    sherd_file_destroy(file);
    if (s.world)
        clear(&s);
    return status;
}
