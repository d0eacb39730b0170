/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of rows in groups and on routes: numbers and layouts that are drawn, choices that all
 * shards of tokens share, and operands of ones.
 */
#ifndef SHERD_TESTS_GROUPS_H
#define SHERD_TESTS_GROUPS_H

#include "points.h"
#include "sherd/comm.h"
#include "sherd/ops_groups.h"

/* One of three meshes of all ranks, up to 8. */
static inline const sherd_mesh *small_mesh(sherd_world *world, int i)
{
    static const char *const of[][3] = {
        {"1", "1x1", "1"}, {"2", "1x2", "2x1"}, {"3", "3", "1x3"}, {"4", "2x2", "2x2"},
        {"5", "5", "1x5"}, {"6", "2x3", "3x2"}, {"7", "7", "7"},   {"8", "2x2x2", "2x4"}};

    return mesh_of(world, of[sherd_world_ranks(world) - 1][i % 3]);
}

/* What the log of calls has. */
static inline int64_t bytes_received(sherd_world *world)
{
    int64_t bytes = 0;

    for (int i = 0; i < sherd_comm_count(world); i++)
        bytes += sherd_comm_get(world, i).bytes_received;
    return bytes;
}

/* All ranks get EINVAL, and a text that has this. */
static inline void refused(sherd_world *world, const char *text)
{
    CHECK_EQ(sherd_world_check(world), SHERD_EINVAL);
    if (!CHECK(strstr(sherd_world_error(world), text) != NULL))
        fprintf(stderr, "%s\n", sherd_world_error(world));
}

enum { TOKENS = 24, K = 2, WIDTH = 2048, GROUPS = 8 };

/* Token t chooses group t % 8 and the one after: so each shard of tokens needs all groups. */
static inline int32_t chosen(int64_t t, int64_t j)
{
    return (int32_t)((t + j) % GROUPS);
}

static inline sherd_tensor *choices_on(sherd_world *world, const sherd_mesh *mesh,
                                       const char *placements)
{
    static const int64_t shape[] = {TOKENS, K};
    int32_t data[TOKENS * K];

    for (int64_t c = 0; c < TOKENS * K; c++)
        data[c] = chosen(c / K, c % K);
    sherd_tensor *t = sherd_from_data(world, SHERD_I32, shape, 2, data);
    return sherd_distribute(sherd_mark_equal(t), layout_of(mesh, 2, shape, placements, NULL), -1);
}

static inline sherd_tensor *ones_on(const sherd_mesh *mesh, int ndim, const int64_t *shape,
                                    const char *placements)
{
    return sherd_require_grad(
        sherd_constant_on(layout_of(mesh, ndim, shape, placements, NULL), SHERD_F32, 1), true);
}

/* Small whole numbers: sums are exact in any order. */
static inline sherd_tensor *numbers(scene *s, sherd_dtype dtype, int ndim, const int64_t *shape,
                                    int limit)
{
    int64_t count = 1;

    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    int32_t *x = malloc(sizeof *x * (size_t)(count + 1));
    for (int64_t i = 0; i < count; i++)
        x[i] = roll(&s->dice, limit) - (dtype == SHERD_I32 ? 0 : limit / 2);
    sherd_tensor *t = sherd_mark_equal(sherd_from_data(s->world, SHERD_I32, shape, ndim, x));
    free(x);
    return dtype == SHERD_I32 ? t : sherd_cast(t, dtype);
}

/* In a layout of any axes on any dims, with cuts anywhere. */
static inline sherd_tensor *spread(scene *s, const sherd_mesh *mesh, sherd_tensor *t)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int64_t sizes[3][8], parts[3] = {1, 1, 1};
    const int64_t *views[3] = {NULL};
    const sherd_layout *layout = NULL;

    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        int dim = roll(&s->dice, 3) ? 0 : roll(&s->dice, t->ndim + 1);
        placement[a] = dim < t->ndim ? sherd_shard(dim) : sherd_replicate();
        if (dim < t->ndim)
            parts[dim] *= sherd_mesh_extent(mesh, a);
    }
    for (int d = 0; d < t->ndim; d++) {
        int64_t left = t->shape[d];
        for (int64_t i = 0; i < parts[d]; i++) {
            sizes[d][i] = i + 1 < parts[d] ? roll(&s->dice, (int)left + 1) : left;
            left -= sizes[d][i];
        }
        views[d] = roll(&s->dice, 2) ? sizes[d] : NULL;
    }
    CHECK_OK(sherd_layout_create(&layout, mesh, t->ndim, t->shape, placement,
                                 &(sherd_layout_options){.sizes = views}));
    return sherd_distribute(t, layout, -1);
}

/* How many elements differ in value: zeros may have any sign. */
static inline int64_t different(sherd_tensor *a, sherd_tensor *plain)
{
    const void *x = sherd_tensor_read(sherd_full(a)), *y = sherd_tensor_read(plain);
    int64_t wrong = x && y ? 0 : plain->count;

    for (int64_t i = 0; x && y && i < plain->count; i++)
        wrong += number_at(x, plain->dtype, i) != number_at(y, plain->dtype, i);
    return wrong;
}

#endif
