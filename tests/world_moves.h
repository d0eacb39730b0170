/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Moves on real ranks. Each element of a source holds a function of its global index (for a pending
 * reduction: addends that differ per rank), so that a wrong move shows as a wrong number and
 * nothing is stored.
 */
#ifndef SHERD_WORLD_MOVES_H
#define SHERD_WORLD_MOVES_H

#include <time.h>

#include "check.h"
#include "boxes.h"
#include "world/world.h"

static _Thread_local uint64_t dice; /* delays; differs per rank */

typedef struct pair {
    const sherd_layout *from, *to;
    sherd_reduce_op op;
} pair;

/* ---- what each element holds ----------------------------------------------------------------- */

/* Coordinates on the pending axes as one number; *count: how many there are. */
static inline int64_t pending_place(const sherd_layout *layout, const int64_t *at, int64_t *count)
{
    const sherd_mesh *mesh = sherd_layout_mesh(layout);
    int64_t place = 0;

    *count = 1;
    for (int a = 0; a < sherd_mesh_axes(mesh); a++)
        if (sherd_layout_placement(layout, a).kind == SHERD_PARTIAL) {
            place = place * sherd_mesh_extent(mesh, a) + at[a];
            *count *= sherd_mesh_extent(mesh, a);
        }
    return place;
}

/* What one rank, at this place of so many, holds of element g. Small integers and powers of two:
 * every reduction is exact. */
static inline double addend(const pair *p, int64_t g, int64_t place, int64_t places)
{
    if (places == 1)
        return (double)g;
    switch (p->op) {
    case SHERD_PRODUCT:
        return (g + place) % 3 == 0 ? 2 : 1;
    case SHERD_AVG:
        return (double)((g + place) * 840); /* divided by at most 8 */
    default:
        return (double)((g * 5 + place * 7) % 64);
    }
}

/* Whose addends a rank's elements are reduced of: their coordinates as one number, as
 * pending_place. */
typedef struct reduced_ranks {
    int64_t place[SHERD_MAX_RANKS], pending;
    int count;
} reduced_ranks;

/* Those that differ from a rank in pending axes only that the target has not. */
static inline reduced_ranks reduced_for(const pair *p, const int64_t *mine)
{
    const sherd_mesh *mesh = sherd_layout_mesh(p->from);
    int64_t at[SHERD_MAX_AXES];
    reduced_ranks out = {.count = 0};

    for (int64_t i = 0; i < sherd_mesh_ranks(mesh); i++) {
        bool counts = true;
        int64_t rest = i;
        for (int a = sherd_mesh_axes(mesh) - 1; a >= 0; a--) {
            at[a] = rest % sherd_mesh_extent(mesh, a);
            rest /= sherd_mesh_extent(mesh, a);
            bool reduced = sherd_layout_placement(p->from, a).kind == SHERD_PARTIAL &&
                           sherd_layout_placement(p->to, a).kind != SHERD_PARTIAL;
            counts = counts && (reduced || at[a] == mine[a]);
        }
        if (counts)
            out.place[out.count++] = pending_place(p->from, at, &out.pending);
    }
    return out;
}

static inline double expected(const pair *p, int64_t g, const reduced_ranks *of)
{
    double sum = 0, low = 1e300, high = -1e300, product = 1;

    for (int i = 0; i < of->count; i++) {
        double x = addend(p, g, of->place[i], of->pending);
        sum += x;
        product *= x;
        low = x < low ? x : low;
        high = x > high ? x : high;
    }
    switch (p->op) {
    case SHERD_AVG:
        return sum / of->count;
    case SHERD_MIN:
        return low;
    case SHERD_MAX:
        return high;
    case SHERD_PRODUCT:
        return product;
    default:
        return sum;
    }
}

static inline int64_t box_count(const sherd_box *box)
{
    int64_t count = 1;

    for (int d = 0; d < box->ndim; d++)
        count *= box->size[d];
    return count;
}

/* ---- one move -------------------------------------------------------------------------------- */

typedef struct tensor {
    sherd__block *block;
    sherd_box box;
    int64_t count, stride[SHERD_MAX_DIMS];
} tensor;

static inline tensor make(sherd_world *world, const sherd_layout *layout)
{
    tensor t = {.box = sherd_layout_box(layout, sherd_world_rank(world), 0)};
    int64_t step = 1;

    t.count = box_count(&t.box);
    for (int d = t.box.ndim - 1; d >= 0; d--) {
        t.stride[d] = step;
        step *= t.box.size[d];
    }
    if (t.count)
        CHECK((t.block = sherd__block_take(world, t.count * 8, true)) != NULL);
    return t;
}

static inline void some_time(void)
{
    int turns = roll(&dice, 400);

    if (roll(&dice, 16) == 0)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    for (volatile int i = 0; i < turns; i++)
        ;
}

static inline sherd__move move_of(const sherd_plan *plan, const tensor *from, const tensor *to)
{
    return (sherd__move){.plan = plan,
                         .dtype = SHERD_F64,
                         .source = from->block,
                         .source_stride = from->stride,
                         .result = to->block};
}

static inline void fill(sherd_world *world, const pair *p, tensor *t)
{
    const sherd_mesh *mesh = sherd_layout_mesh(p->from);
    int64_t at[SHERD_MAX_AXES], places;

    if (!t->count)
        return;
    sherd_mesh_coordinate(mesh, sherd_world_rank(world), at);
    int64_t place = pending_place(p->from, at, &places);
    double *x = sherd__block_data(t->block);
    for (int64_t i = 0; i < t->count; i++)
        x[i] = addend(p, global_of(&t->box, sherd_layout_shape(p->from), i), place, places);
}

static inline int64_t count_wrong(sherd_world *world, const pair *p, tensor *t)
{
    const sherd_mesh *mesh = sherd_layout_mesh(p->from);
    int64_t at[SHERD_MAX_AXES], wrong = 0;

    if (!t->count)
        return 0;
    sherd_mesh_coordinate(mesh, sherd_world_rank(world), at);
    if (!CHECK(sherd__block_readable(world, t->block)))
        return t->count;
    const double *x = sherd__block_data(t->block);
    const reduced_ranks of = reduced_for(p, at);
    for (int64_t i = 0; i < t->count; i++)
        wrong += x[i] != expected(p, global_of(&t->box, sherd_layout_shape(p->to), i), &of);
    return wrong;
}

#endif
