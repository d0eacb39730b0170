/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backward in two parts, for pipelines: first the gradients of the inputs of a stage, which the
 * stage before waits for, and later, when there is time, those of everything else. A node belongs
 * to the first part if one of those inputs is behind it. What else it has, weights, or what has
 * been made of weights, is the rest. An operator whose gradients share no work computes the rest in
 * the second part; what it needs for that, and the gradients of its results, are kept until then.
 * Any other operator computes all at once, and the rest is parked. Nodes that lead to no input run
 * in the second part. Both parts go through the nodes in the order of the whole, and no tensor gets
 * gradients in both, so sums have the same bits.
 */
#include "autograd/node.h"

/* ---- what is kept ---------------------------------------------------------------------------- */

/* Whether what is saved of operands is what the operator says that it needs, and nothing else. */
static bool says_needs(const sherd_op *op)
{
    bool says = op->operand[0].name != NULL;

    for (int i = 0; i < SHERD_OP_SLOTS; i++)
        says = says && !(op->operand[i].flags & SHERD_OP_REPEATED);
    return says;
}

void sherd__part_keep(sherd_node *node)
{
    uint64_t needs = 0;

    if (node->op->in_parts && !says_needs(node->op))
        return;
    for (int i = 0; i < node->ins && node->op->in_parts; i++)
        if (node->rest >> i & 1)
            needs |= node->op->needs[i];
    for (int i = 0; i < node->slots; i++) {
        sherd__kept *kept = node->slot[i];
        uint64_t bit = i < node->ins ? SHERD_NEEDS_OPERAND(i) : SHERD_NEEDS_RESULT(i - node->ins);
        if (!kept || needs & bit)
            continue;
        node->slot[i] = NULL;
        node->filled &= ~(UINT64_C(1) << i);
        sherd__refcounted_release(&kept->head);
    }
}

/* ---- what is parked -------------------------------------------------------------------------- */

bool sherd__park(sherd__pass *p, const sherd_node *node, int i, sherd_tensor *leaf,
                 sherd_tensor *grad)
{
    sherd__parked *list = sherd__reserve(sherd__world_heap(p->world), p->parked, p->parks,
                                         &p->park_room, 8, sizeof *list);

    if (!list) {
        sherd__raise(p->world, SHERD_ENOMEM, "%s: out of memory", p->function);
        return false;
    }
    p->parked = list;
    p->parked[p->parks++] = (sherd__parked){node, i, node ? NULL : sherd_tensor_retain(leaf),
                                            sherd_tensor_retain(grad)};
    return true;
}

const sherd__parked *sherd__next_parked(sherd__pass *p, const sherd_node *node)
{
    bool there = p->delivered < p->parks && p->parked[p->delivered].node == node;

    return there ? &p->parked[p->delivered++] : NULL;
}

/* ---- the second part ------------------------------------------------------------------------- */

static bool watch_leaves(sherd__pass *p, const sherd_node *node)
{
    bool good = true;

    for (int i = 0; i < node->ins && good; i++) {
        sherd_tensor *leaf = node->rest >> i & 1 ? node->in[i].leaf : NULL;
        good = !leaf || sherd__pass_watch(p, leaf);
        if (good && leaf && sherd__watched(p, &node->in[i]))
            sherd__watched(p, &node->in[i])->awaited++;
    }
    return good;
}

bool sherd__part_second(sherd__pass *p)
{
    bool good = true;

    p->part = SHERD__SECOND;
    for (int i = 0; i < p->parks && good; i++)
        good = p->parked[i].node || sherd__pass_watch(p, p->parked[i].leaf);
    for (int k = 0; k < p->nodes && good; k++) {
        sherd_node *node = p->node[k];
        if (!node)
            continue;
        good = watch_leaves(p, node);
        if (!node->needed) /* all of it is to be run */
            node->rest = 0;
        node->needed = true;
    }
    return good;
}
