/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows sent to ranks that the program names: particles that have left their domain, records to the
 * owner of their key, work to where there is room (an MPI_Alltoallv whose counts nobody has to
 * exchange by hand). What ops.h says of all operators holds here too.
 *
 * A route is made once, and any number of tensors take it, in both directions:
 *
 *     sherd_route route;
 *     sherd_route_rows(&route, shard);                 // i32 [rows], sharded as the rows are
 *     position = sherd_send_rows(position, &route);    // [rows, 3]
 *     velocity = sherd_send_rows(velocity, &route);
 *     sherd_tensor *force = forces(position);
 *     force = sherd_return_rows(force, &route);        // where the rows came from
 *
 * Rows are sharded by some axes, and a route names shards of these: shard 0 is that of the first
 * rows, and so on. A result has as many rows as its operand, sharded by the same axes, with cuts
 * where the rows of each shard end: first those of shard 0, then of shard 1, in the order in which
 * they were there. So the layout says how many rows each rank has, and all ranks know it.
 *
 * In a dry world (dry.h) nobody knows where rows go: each shard sends equally many to all.
 */
#ifndef SHERD_OPS_ROUTES_H
#define SHERD_OPS_ROUTES_H

#include "ops_shape.h"

SHERD_BEGIN

/* Where rows go. Everything belongs to the scope. */
typedef struct sherd_route {
    sherd_tensor *shard; /* i32 [rows]: the shard that each row goes to, sharded as rows are */
    /* i64 [shards, shards]: how many rows go from one shard to another; equal on all ranks */
    sherd_tensor *count;
    int64_t written; /* how often `shard` had been written */
} sherd_route;

/**
 * Make a route of rows that are sharded as `shard` is; `shard` names for each row a shard of that
 * same dim. A plain `shard` has one, 0. False: failed, and both tensors are the failed one.
 *
 * @collective the mesh of `shard`: 8 bytes for each two shards
 * @shapes     shard: i32 [rows]
 * @owns       scope, both; `shard` is kept as it is: it must not be written while the route is used
 * @errors     see ops.h; EINVAL a number outside [0, shards), 2^31 rows or more in a shard
 */
SHERD_API bool sherd_route_rows(sherd_route *out, sherd_tensor *shard);

/**
 * The rows of x, each at the shard that the route names: [rows, ...] -> [rows, ...]. If the rows of
 * x are sharded otherwise than the route's, they are moved there first. Other dims stay sharded as
 * they are, but for axes that shard rows. One call; ranks get exactly the rows that are theirs.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     see ops.h; EINVAL a route of other rows, or one whose `shard` was written since
 */
SHERD_API sherd_tensor *sherd_send_rows(sherd_tensor *x, const sherd_route *route);

/**
 * The way back: rows of y, which are where the route led, each at the place where it came from, so
 * that sherd_return_rows(sherd_send_rows(x, route), route) is x.
 *
 * @collective see ops.h
 * @owns       scope
 * @errors     as sherd_send_rows
 */
SHERD_API sherd_tensor *sherd_return_rows(sherd_tensor *y, const sherd_route *route);

SHERD_END

#endif
