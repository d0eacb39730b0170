/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backwards that are recorded (create_graph). A backward is made of operators, which are recorded
 * as everywhere. Here is what the tape does itself on the way, recorded too: it restores saved
 * tensors, with their places in the graph; it adds gradients up, moves and casts them. Nothing is
 * added in place, since what is recorded may have saved it. Older nodes never point to newer ones,
 * so there are no cycles; but only sherd_gradients can be asked for this, since a leaf that kept
 * such a gradient would keep itself.
 */
#include "autograd/node.h"

bool sherd__makes_graph(sherd_world *world)
{
    return sherd__tape_of(world)->graph;
}

/* ---- saved tensors -------------------------------------------------------------------------- */

/* A gradient that goes back the same way: to the layout and dtype of the operand. */
static void same_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    sherd_tensor *g = sherd__settled_to(grad_out[0], sherd_node_layout(node, 0), false);

    grad_in[0] = sherd__is_failed(g) ? g : sherd__converted(g, node->in[0].dtype);
}

static const sherd_op same_op = {.name = "sherd_gradients", .backward = same_back};

sherd_tensor *sherd__record_same(sherd_tensor *y, sherd_tensor *t)
{
    if (y != t && !sherd__is_failed(y))
        sherd__record_node(t->world, &same_op, &t, 1, &y, 1, NULL, 0);
    return y;
}

sherd_tensor *sherd__alias(sherd_tensor *t)
{
    return sherd__record_same(sherd__new_view(t), t);
}

/* A leaf that has other storage by now is the same only for the graph. */
static sherd_tensor *of_leaf(sherd_tensor *leaf, sherd_tensor *restored)
{
    return leaf->storage == restored->storage ? leaf
                                              : sherd__record_same(sherd__new_view(restored), leaf);
}

sherd_tensor *sherd__linked(sherd_node *node, int slot, sherd_tensor *restored)
{
    bool operand = slot < node->ins;
    sherd_node *from = operand ? node->in[slot].node : node;
    sherd_tensor *view;

    if (sherd__is_failed(restored) || (operand && !node->in[slot].wanted) ||
        !sherd__has_fractions(restored->dtype))
        return restored;
    if (!operand && slot - node->ins >= node->outs)
        return sherd__fail_tensor(node->world, true, SHERD_EINVAL,
                                  "%s: its backward can not be differentiated (create_graph): it "
                                  "reads a hidden result",
                                  node->op->name);
    if (!from)
        return of_leaf(node->in[slot].leaf, restored);
    view = sherd__new_view(restored);
    if (!view->storage)
        return view;
    view->node = &from->head;
    from->head.refs++;
    view->output = operand ? node->in[slot].output : slot - node->ins;
    view->requires_grad = true;
    return view;
}

/* ---- what the tape computes ------------------------------------------------------------------ */

static void sum_back(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    for (int i = 0; i < 2; i++)
        if (sherd_node_wants(node, i))
            grad_in[i] = grad_out[0];
}

static const sherd_op sum_op = {
    .name = "sum of gradients", .takes_pending = true, .backward = sum_back};

sherd_tensor *sherd__record_sum(sherd_tensor *sum, sherd_tensor *a, sherd_tensor *b)
{
    sherd__record_node(sum->world, &sum_op, (sherd_tensor *[]){a, b}, 2, &sum, 1, NULL, 0);
    return sum;
}

sherd_tensor *sherd__gradient_to(sherd_tensor *g, const sherd_layout *to, bool begin)
{
    sherd_tensor *y = sherd__move_to(g, to, begin);

    return sherd__makes_graph(g->world) ? sherd__record_same(y, g) : y;
}
