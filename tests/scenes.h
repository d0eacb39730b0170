/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random layouts for tests of what steps amount to: on meshes of up to 8 axes, in all orders, with
 * cuts, empty dims, axes of extent 1 and pending sums. And the boxes of all ranks of a step.
 */
#ifndef SHERD_SCENES_H
#define SHERD_SCENES_H

#include "moves.h"
#include "search/planners.h"

enum { RANKS = 128, DIMS = 3 };

/* ---- random layouts ------------------------------------------------------------------------- */

typedef struct scene {
    paper p;
    uint64_t dice;
    const sherd_mesh *mesh;
    int ndim;
    int64_t shape[DIMS];
} scene;

static const char *const meshes[] = {"7x9",       "4x4x4",   "5x1x3x4",  "2x2x2x2x2x2",
                                     "100",       "3x2x5",   "x=8,y=16", "2x1x2x3x1x2x1x2",
                                     "2x2x2x2x3", "1x13x1x4"};

static const struct {
    int ndim;
    int64_t size[DIMS];
} shapes[] = {{1, {1000}},      {1, {97}},        {1, {5}},       {2, {100, 30}}, {2, {97, 101}},
              {2, {13, 3}},     {2, {64, 64}},    {2, {0, 7}},    {2, {1, 65}},   {3, {64, 32, 16}},
              {3, {31, 17, 7}}, {3, {100, 1, 9}}, {3, {6, 0, 5}}, {3, {2, 3, 40}}};

/* The same in all runs; `k` varies the mesh, everything else is random. */
static inline void scene_draw(scene *s, int k)
{
    int i = roll(&s->dice, LEN(shapes));

    s->mesh = paper_mesh(&s->p, meshes[k % LEN(meshes)]);
    s->ndim = shapes[i].ndim;
    memcpy(s->shape, shapes[i].size, sizeof s->shape);
}

/* Of 8 layouts about one has explicit cuts somewhere. `sums`: axes that are pending. */
static inline const sherd_layout *draw_layout(scene *s, unsigned sums)
{
    sherd_placement placement[SHERD_MAX_AXES];
    int rank_of[SHERD_MAX_AXES] = {0}, order[SHERD_MAX_AXES];
    static int64_t sizes[DIMS][2048];
    int64_t parts[DIMS] = {1, 1, 1};
    const int64_t *views[DIMS] = {NULL};
    const sherd_layout *layout = NULL;

    for (int i = 0; i < s->mesh->axes; i++) {
        int choice = roll(&s->dice, s->ndim * 2 + 1);
        placement[i] = sums >> i & 1          ? sherd_partial(SHERD_SUM)
                       : choice < 2 * s->ndim ? sherd_shard(choice / 2)
                                              : sherd_replicate();
        if (placement[i].kind == SHERD_SHARD)
            parts[placement[i].dim] *= s->mesh->extent[i];
    }
    paper_permutation(roll(&s->dice, 40320), s->mesh->axes, rank_of);
    paper_order(placement, rank_of, s->mesh->axes, order);
    for (int d = 0; d < s->ndim; d++) {
        paper_sizes(&s->dice, s->shape[d], parts[d], sizes[d]);
        views[d] = roll(&s->dice, 8 * s->ndim) == 0 ? sizes[d] : NULL;
    }
    const sherd_layout_options options = {order, views};
    CHECK_OK(sherd_layout_create(&layout, s->mesh, s->ndim, s->shape, placement, &options));
    return layout;
}

/* The same but for one axis, which is not a pending one: near layouts have deep common
 * beginnings. */
static inline const sherd_layout *draw_near(scene *s, const sherd_layout *from)
{
    int axis = roll(&s->dice, s->mesh->axes), choice = roll(&s->dice, s->ndim + 1);
    const sherd_layout *to = from;

    if (from->pending_axes >> axis & 1)
        return from;
    CHECK_OK(sherd_layout_with(&to, from, s->mesh, axis,
                               choice ? sherd_shard(choice - 1) : sherd_replicate()));
    return to;
}

/* Which of four axes is slow has nothing to do with whether its messages are or its bytes. */
static inline void draw_links(scene *s, sherd_price *price)
{
    static const char *const axes[] = {"a0", "a1", "a2", "*"};

    price->links = LEN(axes);
    for (int i = 0; i < LEN(axes); i++) {
        sherd_link *link = &price->link[i];
        *link = (sherd_link){.alpha_picoseconds = (int64_t)roll(&s->dice, 8) * 700000,
                             .beta_femtoseconds = ((int64_t)10000 << roll(&s->dice, 8)),
                             .gamma_femtoseconds = (int64_t)roll(&s->dice, 3) * 1000};
        snprintf(link->axis, sizeof link->axis, "%s", axes[i]);
    }
}

/* ---- all ranks of a step -------------------------------------------------------------------- */

typedef struct table {
    int ranks;
    int64_t at[RANKS][SHERD_MAX_AXES];
    sherd_box source[RANKS], target[RANKS];
} table;

static inline void fill(table *t, const sherd_layout *from, const sherd_layout *to)
{
    t->ranks = (int)from->spec.mesh->count;
    for (int r = 0; r < t->ranks; r++) {
        CHECK(sherd_mesh_coordinate(from->spec.mesh, r, t->at[r]));
        t->source[r] = sherd_layout_box(from, r, 0);
        t->target[r] = sherd_layout_box(to, r, 0);
    }
}

/* Axes on which the coordinates of two ranks differ. */
static inline unsigned apart(const table *t, const sherd_mesh *mesh, int a, int b)
{
    unsigned bits = 0;

    for (int i = 0; i < mesh->axes; i++)
        bits |= t->at[a][i] != t->at[b][i] ? 1u << i : 0;
    return bits;
}

static inline void at_least(int64_t *most, int64_t value)
{
    *most = value > *most ? value : *most;
}

#endif
