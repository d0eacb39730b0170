/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Point search: between finding points (nearest.c), the layouts for it (points_lie.c), and what is
 * made of the result (points.c).
 */
#ifndef SHERD__FIELDS_POINTS_H
#define SHERD__FIELDS_POINTS_H

#include "ops/shared.h"

/* Numbers as f64, in the call's memory, undefined in a dry world. NULL: there is none. */
double *sherd__widened(sherd_call *call, const sherd_tensor *t, const void *data);

/* What a search takes as periods: NULL if all are 0. */
const double *sherd__periods(const double *period);

typedef struct sherd__nearest {
    int64_t k;
    double most;                   /* squares beyond it are not looked at */
    int apart;                     /* each shard of points is searched alone, by whoever holds it */
    double period[SHERD_MAX_DIMS]; /* of each coordinate; 0 = not periodic */
} sherd__nearest;

#define SHERD__NEAREST_FIELDS                                                             \
    {                                                                                     \
        SHERD_FIELD(sherd__nearest, k, INT64), SHERD_FIELD(sherd__nearest, most, DOUBLE), \
            SHERD_FIELD(sherd__nearest, apart, INT),                                      \
            SHERD_FIELDS(sherd__nearest, period, DOUBLE, SHERD_MAX_DIMS)                  \
    }

/*
 * Squares f64 and indices [m, k] of points and queries; [shards, m, k] of each shard of points, if
 * it is `apart`.
 */
extern const sherd_op sherd__nearest_op;
/* Those of shards joined: [m, k]. */
extern const sherd_op sherd__nearest_join_op;

/* Layouts of a search. */
typedef struct sherd__search_plan {
    bool apart;
    const sherd_layout *points, *queries; /* what they move to before the search */
    const sherd_layout *joined; /* apart: what was found, [shards, m, k], before it is joined */
    const sherd_layout *result; /* [m, k]: where it goes in the end */
} sherd__search_plan;

/*
 * The cheapest layouts for searching points and queries, both on one mesh. `bytes` of an element.
 */
sherd_status sherd__plan_search(sherd__search_plan *out, const sherd_layout *points,
                                const sherd_layout *queries, int64_t k, size_t bytes);

#endif
