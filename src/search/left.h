/* SPDX-License-Identifier: Apache-2.0 */
/* Shortest paths by looks, from the goal and from the source at once. */
#ifndef SHERD__SEARCH_LEFT_H
#define SHERD__SEARCH_LEFT_H

#include "search.h"

/*
 * The search from one end. Paths lead from a state to the goal, or (`ahead`) from the source to a
 * state.
 */
typedef struct sherd__left_side {
    sherd__field *field;
    sherd__cost limit;
    bool ahead;
    int *next; /* of each state: the next one on its path */
    int *open; /* states without a path yet, or with one that may still get shorter */
    /* of each state: picoseconds that a path may take to be of use; -1 = it has the shortest */
    int64_t *most;
    int opens, taken;
    int seen;                             /* open ones that have a path */
    bool *done;                           /* taken */
    sherd__cost radius;                   /* no state that is open is nearer */
    const struct sherd__left_side *other; /* or NULL */
} sherd__left_side;

/* The search from both ends at once. */
typedef struct sherd__left_meeting {
    sherd__field *field;
    sherd__left_side side[2]; /* the goal's and the source's */
    sherd__cost shortest;
    int middle; /* of the shortest way so far, or -1 */
} sherd__left_meeting;

/*
 * For plans of at most `limit`, through the kept nodes; ENOMEM, and then it must be cleared all the
 * same.
 */
sherd_status sherd__meeting_start(sherd__left_meeting *m, sherd__field *field, sherd__cost limit);

/*
 * Search until every state of a plan of at most `limit` has been taken. With a route it ends as
 * soon as the shortest one is known, and stores it there; no stops if there is none.
 */
void sherd__meeting_go(sherd__left_meeting *m, sherd__cost limit, sherd__route *route);
/* Keep the nodes that were taken, and after that do as sherd__left_find does. */
void sherd__meeting_keep(sherd__left_meeting *m);
void sherd__meeting_left(sherd__route *route, sherd__left_meeting *m, sherd__cost limit);
void sherd__meeting_clear(sherd__left_meeting *m);

#endif
