/* SPDX-License-Identifier: Apache-2.0 */
/* What does not depend on how a header is parsed: freeing it. */
#include "io/header.h"

#include "base/hash.h"

#include <string.h>

static uint64_t hash_of(const char *name)
{
    return sherd__hash_text(1, name);
}

static bool has_name(const void *item, const void *key)
{
    return strcmp(((const sherd_file_entry *)item)->name, key) == 0;
}

bool sherd__header_index(sherd__header *h)
{
    h->by_name.heap = h->heap;
    for (int i = 0; i < h->entries; i++)
        if (!sherd__map_add(&h->by_name, hash_of(h->entry[i].name), &h->entry[i]))
            return false;
    return true;
}

int sherd__header_find(const sherd__header *h, const char *name)
{
    const sherd_file_entry *found = sherd__map_find(&h->by_name, hash_of(name), has_name, name);

    return found ? (int)(found - h->entry) : -1;
}

void sherd__header_clear(sherd__header *header)
{
    for (int i = 0; i < header->entries; i++)
        sherd__free(header->heap, (char *)(uintptr_t)header->entry[i].name);
    for (int i = 0; i < header->notes; i++) {
        sherd__free(header->heap, (char *)(uintptr_t)header->note[i].key);
        sherd__free(header->heap, (char *)(uintptr_t)header->note[i].text);
    }
    sherd__map_clear(&header->by_name);
    sherd__free(header->heap, header->entry);
    sherd__free(header->heap, header->note);
    *header = (sherd__header){0};
}
