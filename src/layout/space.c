/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space that owns meshes and layouts, and frees them; the list of layouts that scopes hold, and
 * that of those nobody holds, which stay until MOST_IDLE newer ones have joined them.
 */
#include "bytes.h"
#include "inside.h"

#include <string.h>

enum { MOST_IDLE = 1024 };

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
    space->most_idle = MOST_IDLE;
}

/* ---- layouts that are held, or not ----------------------------------------------------------- */

void sherd__layouts_let_go(sherd__space *space, int mark)
{
    while (space->held_count > mark) {
        sherd_layout *layout = (sherd_layout *)(uintptr_t)space->held[--space->held_count];
        layout->held = false;
        if (layout->refs == 0)
            sherd__layout_rest(layout);
    }
}

void sherd__layout_wake(sherd_layout *layout)
{
    sherd__space *space = layout->space;

    *(layout->newer ? &layout->newer->older : &space->newest) = layout->older;
    *(layout->older ? &layout->older->newer : &space->oldest) = layout->newer;
    layout->idle = false;
    space->idle--;
}

/* Freeing a layout may make another idle: the one that it is settled to. */
void sherd__layout_rest(sherd_layout *layout)
{
    sherd__space *space = layout->space;

    layout->idle = true;
    layout->newer = NULL;
    layout->older = space->newest;
    *(layout->older ? &layout->older->newer : &space->oldest) = layout;
    space->newest = layout;
    for (space->idle++; space->idle > space->most_idle;) {
        sherd_layout *last = space->oldest;
        sherd__layout_wake(last);
        sherd__map_remove(&space->layouts, last->hash, last);
        if (last->settled != last)
            sherd__layout_set(&last->settled, NULL);
        sherd__layout_free(space, last);
    }
}

bool sherd__layout_hold(const sherd_layout *layout)
{
    sherd_layout *own = (sherd_layout *)(uintptr_t)layout;
    sherd__space *space = layout->space;

    if (layout->held)
        return true;
    if (!sherd__layouts_reserve(space))
        return false;
    if (layout->idle)
        sherd__layout_wake(own);
    own->held = true;
    space->held[space->held_count++] = layout;
    return true;
}

bool sherd__layouts_reserve(sherd__space *space)
{
    void *list = sherd__reserve(space->heap, space->held, space->held_count, &space->held_room, 64,
                                sizeof *space->held);

    if (list)
        space->held = list;
    return list != NULL;
}

void sherd__layout_free(sherd__space *space, sherd_layout *layout)
{
    if (!layout)
        return;
    for (int d = 0; d < layout->spec.ndim; d++)
        sherd__free(space->heap, (void *)(uintptr_t)layout->spec.dim[d].cuts);
    sherd__free(space->heap, layout->text);
    sherd__free(space->heap, layout->placements);
    sherd__free(space->heap, layout);
}

void sherd__mesh_free(sherd__space *space, sherd_mesh *mesh)
{
    if (!mesh)
        return;
    sherd__free(space->heap, (void *)(uintptr_t)mesh->ranks);
    sherd__free(space->heap, mesh->text);
    sherd__free(space->heap, mesh);
}

size_t sherd__layout_bytes(const sherd_layout *layout)
{
    if (!layout)
        return 0;
    size_t bytes = sizeof *layout + strlen(layout->text) + strlen(layout->placements) + 2;
    for (int d = 0; d < layout->spec.ndim; d++) {
        const sherd__dim *dim = &layout->spec.dim[d];
        if (dim->cuts)
            bytes += ((size_t)sherd__dim_parts(layout->spec.mesh, dim) + 1) * sizeof *dim->cuts;
    }
    return bytes;
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
    sherd__free(space->heap, space->held);
    space->held = NULL;
    space->held_count = space->held_room = 0;
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
