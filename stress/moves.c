/* SPDX-License-Identifier: Apache-2.0 */
/* What makes tensors, moves and writes them: each drawn so that what comes of it is known. */
#include "writer.h"

/* ---- out of nothing -------------------------------------------------------------------------- */

const sherd_layout *layout_of(const writer *w, int i)
{
    return w->p->layout[i].paper;
}

static bool has_average(const sherd_layout *l)
{
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(l)); a++) {
        sherd_placement q = sherd_layout_placement(l, a);
        if (q.kind == SHERD_PARTIAL && q.op == SHERD_AVG)
            return true;
    }
    return false;
}

/* A new tensor of its own storage; false where the layout has no room. */
static bool begin_new(writer *w, op_kind kind, op **out, slot_plan *what, pendings pending,
                      bool fractions)
{
    int64_t shape[DIMS];
    int mesh = any_mesh(w), ndim = any_shape(w, shape);
    sherd_dtype dtype = any_dtype(w, fractions);
    int layout = any_layout(w, mesh, ndim, shape, dtype == SHERD_BOOL ? NOTHING_PENDING : pending);

    if (layout < 0 || (has_average(layout_of(w, layout)) && !dtype_has_fractions(dtype)))
        return false;
    *what = (slot_plan){.layout = layout,
                        .mesh = w->s->mesh[mesh].whole,
                        .dtype = dtype,
                        .storage = w->storages++,
                        .writable = true,
                        .members = draw_members(w, mesh)};
    int slot = take_slot(w);
    op *o = emit(w, kind);
    o->mesh = what->mesh;
    o->members = what->members;
    o->layout[0] = layout;
    o->dtype = dtype;
    o->key = dice_next(&w->d);
    o->own = one_in(&w->d, 2);
    o->src[1] = slot; /* until it is filled */
    o->shows = true;
    *out = o;
    return true;
}

static bool end_new(writer *w, op *o, slot_plan what, int value)
{
    int slot = o->src[1];

    o->src[1] = -1;
    what.value = value;
    if (value >= 0)
        fill_slot(w, o, slot, what);
    else
        o->own = false; /* it is made and given up */
    return true;
}

bool write_constant(writer *w)
{
    slot_plan what;
    op *o;

    if (!begin_new(w, OP_CONSTANT, &o, &what, SUM_PENDING, false))
        return false;
    o->number = roll(&w->d, what.dtype == SHERD_BOOL ? 2 : 10);
    const layout_plan *l = &w->p->layout[what.layout];
    return end_new(w, o, what, value_constant(w->p, l->ndim, l->shape, o->number));
}

/* A plain tensor that is equal everywhere: an operand beside distributed ones. */
bool write_plain(writer *w)
{
    int64_t shape[DIMS];
    int ndim = any_shape(w, shape), slot = take_slot(w), number = roll(&w->d, 5);
    slot_plan what = {.layout = LAYOUT_PLAIN,
                      .mesh = -1,
                      .dtype = any_dtype(w, true),
                      .storage = w->storages++,
                      .value = value_constant(w->p, ndim, shape, number)};
    if (what.value < 0)
        return false;
    op *o = emit(w, OP_CONSTANT);
    o->number = number;
    o->own = one_in(&w->d, 2);
    fill_slot(w, o, slot, what);
    return true;
}

bool write_drawn(writer *w)
{
    slot_plan what;
    op *o;

    if (!begin_new(w, OP_DRAW, &o, &what, NOTHING_PENDING, true))
        return false;
    o->call = (uint64_t)roll(&w->d, 3);
    const layout_plan *l = &w->p->layout[what.layout];
    return end_new(w, o, what, value_drawn(w->p, l->ndim, l->shape, o->key, o->call));
}

bool write_from_local(writer *w)
{
    slot_plan what;
    op *o;

    if (!begin_new(w, OP_FROM_LOCAL, &o, &what, ANY_PENDING, false))
        return false;
    const layout_plan *l = &w->p->layout[what.layout];
    addends a = addends_of(l->paper, what.dtype);
    o->infer = (o->members || w->s->mesh[what.mesh].members == all_ranks(w)) && one_in(&w->d, 3);
    return end_new(w, o, what, value_reduced(w->p, l->ndim, l->shape, &a, o->key));
}

bool write_distribute(writer *w)
{
    slot_plan what;
    op *o;

    if (!begin_new(w, OP_DISTRIBUTE, &o, &what, NOTHING_PENDING, false))
        return false;
    const layout_plan *l = &w->p->layout[what.layout];
    addends a = addends_of(l->paper, what.dtype);
    const mesh_plan *m = &w->s->mesh[what.mesh];
    int64_t count = sherd_mesh_ranks(m->paper);
    o->root = one_in(&w->d, 2) ? -1 : m->rank[roll(&w->d, (int)count)];
    return end_new(w, o, what, value_reduced(w->p, l->ndim, l->shape, &a, o->key));
}

/* ---- moves ----------------------------------------------------------------------------------- */

/* Whether a result may share elements with what it was made of: some rank holds the same before and
 * after. */
static bool may_share(const writer *w, const sherd_layout *from, const sherd_layout *to)
{
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(from)); a++) {
        bool pends = sherd_layout_placement(from, a).kind == SHERD_PARTIAL &&
                     sherd_mesh_extent(sherd_layout_mesh(from), a) > 1;
        if (pends && (sherd_layout_mesh(to) != sherd_layout_mesh(from) ||
                      sherd_layout_placement(to, a).kind != SHERD_PARTIAL))
            return false; /* adding up makes new elements */
    }
    for (int r = 0; r < w->s->ranks; r++) {
        sherd_box x = sherd_layout_box(from, r, 0), y = sherd_layout_box(to, r, 0);
        bool same = sherd_layout_boxes(from, r) && sherd_layout_boxes(to, r);
        for (int d = 0; d < x.ndim && same; d++)
            same = x.offset[d] == y.offset[d] && x.size[d] == y.size[d] && x.size[d] > 0;
        if (same)
            return true;
    }
    return false;
}

bool can_move(const writer *w, int i, const void *what)
{
    (void)what;
    return w->slot[i].layout != LAYOUT_PLAIN;
}

/* Some axes of the target stay pending as they are in the source. */
static int keep_pending(writer *w, int from, int to)
{
    layout_plan l = w->p->layout[to];
    const sherd_layout *source = layout_of(w, from);
    bool kept = false;

    if (sherd_layout_mesh(source) != w->s->mesh[l.mesh].paper)
        return to;
    for (int a = 0; a < sherd_mesh_axes(sherd_layout_mesh(source)); a++) {
        sherd_placement q = sherd_layout_placement(source, a);
        if (q.kind != SHERD_PARTIAL || l.placement[a].kind != SHERD_REPLICATE || one_in(&w->d, 2))
            continue;
        l.placement[a] = q;
        kept = true;
    }
    l.placements[0] = '\0';
    if (!kept)
        return to;
    return layout_make(&l.paper, &l, w->s->mesh[l.mesh].paper) ? -1 : add_layout(w, &l);
}

/* A target for what a slot holds: mostly on its own mesh, or on a part of it. */
static int any_target(writer *w, int slot, bool stay)
{
    const slot_plan *from = &w->slot[slot];
    int mesh = roll(&w->d, w->s->meshes);

    for (int tries = 0; tries < 8 && w->s->mesh[mesh].whole != from->mesh; tries++) {
        if (!stay && one_in(&w->d, 6))
            break;
        mesh = roll(&w->d, w->s->meshes);
    }
    if (stay && w->s->mesh[mesh].whole != from->mesh)
        mesh = from->mesh;
    need_mesh(w, mesh);
    if (from->value < 0)
        return -1;
    const numbers *v = value_of(w, slot);
    int to = any_layout(w, mesh, v->ndim, v->shape, NOTHING_PENDING);
    return to >= 0 && from->layout >= 0 ? keep_pending(w, from->layout, to) : to;
}

/* What a move of slot `i` to a layout leaves. */
static slot_plan moved(writer *w, int i, int to)
{
    slot_plan what = w->slot[i];

    what.mesh = w->s->mesh[w->p->layout[to].mesh].whole;
    if (what.layout >= 0 && !may_share(w, layout_of(w, what.layout), layout_of(w, to)))
        what.storage = w->storages++;
    if (what.storage != w->slot[i].storage) {
        what.writable = true;
        what.shared = what.flies = false;
    }
    what.layout = to;
    return what;
}

static bool fits_dtype(const writer *w, int slot, sherd_dtype dtype)
{
    return value_of(w, slot)->bound <= dtype_limit(dtype);
}

/* Options that do not change what comes out. */
static void draw_options(writer *w, op *o, int src, bool across)
{
    o->begin = one_in(&w->d, 3);
    o->greedy = !across && one_in(&w->d, 12);
    o->dtype = w->slot[src].dtype;
    if (dtype_has_fractions(o->dtype) && one_in(&w->d, 16)) {
        sherd_dtype other = any_dtype(w, true);
        o->flag = other != o->dtype && fits_dtype(w, src, other);
        o->dtype = o->flag ? other : o->dtype;
    }
}

/* Whether a slot is to move to another layout: else it is the tensor itself, and nothing is
 * done. */
static bool is_other(const writer *w, int src, int to)
{
    return w->slot[src].layout >= 0 && layout_of(w, w->slot[src].layout) != layout_of(w, to);
}

/*
 * Whether a move to another layout is seen by all ranks of the source's mesh: also where nothing
 * travels, it is in the ledger. Between meshes it is a call of the world, which all see; but if
 * nothing travels there is none, and what a rank in neither mesh does then is nobody's business.
 */
static bool is_seen(writer *w, int src, int to)
{
    const sherd_layout *from = layout_of(w, w->slot[src].layout), *target = layout_of(w, to);
    const sherd_plan *plan;
    bool travels = false;

    if (sherd_layout_mesh(from) == sherd_layout_mesh(target))
        return true;
    if (sherd_plan_create(&plan, from, target, w->slot[src].dtype, NULL))
        return false;
    for (int i = 0; i < sherd_plan_steps(plan); i++) {
        sherd_step_kind kind = sherd_plan_step(plan, i)->kind;
        travels |= kind != SHERD_STEP_SLICE && kind != SHERD_STEP_PARTITION;
    }
    return travels;
}

/* A move of a slot to anywhere. */
static bool move_slot(writer *w, int src)
{
    int dst, to;

    to = any_target(w, src, w->slot[src].members);
    dst = take_slot(w);
    if (to < 0 || dst == src || !w->slot[src].used)
        return false;
    slot_plan what = moved(w, src, to);
    bool across = what.mesh != w->slot[src].mesh;
    op *o = emit(w, OP_MOVE);
    o->mesh = across ? -1 : what.mesh;
    o->members = what.members;
    o->src[0] = src;
    o->layout[0] = to;
    draw_options(w, o, src, across);
    bool moves = is_other(w, src, to);
    o->shows = moves && is_seen(w, src, to);
    o->stays = !moves;
    what.dtype = o->dtype;
    if (o->flag) {
        what.storage = w->storages++;
        what.shared = what.flies = false;
    }
    what.flies |= o->begin;
    /* An equal layout gives the tensor itself, which no scope then holds for this slot. */
    o->own = w->slot[src].layout < 0 || !moves || one_in(&w->d, 2);
    fill_slot(w, o, dst, what);
    return true;
}

bool write_move(writer *w)
{
    int src = pick_slot(w, can_move, NULL);

    return src >= 0 && move_slot(w, src);
}

bool can_join(const writer *w, int i, const void *what)
{
    return can_move(w, i, what) && !w->slot[i].members && w->slot[i].value >= 0;
}

bool write_many(writer *w)
{
    int wanted = 2 + roll(&w->d, LIST - 1), count = 0, src[LIST], to[LIST];

    make_room(w, LIST);
    for (int i = 0; i < wanted; i++) {
        int slot = pick_slot(w, can_join, NULL);
        int target = slot < 0 ? -1 : any_target(w, slot, false);
        if (target < 0)
            continue;
        src[count] = slot;
        to[count++] = target;
    }
    if (count == 0)
        return false;
    op *o = emit(w, OP_MANY);
    o->own = true;
    for (int i = 0; i < count; i++) {
        o->src[i] = src[i];
        o->layout[i] = to[i];
        bool moves = is_other(w, src[i], to[i]);
        o->shows |= moves && is_seen(w, src[i], to[i]);
        o->stays |= (unsigned)!moves << i;
        fill_slot(w, o, take_slot(w), moved(w, src[i], to[i]));
    }
    o->count = count;
    return true;
}

/* ---- in place -------------------------------------------------------------------------------- */

static bool can_write(const writer *w, int i, const void *what)
{
    (void)what;
    /* What shares its elements may be written on one rank, and be equal on several: then these
     * differ. */
    return w->slot[i].layout >= 0 && w->slot[i].writable && !(w->verified && w->slot[i].shared);
}

/* Others that may share the elements: given up, or nobody knows what they hold. */
static unsigned forget_sharers(writer *w, int slot)
{
    unsigned unknown = 0;

    for (int i = 0; i < SLOTS; i++) {
        if (i == slot || !w->slot[i].used || w->slot[i].storage != w->slot[slot].storage)
            continue;
        if (one_in(&w->d, 2)) {
            drop_slot(w, i);
        } else {
            w->slot[i].value = -1;
            unknown |= 1u << i;
        }
    }
    return unknown;
}

/* Some of the ranks only, where no two hold the same elements. */
static unsigned draw_writers(writer *w, int slot)
{
    const slot_plan *s = &w->slot[slot];
    const layout_plan *l = &w->p->layout[s->layout];
    unsigned members = w->s->mesh[s->mesh].members;

    if (s->value < 0 || value_of(w, slot)->kind != VALUE_KNOWN || layout_is_pending(l->paper) ||
        !layout_is_disjoint(w->s, l) || one_in(&w->d, 2))
        return members;
    return members & (unsigned)dice_next(&w->d);
}

static bool write_slot(writer *w, int slot)
{
    slot_plan *s = &w->slot[slot];
    const layout_plan *l = &w->p->layout[s->layout];
    unsigned writers = draw_writers(w, slot);
    addends a = addends_of(l->paper, s->dtype);
    uint64_t key = dice_next(&w->d);
    int value = writers == w->s->mesh[s->mesh].members
                    ? value_reduced(w->p, l->ndim, l->shape, &a, key)
                    : value_written(w->p, s->value, l, writers, &a, key);
    if (value < 0)
        return false;
    unsigned unknown = forget_sharers(w, slot);
    op *o = emit(w, OP_WRITE);
    o->unknown = unknown;
    o->value[0] = value;
    o->mesh = s->mesh;
    o->members = s->members;
    o->src[0] = slot;
    o->layout[0] = s->layout;
    o->dtype = s->dtype;
    o->key = key;
    o->writers = writers;
    s->value = value;
    s->flies = false;
    return true;
}

bool write_in_place(writer *w)
{
    int slot = pick_slot(w, can_write, NULL);

    return slot >= 0 && write_slot(w, slot);
}

/* A tensor with all its elements on one rank; its slot, or -1. */
static int write_lump(writer *w)
{
    w->lumps = true;
    bool made = write_from_local(w);
    return made ? w->p->op[w->p->ops - 1].dst[0] : -1;
}

/*
 * One storage goes to several readers, one call after the other, and is written at once; then
 * again. Where one rank holds everything, it waits for none of them but for the writing, or after
 * some sixteen calls.
 */
bool write_burst(writer *w)
{
    int slot, kept = 0, moves = one_in(&w->d, 5) ? 18 + roll(&w->d, 3) : 1 + roll(&w->d, 3);

    if (!has_room(w, moves < 18 ? 24 : 50))
        return false;
    make_room(w, 9);
    slot = moves >= 18 || one_in(&w->d, 2) ? write_lump(w) : pick_slot(w, can_write, NULL);
    for (int turn = 0; turn < 2 && slot >= 0 && can_write(w, slot, NULL); turn++) {
        for (int i = 0; i < moves && w->slot[slot].value >= 0; i++)
            if (move_slot(w, slot) && ++kept > 6)
                drop_slot(w, w->p->op[w->p->ops - 1].dst[0]);
        write_slot(w, slot);
        moves = moves < 18 ? moves : 1;
    }
    w->lumps = false;
    return slot >= 0;
}
