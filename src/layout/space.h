/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space in which meshes and layouts are interned. A world owns one; pure code (layout/, plan/) sees
 * only this: where to allocate, where to write error texts, how many ranks there are.
 */
#ifndef SHERD__SPACE_H
#define SHERD__SPACE_H

#include "base/alloc.h"
#include "base/diag.h"
#include "base/map.h"
#include "sherd/layout.h"

struct sherd__plan_cache;

typedef struct sherd__space {
    sherd__heap *heap;
    sherd__diag *diag;
    int ranks;
    int rank; /* whose space this is; -1 on paper */
    sherd__map meshes;
    sherd__map layouts;
    struct sherd__plan_cache *plans; /* of plan/; NULL until the first plan */
    void *owner;                     /* the world */
} sherd__space;

void sherd__space_init(sherd__space *space, sherd__heap *heap, sherd__diag *diag, int ranks,
                       int rank);
/* Frees all meshes and layouts (call sherd__plans_clear of plan/ first). */
void sherd__space_clear(sherd__space *space);

#endif
