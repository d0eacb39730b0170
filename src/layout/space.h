/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The space in which meshes and layouts are interned. A world owns one. Pure code (layout/, plan/)
 * sees only this: where to allocate, where to write error texts, how many ranks there are.
 *
 * Meshes live as long as the space. A layout is held by the scope in which it was interned, or by
 * an outer one that holds it already. All held layouts are in one list, and the end of a scope
 * truncates the list to its length at the beginning. A layout that is neither held nor counted is
 * idle; some idle layouts are kept, since the next step may make them again.
 */
#ifndef SHERD__LAYOUT_SPACE_H
#define SHERD__LAYOUT_SPACE_H

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
    int rank; /* whose space this is; -1 in a paper world */
    sherd__map meshes;
    sherd__map layouts;
    const sherd_layout **held; /* by scopes, those of the innermost last */
    int held_count, held_room;
    sherd_layout *newest, *oldest; /* of those that are idle */
    int idle, most_idle;
    struct sherd__plan_cache *plans; /* of search/; NULL until the first plan */
    struct sherd__halos *halos;      /* of plan/; NULL until the first halo */
    /*
     * The price of plans whose options have none, NULL = the arena's; and the hash of such options.
     * They do not change once there is a plan.
     */
    const struct sherd_price *price;
    uint64_t price_hash;
    void *owner; /* the world */
} sherd__space;

void sherd__space_init(sherd__space *space, sherd__heap *heap, sherd__diag *diag, int ranks,
                       int rank);
/* Release the held layouts after the first `mark`. */
void sherd__layouts_let_go(sherd__space *space, int mark);
/* The beginning of a scope: the mark that its end passes to sherd__layouts_cut. */
static inline int sherd__layouts_mark(const sherd__space *space)
{
    return space->held_count;
}
static inline void sherd__layouts_cut(sherd__space *space, int mark)
{
    if (space->held_count > mark)
        sherd__layouts_let_go(space, mark);
}
/* Frees all meshes and layouts (call sherd__plans_clear of search/ first). */
void sherd__space_clear(sherd__space *space);

#endif
