/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The space in which meshes and layouts are interned. A world owns one; pure code (layout/, plan/) sees
 * only this: where to allocate, where to write error texts, how many ranks there are.
 *
 * Meshes live as long as the space. A layout is held by the scope in which somebody has interned it, unless one further
 * out holds it already: all that scopes hold is one list, and the end of a scope cuts it back to where it began. What
 * is held by no scope, and counted by nobody, is idle; of those some are kept, since the next step may make them again.
 */
#ifndef SHERD__SPACE_H
#define SHERD__SPACE_H

#include "base/alloc.h"
#include "base/diag.h"
#include "base/map.h"
#include "sherd/layout.h"

struct sherd__plan_cache;
struct sherd__halos;

typedef struct sherd__space {
    sherd__heap *heap;
    sherd__diag *diag;
    int ranks;
    int rank; /* whose space this is; -1 on paper */
    sherd__map meshes;
    sherd__map layouts;
    const sherd_layout **held; /* by scopes, those of the innermost last */
    int held_count, held_room;
    sherd_layout *newest, *oldest; /* of those that are idle */
    int idle, most_idle;
    struct sherd__plan_cache *plans; /* of search/; NULL until the first plan */
    struct sherd__halos *halos;      /* of plan/; NULL until the first halo */
    /* By which plans are priced whose options name no price, NULL = as the arena; and the hash of such options. Never
     * changes once there is a plan. */
    const struct sherd_price *price;
    uint64_t price_hash;
    void *owner; /* the world */
} sherd__space;

void sherd__space_init(sherd__space *space, sherd__heap *heap, sherd__diag *diag, int ranks,
                       int rank);
/* Let go of what scopes hold beyond the first `mark`. */
void sherd__layouts_let_go(sherd__space *space, int mark);
/* A scope begins: what its end cuts back to; and it ends. */
static inline int sherd__layouts_mark(const sherd__space *space)
{
    return space->held_count;
}
static inline void sherd__layouts_cut(sherd__space *space, int mark)
{
    if (space->held_count > mark)
        sherd__layouts_let_go(space, mark);
}
/* Frees all meshes and layouts (call sherd__plans_clear of plan/ first). */
void sherd__space_clear(sherd__space *space);

#endif
