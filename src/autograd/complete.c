/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients to which all uses have added: they are settled, seen by hooks, captured, and stored.
 */
#include "autograd/node.h"

/* ---- settling ------------------------------------------------------------------------------- */

/*
 * Move a gradient to the layout of the output, with pending axes replicated: if the output is
 * sharded, that is a reduce-scatter. Equal layouts, the common case, cost nothing.
 */
bool sherd__settle_output(sherd_node *node, sherd__result *out, bool begin)
{
    sherd_tensor *moved;

    if (!out->grad || !out->layout)
        return true;
    sherd__where_set(node->world, sherd__where_at(out->giver, true));
    moved = sherd__settled_to(out->grad, out->layout, begin);
    if (!moved->storage)
        return false;
    if (moved != out->grad) {
        sherd_tensor_release(out->grad);
        out->grad = sherd_tensor_retain(moved);
    }
    return true;
}

/* ---- gradients that are complete ------------------------------------------------------------ */

/* Replace a counted tensor. */
static void put(sherd_tensor **at, sherd_tensor *t)
{
    sherd_tensor *before = *at;

    *at = sherd_tensor_retain(t);
    sherd_tensor_release(before);
}

/* The gradient of a result is complete: if somebody asked for it, move it to the result's layout,
 * run the hooks on it, and store it. */
bool sherd__finish_gradient(const sherd__pass *p, sherd_node *node, sherd__result *out)
{
    sherd__watch *watch = out->watch;

    if (!out->grad || !sherd__is_watching(watch))
        return true;
    if (!sherd__settle_output(node, out, false) ||
        !sherd__watch_run(watch, &out->grad, out->layout))
        return false;
    if (watch->captured)
        put(watch->captured, out->grad);
    if (p->only || !watch->retains)
        return true;
    if (p->replaces) {
        sherd_tensor_release(watch->retained);
        watch->retained = NULL;
    }
    const sherd_tensor *before = watch->retained;
    bool good =
        sherd__add_grad(&watch->retained, out->grad) && sherd__keep_apart(p, &watch->retained);
    watch->retained_seen &= watch->retained == before;
    return good;
}

/* The gradient of this leaf is complete. */
bool sherd__finish_leaf(const sherd__pass *p, sherd__watch *watch)
{
    sherd_tensor *settled;

    if (!watch->sum)
        return true;
    settled = sherd__settled_to(watch->sum, watch->leaf->layout, false);
    if (!settled->storage)
        return false;
    put(&watch->sum, settled);
    if (!sherd__watch_run(watch, &watch->sum, watch->leaf->layout))
        return false;
    if (watch->captured)
        put(watch->captured, watch->sum);
    if (!p->only && !sherd__add_leaf_grad(p, watch->leaf, watch->sum))
        return false;
    sherd_tensor_release(watch->sum);
    watch->sum = NULL;
    return true;
}

bool sherd__finish_leaves(const sherd__pass *p, const sherd_node *node)
{
    for (int i = 0; i < node->ins && p->leaves > 0; i++) {
        sherd__watch *watch = sherd__watched(p, &node->in[i]);
        if (watch && --watch->awaited == 0 && !sherd__finish_leaf(p, watch))
            return false;
    }
    return true;
}
