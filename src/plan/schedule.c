/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one rank does in one step. Pure: any rank's schedule can be made on any rank. Steps between
 * two meshes are in across.c.
 *
 * A rank pulls from its group: the ranks with its coordinates on all axes except those that pulls
 * cross. On axes that cut the source otherwise than the target, each coordinate holds another part;
 * on reduced axes each holds an addend of the same part. So of several replicas each rank reads
 * those of its own group, and what it holds itself is not sent. Costs the ranks of the group that
 * it has to do with; more than SHERD__PARTS are refused.
 */
#include "pieces.h"
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
    while (sherd__next(m->change.mesh, m->reduced, holder) && !sherd__schedule_full(s));
}

/* ---- boxes that meet one of mine ------------------------------------------------------------- */

typedef struct walk {
    const maker *maker;
    sherd__schedule *schedule;
    const sherd_mesh *mesh;
    const sherd_box *box; /* mine, of the other side of the step */
    /* what to do at each coordinate whose box meets mine */
    void (*meet)(const struct walk *w);
    int64_t at[SHERD_MAX_AXES];
    int dim_of[SHERD_MAX_AXES]; /* that an axis cuts, or -1 */
    sherd__list list[SHERD_MAX_DIMS];
    sherd__place place[SHERD_MAX_DIMS]; /* by the axes known so far */
} walk;

/* Follow the known axes down a dim; whether its interval still meets my box. */
static bool descend(walk *w, int d, unsigned known)
{
    int64_t lo = w->box->offset[d], hi = lo + w->box->size[d];

    sherd__place_descend(&w->list[d], &w->place[d], w->at, known, 0);
    return sherd__min(w->place[d].hi, hi) > sherd__max(w->place[d].lo, lo);
}

/*
 * The coordinates of all axes from one on that are not known, in mesh order. Where the outer axes
 * of a dim are known, only those are tried that meet my box.
 */
static void visit(walk *w, int axis, unsigned known)
{
    while (axis < w->mesh->axes && known >> axis & 1)
        axis++;
    if (axis == w->mesh->axes) {
        w->meet(w);
        return;
    }
    int d = w->dim_of[axis];
    sherd__place before = {0, 0, 0, 0};
    int64_t i = 0, end = w->mesh->extent[axis];
    if (d >= 0) {
        const sherd__list *list = &w->list[d];
        int64_t lo = w->box->offset[d];
        before = w->place[d];
        if (list->axis[before.level] == axis)
            sherd__place_meeting(list, &before, lo, lo + w->box->size[d], &i, &end);
    }
    for (; i < end && !sherd__schedule_full(w->schedule); i++) {
        w->at[axis] = i;
        if (d < 0 || descend(w, d, known | 1u << axis))
            visit(w, axis + 1, known | 1u << axis);
        if (d >= 0)
            w->place[d] = before;
    }
}

/* Ranks with my coordinates on all but the `crossed` axes whose boxes of a layout meet my box. */
static void walk_boxes(walk *w, const sherd_layout *layout, unsigned crossed)
{
    const sherd__layout_spec *spec = &layout->spec;
    unsigned known = ((1u << spec->mesh->axes) - 1) & ~crossed;
    bool meets = true;

    w->mesh = spec->mesh;
    for (int i = 0; i < SHERD_MAX_AXES; i++)
        w->dim_of[i] = -1;
    clear_axes(w->at, w->maker->mine, crossed);
    for (int d = 0; d < spec->ndim; d++) {
        sherd__list_make(&w->list[d], spec->mesh, &spec->dim[d], 0, spec->shape[d]);
        for (int i = 0; i < spec->dim[d].axes; i++)
            w->dim_of[spec->dim[d].axis[i]] = d;
        w->place[d] = (sherd__place){0, 0, spec->shape[d], 0};
        meets = descend(w, d, known) && meets;
    }
    if (meets)
        visit(w, 0, known);
}

static void add_part(const walk *w)
{
    int64_t in_target[SHERD_MAX_DIMS] = {0}, in_source[SHERD_MAX_DIMS] = {0};
    int64_t size[SHERD_MAX_DIMS] = {0};

    for (int d = 0; d < w->box->ndim; d++) {
        int64_t lo = sherd__max(w->place[d].lo, w->box->offset[d]);
        size[d] = sherd__min(w->place[d].hi, w->box->offset[d] + w->box->size[d]) - lo;
        in_target[d] = lo - w->box->offset[d];
        in_source[d] = lo - w->place[d].lo;
    }
    sherd__schedule_region(w->schedule, in_target, size);
    add_pulls(w->maker, w->schedule, w->at, in_source);
}

/*
 * All but a sliced all-reduce and a partition: one region for each part of my target that one
 * source box holds.
 */
static void find_parts(const maker *m, sherd__schedule *s)
{
    walk w = {.maker = m, .schedule = s, .box = &m->target, .meet = add_part};

    walk_boxes(&w, m->step->from, m->gathered);
}

static void add_reader(const walk *w)
{
    int rank = sherd__mesh_rank_at(w->mesh, w->at);

    if (rank != w->maker->rank)
        sherd__schedule_reader(w->schedule, rank);
}

/* The converse: whose target meets my source. */
static void find_readers(const maker *m, sherd__schedule *s)
{
    walk w = {.maker = m, .schedule = s, .box = &m->source, .meet = add_reader};

    walk_boxes(&w, m->step->to, m->step->axes);
}

/* ---- the other kinds ------------------------------------------------------------------------- */

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
    } while (sherd__next(mesh, m->reduced, at) && !sherd__schedule_full(s));
}

/*
 * Partition: for a sum or product coordinate 0 of the parted axes keeps what it holds, the others
 * hold the neutral element; for the other ops all keep.
 */
static void find_keepers(const maker *m, sherd__schedule *s)
{
    const int64_t none[SHERD_MAX_DIMS] = {0};
    unsigned begun = sherd__neutral_axes(&m->change, m->step->to);
    bool keeps = true;

    for (int i = 0; begun >> i; i++)
        keeps = keeps && (!(begun >> i & 1) || m->mine[i] == 0);
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
    s->shares = sherd__step_shares(m->step, &m->change);
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
