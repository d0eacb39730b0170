/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank does in one step. Pure: any rank's schedule can be made on any rank. Steps between
 * two meshes are in across.c.
 *
 * A rank pulls from its group: the ranks with its coordinates on all axes except those that pulls
 * cross. On axes that cut the source otherwise than the target, each coordinate holds another part;
 * on reduced axes each holds an addend of the same part. So of several replicas each rank reads
 * those of its own group, and what it holds itself is not sent. Costs the size of the group.
 */
#include "inside.h"
#include "base/num.h"

#include <string.h>

typedef struct maker {
    const sherd_step *step;
    sherd__change change;
    unsigned gathered, reduced; /* of the step's axes */
    int rank;
    int64_t mine[SHERD_MAX_AXES];
    sherd_box source, target;
} maker;

static void clear_axes(int64_t *coordinate, const int64_t *from, unsigned axes)
{
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        coordinate[i] = axes >> i & 1 ? 0 : from[i];
}

/* ---- what is in them ------------------------------------------------------------------------- */

/* The addends of one part: the ranks at all coordinates of the reduced axes, in mesh order. */
static void add_pulls(const maker *m, sherd__schedule *s, const int64_t *at, const int64_t *offset)
{
    int64_t holder[SHERD_MAX_AXES];

    clear_axes(holder, at, m->reduced);
    do
        sherd__schedule_pull(s, m->rank, sherd__mesh_rank_at(m->change.mesh, holder), offset);
    while (sherd__next(m->change.mesh, m->reduced, holder));
}

/*
 * All but a sliced all-reduce and a partition: one region for each part of my target that one
 * source box holds.
 */
static void find_parts(const maker *m, sherd__schedule *s)
{
    const sherd_mesh *mesh = m->change.mesh;
    int64_t at[SHERD_MAX_AXES];
    sherd_box box, part;

    clear_axes(at, m->mine, m->gathered);
    do {
        int64_t in_target[SHERD_MAX_DIMS] = {0}, in_source[SHERD_MAX_DIMS] = {0};
        sherd__layout_box(m->step->from, at, &box);
        if (!sherd__box_meet(&box, &m->target, &part))
            continue;
        for (int d = 0; d < part.ndim; d++) {
            in_target[d] = part.offset[d] - m->target.offset[d];
            in_source[d] = part.offset[d] - box.offset[d];
        }
        sherd__schedule_region(s, in_target, part.size);
        add_pulls(m, s, at, in_source);
    } while (sherd__next(mesh, m->gathered, at));
}

/* The converse: whose target meets my source. */
static void find_readers(const maker *m, sherd__schedule *s)
{
    const sherd_mesh *mesh = m->change.mesh;
    int64_t at[SHERD_MAX_AXES];
    sherd_box box, part;

    clear_axes(at, m->mine, m->step->axes);
    do {
        int rank = sherd__mesh_rank_at(mesh, at);
        sherd__layout_box(m->step->to, at, &box);
        if (rank != m->rank && sherd__box_meet(&box, &m->source, &part))
            sherd__schedule_reader(s, rank);
    } while (sherd__next(mesh, m->step->axes, at));
}

/*
 * Sliced all-reduce: each of the group adds up its slice of the flattened box and writes it to the
 * others.
 */
static void find_slices(const maker *m, sherd__schedule *s)
{
    const sherd_mesh *mesh = m->change.mesh;
    int64_t n = sherd__box_count(&m->target), i = 0, lo, hi;
    int64_t offset[SHERD_MAX_DIMS] = {0}, size[SHERD_MAX_DIMS] = {0}, at[SHERD_MAX_AXES];

    clear_axes(at, m->mine, m->reduced);
    do {
        int rank = sherd__mesh_rank_at(mesh, at);
        sherd__slice_of(n, m->change.addends, i++, &lo, &hi);
        if (rank == m->rank && lo < hi) {
            offset[0] = lo;
            size[0] = hi - lo;
            sherd__schedule_region(s, offset, size);
            add_pulls(m, s, m->mine, offset);
        } else if (rank != m->rank && lo < hi) {
            sherd__schedule_reader(s, rank);
        }
        if (rank != m->rank && n > 0)
            sherd__schedule_sharer(s, rank);
    } while (sherd__next(mesh, m->reduced, at));
}

/*
 * Partition: for a sum or product coordinate 0 of the parted axes keeps what it holds, the others
 * hold the neutral element; for the other ops all keep.
 */
static void find_keepers(const maker *m, sherd__schedule *s)
{
    const int64_t none[SHERD_MAX_DIMS] = {0};
    bool keeps = true;

    for (int i = 0; i < m->change.mesh->axes; i++) {
        int op = m->step->to->spec.pending[i];
        if (m->change.parted >> i & 1 && (op == SHERD_SUM || op == SHERD_PRODUCT))
            keeps = keeps && m->mine[i] == 0;
    }
    if (sherd__box_count(&m->target) == 0)
        return;
    sherd__schedule_region(s, none, m->target.size);
    if (keeps)
        sherd__schedule_pull(s, m->rank, m->rank, none);
}

static void set_sizes(const maker *m, sherd__schedule *s)
{
    s->op = m->change.op;
    s->divisor = m->change.divisor;
    s->fill = s->op == SHERD_PRODUCT ? 1 : 0;
    if (m->step->sliced) {
        s->ndim = 1;
        s->source_size[0] = s->target_size[0] = sherd__box_count(&m->target);
        return;
    }
    s->ndim = m->target.ndim;
    memcpy(s->source_size, m->source.size, sizeof s->source_size);
    memcpy(s->target_size, m->target.size, sizeof s->target_size);
}

static void find(sherd__schedule *s, const void *what)
{
    const maker *m = what;

    set_sizes(m, s);
    if (m->step->sliced) {
        find_slices(m, s);
    } else if (m->step->kind == SHERD_STEP_PARTITION) {
        find_keepers(m, s);
    } else {
        find_parts(m, s);
        find_readers(m, s);
    }
}

/* ---- making one ------------------------------------------------------------------------------ */

sherd_status sherd__schedule_create(sherd__schedule **out, sherd__space *space,
                                    const sherd_step *step, size_t element_bytes, int rank)
{
    maker m = {.step = step, .rank = rank};

    *out = NULL;
    if (step->from->spec.mesh != step->to->spec.mesh)
        return sherd__across_schedule(out, space, step, element_bytes, rank);
    if (!sherd_mesh_coordinate(step->from->spec.mesh, rank, m.mine))
        return SHERD_OK;
    sherd__change_find(&m.change, step->from, step->to);
    m.gathered = m.change.gathered & step->axes;
    m.reduced = m.change.reduced & step->axes;
    sherd__layout_box(step->from, m.mine, &m.source);
    sherd__layout_box(step->to, m.mine, &m.target);
    return sherd__schedule_make(out, space, find, &m, rank, element_bytes);
}
