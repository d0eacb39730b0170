/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A search along a line for a point that meets the strong Wolfe conditions: f low enough, and its
 * slope small enough. Pure but for what it asks.
 */
#ifndef SHERD__NN_LINE_SEARCH_H
#define SHERD__NN_LINE_SEARCH_H

#include <stdbool.h>

typedef struct sherd__line_point {
    double t, f, slope;
} sherd__line_point;

typedef struct sherd__ray {
    /* Fill f and slope of a point at its t. False: it can not be asked any more. */
    bool (*ask)(void *context, sherd__line_point *point);
    /* The point that was asked for last is the best so far. */
    void (*keep)(void *context);
    void *context;
    double shortest; /* an interval that is not longer is not searched */
    int most;        /* points that may be asked for */
} sherd__ray;

/*
 * From `start` (t = 0, slope below 0) the best point found, beginning with t; *asked counts points.
 * `start` itself if none is better. False: `ask` has failed.
 */
bool sherd__line_search(const sherd__ray *line, const sherd__line_point *start, double t,
                        sherd__line_point *best, int *asked);

#endif
