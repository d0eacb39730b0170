/* SPDX-License-Identifier: Apache-2.0 */
/* What looks at tensors: reads, the whole of them, single numbers, local pieces. Each compares what
 * it gets. */
#include "writer.h"

static bool can_read(const writer *w, int i, const void *what)
{
    const slot_plan *s = &w->slot[i];

    (void)what;
    return s->value >= 0 && s->layout != LAYOUT_UNKNOWN &&
           (s->layout < 0 || !layout_is_pending(layout_of(w, s->layout)));
}

bool write_read(writer *w)
{
    int slot = pick_slot(w, can_read, NULL);

    if (slot < 0)
        return false;
    op *o = emit(w, OP_READ);
    o->mesh = w->slot[slot].mesh;
    o->members = true; /* others have nothing to read */
    o->src[0] = slot;
    o->value[0] = w->slot[slot].value;
    o->dtype = w->slot[slot].dtype;
    return true;
}

bool write_full(writer *w)
{
    int src = pick_slot(w, can_move, NULL), dst;

    if (src < 0 || (dst = take_slot(w)) == src)
        return false;
    slot_plan what = w->slot[src];
    op *o = emit(w, OP_FULL);
    o->mesh = what.mesh;
    o->members = what.members;
    o->src[0] = src;
    o->own = true;
    o->shows = what.layout >= 0 && !layout_is_whole(layout_of(w, what.layout));
    what.layout = LAYOUT_PLAIN;
    what.writable = false;
    fill_slot(w, o, dst, what);
    return true;
}

static bool is_single(const writer *w, int i, const void *what)
{
    return can_join(w, i, what) && value_of(w, i)->count == 1 &&
           value_of(w, i)->kind == VALUE_KNOWN;
}

bool write_item(writer *w)
{
    int slot = pick_slot(w, is_single, NULL);

    if (slot < 0)
        return false;
    op *o = emit(w, OP_ITEM);
    o->mesh = w->slot[slot].mesh;
    o->src[0] = slot;
    o->value[0] = w->slot[slot].value;
    o->shows = w->slot[slot].layout >= 0 && !layout_is_whole(layout_of(w, w->slot[slot].layout));
    return true;
}

/* There and back: the piece remembers its layout. */
bool write_to_local(writer *w)
{
    int src = pick_slot(w, can_read, NULL), dst;

    if (src < 0 || w->slot[src].layout < 0)
        return false;
    const mesh_plan *m = &w->s->mesh[w->p->layout[w->slot[src].layout].mesh];
    if (m->paper != w->s->mesh[m->whole].paper || (dst = take_slot(w)) == src)
        return false; /* on a part of a mesh the axes have other numbers */
    slot_plan what = w->slot[src];
    op *o = emit(w, OP_TO_LOCAL);
    o->mesh = what.mesh;
    o->members = true;
    o->src[0] = src;
    o->layout[0] = what.layout;
    o->own = one_in(&w->d, 2);
    o->shows = true;
    what.members = w->s->mesh[what.mesh].members != all_ranks(w);
    fill_slot(w, o, dst, what);
    return true;
}
