/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan so far, and searching until it is known to be the cheapest. */
#ifndef SHERD__SEARCH_ROUTES_H
#define SHERD__SEARCH_ROUTES_H

#include "search.h"

/* The best plan so far. */
typedef struct sherd__best {
    sherd__path path;
    sherd__cost cost; /* of all but the partition */
    bool known;
    bool searched;            /* found by a search: its steps are priced over some ranks only */
    int number[SHERD__STOPS]; /* if so: the numbers of its nodes */
} sherd__best;

static inline void sherd__path_push(sherd__path *path, const sherd_layout *stop)
{
    path->merged[path->stops] = false;
    path->at[path->stops++] = stop;
}

/* Take a path if it is cheaper. */
static inline void sherd__best_take(sherd__best *b, const sherd__path *path, sherd__cost costs)
{
    if (b->known && sherd__cost_compare(costs, b->cost) >= 0)
        return;
    b->path = *path;
    b->cost = costs;
    b->known = true;
    b->searched = false;
}

/*
 * The cheapest route through the listed nodes, if it is cheaper than what is known. *complete:
 * there is no cheaper one.
 */
sherd_status sherd__routes_find(sherd__best *b, bool *complete, sherd__field *field);

#endif
