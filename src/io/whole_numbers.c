/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What weights of 8 or 4 bits were made with. Dtypes tell the bits, but the shape of scales not
 * always the group: 6 columns have two groups of 4 or of 5. So a file notes both, "quantized.PATH"
 * of each Linear, or experts, of which a weight is written: "4 bits, group 32", and such a weight
 * is not read into others. Costs a walk over the tree.
 */
#include "io/whole_numbers.h"

#include <stdio.h>
#include <string.h>

#include "nn/quantize.h"

static const char key[] = "quantized.";

enum { TEXT = 64 };

static void describe(char text[TEXT], const sherd__whole_numbers *how)
{
    snprintf(text, TEXT, "%d bits, group %lld", how->bits, (long long)how->group);
}

/* What weights were made with, if one of them bears the walk; NULL: they were not, or none does. */
static const sherd__whole_numbers *made_with(const sherd_module *m, uint64_t walk)
{
    static const char *const names[] = {"weight", "w1", "w3", "w2"};
    const sherd__whole_numbers *how = sherd__whole_numbers_of(m);
    bool bears = false;

    for (int i = 0; how && i < (int)(sizeof names / sizeof *names); i++) {
        const sherd_tensor *weight = sherd_module_buffer(m, names[i]);
        bears |= weight && weight->visit.walk == walk;
    }
    return bears ? how : NULL;
}

static int count_of(const sherd_module *m, uint64_t walk)
{
    int count = made_with(m, walk) != NULL;

    for (int i = 0; i < m->children; i++)
        count += count_of(m->child[i].module, walk);
    return count;
}

static bool add_note(sherd__notes *notes, const sherd_module *root, const sherd_module *m)
{
    sherd__heap *heap = sherd__world_heap(m->world);
    const char *path = sherd__path_below(root, m);
    sherd_file_note *n = &notes->note[notes->count++];
    size_t room = sizeof key + strlen(path);
    char *name = sherd__alloc(heap, room, 1), text[TEXT];

    n->key = name;
    if (name)
        snprintf(name, room, "%s%s", key, path);
    describe(text, sherd__whole_numbers_of(m));
    n->text = sherd__copy_text(heap, text);
    return n->key && n->text;
}

static bool add_notes(sherd__notes *notes, const sherd_module *root, const sherd_module *m,
                      uint64_t walk)
{
    bool good = !made_with(m, walk) || add_note(notes, root, m);

    for (int i = 0; good && i < m->children; i++)
        good = add_notes(notes, root, m->child[i].module, walk);
    return good;
}

sherd_status sherd__whole_numbers_list(sherd__notes *out, const sherd_module *module, uint64_t walk,
                                       const char *function)
{
    sherd__heap *heap = sherd__world_heap(module->world);

    *out = (sherd__notes){NULL, 0};
    out->note = sherd__alloc(heap, (size_t)count_of(module, walk) + 1, sizeof *out->note);
    return out->note && add_notes(out, module, module, walk)
               ? SHERD_OK
               : sherd__no_memory(sherd__world_diag(module->world), function);
}

bool sherd__whole_numbers_have(const char *k)
{
    return strncmp(k, key, sizeof key - 1) == 0;
}

static sherd_status match(sherd_module *module, uint64_t walk, const sherd_file_note *n,
                          const char *function)
{
    const char *path = n->key + sizeof key - 1;
    const sherd_module *m = *path ? sherd__module_at(module, path, strlen(path)) : module;
    const sherd__whole_numbers *how = m ? made_with(m, walk) : NULL;
    char text[TEXT];

    if (!how)
        return SHERD_OK;
    describe(text, how);
    if (strcmp(text, n->text) == 0)
        return SHERD_OK;
    return sherd__module_fail(m, SHERD_EINVAL,
                              "%s: the weight of \"%s\" was quantized with %s, that of the file "
                              "with %.40s",
                              function, sherd__module_name(m), text, n->text);
}

sherd_status sherd__whole_numbers_match(sherd_module *module, uint64_t walk,
                                        sherd_file *const *file, int count, const char *function)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < count; i++)
        for (int n = 0; !status && n < file[i]->header.notes; n++)
            if (sherd__whole_numbers_have(file[i]->header.note[n].key))
                status = match(module, walk, &file[i]->header.note[n], function);
    return status;
}
