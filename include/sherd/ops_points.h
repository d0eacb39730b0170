/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point clouds: nearest neighbours and radius search between clouds that are sharded in any way.
 * Points are rows of coordinates; the index of a point is its row in the whole cloud. Both
 * functions are exact: squared distances are computed in f64, and of points at equal distance the
 * one with the smaller index comes first, so indices and distances are the same bits under every
 * layout. What ops.h says of all operators holds here too.
 *
 * If points are sharded, pieces of the cloud go round a ring: each rank keeps its queries and holds
 * one other piece at a time beside its own. Or, if that moves less, the queries go to the points,
 * and the results of all shards are combined. Queries that are replicated over axes that shard the
 * points are divided among those ranks for the search. In up to 8 dims a rank searches a tree of
 * each piece, in about log n steps a query; in more dims it compares all points.
 *
 * Gradients: distances are differentiable in both clouds, through the points that were found. Where
 * a distance is 0 its gradient is 0.
 */
#ifndef SHERD_OPS_POINTS_H
#define SHERD_OPS_POINTS_H

#include "ops_shape.h"

SHERD_BEGIN

/**
 * The distances from each query to its k nearest points, nearest first. A distance that is NaN
 * comes after all others.
 *
 * @collective see ops.h. The results have the layout of the queries' rows
 * @shapes     points [n, d]; queries [m, d]; the result [m, k]; indices: gets the i32 tensor [m,
 *             k]; NULL = not wanted
 * @numerics   f64, rounded once; the same bits under every layout. Gradients: the order of
 *             additions depends on the layout
 * @owns       scope, both
 * @errors     see ops.h; EINVAL k below 1 or above n, no coordinates, 2^31 - 1 points or queries or
 *             more
 */
SHERD_API sherd_tensor *sherd_knn(sherd_tensor *points, sherd_tensor *queries, int64_t k,
                                  sherd_tensor **indices);

/**
 * The distances from each query to the points within a radius, nearest first; if there are more
 * than max_points, to the nearest ones. Unused entries at the end of a row are 0.
 *
 * @collective see ops.h. The results have the layout of the queries' rows
 * @shapes     points [n, d]; queries [m, d]; the result [m, max_points]; indices: gets the i32
 *             tensor [m, max_points], -1 in unused entries; counts: gets the i32 tensor [m] of how
 *             many entries each row has; NULL = not wanted
 * @numerics   as sherd_knn
 * @owns       scope, all
 * @errors     see ops.h; EINVAL a radius that is negative or not finite, max_points below 1, no
 *             coordinates, 2^31 - 1 points or queries or more
 */
SHERD_API sherd_tensor *sherd_radius_search(sherd_tensor *points, sherd_tensor *queries,
                                            double radius, int64_t max_points,
                                            sherd_tensor **indices, sherd_tensor **counts);

SHERD_END

#endif
