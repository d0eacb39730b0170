/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What PyTorch's two planners share: series of steps of one axis each. PyTorch's own view of a step
 * is kept, in which the tensor has a shape of its own at each step.
 */
#ifndef SHERD__SEARCH_SERIES_H
#define SHERD__SEARCH_SERIES_H

#include "planners.h"
#include "price/torch.h"

/* A step of a series. */
typedef struct sherd__hop {
    unsigned axes;            /* one; several once merged */
    sherd_placement from, to; /* of all its axes; a merged sum and average is a sum */
    /* the tensor's shape as the first rank sees it: cut by all other axes, but not by these */
    int64_t shape[SHERD_MAX_DIMS];
    int64_t divisor; /* of a merged reduction, the extents of its avg axes; 1 = nothing to divide */
} sherd__hop;

/* Why consecutive steps were not merged. */
typedef enum sherd__missed {
    SHERD__NO_FLATTENED_MESH,
    SHERD__NOT_IN_ORDER,
    SHERD__UNEVEN,
} sherd__missed;

typedef struct sherd__miss {
    unsigned axes;
    sherd__collective what;
    sherd__missed why;
} sherd__miss;

/* hop[i] leads from state[i] to state[i + 1]. */
typedef struct sherd__series {
    const sherd_mesh *mesh;
    int ndim;
    int64_t shape[SHERD_MAX_DIMS];
    double cost;
    int hops, misses;
    sherd__state state[SHERD__STOPS];
    sherd__hop hop[SHERD__STOPS];
    sherd__miss miss[SHERD__STOPS];
} sherd__series;

enum { SHERD__HOPS = SHERD__STOPS - 2 }; /* a plan may need one more stop */

/* A series with no steps, at the problem's source. */
void sherd__series_begin(sherd__series *series, const sherd__problem *problem);

/* The placement of an axis in a state. */
sherd_placement sherd__state_placement(const sherd__state *state, int ndim, int axis);

/*
 * Add one step: `axis` leaves its dim's list and is appended to another, as `to` says. The hop's
 * shape is that of `seen` without the axes in `unseen`, each rounded up.
 */
void sherd__series_on(sherd__series *series, int axis, sherd_placement to, const sherd__state *seen,
                      unsigned unseen);

/* Merge consecutive steps whose axes are one of the flattened axis sets. */
void sherd__series_merge(sherd__series *series, const unsigned *flattened, int count);

/* The series of the two planners, without merging; the problem is on one mesh. */
void sherd__greedy_series(sherd__series *series, const sherd__problem *problem);
sherd_status sherd__graph_series(sherd__series *series, const sherd__problem *problem);

/* Merge, and write the series as a path. */
sherd_status sherd__series_answer(sherd__answer *out, const sherd__problem *problem,
                                  sherd__series *series);

#endif
