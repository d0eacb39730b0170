/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a part that is run again finds of its first run. How tensors lay that came to a module then
 * (docs/decisions/148). And results that were kept (docs/decisions/160): they lie in the slots of
 * the first run's nodes, and the call that comes next gets views of them.
 */
#include "autograd/replaying.h"

/* ---- how tensors lay ------------------------------------------------------------------------ */

static void note_found(sherd__replay *r, sherd__as_found found)
{
    sherd__as_found *list = sherd__reserve(sherd__world_heap(r->world), r->found, r->founds,
                                           &r->found_room, 16, sizeof *list);

    if (!list) {
        sherd__raise(r->world, SHERD_ENOMEM, "sherd_module_checkpoint: out of memory");
        return;
    }
    r->found = list;
    list[r->founds] = (sherd__as_found){NULL, found.dtype};
    sherd__layout_set(&list[r->founds++].layout, found.layout);
}

/* Parts that are recorded inside one that is run again note what was found the first time. */
sherd__as_found sherd__replay_find(sherd_world *world, const sherd_tensor *t)
{
    sherd__as_found found = {t->layout, t->dtype};
    sherd__replay *first = sherd__tape_of(world)->replay, *again = first;

    while (again && again->state != SHERD__REPLAY_AGAIN)
        again = again->outer;
    if (again && again->found_at < again->founds)
        found = again->found[again->found_at++];
    for (sherd__replay *r = first; r != again; r = r->outer)
        note_found(r, found);
    return found;
}

/*
 * What the part that is recomputed did next, the first time; NULL: nothing, or none is recomputed.
 */
static const sherd_node *next_of(sherd_world *world)
{
    const sherd__replay *r = sherd__tape_of(world)->replay;

    return r && r->state == SHERD__REPLAY_AGAIN && r->at < r->nodes ? r->node[r->at] : NULL;
}

bool sherd__is_replayed(sherd_world *world)
{
    const sherd__replay *r = sherd__tape_of(world)->replay;

    return r && r->state == SHERD__REPLAY_AGAIN;
}

/* ---- results that were kept ------------------------------------------------------------------ */

/* Written since, it is no longer the result. What a hook has packed is as it was. */
static bool is_stale(const sherd__kept *kept)
{
    return !kept || (kept->kept && !kept->packed && kept->kept->storage->version != kept->version);
}

bool sherd__has_results(sherd_world *world, const sherd_op *op, sherd_tensor *const *in, int ins,
                        int outs)
{
    const sherd_node *old = next_of(world);
    sherd__kept **slot = old ? &old->slot[old->ins] : NULL;
    bool all = true, any = false;

    if (!old || old->op != op || old->ins != ins || old->done || !op->backward ||
        !sherd__is_recorded(world, in, ins))
        return false;
    for (int j = 0; j < outs; j++) {
        any |= slot[j] != NULL;
        all &= !is_stale(slot[j]);
    }
    for (int j = 0; j < outs && any && !all; j++) /* they are computed, and saved anew */
        if (slot[j]) {
            sherd__refcounted_release(&slot[j]->head);
            slot[j] = NULL;
        }
    return all && outs > 0;
}

sherd_tensor *sherd__kept_result(sherd_world *world, int j)
{
    const sherd_node *old = next_of(world);
    sherd_tensor *t = sherd__restored(old->slot[old->ins + j], old->op->name);

    return t->storage ? sherd__new_view(t) : t;
}
