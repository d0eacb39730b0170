/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Point clouds: nearest neighbours and radius search between clouds that are sharded in any way,
 * distances to a surface, and fields at points. Points are rows of coordinates; the index of a
 * point is its row in the whole cloud. Searches are exact: squared distances are computed in f64,
 * and of points at equal distance the one with the smaller index comes first, so indices and
 * distances have the same bits under every layout. "See ops.h" means what the head of ops.h says of
 * all operators.
 *
 *     sherd_tensor *nearest; // [m, 8]
 *     sherd_tensor *distance = sherd_knn(a, b, 8, &nearest); // a [n, 3], b [m, 3] -> [m, 8]
 *
 * If points are sharded, the pieces of the cloud go round a ring: each rank keeps its queries, and
 * holds one other piece at a time beside its own. Or, if that moves less, the queries go to the
 * points, and the results of all shards are combined. Queries that are replicated over axes that
 * shard the points are divided among these ranks for the search. With up to 8 coordinates a rank
 * searches a tree of each piece, in about log n steps for each query; with more it compares all
 * points.
 *
 * Space may be periodic, as in simulations: sherd_knn_with and sherd_radius_search_with take the
 * lengths of the box. Points may be inside of the box or not.
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
 * @shapes     points [n, d]; queries [m, d]; the result [m, k]; indices: gets an i32 tensor [m, k],
 *             which points these are; NULL = not wanted
 * @numerics   distances are computed in f64 and rounded once; the same bits under every layout.
 *             Gradients: the order of additions depends on the layout
 * @owns       scope, both
 * @errors     see ops.h; EINVAL k below 1 or above n, no coordinates, 2^31 - 1 points or queries or
 *             more
 */
SHERD_API sherd_tensor *sherd_knn(sherd_tensor *points, sherd_tensor *queries, int64_t k,
                                  sherd_tensor **indices);

/**
 * The distances from each query to the points within a radius, nearest first; if there are more
 * than max_points, to the nearest max_points of them. Unused entries at the end of a row are 0.
 *
 * @collective see ops.h. The results have the layout of the queries' rows
 * @shapes     points [n, d]; queries [m, d]; the result [m, max_points]; indices: gets an i32
 *             tensor [m, max_points], which points these are, -1 in unused entries; counts: gets an
 *             i32 tensor [m], how many entries each row uses; NULL = not wanted
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
    /*
     * For each coordinate the length of the box, after which space repeats; 0 = it does not. Points
     * have at most 8 coordinates if one of these is not 0.
     */
    double period[SHERD_MAX_DIMS];
} sherd_search_options;

/**
 * sherd_knn in a periodic space: each point counts once, at the distance of its nearest periodic
 * image. The gradient is that of this distance; at exactly half a period, that of either image.
 *
 * @collective as sherd_knn
 * @shapes     as sherd_knn; options: NULL = all zero
 * @numerics   as sherd_knn; differences are rounded to f64, and the step to the nearest image is
 *             exact
 * @owns       scope, both
 * @errors     as sherd_knn; EINVAL a period that is negative or not finite, or for a coordinate
 *             that points do not have; a period and more than 8 coordinates
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

/* ---- a surface ------------------------------------------------------------------------------- */

/**
 * The signed distance from each point to a surface of triangles: less than 0 inside of a closed
 * one, where triangles, seen from outside, have their corners counterclockwise; of an open one,
 * behind the triangle that is nearest. On edges and at corners the normals of all their triangles
 * decide, so sharp ones need no care. Vertices at one place count as one. NaN for a point that is
 * not finite. The nearest point of the surface is the point minus its distance times the gradient
 * of that.
 *
 * Gradients: by points the normal at the nearest point, by vertices the opposite, in parts; where a
 * distance is 0 its gradient is 0. Differentiable to any order, but for points that are as near to
 * two places.
 *
 * @collective see ops.h: a sharded surface is gathered; points stay where they are
 * @shapes     points [m, 3]; vertices [v, 3]; triangles: i32 [t, 3] of vertices, t > 0; the result
 *             [m]; nearest: gets an i32 tensor [m], which triangle it is (-1 for NaN); NULL = not
 *             wanted
 * @numerics   computed in f64 and rounded once; the same bits under every layout. Gradients: the
 *             order of additions depends on the layout
 * @owns       scope, both
 * @errors     see ops.h; EINVAL other shapes, no triangle, a corner outside [0, v), more points or
 *             triangles than a third of 2^31, or vertices than 2^31
 */
SHERD_API sherd_tensor *sherd_signed_distance(sherd_tensor *points, sherd_tensor *vertices,
                                              sherd_tensor *triangles, sherd_tensor **nearest);

/* ---- a field at points ----------------------------------------------------------------------- */

typedef struct sherd_grid_sample_options {
    bool nearest;       /* take the nearest element, ties to even; otherwise interpolate linearly */
    bool border;        /* outside the field take the nearest value inside; otherwise 0 */
    bool align_corners; /* -1 and 1 are the centres of the corner elements, not their outer edges */
} sherd_grid_sample_options;

/**
 * The values of a field at given points, as torch.nn.functional.grid_sample: y[b, c, p..] is the
 * value of x[b, c] at the point grid[b, p..]. The last dim of `grid` has one coordinate for each
 * spatial dim of x, that of the last dim of x first; [-1, 1] covers the whole dim. Differentiable
 * to any order, by the points too. A point with a NaN is outside the field.
 *
 * @collective as sherd_gather along the merged spatial dims: if they are sharded, ranks fetch only
 *             the elements around their points from the owners, or the field is gathered
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
