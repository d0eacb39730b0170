/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results that a part which is run again has kept from its first run (docs/decisions/160): they lie
 * in the slots of the first run's nodes, and the call that comes next gets views of them.
 */
#include "autograd/node.h"

/* Written since, it is no longer the result. What a hook has packed is as it was. */
static bool is_stale(const sherd__kept *kept)
{
    return !kept || (kept->kept && !kept->packed && kept->kept->storage->version != kept->version);
}

bool sherd__has_results(sherd_world *world, const sherd_op *op, sherd_tensor *const *in, int ins,
                        int outs)
{
    const sherd_node *old = sherd__replay_next(world);
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
    const sherd_node *old = sherd__replay_next(world);
    sherd_tensor *t = sherd__restored(old->slot[old->ins + j], old->op->name);

    return t->storage ? sherd__new_view(t) : t;
}
