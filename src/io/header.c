/* SPDX-License-Identifier: Apache-2.0 */
/* What does not depend on how a header is parsed: freeing it. */
#include "io/header.h"

void sherd__header_clear(sherd__header *header)
{
    for (int i = 0; i < header->entries; i++)
        sherd__free(header->heap, (char *)(uintptr_t)header->entry[i].name);
    for (int i = 0; i < header->notes; i++) {
        sherd__free(header->heap, (char *)(uintptr_t)header->note[i].key);
        sherd__free(header->heap, (char *)(uintptr_t)header->note[i].text);
    }
    sherd__free(header->heap, header->entry);
    sherd__free(header->heap, header->note);
    *header = (sherd__header){0};
}
