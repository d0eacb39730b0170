/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node saves: the tape keeps it (saved.c), unless the node is of a part that may be run
 * again, and will compute it then. When it has, a node of the first run takes what its twin in the
 * second run saves, and drops it again after its backward.
 */
#include "autograd/replaying.h"

/* The old node that corresponds to a recomputed one, if it can still need something. */
static sherd_node *old_of(const sherd_node *node)
{
    const sherd__replay *r = node->replay;
    sherd_node *old = node->member < r->nodes ? r->node[node->member] : NULL;

    return old && !old->done && old->slots == node->slots ? old : NULL;
}

bool sherd__replay_save(sherd_node *node, int slot, sherd_tensor *t)
{
    if (!node->replay || !t->storage)
        return false;
    if (!node->again) {
        bool keeps = sherd__keeps_free(t);
        node->lacks |= !keeps;
        return !keeps;
    }
    sherd_node *old = old_of(node);
    if (old && old->lacks && !old->slot[slot]) {
        old->slot[slot] = sherd__keep(t);
        old->filled |= UINT64_C(1) << slot;
    } else if (old && old->slot[slot] && !t->autograd.moved_from) {
        sherd__saved_again(old->slot[slot], t);
    }
    return true;
}

void sherd__replay_empty(sherd_node *node)
{
    for (int i = 0; node->filled && i < node->slots; i++) {
        sherd__kept *kept = node->slot[i];
        if (!(node->filled >> i & 1))
            continue;
        node->slot[i] = NULL;
        if (kept)
            sherd__refcounted_release(&kept->head);
    }
    node->lacks |= node->filled != 0;
    node->filled = 0;
}

/* A handler that replaces the operator may have left less. */
void sherd__keep_results(sherd_node *node, sherd_tensor *const *out, int count)
{
    const sherd__replay *r = node->replay;

    if (!r || node->again || !r->what.keeps(r->what.self, node->op))
        return;
    for (int j = 0; j < count; j++) {
        sherd__kept **slot = &node->slot[node->ins + j];
        if (out[j] && out[j]->storage && !*slot && !(*slot = sherd__keep(out[j])))
            node->broken = true;
    }
}

void sherd__save(sherd_node *node, int slot, sherd_tensor *t)
{
    if (!node || !t)
        return;
    sherd__assert(sherd_world_rank(node->world), slot >= 0 && slot < node->slots);
    if (sherd__replay_save(node, slot, t))
        return;
    sherd__kept *before = node->slot[slot];
    node->slot[slot] = t->storage ? sherd__keep(t) : NULL;
    if (!node->slot[slot])
        node->broken = true;
    if (before)
        sherd__refcounted_release(&before->head);
}
