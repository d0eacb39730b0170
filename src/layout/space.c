/* SPDX-License-Identifier: Apache-2.0 */
/* The space that owns meshes and layouts. Both live until the space is cleared. */
#include "inside.h"

#include <string.h>

void sherd__space_init(sherd__space *space, sherd__heap *heap, sherd__diag *diag, int ranks,
                       int rank)
{
    memset(space, 0, sizeof *space);
    space->heap = heap;
    space->diag = diag;
    space->ranks = ranks;
    space->rank = rank;
    space->meshes.heap = heap;
    space->layouts.heap = heap;
}

void sherd__space_clear(sherd__space *space)
{
    size_t cursor = 0;
    void *item;

    while ((item = sherd__map_next(&space->layouts, &cursor)) != NULL)
        sherd__layout_free(space, item);
    cursor = 0;
    while ((item = sherd__map_next(&space->meshes, &cursor)) != NULL)
        sherd__mesh_free(space, item);
    sherd__map_clear(&space->layouts);
    sherd__map_clear(&space->meshes);
}

char *sherd__written(sherd__heap *heap, sherd__write_text write, const void *object)
{
    sherd__writer measure = {NULL, 0, 0};

    write(&measure, object);
    sherd__writer w = {sherd__alloc(heap, measure.length + 1, 1), measure.length + 1, 0};
    if (w.at)
        write(&w, object);
    return w.at;
}
