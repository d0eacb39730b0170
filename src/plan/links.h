/* SPDX-License-Identifier: Apache-2.0 */
/* Links as classes of messages, and times on them. Only the files of this price and the searches know it. */
#ifndef SHERD__PLAN_LINKS_H
#define SHERD__PLAN_LINKS_H

#include "inside.h"

/* The axes of a set and their links, fastest first: a class each. */
typedef struct sherd__route {
    int axes;
    int axis[SHERD_MAX_AXES];
    sherd_link link[SHERD_MAX_AXES];
} sherd__route;

void sherd__route_find(sherd__route *route, const sherd__problem *problem, const sherd_mesh *mesh,
                       unsigned axes);

/* Femtoseconds so far. Each term is cut, so that some thousands of them fit. */
typedef sherd__wide sherd__span;

/* a * b * unit, unit being femtoseconds. */
sherd__span sherd__span_of(int64_t a, int64_t b, int64_t unit);
/* Messages and bytes on a link; and bytes added there. */
sherd__span sherd__span_sent(const sherd_link *link, int64_t messages, int64_t bytes);
sherd__span sherd__span_added(const sherd_link *link, int64_t bytes);
/* Picoseconds, rounded up. */
int64_t sherd__span_time(sherd__span span);

/* ---- stages.c: collectives, axis by axis ------------------------------------------------------ */

/* An all-gather, or a reduce-scatter. */
sherd__span sherd__stages_time(const sherd__change *change, const int64_t *shape,
                               int64_t element_bytes, const sherd__route *route);
/* An all-reduce of boxes of n elements: a reduce-scatter of slices, and an all-gather of them. */
sherd__span sherd__stages_time_sliced(const sherd__change *change, int64_t n, int64_t element_bytes,
                                      const sherd__route *route);

#endif
