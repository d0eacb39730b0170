/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signed distance from points to a surface of triangles. All is computed in f64. Triangles are
 * arranged as a tree by their middles (points.h), with boxes around them. The sign of a distance is
 * that of its product with a normal at the nearest point: that of the triangle inside of one, on an
 * edge the sum of those of its triangles, at a corner their sum weighted by their angles there. So
 * for a closed surface, however sharp, it is right everywhere.
 */
#ifndef SHERD__KERNELS_SURFACE_H
#define SHERD__KERNELS_SURFACE_H

#include "points.h"

typedef struct sherd__surface {
    int64_t vertices, n;   /* n triangles */
    const double *x;       /* [vertices, 3] */
    const int32_t *corner; /* [n, 3], each a vertex */
    /* Room: */
    sherd__cloud tree;       /* x [n, 3], id [n], box [sherd__cloud_boxes(n, 3)] */
    double *around, *across; /* normals: at vertices [vertices, 3], on edges [n, 3, 3] */
    double *radius;          /* [n]: of a ball around each middle, in the order of the tree */
    int32_t *same;           /* [vertices]: the first vertex at this place */
    int32_t *edge;           /* [n, 3]: the first edge that is this one */
    int32_t *table;          /* [sherd__surface_table(vertices, n)] */
} sherd__surface;

/* How many places a table of vertices, and one of edges, needs. */
int64_t sherd__surface_table(int64_t vertices, int64_t n);

/* Arrange n triangles, one at least. Costs about n log n. */
void sherd__surface_arrange(sherd__surface *surface);

/*
 * For each of m queries [m, 3] the distance to the nearest triangle, less than 0 behind it, and
 * which one: of several as near that with the smaller number. The nearest point is the sum of three
 * vertices by weights that add up to 1; those with the weight 0 come last. For a query that is no
 * number, or if no distance is one, the distance is NaN, and the triangle -1 (vertex 0 counts).
 */
void sherd__surface_find(const sherd__surface *surface, int64_t m, const double *query,
                         double *distance, int32_t *triangle, int32_t *corner, double *weight);

#endif
