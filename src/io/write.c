/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing a file of tensors: rank 0 creates it, with its header and its full length; each tensor is
 * moved to rows, which each rank writes at their offset; rank 0 renames the file. Ranks agree after
 * each of these steps. Costs a move and a write of all bytes, and memory for one tensor's rows at a
 * time. If it is only begun, rows are copied instead, and written by a thread (later.c).
 */
#include "io/generators.h"
#include "io/rows.h"
#include "io/writing.h"

#include "base/file_limit.h"
#include "base/hash.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

/* ---- what is to be written ------------------------------------------------------------------- */

static sherd_status refuse(const sherd_writing *w, int i, const char *why)
{
    const char *name = w->list[i].name;

    return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL, "%s: tensor %d, \"%.120s\", %s",
                       w->function, i, name ? name : "(NULL)", why);
}

static const char *fault_of(const sherd_writing *w, const sherd_named_tensor *n)
{
    const sherd_tensor *t = n->tensor;

    if (!n->name || !t)
        return "has a name or a tensor that is NULL";
    if (strcmp(n->name, "__metadata__") == 0)
        return "has the name that the format keeps for notes";
    if (t->world != w->world)
        return "is of another world";
    if (sherd__is_failed(t))
        return "has failed";
    return !t->layout && t->varies ? "varies between ranks: distribute it, or mark it equal" : NULL;
}

static sherd_status no_memory(const sherd_writing *w)
{
    return sherd__no_memory(sherd__world_diag(w->world), w->function);
}

/* The i-th entry of the header; its offset is set later. */
static sherd_status list_tensor(sherd_writing *w, int i)
{
    const sherd_named_tensor *n = &w->list[i];
    sherd_file_entry *e = &w->header.entry[i];
    const char *fault = fault_of(w, n);

    if (fault)
        return refuse(w, i, fault);
    e->dtype = n->tensor->dtype;
    e->ndim = n->tensor->ndim;
    memcpy(e->shape, n->tensor->shape, (size_t)e->ndim * sizeof *e->shape);
    if (!sherd__mul(sherd_tensor_count(n->tensor), (int64_t)sherd_dtype_bytes(e->dtype),
                    &e->bytes) ||
        !sherd__add(w->bytes, e->bytes, &w->bytes))
        return sherd__fail(sherd__world_diag(w->world), SHERD_ELIMIT,
                           "%s: with tensor %d, \"%.120s\", the file has 2^62 bytes or more",
                           w->function, i, n->name);
    w->header.entries = i + 1;
    e->name = sherd__copy_text(w->header.heap, n->name);
    return e->name ? SHERD_OK : no_memory(w);
}

static sherd_status list_note(sherd_writing *w, int i, const sherd_file_note *note)
{
    sherd_file_note *n = &w->header.note[i];

    if (!note->key || !note->text)
        return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                           "%s: note %d has no key or no text", w->function, i);
    w->header.notes = i + 1;
    n->key = sherd__copy_text(w->header.heap, note->key);
    n->text = sherd__copy_text(w->header.heap, note->text);
    return n->key && n->text ? SHERD_OK : no_memory(w);
}

/* Names for a writing of its own, which may outlive the call, and be ended in another folder. */
static sherd_status name_it(sherd_writing *w, const char *path)
{
    char folder[4096] = "";

    if (w->later && path[0] != '/' && !getcwd(folder, sizeof folder))
        folder[0] = '\0';
    size_t bytes = strlen(folder) + strlen(path) + sizeof "/.part";
    w->path = sherd__alloc(w->header.heap, bytes, 1);
    w->part = sherd__alloc(w->header.heap, bytes, 1);
    if (!w->path || !w->part)
        return no_memory(w);
    sprintf(w->path, "%s%s%s", folder, folder[0] ? "/" : "", path);
    sprintf(w->part, "%s.part", w->path);
    if (path[0] == '\0')
        return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL, "%s: the path is empty",
                           w->function);
    if (!sherd__later_has(w->world, w->path))
        return SHERD_OK;
    return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL,
                       "%s: \"%.180s\": a write to it has begun: call sherd_writing_end first",
                       w->function, path);
}

static sherd_status list_all(sherd_writing *w, const sherd__to_write *what)
{
    int count = what->count, notes = what->note_count;
    sherd__header *h = &w->header;
    sherd_status status = SHERD_OK;

    if (count < 0 || notes < 0)
        return sherd__fail(sherd__world_diag(w->world), SHERD_EINVAL, "%s: %d tensors, %d notes",
                           w->function, count, notes);
    h->entry = sherd__alloc(h->heap, (size_t)count + 1, sizeof *h->entry);
    h->note = sherd__alloc(h->heap, (size_t)notes + 1, sizeof *h->note);
    w->spread = sherd__alloc(h->heap, (size_t)count + 1, sizeof *w->spread);
    if (!h->entry || !h->note || !w->spread)
        return no_memory(w);
    status = name_it(w, what->path);
    for (int i = 0; !status && i < count; i++)
        status = list_tensor(w, i);
    for (int i = 0; !status && i < notes; i++)
        status = list_note(w, i, &what->notes[i]);
    return status;
}

/* ---- writing it ------------------------------------------------------------------------------ */

/* Rows belong to one rank; a scalar is on each rank, and the first of its mesh writes it. */
static bool is_ours(const sherd_tensor *t)
{
    int64_t coordinate[SHERD_MAX_AXES];

    if (t->ndim > 0 || !t->layout)
        return true;
    if (!sherd__coordinate(t, coordinate))
        return false;
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(t->layout)); a++)
        if (coordinate[a] != 0)
            return false;
    return true;
}

static void put_rows(sherd_writing *w, sherd_dtype dtype, const void *data, int64_t bytes,
                     int64_t at)
{
    if (w->later)
        sherd__later_keep(w, data, bytes, at);
    else if (!sherd__left_out(w->world, "write", dtype, 0, bytes) &&
             !sherd__write_at(w->fd, data, bytes, at))
        sherd__part_fail(w);
}

/* Those of a mesh of some ranks have not been compared before: a check does that. */
static void note_tensor(const sherd_writing *w, const sherd_tensor *t)
{
    uint64_t what = sherd__hash_word(t->layout->hash, t->ledger.identity), unused;

    if (!sherd__write_of_all(t))
        sherd__deed_add(t->layout->spec.mesh, w->function, what, &unused);
}

/* If this rank cannot write, it moves the tensor all the same: the others wait for its part. */
static void put(sherd_writing *w, int i)
{
    sherd_tensor *t = w->list[i].tensor;
    const sherd_layout *rows;

    if (t->layout) {
        note_tensor(w, t);
        sherd_status status = sherd__file_layout(&rows, t->layout);
        t = status ? sherd__fail_diag(w->world, true) : sherd__move_to(t, rows, false);
    }
    t = sherd__contiguous(t);
    if (sherd__is_failed(t)) {
        w->status = w->status ? w->status : sherd__world_diag(w->world)->status;
        w->status = w->status ? w->status : SHERD_EPEER;
        return;
    }
    sherd__stored_rows here = sherd__rows_here(t);
    const void *data = here.bytes ? sherd__data(t) : NULL;
    if (w->status || !here.bytes || !is_ours(t))
        return;
    if (data)
        put_rows(w, t->dtype, data, here.bytes, w->header.entry[i].offset + here.at);
    else
        w->status = SHERD_EPEER;
}

/*
 * Plain tensors are written by rank 0, if no rank has them distributed: a rank outside a mesh may
 * have a plain tensor where the ranks of the mesh have a distributed one, which counts. On other
 * ranks one that is deferred stays so.
 */
static void put_all(sherd_writing *w)
{
    bool first = sherd_world_rank(w->world) == 0;

    for (int i = 0; i < w->header.entries; i++)
        w->spread[i] = w->list[i].tensor->layout != NULL;
    sherd_status status = sherd__take_most(w->world, w->spread, w->header.entries);
    w->status = w->status ? w->status : status;
    for (int i = 0; i < w->header.entries; i++) {
        const sherd_tensor *t = w->list[i].tensor;
        if ((!t->layout && (!first || w->spread[i])) || sherd__is_elsewhere(t))
            continue;
        sherd_scope_begin(w->world);
        put(w, i);
        sherd_scope_end(w->world);
    }
}

/* All of it is in the file, or, if it is written later, in copies. */
static bool put_file(sherd_writing *w, const char *header, size_t bytes)
{
    bool first = sherd_world_rank(w->world) == 0, dry = sherd__is_dry(w->world);

    if (first || dry)
        sherd__part_make(w, header, bytes);
    if (!sherd__write_agree(w, 1))
        return false;
    if (!first && !dry)
        sherd__part_open(w);
    put_all(w);
    if (!w->status && !w->later && !dry && !sherd__sync_file(w->fd))
        sherd__part_fail(w);
    return sherd__write_agree(w, 2);
}

/* Everything but the name. */
static void write_all(sherd_writing *w, const sherd__to_write *what)
{
    sherd__diag *diag = sherd__world_diag(w->world);
    sherd__file_signal limit;
    size_t bytes = 0;
    char *header = NULL;

    if (!w->status)
        w->status = list_all(w, what);
    if (!w->status)
        w->status = sherd__header_text(&header, &bytes, &w->header, diag, w->function);
    if (sherd__write_agree_on(w, 0, "the path", what->path ? what->path : "") &&
        sherd__write_agree_header(w, header, bytes)) {
        sherd__file_signal_hold(&limit);
        (void)put_file(w, header, bytes);
        sherd__file_signal_drop(&limit);
    }
    sherd__free(w->header.heap, header);
    sherd__free(w->header.heap, w->spread);
    sherd__header_clear(&w->header);
}

static sherd_status check(const sherd__to_write *what, const char *function)
{
    sherd__diag *diag = sherd__world_diag(what->world);
    const sherd__argument need[] = {
        {"world", what->world},
        {"out", what->later ? (const void *)what->out : ""},
        {"path", what->path},
        {"tensors", what->count > 0 ? (const void *)what->tensors : ""},
        {"notes", what->note_count > 0 ? (const void *)what->notes : ""},
        {NULL, NULL}};

    sherd_status status = sherd__require(diag, function, need);
    if (status || !what->refused)
        return status;
    return sherd__fail(diag, SHERD_EINVAL, "%s: %s", function, what->refused);
}

static sherd_status write_now(sherd_writing *w, const sherd__to_write *what)
{
    write_all(w, what);
    if (!w->status)
        sherd__write_name(w);
    sherd__part_drop(w);
    return w->status;
}

static sherd_status write_later(sherd_writing *w, const sherd__to_write *what)
{
    sherd_status status;

    w->later = true;
    write_all(w, what);
    status = w->status;
    if (status) {
        sherd__later_destroy(w);
        return status;
    }
    sherd__later_start(w);
    *what->out = w;
    return SHERD_OK;
}

sherd_status sherd__file_write(const sherd__to_write *what, const char *function)
{
    sherd_world *world = what->world;
    sherd_writing now = {.status = check(what, function)}, *w = &now;

    if (!world)
        return now.status;
    if (what->later && !(w = sherd__later_create(world))) {
        w = &now;
        w->status = w->status ? w->status : sherd__no_memory(sherd__world_diag(world), function);
    }
    w->status = now.status;
    w->function = function;
    w->world = world;
    w->list = what->tensors;
    w->fd = -1;
    w->header.heap = sherd__world_heap(world);
    return w == &now ? write_now(w, what) : write_later(w, what);
}

sherd_status sherd_file_write(sherd_world *world, const char *path,
                              const sherd_named_tensor *tensors, int count,
                              const sherd_file_note *notes, int note_count)
{
    const sherd__to_write what = {.world = world,
                                  .path = path,
                                  .tensors = tensors,
                                  .count = count,
                                  .notes = notes,
                                  .note_count = note_count};

    return sherd__file_write(&what, "sherd_file_write");
}

sherd_status sherd_file_write_begin(sherd_writing **out, sherd_world *world, const char *path,
                                    const sherd_write_options *options)
{
    const sherd_write_options o = options ? *options : (sherd_write_options){.tensors = NULL};
    sherd__to_write what = {.world = world,
                            .path = path,
                            .tensors = o.tensors,
                            .count = o.tensor_count,
                            .notes = o.notes,
                            .note_count = o.note_count,
                            .later = true,
                            .out = out};

    if (out)
        *out = NULL;
    if (o.part || o.only || o.only_count || o.optimizers || o.optimizer_count)
        what.refused = "of the options only tensors and notes are for files without a module";
    return sherd__file_write(&what, "sherd_file_write_begin");
}
