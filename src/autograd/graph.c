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
#include "vector/choose.h"

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

/* A tensor in the place of result j of the node. */
static sherd_tensor *as_result(sherd_node *node, int j, sherd_tensor *restored)
{
    sherd_tensor *view = sherd__new_view(restored);

    if (!view->storage)
        return view;
    view->autograd.node = &node->head;
    node->head.refs++;
    view->autograd.output = j;
    view->autograd.requires_grad = true;
    return view;
}

static void refuse_hidden(sherd_node *node, sherd_tensor *const *grad_out, sherd_tensor **grad_in)
{
    const sherd_op *const *op = sherd_node_attributes(node);

    (void)grad_out, (void)grad_in;
    sherd__raise(node->world, SHERD_EINVAL,
                 "%s: its backward can not be differentiated (create_graph), since it reads a "
                 "hidden result: detach its result where gradients are differentiated again",
                 (*op)->name);
}

static const sherd_op hidden_op = {
    .name = "hidden result", .takes_pending = true, .backward = refuse_hidden};

/*
 * A hidden result has no place in the graph, but depends on what the others depend on: a gradient
 * that reaches it is an error.
 */
static sherd_tensor *of_hidden(sherd_node *node, sherd_tensor *restored)
{
    sherd_tensor *other = as_result(node, 0, restored);
    sherd_tensor *view = other->storage ? sherd__new_view(restored) : other;

    if (view->storage)
        sherd__record_node(node->world, &hidden_op, &other, 1, &view, 1, &node->op,
                           sizeof(sherd_op *));
    return view;
}

sherd_tensor *sherd__linked(sherd_node *node, int slot, sherd_tensor *restored)
{
    bool operand = slot < node->ins;
    sherd_node *from = operand ? node->in[slot].node : node;

    if (sherd__is_failed(restored) || (operand && !node->in[slot].wanted) ||
        !sherd__has_fractions(restored->dtype))
        return restored;
    if (!operand && slot - node->ins >= node->outs)
        return of_hidden(node, restored);
    if (!from)
        return of_leaf(node->in[slot].leaf, restored);
    return as_result(from, operand ? node->in[slot].output : slot - node->ins, restored);
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

sherd_tensor *sherd__converted(sherd_tensor *t, sherd_dtype dtype)
{
    sherd_world *world = t->world;
    sherd_tensor *from = t->dtype == dtype ? t : sherd__contiguous(t);

    if (t->dtype == dtype || !from->storage)
        return from;
    sherd__device *device = sherd__device_computes(dtype) && sherd__device_computes(t->dtype)
                                ? sherd__world_device(world)
                                : NULL;
    const void *src = device ? sherd__device_data(from) : sherd__data(from);
    sherd_tensor *y = sherd__new_like_there(t, dtype, device != NULL);
    void *dst = !y->storage || !src ? NULL : device ? sherd__device_fresh(y) : sherd__fresh(y);

    if (!dst)
        return sherd__failed(world);
    y->ledger.made = t->ledger.made; /* for the ledger it is the same tensor */
    y->ledger.identity = t->ledger.identity;
    if (device)
        sherd__device_convert(device, dtype, t->dtype, t->count, dst, src);
    else if (!sherd__left_out(world, "convert", dtype, 0,
                              sherd__local_bytes(from) + sherd__local_bytes(y)))
        sherd__convert(sherd__world_kernels(world), dtype, t->dtype, t->count, dst, src);
    if (device && !sherd__device_sound(world))
        return sherd__failed(world);
    return sherd__makes_graph(world) ? sherd__record_same(y, t) : y;
}

sherd_tensor *sherd__settled_to(sherd_tensor *grad, const sherd_layout *layout, bool begin)
{
    const sherd_layout *to;

    if (!layout)
        return grad;
    if (sherd__layout_settle(&to, layout) != SHERD_OK)
        return sherd__fail_diag(grad->world, true);
    return grad->layout == to ? grad : sherd__gradient_to(grad, to, begin);
}
