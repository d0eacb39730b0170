/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points: what lies near what, between clouds that are sharded in any way. Points are rows of coordinates; the index of one
 * is its row in the whole cloud. Both functions are exact: squares are computed in f64, of equally near points that with the
 * smaller index comes first, so indices and distances are the same bits under every layout. What ops.h says of every operator holds here
 * too.
 *
 * Where points are sharded, pieces of them go around: each rank keeps its queries and has one piece of others at a time, beside its own;
 * or, where that is less to move, queries go to the points and what each shard has found is joined. Queries that are
 * replicated over axes that shard points are divided among them for the search. In up to 8 dims a rank searches a tree of
 * each piece, about log n steps a query; in more dims it looks at all points.
 *
 * Gradients: distances are differentiable in both clouds, through the points that were found; where a distance is 0 its
 * gradient is 0.
 */
#ifndef SHERD_OPS_POINTS_H
#define SHERD_OPS_POINTS_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * The distances from each query to the k points that are nearest to it, nearest first. One that is no number is behind all others.
 *
 * @collective see ops.h. Results lie as the queries do
 * @shapes     points [n, d]; queries [m, d]; the result [m, k]; indices: where the i32 [m, k] go, NULL = not wanted
 * @numerics   f64, rounded once; the same bits under every layout. Gradients: order of additions depends on the layout
 * @owns       scope, both
 * @errors     see ops.h; EINVAL k below 1 or above n, no coordinates, or 2^31 - 1 points or queries or more
 */
SHERD_API sherd_tensor *sherd_knn(sherd_tensor *points, sherd_tensor *queries, int64_t k,
                                  sherd_tensor **indices);

/**
 * The distances from each query to the points not farther from it than a radius, nearest first; of more than max_points
 * the nearest ones. Behind the last one are distances of 0.
 *
 * @collective see ops.h. Results lie as the queries do
 * @shapes     points [n, d]; queries [m, d]; the result [m, max_points]; indices: where the i32 [m, max_points] go, -1 behind
 *             the last; counts: where the i32 [m] go, how many there are in each row; NULL = not wanted
 * @numerics   as sherd_knn
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a radius that is negative or not finite, max_points below 1, no coordinates, or 2^31 - 1
 *             points or queries or more
 */
SHERD_API sherd_tensor *sherd_radius_search(sherd_tensor *points, sherd_tensor *queries,
                                            double radius, int64_t max_points,
                                            sherd_tensor **indices, sherd_tensor **counts);

SHERD_END

#endif
