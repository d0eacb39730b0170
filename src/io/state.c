/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a module and of its optimizers, written to and read from a file by name. Names are
 * compared with those of the file before anything is read. Costs some walks over the tree, besides
 * writing and reading.
 */
#include "io/generators.h"
#include "io/index.h"
#include "io/names.h"
#include "io/state.h"
#include "io/whole_numbers.h"

#include "nn/optimizer.h"
#include "sherd/ops.h"

#include <string.h>

static sherd_status check_others(sherd__file_state *s)
{
    const char *fault = s->other_count < 0                 ? "there are fewer than none"
                        : s->other_count > 0 && !s->others ? "the list is NULL"
                                                           : NULL;
    int i = 0;

    for (; !fault && i < s->other_count; i++)
        fault = !s->others[i]                     ? "one is NULL"
                : s->others[i]->world != s->world ? "one is of another world"
                                                  : NULL;
    if (!fault)
        return SHERD_OK;
    sherd_status status = sherd__module_fail(s->module, SHERD_EINVAL,
                                             "%s: %d optimizers in the "
                                             "options: %s",
                                             s->function, s->other_count, fault);
    s->other_count = 0;
    return status;
}

/* List what *s begins with, on all ranks or on none. */
static sherd_status open_state(sherd__file_state *s, const void *path)
{
    const sherd__argument need[] = {{"module", s->module}, {"path", path}, {NULL, NULL}};

    s->world = s->module      ? sherd_module_world(s->module)
               : s->optimizer ? s->optimizer->world
                              : NULL;
    sherd_status status = sherd__require(sherd__world_diag(s->world), s->function, need);
    if (!s->world)
        return status;
    if (!status)
        status = check_others(s);
    status = sherd__state_begin(s, status);
    if (!status)
        status = sherd__state_list(s);
    return sherd__agree(s->world, status, 0, s->function);
}

/* What is chosen of the module, and in the files if they are known, bears the returned walk. */
static uint64_t mark_chosen(const sherd__file_state *s)
{
    uint64_t walk = sherd__walk_number(s->world);

    for (int i = 0; i < s->of_module; i++)
        if (!s->source || s->source[i].count)
            s->named[i].tensor->visit.walk = walk;
    return walk;
}

/* ---- writing --------------------------------------------------------------------------------- */

static sherd_status check_notes(const sherd__file_state *s, const sherd_write_options *o)
{
    if (o->note_count < 0 || (o->note_count > 0 && !o->notes))
        return sherd__module_fail(s->module, SHERD_EINVAL, "%s: %d notes in the options%s",
                                  s->function, o->note_count, o->notes ? "" : ", which are NULL");
    for (int i = 0; i < o->note_count; i++)
        if (o->notes[i].key &&
            (sherd__generators_have(o->notes[i].key) || sherd__whole_numbers_have(o->notes[i].key)))
            return sherd__module_fail(s->module, SHERD_EINVAL,
                                      "%s: note %d of the options: the key \"%.80s\" is that of a "
                                      "generator, or of a quantized weight",
                                      s->function, i, o->notes[i].key);
    return SHERD_OK;
}

/* All notes: the program's, then the generators' and those of weights of 8 or 4 bits. */
static sherd_status write_noted(const sherd__file_state *s, sherd__to_write *what,
                                const sherd_write_options *o, const sherd__notes own[2])
{
    sherd__heap *heap = sherd__world_heap(s->world);
    int count = o->note_count + own[0].count + own[1].count;
    sherd_file_note *all = sherd__alloc(heap, (size_t)count + 1, sizeof *all);
    sherd_status status =
        all ? SHERD_OK : sherd__no_memory(sherd__world_diag(s->world), s->function);

    if (all && o->note_count)
        memcpy(all, o->notes, (size_t)o->note_count * sizeof *all);
    for (int i = 0, at = o->note_count; all && i < 2; at += own[i++].count)
        memcpy(all + at, own[i].note, (size_t)own[i].count * sizeof *all);
    status = sherd__agree(s->world, status, 0, s->function);
    what->world = s->world;
    what->tensors = s->named;
    what->count = s->count;
    what->notes = all;
    what->note_count = count;
    if (!status)
        status = sherd__file_write(what, s->function);
    sherd__free(heap, all);
    return status;
}

/* *what has the path, and whether it is only begun. */
static sherd_status write_state(sherd__file_state *s, sherd__to_write *what,
                                const sherd_write_options *o)
{
    sherd__notes own[2] = {{NULL, 0}, {NULL, 0}};
    sherd_status status = open_state(s, what->path);

    if (!s->world)
        return status;
    if (!status)
        status = sherd__agree(s->world, check_notes(s, o), 0, s->function);
    if (!status)
        status = sherd__generators_list(&own[0], s->module, s->function);
    if (!status) {
        status = sherd__whole_numbers_list(&own[1], s->module, mark_chosen(s), s->function);
        status = sherd__agree(s->world, status, 0, s->function);
    }
    if (!status)
        status = write_noted(s, what, o, own);
    for (int i = 0; i < 2; i++)
        sherd__generators_clear(s->world, &own[i]);
    sherd__state_clear(s);
    return status;
}

sherd_status sherd_module_write(sherd_module *module, sherd_optimizer *optimizer, const char *path)
{
    sherd__file_state s = {
        .function = "sherd_module_write", .module = module, .optimizer = optimizer};

    return write_state(&s, &(sherd__to_write){.path = path},
                       &(sherd_write_options){.tensors = NULL});
}

static sherd__file_state to_write(const char *function, sherd_module *module,
                                  sherd_optimizer *optimizer, const sherd_write_options *o)
{
    return (sherd__file_state){.function = function,
                               .module = module,
                               .optimizer = optimizer,
                               .others = o->optimizers,
                               .other_count = o->optimizer_count,
                               .more = o->tensors,
                               .more_count = o->tensor_count,
                               .choice = {o->part, o->only, o->only_count}};
}

sherd_status sherd_module_write_with(sherd_module *module, sherd_optimizer *optimizer,
                                     const char *path, const sherd_write_options *options)
{
    const sherd_write_options o = options ? *options : (sherd_write_options){.tensors = NULL};
    sherd__file_state s = to_write("sherd_module_write_with", module, optimizer, &o);

    return write_state(&s, &(sherd__to_write){.path = path}, &o);
}

sherd_status sherd_module_write_begin(sherd_writing **out, sherd_module *module,
                                      sherd_optimizer *optimizer, const char *path,
                                      const sherd_write_options *options)
{
    const sherd_write_options o = options ? *options : (sherd_write_options){.tensors = NULL};
    sherd__file_state s = to_write("sherd_module_write_begin", module, optimizer, &o);

    if (out)
        *out = NULL;
    return write_state(&s, &(sherd__to_write){.path = path, .later = true, .out = out}, &o);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void close_files(const sherd__file_state *s, sherd__files *f)
{
    for (int i = 0; i < f->count && f->file; i++)
        sherd_file_destroy(f->file[i]);
    if (s->world)
        sherd__free(sherd__world_heap(s->world), f->file);
}

static sherd_status open_files(const sherd__file_state *s, sherd__files *f, const char *const *path,
                               int count)
{
    sherd__heap *heap = sherd__world_heap(s->world);
    sherd__paths p = {.path = NULL};
    sherd_status status = sherd__paths_list(&p, s->world, path, count, s->function);

    if (!status && !(f->file = sherd__alloc(heap, (size_t)p.count, sizeof *f->file)))
        status = sherd__no_memory(sherd__world_diag(s->world), s->function);
    status = sherd__agree(s->world, status, (uint64_t)p.count, s->function);
    for (; !status && f->count < p.count; f->count++)
        status = sherd__file_open(&f->file[f->count], s->world, p.path[f->count], s->function);
    sherd__paths_clear(&p, heap);
    return status;
}

/* In the layout of t. */
static sherd_tensor *zeros_like(const sherd_tensor *t)
{
    return t->layout ? sherd_constant_on(t->layout, t->dtype, 0)
                     : sherd_constant_later(t->world, t->dtype, t->shape, t->ndim, 0);
}

/*
 * How the module's tensors, and the program's, are loaded, or those of an optimizer. `last`: the
 * answer for that of number *of, which takes a walk.
 */
static sherd__load_kind kind_of(const sherd__file_state *s, int i, int *of, sherd__load_kind *last)
{
    int number = i < s->states ? s->listed[i].optimizer : -1;

    if (i >= s->states)
        return SHERD__LOAD_TOGETHER;
    if (number != *of)
        *last =
            sherd__load_kind_of(number < 0 ? s->module : sherd__state_optimizer(s, number)->module);
    *of = number;
    return *last;
}

static sherd_status read_one(const sherd__file_state *s, int i, sherd__load_kind kind)
{
    const sherd__stored *from = &s->source[i];
    sherd__loading what = {.function = s->function,
                           .world = s->world,
                           .module = s->module,
                           .name = s->named[i].name,
                           .root = -1,
                           .kind = kind,
                           .anew = from->anew};
    sherd_tensor *t = s->named[i].tensor;
    const sherd__diag *diag = sherd__world_diag(s->world);
    sherd_status status = SHERD_OK;

    if (!from->count && !from->anew)
        return SHERD_OK;
    bool recording = sherd_set_recording(s->world, false);
    sherd_scope_begin(s->world);
    sherd_tensor *rows = from->anew || sherd__is_elsewhere(t)
                             ? zeros_like(t)
                             : sherd__file_rows(&from->rows, t->layout, s->function);
    if (!sherd__is_failed(rows) && rows->dtype != t->dtype)
        rows = sherd_cast(rows, t->dtype);
    if (sherd__is_failed(rows))
        status = diag->status ? diag->status : SHERD_EPEER;
    what.t = rows;
    int number = i < s->states ? s->listed[i].optimizer : -1;
    if (number >= 0) {
        sherd_optimizer *o = sherd__state_optimizer(s, number);
        what.module = o->module;
        what.name += sherd__state_prefix(number, NULL, 0);
        status = sherd__optimizer_load(&what, o, status);
    } else {
        status = sherd__load(&what, t, status);
    }
    sherd_scope_end(s->world);
    sherd_set_recording(s->world, recording);
    return status;
}

static uint64_t how_of(const sherd__file_state *s, const sherd_read_options *o)
{
    return sherd__choice_hash(&s->choice) + sherd__file_names_hash(o->names, o->name_count) + 1 +
           (uint64_t)o->partial + 2 * (uint64_t)o->cast + 4 * (uint64_t)o->more +
           8 * (uint64_t)o->tensor_count + ((uint64_t)o->optimizer_count << 32);
}

/* Each rank reads plain tensors by itself, so ranks agree in the end. */
static sherd_status read_tensors(sherd__file_state *s)
{
    sherd__load_kind kind = SHERD__LOAD_ASKS;
    sherd_status status = SHERD_OK;
    int of = -2;

    for (int i = 0; !status && i < s->count; i++)
        status = read_one(s, i, kind_of(s, i, &of, &kind));
    return sherd__agree(s->world, status, 0, s->function);
}

static sherd_status read_all(sherd__file_state *s, const char *const *path, int count,
                             const sherd_read_options *options)
{
    const char *fault = sherd__file_names_fault(options->names, options->name_count);
    sherd__files f = {NULL, 0};
    sherd_status status = SHERD_OK;

    if (fault)
        status = sherd__fail(sherd__world_diag(s->world), SHERD_EINVAL, "%s: names: %s",
                             s->function, fault);
    status = sherd__agree(s->world, status, 0, s->function);
    if (!status)
        status = open_files(s, &f, path, count);
    if (!status)
        status = sherd__state_begin_stored(s, &f);
    if (!status) {
        status = sherd__state_match(s, &f, options);
        if (!status && !options->name_count)
            status =
                sherd__whole_numbers_match(s->module, mark_chosen(s), f.file, f.count, s->function);
        status = sherd__agree(s->world, status, how_of(s, options), s->function);
    }
    if (!status)
        status = read_tensors(s);
    if (!status)
        sherd__generators_read(s->module, f.file, f.count, options->partial);
    close_files(s, &f);
    return status;
}

static const sherd_read_options none;

static sherd__file_state to_read(const char *function, sherd_module *module,
                                 const sherd_read_options *o)
{
    return (sherd__file_state){.function = function,
                               .module = module,
                               .others = o->optimizers,
                               .other_count = o->optimizer_count,
                               .more = o->tensors,
                               .more_count = o->tensor_count,
                               .choice = {o->part, o->only, o->only_count}};
}

sherd_status sherd_module_read(sherd_module *module, sherd_optimizer *optimizer, const char *path,
                               const sherd_read_options *options)
{
    const sherd_read_options *o = options ? options : &none;
    sherd__file_state s = to_read("sherd_module_read", module, o);

    s.optimizer = optimizer;
    sherd_status status = open_state(&s, path);

    if (!status)
        status = read_all(&s, &path, 1, o);
    if (s.world)
        sherd__state_clear(&s);
    return status;
}

/* The first path that is not there; `paths` if all are. */
static const void *missing(const char *const *paths, int count)
{
    const void *there = paths;

    for (int i = 0; i < count && there && paths; i++)
        there = paths[i] ? there : NULL;
    return there;
}

sherd_status sherd_module_read_files(sherd_module *module, const char *const *paths, int count,
                                     const sherd_read_options *options)
{
    const sherd_read_options *o = options ? options : &none;
    sherd__file_state s = to_read("sherd_module_read_files", module, o);
    sherd_status status = open_state(&s, missing(paths, count));

    if (s.world && !status) {
        if (count < 1)
            status = sherd__fail(sherd__world_diag(s.world), SHERD_EINVAL, "%s: there are %d files",
                                 s.function, count);
        status = sherd__agree(s.world, status, 0, s.function);
    }
    if (!status)
        status = read_all(&s, paths, count, o);
    if (s.world)
        sherd__state_clear(&s);
    return status;
}
