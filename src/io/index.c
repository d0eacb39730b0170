/* SPDX-License-Identifier: Apache-2.0 */
/* See index.h. Costs one read of an index, and a look-up of each file's name among the others. */
#include "io/index.h"

#include "base/hash.h"
#include "base/num.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/rows.h"

enum { FIRST_ROOM = 16 };

static const char ending[] = ".index.json";

void sherd__paths_clear(sherd__paths *p, sherd__heap *heap)
{
    for (int i = 0; i < p->count; i++)
        sherd__free(heap, p->path[i]);
    sherd__free(heap, p->path);
    p->known.heap = heap;
    sherd__map_clear(&p->known);
    *p = (sherd__paths){.path = NULL};
}

static bool is_path(const void *item, const void *key)
{
    return strcmp(item, key) == 0;
}

/* Take over a text. False: there is no room for it. */
static bool append(sherd__paths *p, sherd__heap *heap, char *text, uint64_t hash)
{
    char **grown = sherd__reserve(heap, p->path, p->count, &p->room, FIRST_ROOM, sizeof *p->path);

    if (!grown)
        return false;
    p->path = grown;
    p->known.heap = heap;
    if (!sherd__map_add(&p->known, hash, text))
        return false;
    p->path[p->count++] = text;
    return true;
}

/* Neighbours in an index are mostly in one file: it is compared before a copy is made. */
static bool is_last(const sherd__paths *p, const char *folder, size_t before, const char *name)
{
    const char *last = p->count ? p->path[p->count - 1] : NULL;

    return last && strncmp(last, folder, before) == 0 && strcmp(last + before, name) == 0;
}

bool sherd__paths_add(sherd__paths *p, sherd__heap *heap, const char *folder, int length,
                      const char *name, bool once)
{
    size_t before = sherd__bytes(length), bytes = before + strlen(name) + 1;

    if (once && is_last(p, folder, before, name))
        return true;
    char *text = sherd__alloc(heap, bytes, 1);
    if (!text)
        return false;
    snprintf(text, bytes, "%.*s%s", length, folder, name);
    uint64_t hash = sherd__hash_text(0, text);
    bool known = once && sherd__map_find(&p->known, hash, is_path, text);
    bool good = known || append(p, heap, text, hash);
    if (known || !good)
        sherd__free(heap, text);
    return good;
}

static sherd_status read_index(sherd__paths *out, sherd_world *world, const char *path,
                               const char *function)
{
    sherd__heap *heap = sherd__world_heap(world);
    sherd__diag *diag = sherd__world_diag(world);
    struct stat about = {0};
    char *text = NULL;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    sherd_status status = SHERD_OK;

    if (fd < 0 || fstat(fd, &about))
        status = sherd__file_fault(world, function, path);
    else if (!S_ISREG(about.st_mode) || about.st_size > SHERD__MOST_HEADER)
        status = sherd__fail(diag, SHERD_EINVAL, "%s: \"%.180s\": is no index", function, path);
    else if (!(text = sherd__alloc(heap, (size_t)about.st_size + 1, 1)))
        status = sherd__no_memory(diag, function);
    else if (!sherd__read_at(fd, text, about.st_size, 0))
        status = sherd__file_fault(world, function, path);
    else
        status = sherd__index_parse(out, text, (size_t)about.st_size,
                                    &(sherd__header_of){heap, diag, function, path, 0});
    sherd__free(heap, text);
    if (fd >= 0)
        close(fd);
    return status;
}

static bool is_index(const char *path)
{
    size_t length = strlen(path), more = sizeof ending - 1;

    return length >= more && strcmp(path + length - more, ending) == 0;
}

sherd_status sherd__paths_list(sherd__paths *out, sherd_world *world, const char *const *path,
                               int count, const char *function)
{
    sherd_status status = SHERD_OK;

    for (int i = 0; i < count && !status; i++)
        if (is_index(path[i]))
            status = read_index(out, world, path[i], function);
        else if (!sherd__paths_add(out, sherd__world_heap(world), "", 0, path[i], false))
            status = sherd__no_memory(sherd__world_diag(world), function);
    return status;
}
