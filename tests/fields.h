/* SPDX-License-Identifier: Apache-2.0 */
/* For tests of operators on fields: random numbers, layouts and meshes out of one state of dice,
 * and how far results are apart. */
#ifndef SHERD_TESTS_FIELDS_H
#define SHERD_TESTS_FIELDS_H

#include "tensors.h"

#include <stdlib.h>

#include "sherd/autograd.h"
#include "sherd/ops.h"

enum { FIELD = 6 }; /* dims of a field at most */

static inline int64_t between(uint64_t *dice, int lo, int hi)
{
    return lo + roll(dice, hi - lo + 1);
}

static inline sherd_tensor *numbers(sherd_world *world, uint64_t *dice, int ndim,
                                    const int64_t *shape)
{
    sherd_generator g = sherd_generator_named("test");

    g.calls = (uint64_t)roll(dice, 1 << 30);
    return sherd_random(world, SHERD_F64, shape, ndim, sherd_uniform(-1, 1), &g);
}

/* One of three meshes for the ranks that there are. */
static inline const sherd_mesh *draw_mesh(sherd_world *world, int i)
{
    static const char *const meshes[][3] = {
        {"1", "1x1", "1"},   {"2", "1x2", "2"},   {"3", "2", "3"},   {"4", "2x2", "2x2"},
        {"5", "2x2", "1x3"}, {"6", "2x3", "3x2"}, {"7", "2x3", "2"}, {"8", "2x2x2", "2x4"}};

    return mesh_of(world, meshes[sherd_world_ranks(world) - 1][i % 3]);
}

/* Any of these dims (bits) sharded by any axes, half of them with cuts of their own. */
static inline const sherd_layout *draw_layout_of(uint64_t *dice, const sherd_mesh *mesh, int ndim,
                                                 const int64_t *shape, unsigned dims)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int64_t sizes[FIELD][8], parts[FIELD] = {1, 1, 1, 1, 1, 1};
    const int64_t *views[FIELD] = {NULL};
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        int dim = roll(dice, ndim + 1);
        bool sharded = dim < ndim && (dims >> dim & 1);
        placement[a] = sharded ? sherd_shard(dim) : sherd_replicate();
        if (sharded)
            parts[dim] *= sherd_mesh_extent(mesh, a);
    }
    for (int d = 0; d < ndim; d++) {
        int64_t left = shape[d];
        for (int64_t i = 0; i < parts[d]; i++) {
            sizes[d][i] = i + 1 < parts[d] ? roll(dice, (int)left + 1) / (1 + roll(dice, 2)) : left;
            left -= sizes[d][i];
        }
        views[d] = roll(dice, 2) ? sizes[d] : NULL;
    }
    CHECK_OK(sherd_layout_create(&layout, mesh, ndim, shape, placement,
                                 &(sherd_layout_options){.sizes = views}));
    return layout;
}

static inline const sherd_layout *draw_layout(uint64_t *dice, const sherd_mesh *mesh, int ndim,
                                              const int64_t *shape)
{
    return draw_layout_of(dice, mesh, ndim, shape, ~0U);
}

/* The largest difference between a distributed tensor and a plain one. */
static inline double difference(sherd_tensor *a, sherd_tensor *b)
{
    const double *x = sherd_tensor_read(sherd_full(a)), *y = sherd_tensor_read(b);

    if (!sherd_layout_boxes(a->layout, sherd_world_rank(a->world)))
        return 0; /* this rank is not in the mesh */
    bool same = a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)b->ndim * 8) == 0;
    double most = x && y && same ? 0 : 1e9;

    for (int64_t k = 0; x && y && same && k < b->count; k++) {
        double d = x[k] == y[k] ? 0 : x[k] > y[k] ? x[k] - y[k] : y[k] - x[k]; /* infinities too */
        most = d > most || d != d ? d : most;
    }
    return most;
}

/* The same of any dtype. */
static inline double largest_difference(sherd_tensor *a, sherd_tensor *b)
{
    return difference(sherd_cast(a, SHERD_F64), b);
}

/* The same of any dtypes, relative to the largest number if that is more than one. */
static inline double apart(sherd_tensor *a, sherd_tensor *b)
{
    sherd_tensor *x = sherd_cast(a, SHERD_F64), *y = sherd_cast(b, SHERD_F64);
    const double *data = sherd_tensor_read(y);
    double most = 1;

    for (int64_t k = 0; data && k < y->count; k++)
        most = data[k] > most ? data[k] : -data[k] > most ? -data[k] : most;
    return difference(x, y) / most;
}

static inline double dot(sherd_tensor *a, sherd_tensor *b)
{
    return sherd_item(sherd_sum(sherd_mul(a, b)));
}

#endif
