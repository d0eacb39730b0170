/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nearest of a cloud of points, exactly. A cloud is arranged as a tree: its points are split at
 * the middle of the longest side of their box, and so on, down to leaves of a few. What is found
 * depends on the points alone, not on the tree: the nearest come first, of equally near ones that
 * with the smaller index; a distance that is no number comes last.
 *
 * Space may be periodic in some coordinates: then a point stands for all its images, and the one
 * that is nearest along each coordinate counts.
 */
#ifndef SHERD__KERNELS_POINTS_H
#define SHERD__KERNELS_POINTS_H

#include <stdint.h>

/* x and id are rearranged. In more than a few dims a tree saves nothing; then it has one leaf. */
typedef struct sherd__cloud {
    int64_t n;
    int d;
    double *x;   /* [n, d] */
    int32_t *id; /* [n] */
    double *box; /* of each node: least [d], largest [d] */
    int levels;  /* below the root; node i has 2i and 2i + 1 below it, the root is 1 */
} sherd__cloud;

/* What was found for m queries: of each k entries in order; those behind the last have no number as
 * square and this index. */
enum { SHERD__NOBODY = INT32_MAX };
typedef struct sherd__found {
    int64_t m, k;
    double *square; /* [m, k]: of the distance */
    int32_t *id;    /* [m, k] */
} sherd__found;

/* A difference of a coordinate, that of the nearest image: exactly, in [-period/2, period/2]. */
double sherd__nearest_image(double difference, double period);

/* Numbers in `box` that a cloud of n points in d dims needs. */
int64_t sherd__cloud_boxes(int64_t n, int d);

/* Arrange n points. Costs about n log n. */
void sherd__cloud_arrange(sherd__cloud *cloud);

void sherd__found_clear(sherd__found *found);

/*
 * Put those points of the cloud that are nearer than what was found in its place; none whose square
 * is beyond `most`. Queries are a cloud too, arranged, so that what one has touched is at hand for
 * the next; ids are rows of what is found. period[d]: 0 = not periodic; NULL = none is.
 */
void sherd__find(sherd__found *found, const sherd__cloud *cloud, const sherd__cloud *queries,
                 double most, const double *period);

/* The same with entries that were found elsewhere: parts[parts, m, k]. */
void sherd__find_among(sherd__found *found, int64_t parts, const double *square, const int32_t *id);

#endif
