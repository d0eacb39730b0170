/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the generators of modules stand. They are no tensors of a model, and other programs that
 * read the file would miss a parameter for them; so they are notes: "generators", how many there
 * are, and "generator.PATH", the calls of each. Costs one small exchange: ranks outside the mesh of
 * a module have not run it, so the most calls of any rank count.
 */
#include "io/generators.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "nn/module.h"

static const char all_key[] = "generators", key[] = "generator.";

/* All modules, depth first, into out (NULL: only counted) from `at` on. */
static int list_modules(sherd_module *m, sherd_module **out, int at)
{
    if (out)
        out[at] = m;
    at++;
    for (int i = 0; i < m->children; i++)
        at = list_modules(m->child[i].module, out, at);
    return at;
}

sherd_status sherd__take_most(sherd_world *world, int64_t *number, int64_t count)
{
    const sherd_placement most = sherd_partial(SHERD_MAX);
    const sherd_mesh *mesh = NULL;
    int64_t ranks = sherd_world_ranks(world);
    sherd_status status = SHERD_OK;

    if (ranks == 1)
        return SHERD_OK;
    status = sherd_mesh_create(&mesh, world, 1, &ranks, (const char *[]){"ranks"}, NULL);
    if (status)
        return status;
    bool recording = sherd_set_recording(world, false);
    sherd_scope_begin(world);
    sherd_tensor *mine = sherd_from_data(world, SHERD_I64, &count, 1, number);
    const int64_t *all = sherd_tensor_read(sherd_full(sherd_from_local(mine, mesh, &most, NULL)));
    if (all && !sherd__is_dry(world))
        memcpy(number, all, (size_t)count * sizeof *number);
    if (!all)
        status = sherd__world_diag(world)->status ? sherd__world_diag(world)->status : SHERD_EPEER;
    sherd_scope_end(world);
    sherd_set_recording(world, recording);
    return status;
}

static bool add_note(sherd__heap *heap, sherd__notes *notes, const char *path, int64_t number)
{
    const char *begin = path ? key : all_key, *end = path ? path : "";
    sherd_file_note *n = &notes->note[notes->count++];
    size_t room = strlen(begin) + strlen(end) + 1;
    char *name = sherd__alloc(heap, room, 1), text[24];

    n->key = name;
    if (name)
        snprintf(name, room, "%s%s", begin, end);
    snprintf(text, sizeof text, "%lld", (long long)number);
    n->text = sherd__copy_text(heap, text);
    return n->key && n->text;
}

/* modules[count], and room for a number of each. */
static sherd_status write_notes(sherd__notes *out, sherd_module *const *modules, int count,
                                int64_t *calls, const char *function)
{
    sherd_world *world = modules[0]->world;
    sherd__heap *heap = sherd__world_heap(world);
    int called = 0;

    for (int i = 0; i < count; i++)
        calls[i] = (int64_t)modules[i]->generator.calls;
    sherd_status status = sherd__take_most(world, calls, count);
    if (status)
        return status;
    for (int i = 0; i < count; i++)
        called += calls[i] != 0;
    out->note = sherd__alloc(heap, (size_t)called + 1, sizeof *out->note);
    bool good = out->note && add_note(heap, out, NULL, called);
    for (int i = 0; good && i < count; i++)
        good = calls[i] == 0 ||
               add_note(heap, out, sherd__path_below(modules[0], modules[i]), calls[i]);
    return good ? SHERD_OK : sherd__no_memory(sherd__world_diag(world), function);
}

static uint64_t hash_of(sherd_module *const *modules, int count)
{
    uint64_t hash = (uint64_t)count;

    for (int i = 0; i < count; i++)
        hash = sherd__hash_text(hash, sherd__path_below(modules[0], modules[i]));
    return hash;
}

sherd_status sherd__generators_list(sherd__notes *out, sherd_module *module, const char *function)
{
    sherd_world *world = module->world;
    sherd__heap *heap = sherd__world_heap(world);
    int count = list_modules(module, NULL, 0);
    sherd_module **modules = sherd__alloc(heap, (size_t)count, sizeof *modules);
    int64_t *calls = sherd__alloc(heap, (size_t)count, sizeof *calls);
    sherd_status status = SHERD_OK;

    *out = (sherd__notes){NULL, 0};
    if (!modules || !calls)
        status = sherd__no_memory(sherd__world_diag(world), function);
    else
        (void)list_modules(module, modules, 0);
    status = sherd__agree(world, status, status ? 0 : hash_of(modules, count), function);
    if (!status) {
        status = write_notes(out, modules, count, calls, function);
        status = sherd__agree(world, status, 0, function);
    }
    sherd__free(heap, modules);
    sherd__free(heap, calls);
    return status;
}

void sherd__generators_clear(sherd_world *world, sherd__notes *notes)
{
    sherd__heap *heap = sherd__world_heap(world);

    for (int i = 0; i < notes->count; i++) {
        sherd__free(heap, (char *)(uintptr_t)notes->note[i].key);
        sherd__free(heap, (char *)(uintptr_t)notes->note[i].text);
    }
    sherd__free(heap, notes->note);
}

bool sherd__generators_have(const char *k)
{
    return strcmp(k, all_key) == 0 || strncmp(k, key, sizeof key - 1) == 0;
}

static void forget(sherd_module *m)
{
    m->generator.calls = 0;
    sherd__standing_renew(&m->stand);
    for (int i = 0; i < m->children; i++)
        forget(m->child[i].module);
}

static bool tells(const sherd_file *file)
{
    return sherd_file_text(file, all_key) != NULL;
}

/* Set those that a file names to 0, or to its numbers where these are larger. */
static void take_notes(sherd_module *module, const sherd_file *file, bool zero)
{
    for (int i = 0; i < file->header.notes; i++) {
        const sherd_file_note *n = &file->header.note[i];
        const char *path = n->key + sizeof key - 1;
        if (strncmp(n->key, key, sizeof key - 1) != 0)
            continue;
        sherd_module *m = *path ? sherd__module_at(module, path, strlen(path)) : module;
        uint64_t calls = zero ? 0 : strtoull(n->text, NULL, 10);
        if (m && (zero || m->generator.calls < calls)) {
            m->generator.calls = calls;
            sherd__standing_renew(&m->stand);
        }
    }
}

void sherd__generators_read(sherd_module *module, sherd_file *const *file, int count, bool partial)
{
    bool told = false;

    for (int i = 0; i < count; i++)
        told = told || tells(file[i]);
    if (told && !partial)
        forget(module);
    for (int i = 0; i < 2 * count; i++)
        if (tells(file[i % count]))
            take_notes(module, file[i % count], i < count);
}
