/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Point search: between finding points (nearest.c), the layouts for it (points_lie.c), and what is
 * made of the result (points.c).
 */
#ifndef SHERD__POINTS_OPS_H
#define SHERD__POINTS_OPS_H

#include "ops/shared.h"

typedef struct sherd__nearest {
    int64_t k;
    double most; /* squares beyond it are not looked at */
    int apart;   /* each shard of points is searched alone, by whoever holds it */
} sherd__nearest;

#define SHERD__NEAREST_FIELDS                                                             \
    {                                                                                     \
        SHERD_FIELD(sherd__nearest, k, INT64), SHERD_FIELD(sherd__nearest, most, DOUBLE), \
            SHERD_FIELD(sherd__nearest, apart, INT)                                       \
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
