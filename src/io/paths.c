/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of paths, which holds each once if that is asked for: the files that an index names
 * (index.h). A look-up by hash for each, mostly not even that.
 */
#include "io/index.h"

#include "base/hash.h"
#include "base/num.h"

#include <stdio.h>
#include <string.h>

enum { FIRST_ROOM = 16 };

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
