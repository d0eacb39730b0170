/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One step between two meshes of a world: who receives what from whom, and the schedule of one
 * rank. Pure: any rank's schedule can be made on any rank.
 *
 * Each part of a target box that one source shard holds is one region. A rank that holds that shard
 * itself keeps its part, and nothing is sent. All others read it from a replica that is chosen so
 * that senders have equally much to send; the choice depends on the two layouts alone. If a
 * reduction is pending, all addends are pulled, in the order of the source's mesh, so that all
 * target ranks compute the same bits.
 *
 * The cost of a schedule grows with the ranks of both meshes, times the shards that it pulls if the
 * source has replicas, since a replica is known only when all readers of a shard have been dealt
 * with.
 */
#include "across.h"
#include "base/hash.h"
#include "base/num.h"

#include <string.h>

/* ---- the two sides -------------------------------------------------------------------------- */

static unsigned all_axes(const sherd_mesh *mesh)
{
    return (1u << mesh->axes) - 1;
}

/* Where a rank's place is, or an empty slot where it would be. */
static uint64_t slot_of(const sherd__side *side, int rank)
{
    uint64_t slot = sherd__hash_word(0, (uint64_t)rank) & side->last;

    while (side->place[slot] && side->mesh->ranks[side->place[slot] - 1] != rank)
        slot = (slot + 1) & side->last;
    return slot;
}

/*
 * A mesh with ranks of its own is searched for a rank; that is done once for all of them. The table
 * is as long as the mesh is large, whatever its ranks' numbers are.
 */
static bool find_places(sherd__side *side, sherd__space *space)
{
    if (!side->mesh->ranks)
        return true;
    while (side->last < 2 * (uint64_t)side->mesh->count)
        side->last = 2 * side->last + 1;
    side->place = sherd__alloc(space->heap, (size_t)side->last + 1, sizeof *side->place);
    if (!side->place)
        return false;
    for (int i = 0; i < (int)side->mesh->count; i++)
        side->place[slot_of(side, side->mesh->ranks[i])] = i + 1;
    return true;
}

/* -1: it is not in the mesh. */
static int64_t place_of(const sherd__side *side, int rank)
{
    if (side->place)
        return side->place[slot_of(side, rank)] - 1;
    return rank < side->mesh->count ? rank : -1;
}

static bool open_side(sherd__side *side, sherd__space *space, const sherd_layout *layout)
{
    const sherd__layout_spec *spec = &layout->spec;

    side->layout = layout;
    side->mesh = spec->mesh;
    side->copied = all_axes(spec->mesh) & ~layout->shard_axes & ~layout->pending_axes;
    side->copies = sherd__extent_of(spec->mesh, side->copied);
    for (int d = 0; d < spec->ndim; d++) {
        side->parts[d] = sherd__dim_parts(spec->mesh, &spec->dim[d]);
        side->cuts[d] = sherd__alloc(space->heap, (size_t)side->parts[d] + 1, sizeof(int64_t));
        if (!side->cuts[d])
            return false;
        sherd__dim_cuts(spec->mesh, &spec->dim[d], spec->shape[d], side->cuts[d]);
    }
    return find_places(side, space);
}

static void close_side(sherd__side *side, sherd__space *space)
{
    for (int d = 0; d < SHERD_MAX_DIMS; d++)
        sherd__free(space->heap, side->cuts[d]);
    sherd__free(space->heap, side->place);
}

sherd_status sherd__across_open(sherd__across *a, sherd__space *space, const sherd_layout *from,
                                const sherd_layout *to)
{
    sherd_layout settled = *from; /* it need not be interned */

    memset(a, 0, sizeof *a);
    a->space = space;
    a->ndim = from->spec.ndim;
    sherd__spec_settle(&settled.spec);
    sherd__change_find(&a->change, from, &settled);
    a->change.across = true;
    if (!open_side(&a->from, space, from) || !open_side(&a->to, space, to))
        return sherd__no_memory(space->diag, "sherd_plan_create");
    return SHERD_OK;
}

void sherd__across_close(sherd__across *a)
{
    close_side(&a->from, a->space);
    close_side(&a->to, a->space);
}

int64_t sherd__number_on(const sherd_mesh *mesh, unsigned axes, const int64_t *at)
{
    int64_t number = 0;

    for (int i = 0; i < mesh->axes; i++)
        if (axes >> i & 1)
            number = number * mesh->extent[i] + at[i];
    return number;
}

/* The converse: sets these axes of a coordinate. */
static void set_number(const sherd_mesh *mesh, unsigned axes, int64_t number, int64_t *at)
{
    for (int i = mesh->axes - 1; i >= 0; i--)
        if (axes >> i & 1) {
            at[i] = number % mesh->extent[i];
            number /= mesh->extent[i];
        }
}

static void set_shard(const sherd__side *side, const int64_t *shard, int64_t *at)
{
    const sherd__layout_spec *spec = &side->layout->spec;

    for (int d = 0; d < spec->ndim; d++) {
        int64_t number = shard[d];
        for (int i = spec->dim[d].axes - 1; i >= 0; i--) {
            int axis = spec->dim[d].axis[i];
            at[axis] = number % side->mesh->extent[axis];
            number /= side->mesh->extent[axis];
        }
    }
}

bool sherd__stand_of(sherd__stand *out, const sherd__side *side, int rank)
{
    const sherd__layout_spec *spec = &side->layout->spec;
    int64_t place = place_of(side, rank);

    memset(out, 0, sizeof *out);
    out->box.ndim = spec->ndim;
    if (place < 0)
        return false;
    set_number(side->mesh, all_axes(side->mesh), place, out->at);
    for (int d = 0; d < spec->ndim; d++) {
        for (int i = 0; i < spec->dim[d].axes; i++) {
            int axis = spec->dim[d].axis[i];
            out->shard[d] = out->shard[d] * side->mesh->extent[axis] + out->at[axis];
        }
        out->box.offset[d] = side->cuts[d][out->shard[d]];
        out->box.size[d] = side->cuts[d][out->shard[d] + 1] - out->box.offset[d];
    }
    return true;
}

/* ---- shards --------------------------------------------------------------------------------- */

/* How many of the ascending cuts[0, count) are not above `value`. */
static int64_t up_to(const int64_t *cuts, int64_t count, int64_t value)
{
    int64_t lo = 0, hi = count;

    while (lo < hi) {
        int64_t middle = lo + (hi - lo) / 2;
        if (cuts[middle] <= value)
            lo = middle + 1;
        else
            hi = middle;
    }
    return lo;
}

void sherd__shards_of(const sherd__side *side, int d, int64_t lo, int64_t hi, int64_t *first,
                      int64_t *end)
{
    const int64_t *cuts = side->cuts[d];

    *first = *end = 0;
    if (lo == hi)
        return;
    *first = up_to(cuts + 1, side->parts[d], lo); /* the first one that ends beyond lo */
    *end = up_to(cuts, side->parts[d], hi - 1);   /* all that begin before hi */
}

bool sherd__next_shard(int ndim, const int64_t *first, const int64_t *end, int64_t *shard)
{
    for (int d = ndim - 1; d >= 0; d--) {
        if (++shard[d] < end[d])
            return true;
        shard[d] = first[d];
    }
    return false;
}

static void shard_box(const sherd__side *side, const int64_t *shard, sherd_box *box)
{
    memset(box, 0, sizeof *box);
    box->ndim = side->layout->spec.ndim;
    for (int d = 0; d < box->ndim; d++) {
        box->offset[d] = side->cuts[d][shard[d]];
        box->size[d] = side->cuts[d][shard[d] + 1] - box->offset[d];
    }
}

/* The part of a box that one shard holds; false if none. */
static bool meet(const sherd__side *side, const int64_t *shard, const sherd_box *box,
                 sherd_box *out)
{
    sherd_box mine;

    shard_box(side, shard, &mine);
    return sherd__box_meet(&mine, box, out);
}

static bool same_shard(int ndim, const int64_t *a, const int64_t *b)
{
    for (int d = 0; d < ndim; d++)
        if (a[d] != b[d])
            return false;
    return true;
}

/* ---- dealing -------------------------------------------------------------------------------- */

void sherd__deal_begin(sherd__deal *deal, const sherd__across *a, const int64_t *shard,
                       sherd__load *load)
{
    sherd_box box;

    deal->across = a;
    deal->shard = shard;
    deal->load = load;
    shard_box(&a->from, shard, &box);
    for (int d = 0; d < a->ndim; d++) {
        sherd__shards_of(&a->to, d, box.offset[d], box.offset[d] + box.size[d], &deal->first[d],
                         &deal->end[d]);
        deal->next[d] = deal->first[d];
    }
    deal->next_copy = sherd__box_count(&box) == 0 ? -1 : 0;
    for (int64_t i = 0; i < a->from.copies; i++)
        load[i] = (sherd__load){0, i};
}

static bool less(const sherd__load *a, const sherd__load *b)
{
    return a->elements != b->elements ? a->elements < b->elements : a->copy < b->copy;
}

/* Give the least loaded replica more to send, and find its new place. */
static int64_t give(sherd__load *load, int64_t count, int64_t elements)
{
    sherd__load top = load[0];
    int64_t copy = top.copy, at = 0;

    top.elements += elements;
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < count && less(&load[child + 1], &load[child]))
            child++;
        if (child >= count || !less(&load[child], &top))
            break;
        load[at] = load[child];
        at = child;
    }
    load[at] = top;
    return copy;
}

/* The next target rank, and what it wants; false after the last. */
static bool next_target(sherd__deal *deal)
{
    const sherd__across *a = deal->across;
    int64_t at[SHERD_MAX_AXES] = {0};
    sherd_box box, part;

    if (deal->next_copy < 0)
        return false;
    shard_box(&a->to, deal->next, &box);
    deal->elements = meet(&a->from, deal->shard, &box, &part) ? sherd__box_count(&part) : 0;
    set_shard(&a->to, deal->next, at);
    set_number(a->to.mesh, a->to.copied, deal->next_copy, at);
    deal->rank = sherd__mesh_rank_at(a->to.mesh, at);
    if (++deal->next_copy == a->to.copies)
        deal->next_copy = sherd__next_shard(a->ndim, deal->first, deal->end, deal->next) ? 0 : -1;
    return true;
}

bool sherd__deal_next(sherd__deal *deal)
{
    const sherd__across *a = deal->across;

    do {
        if (!next_target(deal))
            return false;
    } while (deal->elements == 0);
    deal->holds = sherd__stand_of(&deal->held, &a->from, deal->rank) &&
                  same_shard(a->ndim, deal->held.shard, deal->shard);
    deal->copy = deal->holds && a->change.addends == 1
                     ? -1
                     : give(deal->load, a->from.copies, deal->elements);
    return true;
}

/* ---- the schedule of one rank --------------------------------------------------------------- */

typedef struct maker {
    sherd__across across;
    int rank;
    bool gives, takes; /* in the source's mesh, in the target's */
    sherd__stand source, target;
    sherd__load *load;
} maker;

/* Which replica of a shard this rank takes; it is among those who want it. */
static int64_t replica_for_me(const maker *m, const int64_t *shard)
{
    sherd__deal deal;

    if (m->across.from.copies == 1)
        return 0;
    sherd__deal_begin(&deal, &m->across, shard, m->load);
    while (sherd__deal_next(&deal) && deal.rank != m->rank)
        ;
    return sherd__max(deal.copy, 0);
}

/* All addends of a part, in mesh order; what this rank holds it takes from itself. */
static void add_pulls(const maker *m, sherd__schedule *s, const int64_t *shard,
                      const int64_t *offset)
{
    const sherd__across *a = &m->across;
    const sherd_mesh *mesh = a->from.mesh;
    unsigned reduced = a->change.reduced;
    bool holds = m->gives && same_shard(a->ndim, m->source.shard, shard);
    int64_t at[SHERD_MAX_AXES] = {0}, own = -1, number = 0;

    if (holds)
        own = sherd__number_on(mesh, reduced, m->source.at);
    set_shard(&a->from, shard, at);
    if (!holds || a->change.addends > 1)
        set_number(mesh, a->from.copied, replica_for_me(m, shard), at);
    do {
        int holder = number++ == own ? m->rank : sherd__mesh_rank_at(mesh, at);
        sherd__schedule_pull(s, m->rank, holder, offset);
    } while (sherd__next(mesh, reduced, at) && !sherd__schedule_full(s));
}

static void find_parts(const maker *m, sherd__schedule *s)
{
    const sherd__across *a = &m->across;
    const sherd_box *target = &m->target.box;
    int64_t first[SHERD_MAX_DIMS], end[SHERD_MAX_DIMS], shard[SHERD_MAX_DIMS] = {0};
    sherd_box box, part;

    for (int d = 0; d < a->ndim; d++) {
        sherd__shards_of(&a->from, d, target->offset[d], target->offset[d] + target->size[d],
                         &first[d], &end[d]);
        shard[d] = first[d];
    }
    if (sherd__box_count(target) == 0)
        return;
    do {
        int64_t in_target[SHERD_MAX_DIMS] = {0}, in_source[SHERD_MAX_DIMS] = {0};
        if (!meet(&a->from, shard, target, &part))
            continue;
        shard_box(&a->from, shard, &box);
        for (int d = 0; d < a->ndim; d++) {
            in_target[d] = part.offset[d] - target->offset[d];
            in_source[d] = part.offset[d] - box.offset[d];
        }
        sherd__schedule_region(s, in_target, part.size);
        add_pulls(m, s, shard, in_source);
    } while (sherd__next_shard(a->ndim, first, end, shard) && !sherd__schedule_full(s));
}

/* The converse: who takes from this rank. */
static void find_readers(const maker *m, sherd__schedule *s)
{
    const sherd__across *a = &m->across;
    const sherd_mesh *mesh = a->from.mesh;
    int64_t copy = sherd__number_on(mesh, a->from.copied, m->source.at);
    int64_t addend = sherd__number_on(mesh, a->change.reduced, m->source.at);
    sherd__deal deal;

    sherd__deal_begin(&deal, a, m->source.shard, m->load);
    while (sherd__deal_next(&deal) && !sherd__schedule_full(s)) {
        bool own = deal.holds && sherd__number_on(mesh, a->change.reduced, deal.held.at) == addend;
        if (deal.rank != m->rank && deal.copy == copy && !own)
            sherd__schedule_reader(s, deal.rank);
    }
}

static void find(sherd__schedule *s, const void *what)
{
    const maker *m = what;

    s->ndim = m->across.ndim;
    s->op = m->across.change.op;
    s->divisor = m->across.change.divisor;
    memcpy(s->source_size, m->source.box.size, sizeof s->source_size);
    memcpy(s->target_size, m->target.box.size, sizeof s->target_size);
    if (m->takes)
        find_parts(m, s);
    if (m->gives)
        find_readers(m, s);
}

sherd_status sherd__across_schedule(sherd__schedule **out, sherd__space *space,
                                    const sherd_step *step, size_t element_bytes, int rank)
{
    maker m = {.rank = rank};

    *out = NULL;
    sherd_status status = sherd__across_open(&m.across, space, step->from, step->to);
    if (status == SHERD_OK) {
        size_t copies = (size_t)m.across.from.copies;
        m.load = sherd__alloc(space->heap, copies, sizeof *m.load);
        if (!m.load)
            status = sherd__no_memory(space->diag, "sherd_plan_create");
    }
    if (status == SHERD_OK) {
        m.gives = sherd__stand_of(&m.source, &m.across.from, rank);
        m.takes = sherd__stand_of(&m.target, &m.across.to, rank);
        status = sherd__schedule_make(out, space, find, &m, rank, element_bytes);
    }
    sherd__free(space->heap, m.load);
    sherd__across_close(&m.across);
    return status;
}
