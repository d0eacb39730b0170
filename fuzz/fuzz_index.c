/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of models in several files. What is taken from one are paths beside it, each once; what
 * is refused has its reason.
 */
#include "fuzz.h"
#include "io/index.h"

static void check_paths(const sherd__paths *p)
{
    MUST(p->count > 0);
    for (int i = 0; i < p->count; i++) {
        const char *name = p->path[i] + 7;
        MUST(strncmp(p->path[i], "folder/", 7) == 0 && *name && !strchr(name, '/'));
        for (int j = 0; j < i; j++)
            MUST(strcmp(p->path[i], p->path[j]) != 0);
    }
}

static void read_one(const char *text, size_t bytes, int64_t fail_at)
{
    paper p = {.diag.rank = -1, .heap.fail_at = fail_at};
    sherd__paths paths = {.path = NULL};
    sherd_status status = sherd__index_parse(
        &paths, text, bytes,
        &(sherd__header_of){&p.heap, &p.diag, "f", "folder/model.index.json", 0});

    if (status == SHERD_OK)
        check_paths(&paths);
    else
        MUST(p.diag.status == status && strlen(p.diag.text) > 0 && is_one_line(p.diag.text));
    sherd__paths_clear(&paths, &p.heap);
    MUST(p.heap.live == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_twice(data, bytes, read_one);
    return 0;
}
