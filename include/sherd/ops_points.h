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
 * Space may be periodic, as in simulations: sherd_knn_with and sherd_radius_search_with take the
 * lengths of the box. Points may lie anywhere, inside of it or not.
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

/* All zero = an ordinary space. */
typedef struct sherd_search_options {
    /* Of each coordinate, how far apart the images of a point are; 0 = it has no others. Up to 8
     * coordinates if one is not 0. */
    double period[SHERD_MAX_DIMS];
} sherd_search_options;

/**
 * sherd_knn in a periodic space: the difference of a coordinate is that of the nearest image, so
 * each point counts once, at the distance of its nearest image. The gradient is along that
 * difference; at exactly half a period, either way.
 *
 * @collective as sherd_knn
 * @shapes     as sherd_knn; options: NULL = all zero
 * @numerics   as sherd_knn; a difference is rounded to f64, and going on to its image is exact
 * @owns       scope, both
 * @errors     as sherd_knn; EINVAL a period that is negative or not finite, or of a coordinate that
 *             points do not have; periods and more than 8 coordinates
 */
SHERD_API sherd_tensor *sherd_knn_with(sherd_tensor *points, sherd_tensor *queries, int64_t k,
                                       const sherd_search_options *options, sherd_tensor **indices);

/**
 * sherd_radius_search in a periodic space, as sherd_knn_with. The radius may be half a period at
 * most: a larger one would reach several images of a point.
 *
 * @collective as sherd_radius_search
 * @shapes     as sherd_radius_search; options: NULL = all zero
 * @numerics   as sherd_knn_with
 * @owns       scope, all
 * @errors     as sherd_radius_search and sherd_knn_with; EINVAL a radius of more than half a period
 */
SHERD_API sherd_tensor *sherd_radius_search_with(sherd_tensor *points, sherd_tensor *queries,
                                                 double radius, int64_t max_points,
                                                 const sherd_search_options *options,
                                                 sherd_tensor **indices, sherd_tensor **counts);

/* ---- a field at points ----------------------------------------------------------------------- */

typedef struct sherd_grid_sample_options {
    bool nearest; /* the nearest element, ties to even; otherwise between the 2^d around (linear) */
    bool border;  /* points outside take the nearest ones inside; otherwise it is 0 there */
    bool align_corners; /* -1 and 1 are the centres of the corner elements, not their outer edges */
} sherd_grid_sample_options;

/**
 * A field at points, as torch.nn.functional.grid_sample: y[b, c, p..] = x[b, c] at grid[b, p..],
 * whose last dim has a coordinate for each spatial dim, that of the last dim of x first; [-1, 1] is
 * the whole dim. Differentiable to any order, by the points too. A point that is NaN is outside.
 *
 * @collective as sherd_gather along the spatial dims, merged: if they are sharded, ranks get from
 *             the owners just what is around their points, or the field is gathered
 * @shapes     x: [batch, channels, ...], one to three spatial dims, not empty; grid: [batch,
 *             points..., spatial dims]; result [batch, channels, points...]
 * @numerics   coordinates in the grid's dtype: f32 or f64 for more than 256 elements a dim
 * @owns       scope
 * @errors     see ops.h; EINVAL other shapes, a grid that is not floating-point, a field of 2^31
 *             elements or more
 */
SHERD_API sherd_tensor *sherd_grid_sample(sherd_tensor *x, sherd_tensor *grid,
                                          const sherd_grid_sample_options *options);

SHERD_END

#endif
