/* SPDX-License-Identifier: Apache-2.0 */
/* Tests of points: clouds and layouts that are drawn, and the naive search that is always right. */
#ifndef SHERD_TESTS_POINTS_H
#define SHERD_TESTS_POINTS_H

#include "tensors.h"

#include <math.h>
#include <stdlib.h>

#include "sherd/autograd.h"
#include "sherd/ops.h"
#include "sherd/ops_points.h"

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    int64_t n, m, d, k;
    double radius; /* < 0: the k nearest are asked for */
    sherd_search_options space;
} scene;

/* What a search gives; counts NULL of the k nearest. */
typedef struct answer {
    sherd_tensor *distances, *indices, *counts;
} answer;

/* Some are periodic in some coordinates; all points lie in one box or not. */
static inline void draw_space(scene *s)
{
    static const double periods[] = {0, 2, 0.7, 3, 1.25};
    bool periodic = s->d <= SHERD_MAX_DIMS && roll(&s->dice, 2);

    memset(&s->space, 0, sizeof s->space);
    for (int64_t c = 0; c < s->d && periodic; c++) {
        double period = periods[roll(&s->dice, LEN(periods))];
        s->space.period[c] = period;
        if (period > 0 && s->radius > period / 2)
            s->radius = period / 2;
    }
}

static inline void draw_scene(scene *s)
{
    static const int dims[] = {1, 2, 3, 3, 5, 10};

    s->d = dims[roll(&s->dice, LEN(dims))];
    s->n = roll(&s->dice, 3) ? 1 + roll(&s->dice, 24) : 1 + roll(&s->dice, 200);
    s->m = roll(&s->dice, 25);
    s->k = 1 + roll(&s->dice, (int)(s->n < 9 ? s->n : 9));
    s->radius = roll(&s->dice, 2) ? -1 : 0.25 * roll(&s->dice, 7);
    draw_space(s);
}

/* Coordinates in [-1, 1], of which half of the clouds have multiples of 1/4 only: many are equally
 * near, or the same. */
static inline sherd_tensor *draw_cloud(scene *s, int64_t n, bool coarse)
{
    const int64_t shape[] = {n, s->d};
    double *x = malloc(sizeof *x * (size_t)(n * s->d + 1));

    for (int64_t i = 0; i < n * s->d; i++)
        x[i] = coarse ? 0.25 * roll(&s->dice, 9) - 1 : 2e-6 * roll(&s->dice, 1000001) - 1;
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(s->world, SHERD_F64, shape, 2, x));
    free(x);
    return t;
}

static inline answer search(const scene *s, sherd_tensor *points, sherd_tensor *queries)
{
    answer a = {.counts = NULL};

    if (s->radius < 0)
        a.distances = sherd_knn_with(points, queries, s->k, &s->space, &a.indices);
    else
        a.distances = sherd_radius_search_with(points, queries, s->radius, s->k, &s->space,
                                               &a.indices, &a.counts);
    return a;
}

/* ---- the naive search ------------------------------------------------------------------------ */

typedef struct neighbour {
    double square;
    int32_t index;
} neighbour;

static inline int by_distance(const void *x, const void *y)
{
    const neighbour *a = x, *b = y;

    if (a->square != b->square)
        return a->square < b->square ? -1 : 1;
    return a->index < b->index ? -1 : 1;
}

/* Row i of what is to come out: distance [k] and index [k]; how many there are. */
static inline int naive_row(const scene *s, const double *points, const double *query,
                            double *distance, int32_t *index)
{
    neighbour *all = malloc(sizeof *all * (size_t)(s->n + 1));
    int count = 0;

    for (int64_t j = 0; j < s->n; j++) {
        double sum = 0;
        for (int64_t c = 0; c < s->d; c++) {
            double period = c < SHERD_MAX_DIMS ? s->space.period[c] : 0;
            double by = points[j * s->d + c] - query[c];
            by = period > 0 ? remainder(by, period) : by;
            sum += by * by;
        }
        if (s->radius < 0 || sum <= s->radius * s->radius)
            all[count++] = (neighbour){sum, (int32_t)j};
    }
    qsort(all, (size_t)count, sizeof *all, by_distance);
    for (int64_t e = 0; e < s->k; e++) {
        distance[e] = e < count ? sqrt(all[e].square) : 0;
        index[e] = e < count ? all[e].index : -1;
    }
    free(all);
    return count < s->k ? count : (int)s->k;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* Axes on any dim or none, cuts anywhere. */
static inline const sherd_layout *draw_layout(scene *s, const sherd_mesh *mesh,
                                              const int64_t *shape)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int64_t sizes[2][8], parts[2] = {1, 1};
    const int64_t *views[2] = {NULL};
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        int dim = roll(&s->dice, 5);
        dim = dim < 3 ? 0 : dim - 2;
        placement[a] = dim < 2 ? sherd_shard(dim) : sherd_replicate();
        if (dim < 2)
            parts[dim] *= sherd_mesh_extent(mesh, a);
    }
    for (int d = 0; d < 2; d++) {
        int64_t left = shape[d];
        for (int64_t i = 0; i < parts[d]; i++) {
            sizes[d][i] =
                i + 1 < parts[d] ? roll(&s->dice, (int)left + 1) / (1 + roll(&s->dice, 2)) : left;
            left -= sizes[d][i];
        }
        views[d] = roll(&s->dice, 2) ? sizes[d] : NULL;
    }
    CHECK_OK(sherd_layout_create(&layout, mesh, 2, shape, placement,
                                 &(sherd_layout_options){.sizes = views}));
    return layout;
}

/* How many elements of a distributed tensor, made whole, are not bit for bit those of a plain
 * one. */
static inline int64_t count_different(sherd_tensor *a, sherd_tensor *plain)
{
    size_t bytes = sherd_dtype_bytes(plain->dtype);
    const char *x = sherd_tensor_read(sherd_full(a)), *y = sherd_tensor_read(plain);
    int64_t wrong = 0;

    if (!sherd_layout_boxes(a->layout, sherd_world_rank(a->world)) || plain->count == 0)
        return 0; /* this rank is not in the mesh */
    if (!x || !y)
        return plain->count;
    for (int64_t i = 0; i < plain->count; i++)
        wrong += memcmp(x + (size_t)i * bytes, y + (size_t)i * bytes, bytes) != 0;
    return wrong;
}

static inline double largest_difference(sherd_tensor *a, sherd_tensor *plain)
{
    const double *x = sherd_tensor_read(sherd_full(a)), *y = sherd_tensor_read(plain);
    double most = 0;

    if (!sherd_layout_boxes(a->layout, sherd_world_rank(a->world)) || plain->count == 0)
        return 0;
    for (int64_t i = 0; x && y && i < plain->count; i++) {
        double d = fabs(x[i] - y[i]);
        most = d > most || d != d ? d : most;
    }
    return x && y ? most : 1e9;
}

/* Rows of an answer that are not those of the naive search. */
static inline int64_t count_wrong_rows(const scene *s, const answer *a, sherd_tensor *points,
                                       sherd_tensor *queries)
{
    const double *y = sherd_tensor_read(a->distances), *q = sherd_tensor_read(queries);
    const int32_t *index = sherd_tensor_read(a->indices);
    const int32_t *counts = a->counts ? sherd_tensor_read(a->counts) : NULL;
    double distance[16];
    int32_t want[16];
    int64_t wrong = 0;

    for (int64_t i = 0; i < s->m; i++) {
        int count = naive_row(s, sherd_tensor_read(points), q + i * s->d, distance, want);
        wrong += memcmp(distance, y + i * s->k, sizeof *y * (size_t)s->k) != 0 ||
                 memcmp(want, index + i * s->k, sizeof *index * (size_t)s->k) != 0 ||
                 (counts && counts[i] != count);
    }
    return wrong;
}

#endif
