/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the files of a model's directory. Each rank reads its share of each tensor. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "llama.h"

enum { PATH_BYTES = 1024, MOST_FILES = 512 };

typedef struct parts {
    char *path[MOST_FILES];
    int count;
} parts;

static bool add(parts *p, const char *directory, const char *name)
{
    char path[PATH_BYTES];

    snprintf(path, sizeof path, "%s/%s", directory, name);
    for (int i = 0; i < p->count; i++)
        if (strcmp(p->path[i], path) == 0)
            return true;
    if (p->count == MOST_FILES)
        return false;
    p->path[p->count] = strdup(path);
    return p->path[p->count] && ++p->count;
}

/* The files that an index names; without one, model.safetensors. */
static const char *list(parts *p, const char *directory)
{
    char path[PATH_BYTES];
    const char *name;
    json_t *value;
    bool good = true;

    snprintf(path, sizeof path, "%s/model.safetensors.index.json", directory);
    json_t *index = json_load_file(path, 0, NULL);
    if (!index)
        return add(p, directory, "model.safetensors") ? NULL : "out of memory for a path";
    json_object_foreach(json_object_get(index, "weight_map"), name, value) good &=
        json_is_string(value) && add(p, directory, json_string_value(value));
    json_decref(index);
    return good && p->count ? NULL : "model.safetensors.index.json names no files, or too many";
}

sherd_status llama_load(llama *m, const char *directory)
{
    static const sherd_file_name names[] = {
        {"model.layers.*.mlp.router.weight", "model.layers.*.block_sparse_moe.gate.weight"},
        {"model.layers.*.mlp.w1", "model.layers.*.block_sparse_moe.experts.#.w1.weight"},
        {"model.layers.*.mlp.w2", "model.layers.*.block_sparse_moe.experts.#.w2.weight"},
        {"model.layers.*.mlp.w3", "model.layers.*.block_sparse_moe.experts.#.w3.weight"}};
    const sherd_read_options options = {
        .cast = true, .more = true, .names = names, .name_count = sizeof names / sizeof *names};
    parts p = {.count = 0};
    const char *why = list(&p, directory);

    if (why)
        sherd_world_fail(m->world, SHERD_EINVAL, why);
    sherd_status status = sherd_world_check(m->world);
    if (!status)
        status = sherd_module_read_files(m->root, (const char *const *)p.path, p.count, &options);
    while (p.count > 0)
        free(p.path[--p.count]);
    return status;
}
