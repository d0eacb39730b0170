/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows sent to ranks that the program chooses: particles that have left their domain, records to
 * the owner of their key, work to where there is room. It is an MPI_Alltoallv that exchanges its
 * counts by itself. "See ops.h" means what the head of ops.h says of all operators.
 *
 * A route is made once; any number of tensors can take it, in both directions:
 *
 *     sherd_route route;
 *     sherd_route_rows(&route, shard);                 // i32 [rows], sharded as the rows are
 *     position = sherd_send_rows(position, &route);    // [rows, 3]
 *     velocity = sherd_send_rows(velocity, &route);
 *     sherd_tensor *force = forces(position);
 *     force = sherd_return_rows(force, &route);        // where the rows came from
 *
 * Rows are sharded by some axes, and a route gives the number of the shard that each row goes to;
 * shard 0 has the first rows. The result has as many rows as the operand, sharded by the same axes:
 * first those that went to shard 0, then those of shard 1, and so on, each in the order in which
 * they were before. The cuts of the result's layout say how many rows each shard has got, so all
 * ranks know it.
 *
 * In a dry world (dry.h) it is not known where rows go: each shard sends equally many to every
 * shard.
 */
#ifndef SHERD_OPS_ROUTES_H
#define SHERD_OPS_ROUTES_H

#include "ops_shape.h"

SHERD_BEGIN

/* Where rows go. Everything belongs to the scope. */
typedef struct sherd_route {
    sherd_tensor *shard; /* i32 [rows]: the shard that each row goes to, sharded as rows are */
    /* i64 [shards, shards]: [i, j] rows go from shard i to shard j; equal on all ranks */
    sherd_tensor *count;
    int64_t written; /* for the library: tells whether `shard` was written since */
} sherd_route;

/**
 * Make a route for rows that are sharded as `shard` is: row i goes to shard number shard[i] of the
 * same dim. A plain `shard` counts as one shard, 0. Returns false after a failure; both tensors are
 * the failed one then.
 *
 * @collective the mesh of `shard`; every rank gets `count`, 8 bytes for each pair of shards
 * @shapes     shard: i32 [rows]
 * @owns       scope; `shard` is kept, not copied, and must not be written while the route is used
 * @errors     see ops.h; EINVAL a number outside [0, shards), 2^31 rows or more in a shard
 */
SHERD_API bool sherd_route_rows(sherd_route *out, sherd_tensor *shard);

/**
 * Send each row of x to its shard: [rows, ...] -> [rows, ...]. If the rows of x are sharded
 * otherwise than the route's, they are first moved to that layout. Other dims stay sharded as they
 * are, except by axes that shard the rows. One call, in which each rank receives exactly its rows.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     see ops.h; EINVAL a route of other rows, or one whose `shard` was written since
 */
SHERD_API sherd_tensor *sherd_send_rows(sherd_tensor *x, const sherd_route *route);

/**
 * The way back: send each row of y to the place that it came from, so that
 * sherd_return_rows(sherd_send_rows(x, route), route) is x.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     as sherd_send_rows
 */
SHERD_API sherd_tensor *sherd_return_rows(sherd_tensor *y, const sherd_route *route);

SHERD_END

#endif
