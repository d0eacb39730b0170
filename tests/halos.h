/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random halos for tests, and what their elements are, computed from what the header says of
 * borders: every element of a tensor holds its index.
 */
#ifndef SHERD_TESTS_HALOS_H
#define SHERD_TESTS_HALOS_H

#include "tensors.h"

#include <stdlib.h>

#include "sherd/halo.h"

enum { DIMS = 3, NOWHERE = -1 };

/* Index of the tensor that index i of a dim of size n stands for. */
static inline int64_t mapped(int64_t i, int64_t n, sherd_border border)
{
    if (i >= 0 && i < n)
        return i;
    switch (border) {
    case SHERD_BORDER_REPLICATE:
        return i < 0 ? 0 : n - 1;
    case SHERD_BORDER_REFLECT:
        return i < 0 ? -i : 2 * n - 2 - i;
    case SHERD_BORDER_PERIODIC:
        return ((i % n) + n) % n;
    case SHERD_BORDER_SYMMETRIC:
        return i < 0 ? -1 - i : 2 * n - 1 - i;
    default:
        return NOWHERE;
    }
}

/* The whole tensor's row-major index that the k-th element of a halo is, or NOWHERE. */
static inline int64_t element(const sherd_box *box, const int64_t *shape,
                              const sherd_halo_options *o, int64_t k)
{
    int64_t index = 0, factor = 1;
    bool there = true;

    for (int d = box->ndim - 1; d >= 0; d--) {
        int64_t i = box->offset[d] + k % box->size[d];
        i = mapped(i, shape[d], i < 0 ? o->before[d].border : o->after[d].border);
        there = there && i != NOWHERE;
        index += i * factor;
        k /= box->size[d];
        factor *= shape[d];
    }
    return there ? index : NOWHERE;
}

static inline int64_t count_of(const sherd_box *box)
{
    int64_t n = 1;

    for (int d = 0; d < box->ndim; d++)
        n *= box->size[d];
    return n;
}

/* ---- random cases ---------------------------------------------------------------------------- */

typedef struct scene {
    sherd_world *world;
    uint64_t dice;
    const sherd_layout *layout;
    sherd_halo_options o;
} scene;

static inline void draw_sizes(scene *s, int64_t n, int64_t parts, int64_t *sizes)
{
    for (int64_t i = 0; i < parts; i++) {
        sizes[i] = i + 1 < parts ? roll(&s->dice, (int)n + 1) / (1 + roll(&s->dice, 2)) : n;
        n -= sizes[i];
    }
}

static inline void draw(scene *s, const sherd_mesh *mesh)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int64_t shape[DIMS], sizes[DIMS][16], parts[DIMS] = {1, 1, 1};
    const int64_t *views[DIMS] = {NULL};
    int ndim = 1 + roll(&s->dice, DIMS);

    for (int d = 0; d < ndim; d++)
        shape[d] = roll(&s->dice, 9) ? 1 + roll(&s->dice, 9) : 0;
    for (int a = 0; a < sherd_mesh_axes(mesh); a++) {
        int dim = roll(&s->dice, ndim + 1);
        placement[a] = dim < ndim ? sherd_shard(dim) : sherd_replicate();
        if (dim < ndim)
            parts[dim] *= sherd_mesh_extent(mesh, a);
    }
    memset(&s->o, 0, sizeof s->o);
    s->o.value = roll(&s->dice, 5);
    for (int d = 0; d < ndim; d++) {
        draw_sizes(s, shape[d], parts[d], sizes[d]);
        views[d] = roll(&s->dice, 2) ? sizes[d] : NULL;
        sherd_halo_side *sides[] = {&s->o.before[d], &s->o.after[d]};
        for (int i = 0; i < 2; i++) {
            sides[i]->border = (sherd_border)roll(&s->dice, SHERD_BORDERS);
            sides[i]->width = roll(&s->dice, 3) ? roll(&s->dice, 5) : 0;
            if (sides[i]->border == SHERD_BORDER_REFLECT && sides[i]->width >= shape[d])
                sides[i]->width = shape[d] ? shape[d] - 1 : 0;
            if (sides[i]->border == SHERD_BORDER_SYMMETRIC && sides[i]->width > shape[d])
                sides[i]->width = shape[d];
            if (shape[d] == 0 && sides[i]->border > SHERD_BORDER_CONSTANT)
                sides[i]->width = 0;
        }
    }
    CHECK_OK(sherd_layout_create(&s->layout, mesh, ndim, shape, placement,
                                 &(sherd_layout_options){.sizes = views}));
}

/* ---- what flows back ------------------------------------------------------------------------- */

/* Of the ranks that hold the same as this one, a number that others do not have. */
static inline int piece_of(const scene *s, int rank)
{
    const sherd_mesh *mesh = sherd_layout_mesh(s->layout);
    int64_t x[SHERD_MAX_AXES];
    int piece = 0;

    for (int i = 0; sherd_mesh_coordinate(mesh, rank, x) && i < sherd_mesh_axes(mesh); i++)
        if (sherd_layout_placement(s->layout, i).kind == SHERD_SHARD)
            piece = piece * (int)sherd_mesh_extent(mesh, i) + (int)x[i];
    return piece;
}

/* The gradient that a rank gives to the k-th element of its halo, as all that hold the same do:
 * small integers, exact in any order. */
static inline double given(const scene *s, int rank, int64_t k)
{
    return (double)((piece_of(s, rank) * 31 + (int)k * 7) % 13 - 6);
}

/* Whether two ranks differ only on axes that shard the tensor: then what one has flows to the
 * other. */
static inline bool is_peer(const scene *s, int a, int b)
{
    const sherd_mesh *mesh = sherd_layout_mesh(s->layout);
    int64_t x[SHERD_MAX_AXES], y[SHERD_MAX_AXES];
    bool peer = sherd_mesh_coordinate(mesh, a, x) && sherd_mesh_coordinate(mesh, b, y);

    for (int i = 0; peer && i < sherd_mesh_axes(mesh); i++)
        peer = x[i] == y[i] || sherd_layout_placement(s->layout, i).kind == SHERD_SHARD;
    return peer;
}

/* For each element of the whole tensor the sum of what this rank's peers give to it; to be freed. */
static inline double *sums_of(const scene *s)
{
    const int64_t *shape = sherd_layout_shape(s->layout);
    int64_t total = 1;
    sherd_box box;

    for (int d = 0; d < sherd_layout_ndim(s->layout); d++)
        total *= shape[d];
    double *sum = calloc((size_t)total + 1, sizeof *sum);
    for (int r = 0; sum && r < sherd_world_ranks(s->world); r++) {
        if (!is_peer(s, sherd_world_rank(s->world), r))
            continue;
        CHECK_OK(sherd_halo_box(&box, s->layout, r, &s->o));
        for (int64_t k = 0, count = count_of(&box); k < count; k++) {
            int64_t at = element(&box, shape, &s->o, k);
            if (at != NOWHERE)
                sum[at] += given(s, r, k);
        }
    }
    return sum;
}

#endif
