/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What becomes of tensors when a check fails. Ranks have stopped at different places, so they go by
 * what each has shown of its deeds (world.h), not by what this rank has done: all find the same
 * tensors lost. A tensor that not all ranks have made is gone. One that only some ranks have
 * written is *half-written*: it may not be used until it is overwritten, or declared valid as it is
 * (sherd_tensor_revive). Costs a look at every tensor, only after a failed check.
 */
#include "tensor/state.h"

static const char revive_name[] = "sherd_tensor_revive";

bool sherd__write_families(sherd_world *world, bool on)
{
    sherd__tensors *s = sherd__tensors_of(world);
    bool before = s->families;

    s->families = on;
    return before;
}

/* ---- finding them ---------------------------------------------------------------------------- */

/*
 * A tensor may be written through any view of its storage, so a write marks the identities with
 * which the view and the storage were made.
 */
static bool is_half_written(const sherd_tensor *t, const sherd_mesh *mesh)
{
    const sherd__storage *storage = t->storage;

    return sherd__deed_wrote(mesh, t->ledger.born) ||
           (storage &&
            (sherd__deed_wrote(mesh, storage->born) || sherd__deed_wrote(mesh, storage->family)));
}

static sherd__lost find(const sherd_tensor *t)
{
    const sherd_mesh *mesh = t->layout->spec.mesh;
    sherd__loss made = SHERD__KEPT, last = SHERD__KEPT;

    if (t->ledger.made) {
        last = sherd__deed_loss(t->world, mesh, t->ledger.made);
        made = t->ledger.born ? sherd__deed_loss(t->world, mesh, t->ledger.born_at) : last;
    }
    if (made == SHERD__NOT_ALL)
        return SHERD__NOT_MADE;
    return made == SHERD__DROPPED || last == SHERD__DROPPED || is_half_written(t, mesh)
               ? SHERD__HALF_WRITTEN
               : SHERD__THERE;
}

/*
 * A lost tensor gets back the identity with which it was made, since ranks may have done different
 * things with it since.
 */
void sherd__lose(sherd_world *world)
{
    for (sherd_tensor *t = sherd__tensors_of(world)->all; t; t = t->next) {
        if (t->layout && t->lost != SHERD__NOT_MADE) {
            sherd__lost now = find(t);
            t->lost = now ? now : t->lost;
        }
        if (t->lost && t->ledger.born) {
            t->ledger.identity = t->ledger.born;
            t->ledger.made = t->ledger.born_at;
        }
        if (t->storage)
            sherd__block_lose(world, t->storage->block);
    }
}

/* ---- making them valid again ----------------------------------------------------------------- */

void sherd__revive(sherd_tensor *t, bool all)
{
    for (sherd_tensor *v = sherd__tensors_of(t->world)->all; v; v = v->next)
        if (v->storage == t->storage && (all || v->lost == SHERD__HALF_WRITTEN))
            v->lost = SHERD__THERE;
    sherd__block_heal(t->storage->block);
}

static bool is_whole(const sherd_tensor *t)
{
    return t->ledger.born == t->storage->born;
}

sherd__lost sherd__overwrite_begin(sherd_tensor *t)
{
    sherd__lost was = t->lost;

    if (was == SHERD__HALF_WRITTEN && !sherd__alarmed(t->world)) {
        t->lost = SHERD__THERE;
        sherd__block_heal(t->storage->block);
    }
    return was;
}

void sherd__overwrite_done(sherd_tensor *t, sherd__lost was, bool good)
{
    if (was && !good)
        t->lost = was;
    else if (was && is_whole(t))
        sherd__revive(t, false);
}

/*
 * Make a lost tensor valid again. The contents belong to the deed that follows, the revival: if not
 * all ranks make that, the tensor is lost again.
 */
static void take_as_it_is(sherd_tensor *t)
{
    sherd__mark_written(t);
    sherd__await_deed(t);
    sherd__revive(t, false);
}

sherd_tensor *sherd_tensor_revive(sherd_tensor *t)
{
    uint64_t identity;

    if (!t)
        return NULL;
    if (sherd__alarmed(t->world) || !t->storage || t->lost == SHERD__NOT_MADE) {
        sherd__stop(t->world, revive_name, &t, 1);
        return sherd__failed(t->world);
    }
    if (!t->layout)
        return t;
    if (t->lost)
        take_as_it_is(t);
    sherd__deed_add(t->layout->spec.mesh, revive_name, t->ledger.identity, &identity);
    return t;
}

/*
 * Half-written tensors are the same on all ranks, except those that some have released, such as the
 * gradients of a step that these were through with. So it is one deed on each mesh, whatever this
 * rank has lost.
 */
int64_t sherd_tensor_revive_all(sherd_world *world)
{
    int64_t lost = 0;
    uint64_t identity;
    const sherd_mesh *mesh;

    if (!world || sherd__alarmed(world))
        return 0;
    for (const sherd_tensor *t = sherd__tensors_of(world)->all; t; t = t->next)
        lost += t->layout && t->lost == SHERD__HALF_WRITTEN;
    for (sherd_tensor *t = sherd__tensors_of(world)->all; t; t = t->next)
        if (t->layout && t->lost == SHERD__HALF_WRITTEN)
            take_as_it_is(t);
    for (int i = 0; (mesh = sherd__mesh_at(world, i)) != NULL; i++)
        (void)sherd__deed_add(mesh, "sherd_tensor_revive_all", 0, &identity);
    return lost;
}
